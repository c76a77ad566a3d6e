//! Terminals for the agent: commands that run on its behalf, and the end of their output.
//!
//! Each terminal is a task that owns its program; the table here only has the channels to these tasks. A terminal lives
//! until the agent releases it or the host is dropped; then its program is killed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use process::{Child, ChildStdout, Spec, Tail, TerminalSize};
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use wire::acp::schema;
use wire::{Code, RpcError};

use super::plain::Plain;
use super::{HostReply, answer, immediate, read};

/// How many bytes of output are stored by default, and at most.
const OUTPUT_BYTES: u64 = 1024 * 1024;
const MAX_OUTPUT_BYTES: u64 = 8 * 1024 * 1024;

/// More than any agent needs at a time. An agent that forgets to release terminals gets an error.
const MAX_TERMINALS: usize = 64;

/// How long to read output after the program has exited, in case another process keeps the pipe open.
const DRAIN: Duration = Duration::from_secs(1);

/// The terminals of one agent.
#[derive(Debug)]
pub(super) struct Terminals {
    open: HashMap<schema::TerminalId, Terminal>,
    tasks: JoinSet<()>,
    last: u64,
    cwd: PathBuf,
    /// Gets the output as it comes, to show it. What does not fit is not shown; the agent gets all of it.
    pub(super) echo: Option<mpsc::Sender<TerminalOutput>>,
    /// The size of the pseudo terminals that commands run in; pipes without.
    pub(super) size: Option<TerminalSize>,
}

/// What a command in a terminal has written.
#[derive(Debug)]
pub struct TerminalOutput {
    /// The terminal.
    pub terminal: schema::TerminalId,
    /// The text.
    pub text: String,
}

/// A handle to the task of a terminal. Dropping the last one releases the terminal.
#[derive(Debug, Clone)]
struct Terminal {
    commands: mpsc::Sender<TerminalCommand>,
    ended: Ended,
}

#[derive(Debug)]
enum TerminalCommand {
    Show(oneshot::Sender<schema::TerminalOutputResponse>),
    Kill,
}

impl Terminals {
    pub(super) fn new(cwd: PathBuf) -> Terminals {
        let open = HashMap::new();
        Terminals { open, tasks: JoinSet::new(), last: 0, cwd, echo: None, size: None }
    }

    /// Starts to serve one of the `terminal/` methods.
    pub(super) fn serve(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<HostReply, RpcError> {
        match method {
            "terminal/create" => self.create(&read(params)?).map(immediate),
            "terminal/output" => {
                let request: schema::TerminalOutputRequest = read(params)?;
                Ok(answer(show(self.find(&request.terminal_id)?)))
            }
            "terminal/wait_for_exit" => {
                let request: schema::WaitForTerminalExitRequest = read(params)?;
                Ok(answer(wait_for_exit(self.find(&request.terminal_id)?.ended)))
            }
            "terminal/kill" => {
                let request: schema::KillTerminalRequest = read(params)?;
                Ok(answer(kill(self.find(&request.terminal_id)?)))
            }
            "terminal/release" => {
                let request: schema::ReleaseTerminalRequest = read(params)?;
                let ended = self.find(&request.terminal_id)?.ended;
                self.open.remove(&request.terminal_id);
                Ok(answer(release(ended)))
            }
            _ => Err(RpcError::of(Code::METHOD_NOT_FOUND)),
        }
    }

    fn create(
        &mut self,
        request: &schema::CreateTerminalRequest,
    ) -> Result<schema::CreateTerminalResponse, RpcError> {
        if self.open.len() >= MAX_TERMINALS {
            let details = "Too many terminals are open. Release some.";
            return Err(RpcError::of(Code::RATE_LIMITED).details(details));
        }
        while self.tasks.try_join_next().is_some() {}
        let mut spec = spec_of(request, &self.cwd)?;
        if let Some(size) = self.size {
            spec = in_terminal(spec, size, request);
        }
        let child = process::spawn(&spec).map_err(start_error)?;
        let limit = request.output_byte_limit.unwrap_or(OUTPUT_BYTES).min(MAX_OUTPUT_BYTES);
        // When the channel is full, the call that sends a command waits.
        let (commands, received) = mpsc::channel(2);
        let (announce, ended) = watch::channel(None);
        let tail = Tail::new(usize::try_from(limit).unwrap_or(usize::MAX));
        self.last += 1;
        let id = schema::TerminalId::new(format!("t{}", self.last));
        let echo = self.echo.clone().map(|echo| (echo, id.clone()));
        self.tasks.spawn(run(child, tail, received, announce, echo));
        self.open.insert(id.clone(), Terminal { commands, ended });
        Ok(schema::CreateTerminalResponse::new(id))
    }

    fn find(&self, id: &schema::TerminalId) -> Result<Terminal, RpcError> {
        let not_found = || RpcError::of(Code::RESOURCE_NOT_FOUND).details("No such terminal");
        self.open.get(id).cloned().ok_or_else(not_found)
    }
}

fn spec_of(request: &schema::CreateTerminalRequest, cwd: &PathBuf) -> Result<Spec, RpcError> {
    let cwd = request.cwd.as_ref().unwrap_or(cwd);
    if !cwd.is_absolute() {
        return Err(RpcError::of(Code::INVALID_PARAMS).details("'cwd' must be absolute"));
    }
    // Some agents send a whole command line as the command.
    let is_line = request.args.is_empty() && request.command.contains(char::is_whitespace);
    let mut spec = match is_line {
        true if cfg!(windows) => Spec::new("cmd", cwd).args(["/C", &request.command]),
        true => Spec::new("sh", cwd).args(["-c", &request.command]),
        false => Spec::new(&request.command, cwd).args(&request.args),
    };
    for variable in &request.env {
        spec = spec.env(&variable.name, &variable.value);
    }
    spec.merge_stderr = true;
    Ok(spec)
}

/// Runs a command in a terminal. Programs that would show their output by the page must not: nobody could turn it.
fn in_terminal(
    mut spec: Spec,
    size: TerminalSize,
    request: &schema::CreateTerminalRequest,
) -> Spec {
    spec.terminal = Some(size);
    for (name, value) in [("PAGER", "cat"), ("GIT_PAGER", "cat"), ("TERM", "xterm-256color")] {
        if !request.env.iter().any(|variable| variable.name == name) {
            spec = spec.env(name, value);
        }
    }
    spec
}

fn start_error(err: process::Error) -> RpcError {
    let code = match &err {
        process::Error::NoSuchProgram { .. } | process::Error::NoSuchDirectory { .. } => {
            Code::FILE_NOT_FOUND
        }
        process::Error::Start { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Code::FILE_DENIED
        }
        process::Error::Start { .. }
        | process::Error::NoHelper { .. }
        | process::Error::Unprotected { .. }
        | process::Error::Moved { .. }
        | process::Error::Reserve { .. }
        | process::Error::NotConfined
        | process::Error::Container(_)
        | process::Error::Wait(_) => Code::INTERNAL_ERROR,
    };
    RpcError::of(code).details(err.to_string())
}

fn released<E>(_: E) -> RpcError {
    RpcError::of(Code::INTERNAL_ERROR).details("The terminal was released")
}

async fn show(terminal: Terminal) -> Result<schema::TerminalOutputResponse, RpcError> {
    let (reply, shown) = oneshot::channel();
    terminal.commands.send(TerminalCommand::Show(reply)).await.map_err(released)?;
    shown.await.map_err(released)
}

/// The exit status of a terminal's program, once it is known.
type Ended = watch::Receiver<Option<schema::TerminalExitStatus>>;

/// Takes only the watch, not the terminal: a wait must not keep a released terminal alive.
async fn wait_for_exit(mut ended: Ended) -> Result<schema::WaitForTerminalExitResponse, RpcError> {
    let status = ended.wait_for(Option::is_some).await.map_err(released)?.clone();
    Ok(schema::WaitForTerminalExitResponse::new(status.unwrap_or_default()))
}

async fn kill(mut terminal: Terminal) -> Result<schema::KillTerminalResponse, RpcError> {
    terminal.commands.send(TerminalCommand::Kill).await.map_err(released)?;
    terminal.ended.wait_for(Option::is_some).await.map_err(released)?;
    Ok(schema::KillTerminalResponse::new())
}

/// Returns when the program has been killed.
async fn release(mut ended: Ended) -> Result<schema::ReleaseTerminalResponse, RpcError> {
    // The task ends without a status when it is released before its program has exited.
    ended.wait_for(Option::is_some).await.ok();
    Ok(schema::ReleaseTerminalResponse::new())
}

/// The task of a terminal.
async fn run(
    mut child: Child,
    mut tail: Tail,
    mut commands: mpsc::Receiver<TerminalCommand>,
    announce: watch::Sender<Option<schema::TerminalExitStatus>>,
    echo: Option<(mpsc::Sender<TerminalOutput>, schema::TerminalId)>,
) {
    child.stdin = None;
    let mut output = child.stdout.take();
    let mut status: Option<schema::TerminalExitStatus> = None;
    let mut drained_by = Instant::now();
    let mut buffer = vec![0; 16 * 1024];
    let mut plain = Plain::default();
    loop {
        // Announced only when all output has been read: agents wait for the exit and then read the output.
        if status.is_some() && output.is_none() && announce.borrow().is_none() {
            announce.send_replace(status.clone());
        }
        tokio::select! {
            command = commands.recv() => match command {
                Some(TerminalCommand::Show(reply)) => {
                    let shown = schema::TerminalOutputResponse::new(tail.text(), tail.is_truncated())
                        .exit_status(announce.borrow().clone());
                    // Fails only if the call was abandoned.
                    reply.send(shown).ok();
                }
                Some(TerminalCommand::Kill) => child.kill(),
                None => return,
            },
            count = read_some(&mut output, &mut buffer) => match count {
                0 => output = None,
                count => {
                    let text = plain.filter(&buffer[..count]);
                    tail.push(&text);
                    if let Some((echo, terminal)) = &echo {
                        let text = String::from_utf8_lossy(&text).into_owned();
                        // Fails if nobody shows it, or not fast enough.
                        echo.try_send(TerminalOutput { terminal: terminal.clone(), text }).ok();
                    }
                }
            },
            ended = child.wait(), if status.is_none() => {
                status = Some(ended.map(status_out).unwrap_or_default());
                drained_by = Instant::now() + DRAIN;
            }
            () = tokio::time::sleep_until(drained_by), if status.is_some() && output.is_some() => {
                output = None;
            }
        }
    }
}

/// Returns 0 at the end of the stream. Waits forever after the end.
async fn read_some(output: &mut Option<ChildStdout>, buffer: &mut [u8]) -> usize {
    match output {
        Some(output) => output.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

fn status_out(status: ExitStatus) -> schema::TerminalExitStatus {
    schema::TerminalExitStatus::new()
        .exit_code(status.code().and_then(|code| u32::try_from(code).ok()))
        .signal(process::end::signal_name(status))
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    async fn serve(terminals: &mut Terminals, method: &str, params: Value) -> Result<Value, i32> {
        let params = serde_json::value::to_raw_value(&params).unwrap();
        let answer = match terminals.serve(method, Some(&params)) {
            Ok(answer) => answer.await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(result) => Ok(serde_json::from_str(result.get()).unwrap()),
            Err(error) => Err(error.code.0),
        }
    }

    fn terminals() -> Terminals {
        Terminals::new(tempfile::env::temp_dir())
    }

    fn named(id: &str) -> Value {
        json!({ "sessionId": "s", "terminalId": id })
    }

    // A command line is run by `sh`.
    async fn create(terminals: &mut Terminals, line: &str, limit: Option<u64>) -> String {
        let params = json!({ "sessionId": "s", "command": line, "outputByteLimit": limit });
        let created = serve(terminals, "terminal/create", params).await.unwrap();
        created["terminalId"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn output_and_exit_code_are_there_after_the_wait() {
        let mut terminals = terminals();
        let id = create(&mut terminals, "echo out; echo err >&2; exit 3", None).await;
        let exit = serve(&mut terminals, "terminal/wait_for_exit", named(&id)).await.unwrap();
        assert_eq!(exit, json!({ "exitCode": 3 }));
        let output = serve(&mut terminals, "terminal/output", named(&id)).await.unwrap();
        assert_eq!(
            output,
            json!({ "output": "out\nerr\n", "truncated": false, "exitStatus": { "exitCode": 3 } })
        );
    }

    #[tokio::test]
    async fn command_in_a_pseudo_terminal_has_a_size_and_its_output_is_text() {
        let mut terminals = terminals();
        terminals.size = Some(TerminalSize { columns: 77, rows: 11 });
        let line = "test -t 1 && printf '\\033[31mred\\033[m ' && stty size <&1 && echo $PAGER";
        let id = create(&mut terminals, line, None).await;
        serve(&mut terminals, "terminal/wait_for_exit", named(&id)).await.unwrap();
        let output = serve(&mut terminals, "terminal/output", named(&id)).await.unwrap();
        assert_eq!(output["output"], "red 11 77\ncat\n");
        let id = create(&mut terminals, "sleep 100", None).await;
        serve(&mut terminals, "terminal/kill", named(&id)).await.unwrap();
        let exit = serve(&mut terminals, "terminal/wait_for_exit", named(&id)).await.unwrap();
        assert_eq!(exit, json!({ "signal": "SIGKILL" }));
    }

    #[tokio::test]
    async fn only_the_end_of_long_output_is_kept() {
        let mut terminals = terminals();
        let id = create(&mut terminals, "printf 'aaaaéé'", Some(3)).await;
        serve(&mut terminals, "terminal/wait_for_exit", named(&id)).await.unwrap();
        let output = serve(&mut terminals, "terminal/output", named(&id)).await.unwrap();
        assert_eq!((&output["output"], &output["truncated"]), (&json!("é"), &json!(true)));
    }

    #[tokio::test]
    async fn killed_terminal_stays_until_it_is_released() {
        let mut terminals = terminals();
        let id = create(&mut terminals, "sleep 100", None).await;
        let output = serve(&mut terminals, "terminal/output", named(&id)).await.unwrap();
        assert_eq!(output.get("exitStatus"), None);
        serve(&mut terminals, "terminal/kill", named(&id)).await.unwrap();
        let exit = serve(&mut terminals, "terminal/wait_for_exit", named(&id)).await.unwrap();
        assert_eq!(exit, json!({ "signal": "SIGKILL" }));
        serve(&mut terminals, "terminal/release", named(&id)).await.unwrap();
        let gone = serve(&mut terminals, "terminal/output", named(&id)).await;
        assert_eq!(gone, Err(-32002));
    }

    #[tokio::test]
    async fn release_kills_the_program_and_fails_waiting_calls() {
        let mut terminals = terminals();
        let id = create(&mut terminals, "sleep 100", None).await;
        let params = serde_json::value::to_raw_value(&named(&id)).unwrap();
        let waiting = terminals.serve("terminal/wait_for_exit", Some(&params)).unwrap();
        serve(&mut terminals, "terminal/release", named(&id)).await.unwrap();
        assert_eq!(waiting.await.unwrap_err().code, Code::INTERNAL_ERROR);
    }

    #[tokio::test]
    async fn program_that_cannot_start_fails_the_call() {
        let mut terminals = terminals();
        let mut created = async |params| serve(&mut terminals, "terminal/create", params).await;
        let missing = json!({ "sessionId": "s", "command": "no-such-program" });
        assert_eq!(created(missing).await, Err(-31700));
        let relative = json!({ "sessionId": "s", "command": "cat", "cwd": "here" });
        assert_eq!(created(relative).await, Err(-32602));
    }
}
