//! Starts a program: what to run, where, with which environment.
//!
//! Each program leads its own process group, so that `end` reaches everything it started. The caller reads its pipes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::error::Error;
use crate::group::Group;

/// What the sandbox's helper reports when all restrictions are in effect. The number of the signal that ended the program follows.
pub(crate) const READY: &[u8] = b"ready";

/// What to start and where.
#[derive(Debug, Clone)]
pub struct Spec {
    /// A path, or a name to look up in the search path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The working directory. Never our own, which means nothing to a session.
    pub cwd: PathBuf,
    /// Variables to set.
    pub env: Vec<(OsString, OsString)>,
    /// Does not pass on our own environment, only `env`.
    pub clear_env: bool,
    /// Sends both outputs to one pipe, which keeps their order; `stderr` is `None` then.
    pub merge_stderr: bool,
    /// Gives the program an input in the sandbox, where it has none by default.
    pub keep_input: bool,
    /// Writes both outputs to a pseudo terminal of this size, and closes the input. Unix only; elsewhere, outputs are merged.
    pub terminal: Option<TerminalSize>,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// How many columns.
    pub columns: u16,
    /// How many rows.
    pub rows: u16,
}

impl Spec {
    /// Makes a spec without arguments that inherits our environment.
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Spec {
        Spec {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            env: Vec::new(),
            clear_env: false,
            merge_stderr: false,
            keep_input: false,
            terminal: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Spec {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Spec {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// A program that was started. Dropping it kills its whole group.
#[derive(Debug)]
pub struct Child {
    /// Its input; dropping it is the end of the input.
    pub stdin: Option<ChildStdin>,
    /// Its output; both outputs if the spec merged them.
    pub stdout: Option<ChildStdout>,
    /// Its error output, unless it was merged.
    pub stderr: Option<ChildStderr>,
    pub(crate) inner: tokio::process::Child,
    /// The group it leads, until the leader was waited for: after that its id may be reused.
    pub(crate) group: Option<Group>,
    /// Where it is, if it runs in a container.
    #[cfg(unix)]
    pub(crate) inside: Option<crate::container::Inside>,
    /// Where the sandbox's helper reports that all restrictions are in effect.
    pub(crate) report: Option<io::PipeReader>,
    /// What must exist while the program runs. The last field, so that it is dropped after the program was killed.
    #[cfg(target_os = "linux")]
    pub(crate) held: Option<crate::sandbox::Held>,
}

#[cfg(unix)]
impl Child {
    /// Makes it a program that is not killed when this is dropped; it must end with its input.
    pub(crate) fn let_go(mut self) -> Child {
        self.group = None;
        self
    }
}

/// Options of a program with its own session, without terminal and input.
#[cfg_attr(not(unix), expect(dead_code, reason = "only Unix can start such programs"))]
#[derive(Debug, Default)]
pub(crate) struct Alone {
    /// Ignores SIGTERM, so that the program inside can handle it.
    pub(crate) ignore_term: bool,
    /// A descriptor that the program inherits and that is closed here.
    pub(crate) handed_down: Option<Handle>,
    /// The other end of that pipe.
    pub(crate) report: Option<io::PipeReader>,
    /// What must exist while the program runs.
    #[cfg(target_os = "linux")]
    pub(crate) held: Option<crate::sandbox::Held>,
}

/// Starts a program in its own session.
pub(crate) fn spawn_alone(spec: &Spec, alone: Alone) -> Result<Child, Error> {
    let mut command = command_of(spec);
    if !spec.keep_input {
        command.stdin(Stdio::null());
    }
    #[cfg(unix)]
    crate::raw::lead_session(
        &mut command,
        crate::raw::BeforeExec {
            ignore_term: alone.ignore_term,
            handed_down: alone.handed_down.as_ref().map(std::os::fd::AsRawFd::as_raw_fd),
            joined: joined(&alone),
        },
    );
    let mut child = start(spec, command)?;
    child.report = alone.report;
    #[cfg(target_os = "linux")]
    {
        child.held = alone.held;
    }
    Ok(child)
}

/// Opens the groups that limit the program, for it to join.
#[cfg(target_os = "linux")]
fn joined(alone: &Alone) -> Vec<std::os::fd::OwnedFd> {
    alone.held.as_ref().map(crate::sandbox::Held::joined).unwrap_or_default()
}

#[cfg(all(unix, not(target_os = "linux")))]
fn joined(_: &Alone) -> Vec<std::os::fd::OwnedFd> {
    Vec::new()
}

/// Starts a program with piped input and output. Needs a tokio runtime.
///
/// # Errors
/// Distinguishes a missing program and a missing directory from other errors.
pub fn spawn(spec: &Spec) -> Result<Child, Error> {
    let mut command = command_of(spec);
    #[cfg(unix)]
    match spec.terminal {
        // Not in the session of our own terminal, which it could read from.
        Some(_) => crate::raw::lead_session(&mut command, crate::raw::BeforeExec::default()),
        None => {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
    }
    start(spec, command)
}

/// Runs a program on our own terminal, such as the user's editor, and waits until it ends. It stays in our process group, so that the
/// terminal's signals reach it. Needs a tokio runtime.
///
/// # Errors
/// As [`spawn`], and if the exit status cannot be read.
pub async fn run_on_terminal(spec: &Spec) -> Result<std::process::ExitStatus, Error> {
    let mut command = command_of(spec);
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let mut child = command.spawn().map_err(|source| explain(spec, source))?;
    child.wait().await.map_err(Error::Wait)
}

/// Replaces this process by a program, with our input and output. Returns only if that fails.
#[cfg(unix)]
#[must_use]
pub fn replace_this_process(spec: &Spec) -> Error {
    let mut command = command_of(spec);
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    explain(spec, std::os::unix::process::CommandExt::exec(&mut command))
}

fn start(spec: &Spec, mut command: std::process::Command) -> Result<Child, Error> {
    let failed = |source| explain(spec, source);
    let merged = merge_outputs(spec, &mut command).map_err(failed)?;
    let mut command = tokio::process::Command::from(command);
    let mut inner = spawn_when_written(&mut command).map_err(failed)?;
    let stdout = match merged {
        Some(reader) => Some(ChildStdout::from_std(reader).map_err(failed)?),
        None => inner.stdout.take(),
    };
    Ok(Child {
        stdin: inner.stdin.take(),
        stdout,
        stderr: inner.stderr.take(),
        group: Group::of(&inner),
        inner,
        #[cfg(unix)]
        inside: None,
        report: None,
        #[cfg(target_os = "linux")]
        held: None,
    })
}

/// Retries while the program is open for writing, as it may be just after it was installed.
fn spawn_when_written(command: &mut tokio::process::Command) -> io::Result<tokio::process::Child> {
    for _ in 0..TRIES {
        match command.spawn() {
            Err(err) if err.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
    command.spawn()
}

const TRIES: u32 = 20;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

#[expect(clippy::disallowed_methods, reason = "this is the one place that starts programs")]
fn command_of(spec: &Spec) -> std::process::Command {
    let mut command = std::process::Command::new(&spec.program);
    command.args(&spec.args).current_dir(&spec.cwd);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if spec.clear_env {
        command.env_clear();
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    command
}

#[cfg(unix)]
type Handle = std::os::fd::OwnedFd;
#[cfg(windows)]
type Handle = std::os::windows::io::OwnedHandle;

/// Gives both outputs the same pipe or terminal and returns its reading end.
fn merge_outputs(
    spec: &Spec,
    command: &mut std::process::Command,
) -> io::Result<Option<std::process::ChildStdout>> {
    #[cfg(unix)]
    if let Some(size) = spec.terminal {
        return crate::pty::attach(command, size).map(Some);
    }
    if !spec.merge_stderr && spec.terminal.is_none() {
        return Ok(None);
    }
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    Ok(Some(Handle::from(reader).into()))
}

/// Distinguishes a missing directory from a missing program, for which the system has the same error.
fn explain(spec: &Spec, source: io::Error) -> Error {
    if !spec.cwd.is_dir() {
        return Error::NoSuchDirectory { directory: spec.cwd.clone() };
    }
    match source.kind() {
        io::ErrorKind::NotFound => Error::NoSuchProgram { program: spec.program.clone() },
        _ => Error::Start { program: spec.program.clone(), source },
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn shell(script: &str) -> Spec {
        Spec::new("sh", tempfile::env::temp_dir()).args(["-c", script])
    }

    async fn output_of(child: &mut Child) -> String {
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn input_and_output_are_piped() {
        let mut child = spawn(&Spec::new("cat", "/")).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"hello").await.unwrap();
        child.stdin = None;
        assert_eq!(output_of(&mut child).await, "hello");
        assert!(child.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn merged_outputs_keep_their_order() {
        let mut spec = shell("echo one; echo two >&2; echo three");
        spec.merge_stderr = true;
        let mut child = spawn(&spec).unwrap();
        assert!(child.stderr.is_none());
        assert_eq!(output_of(&mut child).await, "one\ntwo\nthree\n");
    }

    #[tokio::test]
    async fn output_can_be_a_terminal() {
        let mut spec = shell(
            "test -t 1 && test -t 2 && stty size <&1; cat; echo x >&2; (: </dev/tty) 2>/dev/null || echo none",
        );
        spec.terminal = Some(TerminalSize { columns: 90, rows: 33 });
        let mut child = spawn(&spec).unwrap();
        let mut output = Vec::new();
        let mut stdout = child.stdout.take().unwrap();
        // The end of a terminal is an error on some systems.
        while stdout.read_buf(&mut output).await.is_ok_and(|count| count > 0) {}
        assert_eq!(String::from_utf8(output).unwrap(), "33 90\nx\nnone\n");
        assert!(child.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn environment_is_as_specified() {
        let mut spec = shell("echo \"$A-$HOME\"").env("A", "1");
        spec.program = "/bin/sh".into();
        spec.clear_env = true;
        assert_eq!(output_of(&mut spawn(&spec).unwrap()).await, "1-\n");
    }

    #[tokio::test]
    async fn missing_program_and_missing_directory_are_distinguished() {
        let program = spawn(&Spec::new("no-such-program", "/"));
        assert!(matches!(program, Err(Error::NoSuchProgram { .. })), "{program:?}");
        let directory = spawn(&Spec::new("cat", "/no/such/folder"));
        assert!(matches!(directory, Err(Error::NoSuchDirectory { .. })), "{directory:?}");
    }
}
