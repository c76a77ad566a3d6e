//! A program on a pseudo terminal, and our end of it. Answers what programs ask a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// How long anything may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(120);

/// What programs ask, and what a terminal answers.
const ANSWERS: [(&[u8], &[u8]); 5] = [
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[?u", b"\x1b[?0u"),
    (b"\x1b]10;?", b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
    (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
];

/// A program and its terminal.
pub(super) struct Pty {
    pub(super) child: Child,
    pub(super) started: Instant,
    terminal: Option<File>,
    output: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    is_closed: Arc<AtomicBool>,
}

impl Pty {
    /// Starts a program in a session of its own, whose terminal is ours.
    pub(super) fn open(words: &[&str], home: &Path, directory: &Path) -> Result<Pty> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let theirs = File::options().read(true).write(true).open(name.to_str()?)?;
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size)?;
        let terminal = File::from(ours);
        let started = Instant::now();
        // It becomes the program itself: the process is the same.
        #[expect(clippy::disallowed_methods, reason = "a chore, not the program")]
        let mut command = Command::new("setsid");
        let child = command
            .arg("--ctty")
            .args(words)
            .env("HOME", home)
            .env("TERM", "xterm-256color")
            .current_dir(directory)
            .stdin(theirs.try_clone()?)
            .stdout(theirs.try_clone()?)
            .stderr(theirs)
            .spawn()?;
        let (send, output) = channel();
        let is_closed = Arc::new(AtomicBool::new(false));
        let (reading, stop) = (terminal.try_clone()?, Arc::clone(&is_closed));
        std::thread::spawn(move || read_all(reading, &send, &stop));
        let terminal = Some(terminal);
        Ok(Pty { child, started, terminal, output, seen: Vec::new(), is_closed })
    }

    pub(super) fn type_keys(&mut self, text: &str) -> Result<()> {
        let terminal = self.terminal.as_mut().context("the terminal is closed")?;
        Ok(terminal.write_all(text.as_bytes())?)
    }

    /// Waits until a text was written, and forgets everything up to it.
    pub(super) fn wait_for(&mut self, text: &str) -> Result<()> {
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
            self.seen.extend(more.with_context(|| format!("it never wrote {text:?}"))?);
        }
    }

    /// Waits until something was written that a person sees.
    pub(super) fn first_visible(&mut self) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        while !has_letters(&self.seen) {
            let left = end.saturating_duration_since(Instant::now());
            self.seen.extend(self.output.recv_timeout(left).context("it wrote nothing")?);
        }
        Ok(())
    }

    /// Reads until something was written, or for a while. Returns the number of bytes.
    pub(super) fn count_until(
        &mut self,
        is_it: impl Fn(&[u8]) -> bool,
        limit: Duration,
    ) -> Result<usize> {
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
                Err(err) => anyhow::bail!("it wrote nothing more: {err}"),
            }
        }
    }

    /// Closes our end of the terminal, as a window does that is closed.
    pub(super) fn hang_up(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.terminal = None;
        // The reader has the other copy of our end; its last message is the end of the channel.
        while self.output.recv().is_ok() {}
    }

    /// Returns the resident memory in bytes.
    pub(super) fn memory(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        Ok(kilobytes.context("no VmRSS")?.parse::<f64>()? * 1024.0)
    }

    /// Returns the processor time in seconds.
    pub(super) fn processor_time(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, after) = stat.rsplit_once(')').context("no name in stat")?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        Ok((ticks(11).context("no utime")? + ticks(12).context("no stime")?) / 100.0)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Already ended otherwise.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Passes on what the program writes, and answers its questions, until the terminal is closed.
fn read_all(mut terminal: File, send: &Sender<Vec<u8>>, is_closed: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !is_closed.load(Ordering::Relaxed) {
        let mut polled = [PollFd::new(&terminal, PollFlags::IN)];
        match poll(&mut polled, Some(&wait)) {
            Ok(0) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        let Ok(count @ 1..) = terminal.read(&mut buffer) else { return };
        let read = &buffer[..count];
        for (asked, answer) in ANSWERS {
            if read.windows(asked.len()).any(|part| part == asked)
                && terminal.write_all(answer).is_err()
            {
                return;
            }
        }
        if send.send(read.to_vec()).is_err() {
            return;
        }
    }
}

/// Returns whether there is text outside of escape sequences.
fn has_letters(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if byte.is_ascii_alphanumeric() {
            return true;
        }
        if *byte != 0x1b {
            continue;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let length = match rest.first() {
            Some(b'[') => {
                rest[1..].iter().position(|byte| (b'@'..=b'~').contains(byte)).map(|n| n + 2)
            }
            Some(b']' | b'P' | b'_') => {
                let end = rest.iter().position(|byte| *byte == 0x07);
                let other = rest.windows(2).position(|part| part == b"\x1b\\").map(|n| n + 1);
                [end, other].into_iter().flatten().min().map(|n| n + 1)
            }
            Some(_) => Some(1),
            None => None,
        };
        match length {
            Some(length) => at += length,
            None => return false,
        }
    }
    false
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::has_letters;

    #[test]
    fn escape_sequences_are_no_text() {
        assert!(!has_letters(b"\x1b[?2004h\x1b]0;title\x07\x1b[6n\x1b]11;?\x1b\\ \r\n"));
        assert!(!has_letters(b"\x1b]0;cut"));
        assert!(has_letters(b"\x1b[1mA"));
    }
}
