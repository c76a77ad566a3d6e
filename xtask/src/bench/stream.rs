//! What a piece of text costs on its way out, for one session and for many.

use anyhow::Result;

use super::Programs;
use super::agent::{Agent, Script};
use super::child::{Child, Drained};
use super::table::{Goal, Row};

const ROUNDS: usize = 7;
const PIECES: usize = 200_000;
/// The SDK takes many times as long, so it gets fewer.
const SDK_PIECES: usize = 20_000;
/// Shared out evenly between the sessions of a run.
const SHARED_PIECES: usize = 192_000;
const SESSIONS: [usize; 3] = [1, 8, 64];

/// Measures processor time per piece from the model's event to bytes in the pipe.
pub(crate) fn outbound(programs: &Programs) -> Result<Vec<Row>> {
    let mut joined = Costs::default();
    let mut apart = Costs::default();
    let (mut lines, mut batches, mut sdk) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        joined.add(stream(programs, &Script::one_message(PIECES)?, 1, PIECES)?);
        lines.push(plain(programs, "lines")?);
        apart.add(stream(programs, &Script::apart(PIECES)?, 1, PIECES)?);
        batches.push(plain(programs, "batches")?);
        sdk.push(on_sdk(programs)?);
    }
    let lines_per_piece = Row::new("lines a piece, of one message", "", joined.lines);
    Ok(vec![
        Row::new("a piece of one message", "µs", joined.micros.clone())
            .beside("a plain loop, a write each", lines.clone())
            .goal(Goal::Times(3.0)),
        lines_per_piece,
        Row::new("a piece that cannot be joined", "µs", apart.micros.clone())
            .beside("a plain loop, a write each", lines)
            .goal(Goal::Times(3.0)),
        Row::new("lines a piece that cannot be joined", "", apart.lines),
        Row::new("a piece that cannot be joined", "µs", apart.micros.clone())
            .beside("a plain loop, 64 KiB each write", batches),
        Row::new("a piece that cannot be joined", "µs", apart.micros).beside("SDK", sdk),
    ])
}

/// Measures the same work done by one session and by many at once.
pub(crate) fn sessions(programs: &Programs) -> Result<Vec<Row>> {
    let mut joined: [Costs; 3] = Default::default();
    let mut apart: [Costs; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (index, sessions) in SESSIONS.into_iter().enumerate() {
            let pieces = SHARED_PIECES / sessions;
            joined[index].add(stream(programs, &Script::one_message(pieces)?, sessions, pieces)?);
            apart[index].add(stream(programs, &Script::apart(pieces)?, sessions, pieces)?);
        }
    }
    let mut rows = rows("a piece of one message", joined);
    rows.extend(self::rows("a piece that cannot be joined", apart));
    Ok(rows)
}

/// A row for each number of sessions. Many may cost a tenth more than one before that counts as growing.
fn rows(what: &str, costs: [Costs; 3]) -> Vec<Row> {
    let one = costs[0].micros.clone();
    let rows = SESSIONS.into_iter().zip(costs).map(|(sessions, costs)| {
        let row = Row::new(format!("{what}, {sessions} sessions"), "µs", costs.micros);
        if sessions == 1 {
            return row;
        }
        row.beside("one session", one.clone()).goal(Goal::Times(1.1))
    });
    rows.collect()
}

/// Rounds of a stream: processor time and lines, for each piece.
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

/// Lets every session run one turn at once. Returns microseconds and lines for each piece.
fn stream(
    programs: &Programs,
    script: &Script,
    sessions: usize,
    pieces: usize,
) -> Result<(f64, f64)> {
    let mut agent = Agent::purlin(programs, script)?;
    let ids = (0..sessions).map(|_| agent.open()).collect::<Result<Vec<String>>>()?;
    let before = agent.child.cpu()?;
    for session in &ids {
        agent.prompt(session, "go")?;
    }
    let drained = agent.drain(sessions)?;
    let used = agent.child.cpu()? - before;
    agent.child.end()?;
    let all = (sessions * pieces) as f64;
    Ok((used.as_secs_f64() * 1e6 / all, drained.lines as f64 / all))
}

/// Microseconds a line of the plain loop.
fn plain(programs: &Programs, how: &str) -> Result<f64> {
    let mut child = Child::start(&programs.plain_writer, &[how, &PIECES.to_string()])?;
    let before = child.cpu()?;
    child.write("go")?;
    let Drained { lines } = child.drain(1)?;
    anyhow::ensure!(lines == PIECES, "the plain loop wrote {lines} lines");
    let used = child.cpu()? - before;
    child.end()?;
    Ok(used.as_secs_f64() * 1e6 / PIECES as f64)
}

/// Microseconds a line of the agent on the SDK.
fn on_sdk(programs: &Programs) -> Result<f64> {
    let mut agent = Agent::start(&programs.echo_sdk, &[&SDK_PIECES.to_string()])?;
    agent.initialize()?;
    let session = agent.open()?;
    let before = agent.child.cpu()?;
    agent.prompt(&session, "go")?;
    let Drained { lines } = agent.drain(1)?;
    anyhow::ensure!(lines == SDK_PIECES, "the SDK wrote {lines} lines");
    let used = agent.child.cpu()? - before;
    agent.child.end()?;
    Ok(used.as_secs_f64() * 1e6 / SDK_PIECES as f64)
}
