//! What MCP servers cost: nothing for those that hang, little for each call of a tool.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::Programs;
use super::agent::{Agent, Script, Sessions};
use super::child::Child;
use super::table::{Goal, Row};

const OPENINGS: usize = 60;
const ROUNDS: usize = 15;
/// How many calls one round makes.
const CALLS: usize = 200;

/// Measures both.
pub(crate) fn mcp(programs: &Programs) -> Result<Vec<Row>> {
    Ok(vec![open(programs)?, call(programs)?])
}

/// Measures the answer of `session/new` with three servers that never answer, beside one without servers.
fn open(programs: &Programs) -> Result<Row> {
    let script = Script::write("model echo\nmodel loop\n")?;
    let mut agent = Agent::purlin(programs, &script, Sessions::Kept)?;
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
    // Long enough for the servers to be started, and then to be gone, so that the next round is alone.
    std::thread::sleep(Duration::from_millis(20));
    agent.close(&session)?;
    std::thread::sleep(Duration::from_millis(20));
    Ok(took.as_secs_f64() * 1000.0)
}

/// Measures the processor time of one call of a tool, with all that is shown of it, beside a bare client.
fn call(programs: &Programs) -> Result<Row> {
    let call = "model tool good_echo {\"text\":\"hi\"}\n".repeat(CALLS);
    let script = Script::write(&format!("{call}model end\nmodel text \"\"\nmodel loop\n"))?;
    let mut agent = Agent::purlin(programs, &script, Sessions::Forgotten)?;
    let server = programs.faulty_server.to_string_lossy();
    let servers = json!([{ "name": "good", "command": server, "args": [], "env": [] }]);
    let session = agent.open_in(Path::new("/tmp"), &servers)?;
    // The first turn waits for the server, and is allowed for good.
    let seen = agent.allow(&session, "go")?;
    let is_done = |line: &&String| line.contains("\"status\":\"completed\"");
    anyhow::ensure!(seen.iter().filter(is_done).count() == CALLS, "not every call was made");
    let mut bare = Child::start(&programs.bare_client, &[&server], &script.folder)?;
    bare.read()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = agent.child.cpu()?;
        agent.allow(&session, "go")?;
        ours.push(each(agent.child.cpu()? - before));
        let before = bare.cpu()?;
        bare.write(&CALLS.to_string())?;
        bare.read()?;
        theirs.push(each(bare.cpu()? - before));
    }
    agent.child.end()?;
    bare.end()?;
    Ok(Row::new("processor time of a call of a tool", "µs", ours)
        .beside("bare client", theirs)
        .goal(Goal::Times(1.5)))
}

fn each(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6 / CALLS as f64
}
