//! Replays a transcript against a program that it starts in a new directory.
//!
//! Adds what a pair of pipes does not have: files before and after, the exit code, stderr.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use process::{Child, ChildStdin, ChildStdout, Grace, Spec, Tail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::names::{Names, repeated};
use super::player::{Pause, Player};
use super::{Failure, PlayOptions, Replay};
use crate::error::Error;
use crate::transcript::{Transcript, TranscriptStep, When};

/// How long the agent may take to exit after the transcript has ended and its input was closed.
const EXIT_WAIT: Duration = Duration::from_secs(5);

/// How long an agent may take to exit before it is started again.
const RESTART_WAIT: Duration = Duration::from_secs(2);

/// A loose transcript that does not expect an exit does not wait long for it.
const LOOSE_EXIT_WAIT: Duration = Duration::from_millis(300);

/// An agent that does not exit in time is terminated without further waiting.
const NO_GRACE: Grace =
    Grace { after_close: Duration::ZERO, after_term: Duration::from_millis(200) };

const STDERR_BYTES: usize = 16 * 1024;

/// The files that were prepared for the agent.
#[derive(Debug)]
pub struct ProgramSetup {
    /// The working directory, `/w` in the transcript.
    pub directory: PathBuf,
    /// The transcript for the scripted model, with used files included. It is outside the working directory.
    pub script: PathBuf,
    /// The agent's configuration, if the transcript has one. It is outside the working directory.
    pub config: Option<PathBuf>,
}

/// Replays a transcript against a program: `program` returns the command to start.
///
/// Creates the files, replays the transcript, and checks the exit code (0 by default) and the files.
///
/// # Errors
/// Fails if the files cannot be created or the program cannot be started. Differences are in the result.
pub async fn play_program(
    transcript: &Transcript,
    program: impl Fn(&ProgramSetup) -> Spec,
) -> Result<Replay, Error> {
    play_program_with(transcript, PlayOptions::default(), program).await
}

/// As [`play_program`], with options. A loose transcript without `exit` accepts any exit code.
///
/// # Errors
/// As [`play_program`].
pub async fn play_program_with(
    transcript: &Transcript,
    options: PlayOptions,
    program: impl Fn(&ProgramSetup) -> Spec,
) -> Result<Replay, Error> {
    let root = temp_dir()?;
    let setup = prepare(transcript, root.path())?;
    let (mut child, stdout, stdin) = start(&program(&setup))?;
    let mut stderr = Stderr::new(child.stderr.take());
    let mut player = Player::new(transcript, options, &setup.directory, stdout, stdin);
    loop {
        match stderr.read_during(player.run()).await {
            Pause::Done => break,
            // Its input stays open: the signal alone must end it.
            Pause::Term => {
                child.terminate();
                stderr.read_during(player.drain(EXIT_WAIT)).await;
                player.must_have_ended();
            }
            pause => {
                if pause == Pause::Kill {
                    child.kill();
                }
                stderr.read_during(player.drain(RESTART_WAIT)).await;
                child.end(NO_GRACE).await?;
                let (next, stdout, stdin) = start(&program(&setup))?;
                child = next;
                stderr.pipe = child.stderr.take();
                player.attach(stdout, stdin);
            }
        }
    }
    let must_exit = transcript.must_exit();
    let wait = if must_exit { EXIT_WAIT } else { LOOSE_EXIT_WAIT };
    let mut played = stderr.read_during(player.finish()).await;
    let status = match stderr.read_during(timeout(wait, child.wait())).await {
        Ok(status) => Some(status?),
        Err(_) => None,
    };
    if status.is_none() {
        child.end(NO_GRACE).await?;
    }
    played.stderr = stderr.tail.text();
    if must_exit && played.stopped.is_none() {
        played.failures.extend(check_exit(transcript, status));
    }
    played.failures.extend(check_files(transcript, &setup.directory));
    Ok(played)
}

fn start(spec: &Spec) -> Result<(Child, ChildStdout, ChildStdin), Error> {
    let mut child = process::spawn(spec)?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::AgentGone { stderr: String::new() });
    };
    Ok((child, stdout, stdin))
}

/// The agent's stderr, and the end of what it has written.
struct Stderr {
    pipe: Option<process::ChildStderr>,
    tail: Tail,
}

impl Stderr {
    fn new(pipe: Option<process::ChildStderr>) -> Stderr {
        Stderr { pipe, tail: Tail::new(STDERR_BYTES) }
    }

    /// Reads stderr until the work is done.
    async fn read_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut buffer = vec![0; 4096];
        loop {
            tokio::select! {
                // Reads stderr first, so that all of it is available when the work ends.
                biased;
                count = read_some(&mut self.pipe, &mut buffer) => match count {
                    0 => self.pipe = None,
                    count => self.tail.push(&buffer[..count]),
                },
                done = &mut work => return done,
            }
        }
    }
}

async fn read_some(stderr: &mut Option<process::ChildStderr>, buffer: &mut [u8]) -> usize {
    match stderr {
        Some(stderr) => stderr.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

fn prepare(transcript: &Transcript, root: &Path) -> Result<ProgramSetup, Error> {
    let setup = ProgramSetup {
        directory: root.join("w"),
        script: root.join("script.acp"),
        config: transcript.config().map(|_| root.join("purlin.json")),
    };
    at(&setup.directory, std::fs::create_dir(&setup.directory))?;
    for (_, path, text) in transcript.files(When::Before) {
        let path = real_path(&setup.directory, path);
        if let Some(directory) = path.parent() {
            at(directory, std::fs::create_dir_all(directory))?;
        }
        at(&path, std::fs::write(&path, repeated(text)))?;
    }
    at(&setup.script, std::fs::write(&setup.script, transcript.script(&setup.directory)))?;
    if let (Some(path), Some(config)) = (&setup.config, transcript.config()) {
        let config: Value = Names::new(&setup.directory).with_values(config);
        at(path, std::fs::write(path, config.to_string()))?;
    }
    Ok(setup)
}

fn real_path(directory: &Path, path: &str) -> PathBuf {
    directory.join(path.trim_start_matches("/w/"))
}

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|source| Error::File { path: path.to_owned(), source })
}

fn check_exit(transcript: &Transcript, status: Option<ExitStatus>) -> Option<Failure> {
    let lines = transcript.lines();
    let line = lines.iter().rfind(|line| matches!(line.step, TranscriptStep::Exit(_)));
    let expected = match line.map(|line| &line.step) {
        Some(TranscriptStep::Exit(None)) => None,
        _ => Some(transcript.exit().unwrap_or(0)),
    };
    let got = match status {
        Some(status) if expected.is_none() || status.code() == expected => return None,
        Some(status) => status.to_string(),
        None => format!("still running {} s after its input was closed", EXIT_WAIT.as_secs()),
    };
    let expected = expected.map_or("any exit".to_owned(), |code| format!("exit status: {code}"));
    Some(Failure {
        expected: Some(expected),
        got: Some(got),
        ..Failure::at(line.or(lines.last()), "unexpected exit status")
    })
}

fn check_files(transcript: &Transcript, directory: &Path) -> Vec<Failure> {
    let mut failures = Vec::new();
    for (line, path, text) in transcript.files(When::After) {
        let got = match std::fs::read_to_string(real_path(directory, path)) {
            Ok(got) if got == text => continue,
            Ok(got) => Value::from(got).to_string(),
            Err(err) => err.to_string(),
        };
        failures.push(Failure {
            expected: Some(Value::from(text).to_string()),
            got: Some(got),
            ..Failure::at(Some(line), format!("{path} has other content"))
        });
    }
    failures
}

/// Creates a temporary directory, removed when it is dropped. Its path has no symbolic links.
pub(crate) fn temp_dir() -> Result<TempDir, Error> {
    let base = tempfile::env::temp_dir();
    let base = at(&base, base.canonicalize())?;
    at(&base, tempfile::Builder::new().prefix("purlin-").tempdir_in(&base))
}
