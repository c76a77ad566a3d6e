//! A program that is measured: its pipes, processor time and memory.
//!
//! Times and sizes are read from `/proc`, where they are exact for sleeping threads. So they are read while the program waits
//! for input, and benchmarks run on Linux only.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

/// Enough to read the whole content of a pipe at once.
const READ: usize = 256 * 1024;
/// The beginning of every answer, and of no update.
const ANSWER: &str = "{\"jsonrpc\":\"2.0\",\"id\":";
/// How long threads get to become idle before their times are read.
const SETTLE: Duration = Duration::from_millis(10);

/// A running program.
pub(crate) struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
}

/// The output up to the last answer.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Drained {
    pub(crate) lines: usize,
}

impl Child {
    /// Starts a program with pipes for input and output, and without the directories of the user.
    pub(crate) fn start(program: &Path, arguments: &[&str], data: &Path) -> Result<Child> {
        Child::start_with(program, arguments, data, &[])
    }

    /// The same, with more environment variables.
    #[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
    pub(crate) fn start_with(
        program: &Path,
        arguments: &[&str],
        data: &Path,
        environment: &[(&str, &Path)],
    ) -> Result<Child> {
        let mut process = Command::new(program)
            .args(arguments)
            .env("XDG_DATA_HOME", data)
            .env("XDG_CONFIG_HOME", data)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let input = process.stdin.take();
        let output = process.stdout.take().context("the program has no stdout")?;
        let output = BufReader::with_capacity(READ, output);
        Ok(Child { process, input, output, line: Vec::new() })
    }

    /// Writes one line.
    pub(crate) fn write(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the program's input is closed")?;
        input.write_all(format!("{line}\n").as_bytes()).context("the program does not read")
    }

    /// Reads one line.
    pub(crate) fn read(&mut self) -> Result<&str> {
        self.line.clear();
        let count = self.output.read_until(b'\n', &mut self.line)?;
        anyhow::ensure!(count > 0, "the program ended before it answered");
        Ok(std::str::from_utf8(&self.line)?)
    }

    /// Reads until this many prompts are answered.
    pub(crate) fn drain(&mut self, answers: usize) -> Result<Drained> {
        let mut drained = Drained::default();
        let mut open = answers;
        while open > 0 {
            let line = self.read()?;
            if !line.starts_with(ANSWER) {
                drained.lines += 1;
                continue;
            }
            anyhow::ensure!(line.contains("\"stopReason\""), "a prompt was refused: {line}");
            open -= 1;
        }
        Ok(drained)
    }

    /// Returns the processor time of all threads of the program so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        std::thread::sleep(SETTLE);
        let mut nanoseconds = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let first = text.split(' ').next().context("schedstat is empty")?;
            nanoseconds += first.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Returns its process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns a size from the program's status, such as `VmRSS`, in bytes.
    pub(crate) fn memory(&self, name: &str) -> Result<u64> {
        std::thread::sleep(SETTLE);
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let line = line.with_context(|| format!("the kernel does not report {name}"))?;
        let kilobytes = line.trim_matches(|c: char| !c.is_ascii_digit());
        Ok(kilobytes.parse::<u64>()? * 1024)
    }

    /// Closes the program's input and waits for its end.
    pub(crate) fn end(mut self) -> Result<()> {
        self.input = None;
        self.process.wait()?;
        Ok(())
    }
}

/// Runs a program to its end with this input and ignores its output.
#[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
pub(crate) fn feed(words: &[&str], input: &str, data: &Path) -> Result<()> {
    let (program, arguments) = words.split_first().context("no program to start")?;
    let mut process = Command::new(program)
        .args(arguments)
        .env("XDG_DATA_HOME", data)
        .env("XDG_CONFIG_HOME", data)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    if let Some(mut pipe) = process.stdin.take() {
        pipe.write_all(input.as_bytes())?;
    }
    anyhow::ensure!(process.wait()?.success(), "`{}` failed", words.join(" "));
    Ok(())
}

impl Drop for Child {
    /// Kills the program if a benchmark fails half-way; after [`Child::end`] nothing is left to kill.
    fn drop(&mut self) {
        if let Err(err) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("xtask: a program under measurement could not be ended: {err}");
        }
    }
}
