//! Commands whose output is captured: hooks, commands in the text of a slash command, checkers; and language servers.
//!
//! They use the same sandbox, environment and search path as the tool, but no client and no permission question: the caller has
//! decided that they may run. What the first three leave behind is checked as after any command: a checker runs the project's own code.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use process::Child;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::before::Before;
use super::{Bash, Input};

/// One command.
#[derive(Debug, Clone)]
pub struct CapturedRun {
    /// The command, for the shell.
    pub command: String,
    /// The arguments `$1`, `$2` and so on.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Its input.
    pub input: Vec<u8>,
    /// How long it may run.
    pub timeout: Duration,
    /// The most bytes of output that are captured; the rest is discarded.
    pub limit: usize,
    /// Runs it on the host, also if commands run in a container: it may be the user's own program.
    pub on_host: bool,
    /// Runs it only if the sandbox confines it to its directories.
    pub must_be_confined: bool,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ran {
    /// Its exit code; `None` if it was killed.
    pub code: Option<i32>,
    /// Its output.
    pub output: String,
    /// Its error output.
    pub errors: String,
    /// Whether it was killed because it took too long.
    pub is_late: bool,
}

impl Bash {
    /// Runs a command and captures its output.
    ///
    /// # Errors
    /// Fails with the reason if it did not run.
    pub async fn run_captured(self: &Arc<Self>, run: CapturedRun) -> Result<Ran, String> {
        let found = match run.on_host {
            true => self.sandbox.found().await,
            false => self.found().await,
        };
        if run.must_be_confined && !found.level.confines() {
            return Err("no sandbox available".to_owned());
        }
        let spec = match run.on_host {
            true => self.host_spec_of(&run.cwd, &run.command),
            false => self.spec_of(&run.cwd, &run.command),
        };
        let mut spec = spec.args(["purlin".to_owned()]);
        spec = spec.args(run.args);
        spec.merge_stderr = false;
        spec.keep_input = true;
        for (name, value) in run.environment {
            spec = spec.env(name, value);
        }
        let input = Input::plain(&run.command, run.timeout);
        // The user's own hooks do what the user wants.
        let is_users = run.on_host && !run.must_be_confined;
        let before = match is_users {
            true => None,
            false => Some(Before::of(self, &input).await.map_err(|err| err.to_string())?),
        };
        let profile = self.profile_of(&input).await.map_err(|err| err.to_string())?;
        let child = match run.on_host {
            true => self.sandbox.spawn(&spec, &profile, &found),
            false => self.spawn(&spec, &profile, &found).await,
        };
        let child = child.map_err(|err| err.to_string())?;
        let ran = finish(child, &run.input, run.timeout, run.limit).await;
        if let Some(before) = before {
            let after = before.check().await.map_err(|err| err.to_string())?;
            self.remember(Arc::clone(&after.survey));
            let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
            warnings.extend(after.left_behind.warning());
        }
        ran
    }
}

/// Gives a command its input, and reads its output until it ends.
pub(super) async fn finish(
    mut child: Child,
    input: &[u8],
    most: Duration,
    limit: usize,
) -> Result<Ran, String> {
    let output = read_all(&mut child, input, limit);
    match timeout(most, output).await {
        Ok((output, errors)) => match timeout(most, child.wait()).await {
            Ok(Ok(status)) => Ok(Ran { code: status.code(), output, errors, is_late: false }),
            Ok(Err(err)) => Err(err.to_string()),
            Err(_) => Ok(Ran { output, errors, is_late: true, ..Ran::default() }),
        },
        // Dropping the child kills it and all it started.
        Err(_) => Ok(Ran { is_late: true, ..Ran::default() }),
    }
}

impl Bash {
    /// Starts a program that stays, with input and output, in the sandbox of commands. What it creates is not checked: it runs for so long that
    /// it could be the user's.
    ///
    /// # Errors
    /// Fails with the reason if it was not started.
    pub(crate) async fn spawn_server(
        self: &Arc<Self>,
        cwd: &Path,
        command: &[String],
        environment: &[(String, String)],
        must_be_confined: bool,
    ) -> Result<Child, String> {
        let found = self.found().await;
        if must_be_confined && !found.level.confines() {
            return Err("no sandbox available".to_owned());
        }
        let Some((program, args)) = command.split_first() else {
            return Err("its `command` is empty".to_owned());
        };
        let mut spec = self.spec_of(cwd, "");
        (spec.program, spec.args) = (program.into(), args.iter().map(Into::into).collect());
        spec.merge_stderr = false;
        spec.keep_input = true;
        for (name, value) in environment {
            spec = spec.env(name, value);
        }
        let input = Input::plain(program, Duration::ZERO);
        let profile = self.profile_of(&input).await.map_err(|err| err.to_string())?;
        self.spawn(&spec, &profile, &found).await.map_err(|err| err.to_string())
    }
}

/// Writes the input of a command and reads its output to the end.
async fn read_all(child: &mut Child, input: &[u8], limit: usize) -> (String, String) {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command may close its input without reading it.
            stdin.write_all(input).await.ok();
        }
    };
    let (output, errors, ()) = tokio::join!(text_of(stdout, limit), text_of(stderr, limit), feed);
    (output, errors)
}

async fn text_of(pipe: Option<impl AsyncRead + Unpin>, limit: usize) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let (mut captured, mut buffer) = (Vec::new(), vec![0; 8 * 1024]);
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        let room = limit.saturating_sub(captured.len());
        captured.extend_from_slice(&buffer[..read.min(room)]);
    }
    String::from_utf8_lossy(&captured).into_owned()
}
