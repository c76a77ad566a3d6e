//! The cost of a model's answer from a server to the client, compared with a relay that does nothing else.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::agent::{Agent, TEXT_CHUNK};
use super::child::Child;
use super::programs::Programs;
use super::table::{Goal, Row};

const ROUNDS: usize = 7;
const CHUNKS: usize = 20_000;
/// How long the silent server waits before its answer.
const SILENCE: Duration = Duration::from_millis(400);

/// Measures chunks from the fake server through Purlin, which stores its sessions, and through the relay.
pub(crate) fn model(programs: &Programs) -> Result<Vec<Row>> {
    let mut ours = Streamed::default();
    let mut relay = Streamed::default();
    let (mut first, mut relay_first, mut peak, mut second) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        // Distinct chunks: an answer that repeats itself would be stopped.
        let script = format!("chunks {CHUNKS} \"{{n}} {TEXT_CHUNK}\"\n---\nloop\n");
        let server = Server::start(programs, &script)?;
        let (mut agent, session) = server.agent(programs)?;
        ours.add(&mut agent.child, |child| {
            prompt(child, &session)?;
            child.drain(1).map(drop)
        })?;
        peak.push(agent.child.memory("VmHWM:")? as f64 / 1e6);
        agent.child.end()?;
        let mut child = server.relay(programs)?;
        relay.add(&mut child, |child| {
            child.write("go")?;
            child.drain(1).map(drop)
        })?;
        child.end()?;

        let server =
            Server::start(programs, "text \"first\"\nwait 50\ntext \"last\"\n---\nloop\n")?;
        let (mut agent, session) = server.agent(programs)?;
        first.push(to_first(&mut agent.child, |child| prompt(child, &session))?);
        agent.child.end()?;
        let mut child = server.relay(programs)?;
        relay_first.push(to_first(&mut child, |child| child.write("go"))?);
        child.end()?;
        second.push(before_asking(programs)?);
    }
    Ok(vec![
        Row::new("a chunk from the server to the pipe, processor time", "µs", ours.cpu)
            .beside("relay", relay.cpu)
            .goal(Goal::Times(3.0)),
        Row::new("the same, wall time", "µs", ours.wall)
            .beside("relay", relay.wall)
            .goal(Goal::Times(3.0)),
        Row::new("prompt to first chunk", "ms", first)
            .beside("relay", relay_first)
            .goal(Goal::Times(4.0)),
        Row::new("a second turn until the model is asked, processor time", "ms", second)
            .goal(Goal::AtMost(1.0)),
        Row::new("most memory in a turn of 20,000 chunks", "MB", peak).goal(Goal::AtMost(16.0)),
    ])
}

/// Returns the microseconds per chunk.
#[derive(Default)]
struct Streamed {
    cpu: Vec<f64>,
    wall: Vec<f64>,
}

impl Streamed {
    fn add(
        &mut self,
        child: &mut Child,
        turn: impl FnOnce(&mut Child) -> Result<()>,
    ) -> Result<()> {
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / CHUNKS as f64;
        let before = child.cpu()?;
        let begin = Instant::now();
        turn(child)?;
        self.wall.push(micros(begin.elapsed()));
        self.cpu.push(micros(child.cpu()? - before));
        Ok(())
    }
}

fn prompt(child: &mut Child, session: &str) -> Result<()> {
    let params =
        serde_json::json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] });
    let call = serde_json::json!({ "jsonrpc": "2.0", "id": 90, "method": "session/prompt", "params": params });
    child.write(&call.to_string())
}

/// Returns the milliseconds from a prompt to the first chunk of the answer, on a reused connection.
fn to_first(child: &mut Child, ask: impl Fn(&mut Child) -> Result<()>) -> Result<f64> {
    ask(child)?;
    child.drain(1)?;
    let begin = Instant::now();
    ask(child)?;
    while !child.read()?.contains("agent_message_chunk") {}
    let time = begin.elapsed().as_secs_f64() * 1e3;
    child.drain(1)?;
    Ok(time)
}

/// Returns the milliseconds of processor time from a second prompt until its request is sent and nothing has come back.
fn before_asking(programs: &Programs) -> Result<f64> {
    let script = format!("text \"one\"\n---\nwait {}\ntext \"two\"\n", SILENCE.as_millis());
    let server = Server::start(programs, &script)?;
    let (mut agent, session) = server.agent(programs)?;
    prompt(&mut agent.child, &session)?;
    agent.child.drain(1)?;
    let before = agent.child.cpu()?;
    prompt(&mut agent.child, &session)?;
    std::thread::sleep(SILENCE / 4);
    let used = agent.child.cpu()? - before;
    agent.child.drain(1)?;
    agent.child.end()?;
    Ok(used.as_secs_f64() * 1e3)
}

/// A fake server with a script, and a configuration for it.
struct Server {
    _child: Child,
    address: String,
    directory: PathBuf,
}

impl Server {
    fn start(programs: &Programs, script: &str) -> Result<Server> {
        let directory = crate::temporary::directory()
            .join(format!("purlin-bench-model-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let file = directory.join("script");
        std::fs::write(&file, script)?;
        let file = file.to_str().context("the folder for temporary files is not UTF-8")?;
        let mut child = Child::start(&programs.fake_model, &[file], &directory)?;
        let address = child.read()?.trim().trim_start_matches("http://").to_owned();
        let config = serde_json::json!({
            "limits": { "updates_per_minute": 0, "prompts_per_minute": 0 },
            "model": "fake/fake",
            "provider": { "fake": {
                "npm": "@ai-sdk/openai-compatible",
                "options": { "baseURL": format!("http://{address}/v1") },
                "models": { "fake": { "limit": { "context": 10_000_000 } } },
            } },
        });
        std::fs::write(directory.join("purlin.json"), config.to_string())?;
        Ok(Server { _child: child, address, directory })
    }

    /// Starts Purlin with one stored session.
    fn agent(&self, programs: &Programs) -> Result<(Agent, String)> {
        let config = self.directory.join("purlin.json");
        let config = config.to_str().context("the folder for temporary files is not UTF-8")?;
        let mut agent =
            Agent::start(&programs.purlin, &["acp", "--config", config], &self.directory)?;
        let session = agent.open()?;
        Ok((agent, session))
    }

    fn relay(&self, programs: &Programs) -> Result<Child> {
        Child::start(&programs.plain_relay, &[&self.address], &self.directory)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `Child` ends the server; its files are not needed any more.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}
