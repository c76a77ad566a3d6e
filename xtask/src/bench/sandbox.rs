//! The time that the sandbox adds to the start of a command.

use std::time::Instant;

use anyhow::Result;

use super::child::Child;
use super::programs::Programs;
use super::table::{Goal, Row};

const ROUNDS: usize = 7;
const COMMANDS: usize = 50;

/// Measures `true` with and without the sandbox, in wall time: much of the work is done by the kernel and charged to no process.
pub(crate) fn sandbox(programs: &Programs) -> Result<Vec<Row>> {
    let (mut inside, mut plain, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (with, without) = (once(programs, "sandbox")?, once(programs, "spawn")?);
        inside.push(with);
        plain.push(without);
        more.push(with - without);
    }
    Ok(vec![
        Row::new("`true`, from start to end", "ms", inside).beside("without sandbox", plain),
        Row::new("what the sandbox adds", "ms", more).goal(Goal::AtMost(8.0)),
    ])
}

/// Returns the milliseconds per command.
fn once(programs: &Programs, part: &str) -> Result<f64> {
    let arguments = [part, &COMMANDS.to_string()];
    let mut child = Child::start(&programs.in_process, &arguments, &crate::temporary::directory())?;
    child.read()?;
    let start = Instant::now();
    child.write("go")?;
    child.read()?;
    let took = start.elapsed();
    child.end()?;
    Ok(took.as_secs_f64() * 1e3 / COMMANDS as f64)
}
