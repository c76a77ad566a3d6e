//! Replays a transcript against a program that it starts in a new directory.
//!
//! Adds what a pair of pipes does not have: files before and after, the exit code, stderr.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use process::{Grace, Spec, Tail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::names::Names;
use super::{Failure, Replay, play};
use crate::error::Error;
use crate::transcript::{Transcript, TranscriptStep, When};

/// How long the agent may take to exit after the transcript has ended and its input was closed.
const EXIT_WAIT: Duration = Duration::from_secs(5);

/// An agent that does not exit in time is terminated without further waiting.
const NO_GRACE: Grace =
    Grace { after_close: Duration::ZERO, after_term: Duration::from_millis(200) };

const STDERR_BYTES: usize = 16 * 1024;

/// The files that were prepared for the agent.
#[derive(Debug)]
pub struct ProgramSetup {
    /// The working directory, `/w` in the transcript.
    pub folder: PathBuf,
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
    program: impl FnOnce(&ProgramSetup) -> Spec,
) -> Result<Replay, Error> {
    let root = temp_dir()?;
    let setup = prepare(transcript, root.path())?;
    let mut child = process::spawn(&program(&setup))?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::AgentGone { stderr: String::new() });
    };
    let mut stderr = child.stderr.take();
    let mut tail = Tail::new(STDERR_BYTES);
    let (mut played, status) = {
        let mut replay = pin!(async {
            let played = play(transcript, &setup.folder, stdout, stdin).await;
            let status = match timeout(EXIT_WAIT, child.wait()).await {
                Ok(status) => Some(status?),
                Err(_) => None,
            };
            Ok::<_, Error>((played, status))
        });
        let mut buffer = vec![0; 4096];
        loop {
            tokio::select! {
                // Reads stderr first, so that all of it is available when the replay ends.
                biased;
                count = read_some(&mut stderr, &mut buffer) => match count {
                    0 => stderr = None,
                    count => tail.push(&buffer[..count]),
                },
                done = &mut replay => break done?,
            }
        }
    };
    if status.is_none() {
        child.end(NO_GRACE).await?;
    }
    played.stderr = tail.text();
    played.failures.extend(check_exit(transcript, status));
    played.failures.extend(check_files(transcript, &setup.folder));
    Ok(played)
}

async fn read_some(stderr: &mut Option<process::ChildStderr>, buffer: &mut [u8]) -> usize {
    match stderr {
        Some(stderr) => stderr.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

fn prepare(transcript: &Transcript, root: &Path) -> Result<ProgramSetup, Error> {
    let setup = ProgramSetup {
        folder: root.join("w"),
        script: root.join("script.acp"),
        config: transcript.config().map(|_| root.join("purlin.json")),
    };
    at(&setup.folder, std::fs::create_dir(&setup.folder))?;
    for (_, path, text) in transcript.files(When::Before) {
        let path = real_path(&setup.folder, path);
        if let Some(folder) = path.parent() {
            at(folder, std::fs::create_dir_all(folder))?;
        }
        at(&path, std::fs::write(&path, text))?;
    }
    at(&setup.script, std::fs::write(&setup.script, transcript.script(&setup.folder)))?;
    if let (Some(path), Some(config)) = (&setup.config, transcript.config()) {
        let config: Value = Names::new(&setup.folder).with_values(config);
        at(path, std::fs::write(path, config.to_string()))?;
    }
    Ok(setup)
}

fn real_path(folder: &Path, path: &str) -> PathBuf {
    folder.join(path.trim_start_matches("/w/"))
}

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|source| Error::File { path: path.to_owned(), source })
}

fn check_exit(transcript: &Transcript, status: Option<ExitStatus>) -> Option<Failure> {
    let expected = transcript.exit().unwrap_or(0);
    let got = match status {
        Some(status) if status.code() == Some(expected) => return None,
        Some(status) => status.to_string(),
        None => format!("still running {} s after its input was closed", EXIT_WAIT.as_secs()),
    };
    let lines = transcript.lines();
    let line =
        lines.iter().rfind(|line| matches!(line.step, TranscriptStep::Exit(_))).or(lines.last());
    Some(Failure {
        expected: Some(format!("exit status: {expected}")),
        got: Some(got),
        ..Failure::at(line, "unexpected exit status")
    })
}

fn check_files(transcript: &Transcript, folder: &Path) -> Vec<Failure> {
    let mut failures = Vec::new();
    for (line, path, text) in transcript.files(When::After) {
        let got = match std::fs::read_to_string(real_path(folder, path)) {
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
