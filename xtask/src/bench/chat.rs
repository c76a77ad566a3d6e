//! The terminal client on a pseudo terminal, with an agent that writes prepared lines.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::programs::Programs;
use super::pty::{DEADLINE, Pty, milliseconds};
use super::table::{Goal, Row};
use crate::program;

/// How many turns come before the memory is measured.
const TURNS: usize = 1000;

const GREEK: [&str; 8] = ["α", "β", "γ", "δ", "ε", "ζ", "η", "θ"];

/// Measures the client: its first frame, loading, memory, streaming, keys while it streams, and rest.
pub(crate) fn chat(programs: &Programs) -> Result<Vec<Row>> {
    let (mut first, mut load) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let mut client = start(programs, &[])?;
        client.wait_for("Starting the agent")?;
        first.push(milliseconds(client.started.elapsed()));
    }
    for _ in 0..10 {
        let mut client = start(programs, &["--resume", "s"])?;
        // From the answer to `initialize`, so that the start of the agent does not count.
        client.wait_for("bench 1")?;
        let begin = Instant::now();
        client.wait_for("LOADED")?;
        load.push(milliseconds(begin.elapsed()));
    }
    let mut client = start(programs, &[])?;
    client.wait_for("bench 1")?;
    for turn in 0..TURNS {
        client.type_keys(&format!("turn {turn}\r"))?;
        client.wait_for(&format!("DONE turn {turn}."))?;
    }
    let memory = client.memory()? / 1e6;
    let rest = client.processor_time()?;
    std::thread::sleep(Duration::from_secs(5));
    let rest = client.processor_time()? - rest;

    let mut client = start(programs, &[])?;
    client.wait_for("bench 1")?;
    let (keys, bytes) = stream(&mut client)?;
    let slowest = keys.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        Row::new("first frame", "ms", first).goal(Goal::AtMost(50.0)),
        Row::new("10,000 updates loaded and shown", "ms", load).goal(Goal::AtMost(300.0)),
        Row::new("resident after 1,000 turns", "MB", vec![memory]).goal(Goal::AtMost(25.0)),
        Row::new("processor time of 5 s at rest", "ms", vec![rest * 1000.0])
            .goal(Goal::AtMost(0.0)),
        Row::new("key to screen while 2,000 chunks a second arrive", "ms", keys)
            .goal(Goal::AtMost(5.0)),
        // A frame that takes longer keeps a key waiting.
        Row::new("the slowest of these keys", "ms", vec![slowest]).goal(Goal::AtMost(16.0)),
        Row::new("bytes to the terminal for a byte of text", "", vec![bytes])
            .goal(Goal::AtMost(3.0)),
    ])
}

fn start(programs: &Programs, args: &[&str]) -> Result<Pty> {
    let home = program::target()?.join("bench-chat");
    std::fs::create_dir_all(&home)?;
    let agent = program::root().join("xtask/src/bench/chat.mjs");
    let agent = format!("node {}", agent.display());
    let program = programs.purlin.display().to_string();
    let words = [&[program.as_str(), "chat", "--agent", &agent][..], args].concat();
    Pty::open(&words, &home, &home)
}

/// Types keys while the agent streams. Returns the times until each was on the screen, and how many bytes were written for each
/// byte of text.
fn stream(client: &mut Pty) -> Result<(Vec<f64>, f64)> {
    client.type_keys("stream\r")?;
    client.wait_for("some words")?;
    let (mut times, mut bytes) = (Vec::new(), 0);
    for at in 0..50 {
        // Letters that neither the text of the agent nor an escape sequence has.
        let letter = GREEK[at % GREEK.len()];
        let begin = Instant::now();
        client.type_keys(letter)?;
        let is_shown = |seen: &[u8]| seen.windows(2).any(|part| part == letter.as_bytes());
        bytes += client.count_until(is_shown, DEADLINE)?;
        times.push(milliseconds(begin.elapsed()));
        bytes += client.count_until(|_| false, Duration::from_millis(60))?;
    }
    let is_done = |seen: &[u8]| seen.windows(11).any(|part| part == b"STREAM DONE");
    bytes += client.count_until(is_done, DEADLINE)?;
    let text = 1000 * (19 * "some words ".len() + 8);
    Ok((times, bytes as f64 / text as f64))
}
