//! Runs a program to its end, within limits: its time, the size of its output, and its whole process group.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// More than any answer to a person. A program that prints more is ended.
const MAX_OUTPUT: u64 = 1024 * 1024;
const POLL: Duration = Duration::from_millis(20);

/// A program to run: its words, its directory, and its environment, which is all it gets.
#[derive(Debug, Clone)]
pub(crate) struct Program<'a> {
    pub(crate) words: Vec<String>,
    pub(crate) directory: &'a Path,
    pub(crate) environment: Vec<(String, String)>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Exit {
    /// It ended by itself with this code; a signal counts as 128 and its number.
    Code(i32),
    /// It was ended because its time was over or it printed too much.
    Stopped,
}

impl Program<'_> {
    /// Runs the program and returns how and after what time it ended. Its output goes to the two files.
    pub(crate) fn run(
        &self,
        stdout: &Path,
        stderr: &Path,
        limit: Duration,
    ) -> Result<(Exit, Duration)> {
        let create =
            |path: &Path| File::create(path).with_context(|| format!("{}", path.display()));
        let start = Instant::now();
        let mut child = self
            .command()?
            .stdin(Stdio::null())
            .stdout(create(stdout)?)
            .stderr(create(stderr)?)
            .spawn()
            .with_context(|| format!("cannot start `{}`", self.words.join(" ")))?;
        let exit = loop {
            if let Some(status) = child.try_wait()? {
                break Exit::Code(code(status));
            }
            if start.elapsed() > limit || size(stdout) + size(stderr) > MAX_OUTPUT {
                break Exit::Stopped;
            }
            std::thread::sleep(POLL);
        };
        let time = start.elapsed();
        end_group(child.id());
        child.wait()?;
        Ok((exit, time))
    }

    #[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
    fn command(&self) -> Result<Command> {
        let (program, arguments) = self.words.split_first().context("no program to start")?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory).process_group(0);
        command.env_clear().envs(self.environment.iter().cloned());
        Ok(command)
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Ends what is left of a process group.
#[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
fn end_group(leader: u32) {
    let group = format!("-{leader}");
    let mut kill = Command::new("kill");
    let kill = kill.args(["-KILL", "--", &group]).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(err) = kill.status() {
        eprintln!("xtask: cannot end the processes of an agent: {err}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration) -> (Exit, String) {
        let name = format!("xtask-limited-{}-{}", std::process::id(), script.len());
        let directory = crate::temporary::directory().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let program = Program {
            words: ["sh", "-c", script].map(str::to_owned).to_vec(),
            directory: &directory,
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        };
        let [stdout, stderr] = ["out", "err"].map(|name| directory.join(name));
        let (exit, _) = program.run(&stdout, &stderr, limit).unwrap();
        let output = std::fs::read_to_string(stdout).unwrap();
        std::fs::remove_dir_all(directory).unwrap();
        (exit, output)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn program_ends_with_its_code_and_gets_no_other_environment() {
        assert_eq!(run("echo ${HOME:-none}; exit 3", LONG), (Exit::Code(3), "none\n".to_owned()));
        assert_eq!(run("kill -9 $$", LONG).0, Exit::Code(137));
    }

    #[test]
    fn endless_program_is_ended_with_its_children() {
        let (exit, output) = run("sleep 74101 & echo $!; wait", Duration::from_millis(300));
        assert_eq!(exit, Exit::Stopped);
        let child = format!("/proc/{}/cmdline", output.trim());
        let runs = || std::fs::read(&child).is_ok_and(|line| line.starts_with(b"sleep"));
        // The kernel ends a killed process soon, not at once.
        let end = Instant::now() + LONG;
        while runs() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        assert!(!runs());
        assert_eq!(run("yes", LONG).0, Exit::Stopped);
    }
}
