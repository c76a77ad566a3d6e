//! The cost of MCP servers: of servers that hang, and of a tool call.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::agent::{Agent, Script, Sessions};
use super::child::Child;
use super::programs::Programs;
use super::table::{Goal, Row};

const OPENINGS: usize = 60;
const ROUNDS: usize = 15;
/// The number of calls in a round.
const CALLS: usize = 200;

/// Measures all rows.
pub(crate) fn mcp(programs: &Programs) -> Result<Vec<Row>> {
    let mut rows = vec![open(programs)?];
    rows.extend(call(programs)?);
    Ok(rows)
}

/// Measures `session/new` with three servers that never answer, compared with none.
fn open(programs: &Programs) -> Result<Row> {
    let script = Script::write("model echo\nmodel loop\n")?;
    let mut agent = Agent::purlin(programs, &script, Sessions::Stored)?;
    let hung =
        |name: &str| json!({ "name": name, "command": "sleep", "args": ["1000"], "env": [] });
    let three = json!([hung("a"), hung("b"), hung("c")]);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..OPENINGS {
        with.push(open_once(&mut agent, &three)?);
        without.push(open_once(&mut agent, &json!([]))?);
    }
    agent.child.end()?;
    Ok(Row::new("session/new with three servers that hang", "ms", with)
        .beside("none", without)
        .goal(Goal::Times(1.2)))
}

fn open_once(agent: &mut Agent, servers: &Value) -> Result<f64> {
    let begin = Instant::now();
    let session = agent.open_in(Path::new("/tmp"), servers)?;
    let took = begin.elapsed();
    // Long enough for the servers to start and to end, so that they do not disturb the next round.
    std::thread::sleep(Duration::from_millis(20));
    agent.close(&session)?;
    std::thread::sleep(Duration::from_millis(20));
    Ok(took.as_secs_f64() * 1000.0)
}

/// Measures the processor time of a tool call, compared with a bare client: in our crate alone, and in a whole turn with
/// permissions and updates.
fn call(programs: &Programs) -> Result<Vec<Row>> {
    let call = "model tool good_echo {\"text\":\"hi\"}\n".repeat(CALLS);
    let script = Script::write(&format!("{call}model end\nmodel text \"\"\nmodel loop\n"))?;
    let mut agent = Agent::purlin(programs, &script, Sessions::InMemory)?;
    let server = programs.faulty_server.to_string_lossy();
    let servers = json!([{ "name": "good", "command": server, "args": [], "env": [] }]);
    let session = agent.open_in(Path::new("/tmp"), &servers)?;
    // The first turn waits for the server, and gets permanent permission.
    let seen = agent.allow(&session, "go")?;
    let is_done = |line: &&String| line.contains("\"status\":\"completed\"");
    anyhow::ensure!(seen.iter().filter(is_done).count() == CALLS, "not every call was made");
    let mut bare = Child::start(&programs.bare_client, &[&server], &script.directory)?;
    bare.read()?;
    let mut own = Child::start(&programs.own_client, &[&server], &script.directory)?;
    own.read()?;
    let (mut in_turns, mut alone, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = agent.child.cpu()?;
        agent.allow(&session, "go")?;
        in_turns.push(each(agent.child.cpu()? - before));
        alone.push(calls(&mut own)?);
        theirs.push(calls(&mut bare)?);
    }
    agent.child.end()?;
    own.end()?;
    bare.end()?;
    Ok(vec![
        Row::new("processor time of a call of a tool", "µs", alone)
            .beside("bare client", theirs.clone())
            .goal(Goal::Times(1.5)),
        Row::new("the same in a turn, shown and decided about", "µs", in_turns)
            .beside("bare client", theirs),
    ])
}

/// Makes a client's calls and returns the time per call.
fn calls(client: &mut Child) -> Result<f64> {
    let before = client.cpu()?;
    client.write(&CALLS.to_string())?;
    client.read()?;
    Ok(each(client.cpu()? - before))
}

fn each(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6 / CALLS as f64
}
