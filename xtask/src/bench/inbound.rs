//! The cost of reading a message, without a pipe.

use anyhow::Result;

use super::child::Child;
use super::programs::Programs;
use super::table::{Goal, Row};

const ROUNDS: usize = 7;
const MESSAGES: usize = 300_000;

/// Measures line, envelope, pairing and typed reading of a prompt, compared with plain serde.
pub(crate) fn inbound(programs: &Programs) -> Result<Vec<Row>> {
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(once(programs, "inbound")?);
        plain.push(once(programs, "inbound-plain")?);
    }
    let row = Row::new("a prompt, from bytes to its type", "µs", ours);
    Ok(vec![row.beside("plain serde", plain).goal(Goal::Times(2.0))])
}

/// Returns the microseconds per message.
fn once(programs: &Programs, part: &str) -> Result<f64> {
    let arguments = [part, &MESSAGES.to_string()];
    let mut child = Child::start(&programs.in_process, &arguments, &crate::temporary::directory())?;
    child.read()?;
    let before = child.cpu()?;
    child.write("go")?;
    child.read()?;
    let used = child.cpu()? - before;
    child.end()?;
    Ok(used.as_secs_f64() * 1e6 / MESSAGES as f64)
}
