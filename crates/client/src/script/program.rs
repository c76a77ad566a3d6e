//! Plays a transcript against a program that it starts in a fresh folder.
//!
//! Adds what a pair of pipes does not have: files before and after, the exit code, the error output.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use process::{Grace, Spec, Tail};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::names::Names;
use super::{Failure, Played, play};
use crate::error::Error;
use crate::transcript::{Step, Transcript, When};

/// How long the agent has to end when the transcript is over and its input is closed.
const ENDING: Duration = Duration::from_secs(5);

/// An agent that does not end in time is not asked a second time.
const NO_GRACE: Grace =
    Grace { after_close: Duration::ZERO, after_term: Duration::from_millis(200) };

const STDERR_BYTES: usize = 16 * 1024;

/// What is laid out for the agent.
#[derive(Debug)]
pub struct Stage {
    /// The working folder, `/w` in the transcript.
    pub folder: PathBuf,
    /// The transcript for the scripted model, used files in their places. Lies outside the working folder.
    pub script: PathBuf,
    /// The agent's configuration, if the transcript has one. Lies outside the working folder.
    pub config: Option<PathBuf>,
}

/// Plays a transcript against a program: `program` says how to start it on the given stage.
///
/// Lays out the files, plays, and checks the exit code (0 if the transcript does not say) and the files.
///
/// # Errors
/// Fails if the stage cannot be set or the program not be started; what the program does wrong is in the
/// result.
pub async fn play_program(
    transcript: &Transcript,
    program: impl FnOnce(&Stage) -> Spec,
) -> Result<Played, Error> {
    let root = TempFolder::new()?;
    let stage = set_stage(transcript, root.path())?;
    let mut child = process::spawn(&program(&stage))?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::AgentGone { stderr: String::new() });
    };
    let mut stderr = child.stderr.take();
    let mut tail = Tail::new(STDERR_BYTES);
    let (mut played, status) = {
        let mut story = pin!(async {
            let played = play(transcript, &stage.folder, stdout, stdin).await;
            let status = match timeout(ENDING, child.wait()).await {
                Ok(status) => Some(status?),
                Err(_) => None,
            };
            Ok::<_, Error>((played, status))
        });
        let mut buffer = vec![0; 4096];
        loop {
            tokio::select! {
                // First what was said, so that the last words are there when the story ends.
                biased;
                count = read_some(&mut stderr, &mut buffer) => match count {
                    0 => stderr = None,
                    count => tail.push(&buffer[..count]),
                },
                done = &mut story => break done?,
            }
        }
    };
    if status.is_none() {
        child.end(NO_GRACE).await?;
    }
    played.stderr = tail.text();
    played.failures.extend(check_exit(transcript, status));
    played.failures.extend(check_files(transcript, &stage.folder));
    Ok(played)
}

async fn read_some(stderr: &mut Option<process::ChildStderr>, buffer: &mut [u8]) -> usize {
    match stderr {
        Some(stderr) => stderr.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

fn set_stage(transcript: &Transcript, root: &Path) -> Result<Stage, Error> {
    let stage = Stage {
        folder: root.join("w"),
        script: root.join("script.acp"),
        config: transcript.config().map(|_| root.join("purlin.json")),
    };
    at(&stage.folder, std::fs::create_dir(&stage.folder))?;
    for (_, path, text) in transcript.files(When::Before) {
        let path = real_path(&stage.folder, path);
        if let Some(folder) = path.parent() {
            at(folder, std::fs::create_dir_all(folder))?;
        }
        at(&path, std::fs::write(&path, text))?;
    }
    at(&stage.script, std::fs::write(&stage.script, transcript.script(&stage.folder)))?;
    if let (Some(path), Some(config)) = (&stage.config, transcript.config()) {
        let config: Value = Names::new(&stage.folder).real(config);
        at(path, std::fs::write(path, config.to_string()))?;
    }
    Ok(stage)
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
        None => format!("still running {} s after its input was closed", ENDING.as_secs()),
    };
    let lines = transcript.lines();
    let line = lines.iter().rfind(|line| matches!(line.step, Step::Exit(_))).or(lines.last());
    Some(Failure {
        expected: Some(format!("exit status: {expected}")),
        got: Some(got),
        ..Failure::at(line, "the agent did not end as it must")
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
            ..Failure::at(Some(line), format!("{path} has another text"))
        });
    }
    failures
}

/// A folder of our own, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    pub(crate) fn new() -> Result<TempFolder, Error> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Unique in this process by the counter, among processes by their number; a folder that a dead
        // process of the same number left behind is stepped over.
        let base = std::env::temp_dir();
        let base = at(&base, base.canonicalize())?;
        loop {
            let number = LAST.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("purlin-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    at(&path, made)?;
                    return Ok(TempFolder(path));
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if let Err(err) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(%err, path = %self.0.display(), "a temporary folder stays");
        }
    }
}
