//! Start, memory and cancel.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::agent::{Agent, Script, Sessions};
use super::programs::Programs;
use super::table::{Goal, Row};

const STARTS: usize = 300;
const CANCELS: usize = 40;
const SESSIONS: u64 = 500;
/// The number of lines of a stream before it is cancelled.
const LINES_BEFORE: usize = 100;

/// Measures the time from the start of the process to the answer of `initialize`.
pub(crate) fn start(programs: &Programs) -> Result<Vec<Row>> {
    let mut ours = (Vec::new(), Vec::new());
    let mut sdk = (Vec::new(), Vec::new());
    // The configuration is where a user has it.
    let script = Script::write("model echo\nmodel loop\n")?;
    for _ in 0..STARTS {
        let begin = Instant::now();
        let agent = Agent::purlin(programs, &script, Sessions::Stored)?;
        push(&mut ours, begin.elapsed(), agent.child.cpu()?);
        agent.child.end()?;
        let begin = Instant::now();
        let agent = Agent::on_sdk(programs, 0)?;
        push(&mut sdk, begin.elapsed(), agent.child.cpu()?);
        agent.child.end()?;
    }
    Ok(vec![
        Row::new("spawn to answer of initialize", "ms", ours.0)
            .beside("SDK", sdk.0)
            .goal(Goal::Times(1.0)),
        Row::new("processor time until then", "ms", ours.1)
            .beside("SDK", sdk.1)
            .goal(Goal::AtMost(4.0)),
    ])
}

fn push(to: &mut (Vec<f64>, Vec<f64>), wall: Duration, cpu: Duration) {
    to.0.push(milliseconds(wall));
    to.1.push(milliseconds(cpu));
}

/// Measures the memory of the process, and of each further session.
pub(crate) fn memory(programs: &Programs) -> Result<Vec<Row>> {
    const MEGABYTE: f64 = 1_000_000.0;
    let script = Script::write("model echo\nmodel loop\n")?;
    let (mut all, mut own, mut each, mut sdk) = (vec![], vec![], vec![], vec![]);
    for _ in 0..5 {
        let mut agent = Agent::purlin(programs, &script, Sessions::Stored)?;
        agent.open()?;
        all.push(agent.child.memory("VmRSS:")? as f64 / MEGABYTE);
        let one = agent.child.memory("RssAnon:")? as f64;
        own.push(one / MEGABYTE);
        for _ in 0..SESSIONS {
            agent.open()?;
        }
        each.push((agent.child.memory("RssAnon:")? as f64 - one) / SESSIONS as f64 / 1000.0);
        agent.child.end()?;
        let mut agent = Agent::on_sdk(programs, 0)?;
        agent.open()?;
        sdk.push(agent.child.memory("VmRSS:")? as f64 / MEGABYTE);
        agent.child.end()?;
    }
    Ok(vec![
        Row::new("resident with one session", "MB", all)
            .beside("SDK", sdk)
            .goal(Goal::AtMost(10.0)),
        Row::new("of it not shared with the file of the program", "MB", own),
        Row::new("each further idle session", "kB", each).goal(Goal::AtMost(40.0)),
    ])
}

/// Measures the time between writing `session/cancel` and reading the answer of the prompt.
pub(crate) fn cancel(programs: &Programs) -> Result<Vec<Row>> {
    let flood = {
        let script = Script::one_message(100_000_000)?;
        let mut agent = Agent::purlin(programs, &script, Sessions::Stored)?;
        let session = agent.open()?;
        let times = times(CANCELS, || {
            agent.prompt(&session, "go")?;
            for _ in 0..LINES_BEFORE {
                agent.child.read()?;
            }
            cancel_once(&mut agent, &session)
        })?;
        agent.child.end()?;
        times
    };
    let script = Script::write("model text \"One moment.\"\nmodel hang\nmodel loop\n")?;
    let mut agent = Agent::purlin(programs, &script, Sessions::Stored)?;
    let mut sdk = Agent::on_sdk(programs, 0)?;
    let (session, sdk_session) = (agent.open()?, sdk.open()?);
    let (mut quiet, mut sdk_quiet) = (Vec::new(), Vec::new());
    for _ in 0..CANCELS {
        quiet.extend(times(1, || cancel_waiting(&mut agent, &session))?);
        sdk_quiet.extend(times(1, || cancel_waiting(&mut sdk, &sdk_session))?);
    }
    agent.child.end()?;
    sdk.child.end()?;
    Ok(vec![
        Row::new("a turn that waits for its model", "ms", quiet)
            .beside("SDK", sdk_quiet)
            .goal(Goal::AtMost(1.0)),
        Row::new("a turn that streams as fast as it can", "ms", flood).goal(Goal::AtMost(1.0)),
    ])
}

fn cancel_waiting(agent: &mut Agent, session: &str) -> Result<Duration> {
    agent.prompt(session, "wait")?;
    // Long enough for the turn to reach its pause, even on a busy machine.
    std::thread::sleep(Duration::from_millis(5));
    cancel_once(agent, session)
}

fn cancel_once(agent: &mut Agent, session: &str) -> Result<Duration> {
    let begin = Instant::now();
    agent.cancel(session)?;
    agent.drain(1)?;
    Ok(begin.elapsed())
}

fn times(rounds: usize, mut round: impl FnMut() -> Result<Duration>) -> Result<Vec<f64>> {
    (0..rounds).map(|_| round().map(milliseconds)).collect()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
