//! The terminal client on a pseudo terminal, with an agent that writes prepared lines.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::programs::Programs;
use super::table::{Goal, Row};
use crate::program;

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// How many turns come before the memory is measured.
const TURNS: usize = 1000;

const GREEK: [&str; 8] = ["α", "β", "γ", "δ", "ε", "ζ", "η", "θ"];

/// Measures the client: its first frame, loading, memory, streaming, keys while it streams, and rest.
pub(crate) fn chat(programs: &Programs) -> Result<Vec<Row>> {
    let (mut first, mut load) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let mut client = Client::start(programs, &[])?;
        client.wait_for("Starting the agent")?;
        first.push(milliseconds(client.started.elapsed()));
    }
    for _ in 0..10 {
        let mut client = Client::start(programs, &["--resume", "s"])?;
        // From the answer to `initialize`, so that the start of the agent does not count.
        client.wait_for("bench 1")?;
        let begin = Instant::now();
        client.wait_for("LOADED")?;
        load.push(milliseconds(begin.elapsed()));
    }
    let mut client = Client::start(programs, &[])?;
    client.wait_for("bench 1")?;
    for turn in 0..TURNS {
        client.type_keys(&format!("turn {turn}\r"))?;
        client.wait_for(&format!("DONE turn {turn}."))?;
    }
    let memory = client.memory()? / 1e6;
    let rest = client.processor_time()?;
    std::thread::sleep(Duration::from_secs(5));
    let rest = client.processor_time()? - rest;

    let mut client = Client::start(programs, &[])?;
    client.wait_for("bench 1")?;
    let (keys, bytes) = client.stream()?;
    Ok(vec![
        Row::new("first frame", "ms", first).goal(Goal::AtMost(50.0)),
        Row::new("10,000 updates loaded and shown", "ms", load).goal(Goal::AtMost(300.0)),
        Row::new("resident after 1,000 turns", "MB", vec![memory]).goal(Goal::AtMost(25.0)),
        Row::new("processor time of 5 s at rest", "ms", vec![rest * 1000.0])
            .goal(Goal::AtMost(0.0)),
        Row::new("key to screen while 2,000 chunks a second arrive", "ms", keys)
            .goal(Goal::AtMost(5.0)),
        Row::new("bytes to the terminal for a byte of text", "", vec![bytes])
            .goal(Goal::AtMost(3.0)),
    ])
}

/// The client and our end of its terminal.
struct Client {
    child: Child,
    terminal: File,
    output: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    started: Instant,
}

impl Client {
    fn start(programs: &Programs, args: &[&str]) -> Result<Client> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let theirs = File::options().read(true).write(true).open(name.to_str()?)?;
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size)?;
        let home = program::target()?.join("bench-chat");
        std::fs::create_dir_all(&home)?;
        let agent = program::root().join("xtask/src/bench/chat.mjs");
        let terminal = File::from(ours);
        let started = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "a chore, not the program")]
        let mut command = Command::new(&programs.purlin);
        let child = command
            .arg("chat")
            .args(["--agent", &format!("node {}", agent.display())])
            .args(args)
            .env("HOME", &home)
            .env("TERM", "xterm-256color")
            .current_dir(&home)
            .stdin(theirs.try_clone()?)
            .stdout(theirs.try_clone()?)
            .stderr(theirs)
            .spawn()?;
        let (send, output) = channel();
        let mut reading = terminal.try_clone()?;
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = reading.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Client { child, terminal, output, seen: Vec::new(), started })
    }

    fn type_keys(&mut self, text: &str) -> Result<()> {
        Ok(self.terminal.write_all(text.as_bytes())?)
    }

    /// Waits until a text was written, and forgets everything up to it.
    fn wait_for(&mut self, text: &str) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        loop {
            let found = self.seen.windows(text.len()).position(|part| part == text.as_bytes());
            if let Some(at) = found {
                self.seen.drain(..at + text.len());
                return Ok(());
            }
            let keep = self.seen.len().saturating_sub(64 * 1024);
            self.seen.drain(..keep);
            let left = end.saturating_duration_since(Instant::now());
            let more = self.output.recv_timeout(left);
            self.seen.extend(more.with_context(|| format!("the client never wrote {text:?}"))?);
        }
    }

    /// Types keys while the agent streams. Returns the times until each was on the screen, and how many bytes were written for each
    /// byte of text.
    fn stream(&mut self) -> Result<(Vec<f64>, f64)> {
        self.type_keys("stream\r")?;
        self.wait_for("some words")?;
        let (mut times, mut bytes) = (Vec::new(), 0);
        for at in 0..50 {
            // Letters that neither the text of the agent nor an escape sequence has.
            let letter = GREEK[at % GREEK.len()];
            let begin = Instant::now();
            self.type_keys(letter)?;
            let is_shown = |seen: &[u8]| seen.windows(2).any(|part| part == letter.as_bytes());
            bytes += self.count_until(is_shown, DEADLINE)?;
            times.push(milliseconds(begin.elapsed()));
            bytes += self.count_until(|_| false, Duration::from_millis(60))?;
        }
        let is_done = |seen: &[u8]| seen.windows(11).any(|part| part == b"STREAM DONE");
        bytes += self.count_until(is_done, DEADLINE)?;
        let text = 1000 * (19 * "some words ".len() + 8);
        Ok((times, bytes as f64 / text as f64))
    }

    /// Reads until something was written, or for a while. Returns the number of bytes.
    fn count_until(&mut self, is_it: impl Fn(&[u8]) -> bool, limit: Duration) -> Result<usize> {
        let (end, mut count) = (Instant::now() + limit, 0);
        loop {
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(part) => {
                    count += part.len();
                    if is_it(&part) {
                        return Ok(count);
                    }
                }
                Err(RecvTimeoutError::Timeout) if limit < DEADLINE => return Ok(count),
                Err(err) => anyhow::bail!("the client wrote nothing more: {err}"),
            }
        }
    }

    /// Returns the resident memory in bytes.
    fn memory(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        Ok(kilobytes.context("no VmRSS")?.parse::<f64>()? * 1024.0)
    }

    /// Returns the processor time in seconds.
    fn processor_time(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, after) = stat.rsplit_once(')').context("no name in stat")?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        Ok((ticks(11).context("no utime")? + ticks(12).context("no stime")?) / 100.0)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Already ended otherwise.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
