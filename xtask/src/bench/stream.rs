//! The cost of a text chunk on its way out, for one session and for many.

use anyhow::Result;

use super::agent::{Agent, Script, Sessions};
use super::child::{Child, Drained};
use super::programs::Programs;
use super::table::{Goal, Row};

const ROUNDS: usize = 7;
const CHUNKS: usize = 200_000;
/// The SDK takes many times as long, so it gets fewer chunks.
const SDK_CHUNKS: usize = 20_000;
/// Distributed evenly over the sessions of a run; enough that the fixed cost of a turn does not matter.
const SHARED_CHUNKS: usize = 1_536_000;
/// The same with stored sessions, which takes longer.
const STORED_CHUNKS: usize = 192_000;
const SESSIONS: [usize; 3] = [1, 8, 64];

/// Measures the processor time per chunk, from the model's event to bytes in the pipe.
pub(crate) fn outbound(programs: &Programs) -> Result<Vec<Row>> {
    let mut joined: [Costs; 2] = Default::default();
    let mut separate: [Costs; 2] = Default::default();
    let (mut lines, mut batches, mut sdk) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (index, sessions) in [Sessions::Stored, Sessions::InMemory].into_iter().enumerate() {
            let run = |script| stream(programs, &script, sessions, 1, CHUNKS);
            joined[index].add(run(Script::one_message(CHUNKS)?)?);
            separate[index].add(run(Script::alternating(CHUNKS)?)?);
        }
        lines.push(plain(programs, "lines")?);
        batches.push(plain(programs, "batches")?);
        sdk.push(on_sdk(programs)?);
    }
    let [stored_joined, joined] = joined;
    let [stored_separate, separate] = separate;
    let row = |what: &str, costs: &Costs| Row::new(what, "µs", costs.micros.clone());
    let by_line =
        |row: Row| row.beside("a plain loop, a write each", lines.clone()).goal(Goal::Times(3.0));
    Ok(vec![
        by_line(row("a text chunk of one message, not stored", &joined)),
        by_line(row("a text chunk that cannot be joined, not stored", &separate)),
        row("a text chunk that cannot be joined, not stored", &separate)
            .beside("a plain loop, 64 KiB each write", batches),
        by_line(row("a text chunk of one message, stored", &stored_joined)),
        by_line(row("a text chunk that cannot be joined, stored", &stored_separate)),
        row("a text chunk that cannot be joined, stored", &stored_separate).beside("SDK", sdk),
        Row::new("a text chunk of one message, not stored", "lines", joined.lines),
        Row::new("a text chunk of one message, stored", "lines", stored_joined.lines),
        Row::new("a text chunk that cannot be joined, stored", "lines", stored_separate.lines),
    ])
}

/// Measures the same work done by one session and by many in parallel.
pub(crate) fn sessions(programs: &Programs) -> Result<Vec<Row>> {
    let mut joined: [Costs; 3] = Default::default();
    let mut separate: [Costs; 3] = Default::default();
    let mut stored: [Costs; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (index, sessions) in SESSIONS.into_iter().enumerate() {
            let chunks = SHARED_CHUNKS / sessions;
            let run = |script| stream(programs, &script, Sessions::InMemory, sessions, chunks);
            joined[index].add(run(Script::one_message(chunks)?)?);
            separate[index].add(run(Script::alternating(chunks)?)?);
            let chunks = STORED_CHUNKS / sessions;
            let script = Script::alternating(chunks)?;
            stored[index].add(stream(programs, &script, Sessions::Stored, sessions, chunks)?);
        }
    }
    let mut rows = rows("a text chunk of one message, not stored", joined);
    rows.extend(self::rows("a text chunk that cannot be joined, not stored", separate));
    rows.extend(self::rows("a text chunk that cannot be joined, stored", stored));
    Ok(rows)
}

/// Returns a row for each number of sessions. Many may cost a tenth more than one.
fn rows(what: &str, costs: [Costs; 3]) -> Vec<Row> {
    let one = costs[0].micros.clone();
    let rows = SESSIONS.into_iter().zip(costs).map(|(sessions, costs)| {
        let row = |many: &str| Row::new(format!("{what}, {sessions} {many}"), "µs", costs.micros);
        if sessions == 1 {
            return row("session");
        }
        row("sessions").beside("one session", one.clone()).goal(Goal::Times(1.1))
    });
    rows.collect()
}

/// Returns rounds of a stream: processor time and lines per chunk.
#[derive(Debug, Default)]
struct Costs {
    micros: Vec<f64>,
    lines: Vec<f64>,
}

impl Costs {
    fn add(&mut self, (micros, lines): (f64, f64)) {
        self.micros.push(micros);
        self.lines.push(lines);
    }
}

/// Runs one turn in every session in parallel. Returns microseconds and lines per chunk.
fn stream(
    programs: &Programs,
    script: &Script,
    save: Sessions,
    sessions: usize,
    chunks: usize,
) -> Result<(f64, f64)> {
    let mut agent = Agent::purlin(programs, script, save)?;
    let ids = (0..sessions).map(|_| agent.open()).collect::<Result<Vec<String>>>()?;
    let before = agent.child.cpu()?;
    for session in &ids {
        agent.prompt(session, "go")?;
    }
    let drained = agent.drain(sessions)?;
    let used = agent.child.cpu()? - before;
    agent.child.end()?;
    let all = (sessions * chunks) as f64;
    Ok((used.as_secs_f64() * 1e6 / all, drained.lines as f64 / all))
}

/// Returns the microseconds per line of the plain loop.
fn plain(programs: &Programs, how: &str) -> Result<f64> {
    let arguments = [how, &CHUNKS.to_string()];
    let mut child =
        Child::start(&programs.plain_writer, &arguments, &crate::temporary::directory())?;
    let before = child.cpu()?;
    child.write("go")?;
    let Drained { lines } = child.drain(1)?;
    anyhow::ensure!(lines == CHUNKS, "the plain loop wrote {lines} lines");
    let used = child.cpu()? - before;
    child.end()?;
    Ok(used.as_secs_f64() * 1e6 / CHUNKS as f64)
}

/// Returns the microseconds per line of the agent built on the SDK.
fn on_sdk(programs: &Programs) -> Result<f64> {
    let mut agent = Agent::on_sdk(programs, SDK_CHUNKS)?;
    let session = agent.open()?;
    let before = agent.child.cpu()?;
    agent.prompt(&session, "go")?;
    let Drained { lines } = agent.drain(1)?;
    anyhow::ensure!(lines == SDK_CHUNKS, "the SDK wrote {lines} lines");
    let used = agent.child.cpu()? - before;
    agent.child.end()?;
    Ok(used.as_secs_f64() * 1e6 / SDK_CHUNKS as f64)
}
