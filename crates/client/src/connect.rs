//! A connection to an agent: start it, call it, receive its updates.
//!
//! One task, the driver, owns the peer, the host and the agent's output; see `connect::driver`. A second task writes,
//! so that a slow agent never keeps us from reading. `host` serves the calls that the agent makes to us.

mod driver;

pub(crate) use driver::lenient_limits;

use std::process::ExitStatus;
use std::time::Duration;

use process::{Child, Grace, Spec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use wire::acp::{ProtocolVersion, schema};

use crate::error::Error;
use crate::host::Host;
use driver::{Command, Driver, Pipes};

/// A connection to one agent. Dropping it kills the agent if it was started here.
#[derive(Debug)]
pub struct Connection {
    caller: Caller,
    updates: mpsc::Receiver<Update>,
    capabilities: schema::ClientCapabilities,
    tasks: JoinSet<()>,
    child: Option<Child>,
}

/// Calls the agent. Cheap to clone; get one from the connection to make calls while waiting for updates.
#[derive(Debug, Clone)]
pub struct Caller {
    commands: mpsc::Sender<Command>,
}

/// How an agent ended.
#[derive(Debug)]
pub struct LastWords {
    /// Its exit status, if it was started here.
    pub status: Option<ExitStatus>,
    /// Its last output on stderr.
    pub stderr: String,
}

/// How long each step of a forced end may take.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(500);

/// The parameters of one `session/update`.
#[derive(Debug)]
pub struct Update(pub(crate) Box<RawValue>);

impl Connection {
    /// Starts an agent and connects to its pipes.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub fn start(spec: &Spec, host: Host) -> Result<Connection, Error> {
        let mut child = process::spawn(spec)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::AgentGone { stderr: String::new() });
        };
        let pipes = Pipes { input: stdout, stderr: child.stderr.take() };
        let mut connection = Connection::assemble(pipes, stdin, host);
        connection.child = Some(child);
        Ok(connection)
    }

    /// Connects to an agent at the other end of any pair of pipes.
    pub fn over(
        input: impl AsyncRead + Unpin + Send + 'static,
        output: impl AsyncWrite + Unpin + Send + 'static,
        host: Host,
    ) -> Connection {
        Connection::assemble(Pipes { input, stderr: None }, output, host)
    }

    fn assemble(
        pipes: Pipes<impl AsyncRead + Unpin + Send + 'static>,
        output: impl AsyncWrite + Unpin + Send + 'static,
        host: Host,
    ) -> Connection {
        // Full when the agent does not read: then callers wait.
        let (commands, received) = mpsc::channel(64);
        // Full when the agent does not read: then the driver accepts no commands and no finished host calls.
        let (outgoing, lines) = mpsc::channel(64);
        // Full when the owner does not receive updates: then the driver stops reading and the agent waits.
        let (update_sender, updates) = mpsc::channel(1024);
        let capabilities = host.capabilities();
        let mut tasks = JoinSet::new();
        tasks.spawn(write_lines(lines, output));
        tasks.spawn(Driver::new(pipes, host, received, outgoing, update_sender).run());
        Connection { caller: Caller { commands }, updates, capabilities, tasks, child: None }
    }

    /// Returns the tasks that end with the connection.
    pub(crate) fn tasks_mut(&mut self) -> &mut JoinSet<()> {
        &mut self.tasks
    }

    /// Returns a handle for calling the agent.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Returns the process id of an agent that was started here.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Sends `initialize` with the capabilities of the host, and checks that the agent supports protocol version 1.
    ///
    /// # Errors
    /// As [`Caller::call`], and [`Error::Version`] if the agent supports only another version.
    pub async fn initialize(
        &self,
        info: schema::Implementation,
    ) -> Result<schema::InitializeResponse, Error> {
        let request = schema::InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(self.capabilities.clone())
            .client_info(info);
        let response: schema::InitializeResponse = self.caller.call("initialize", &request).await?;
        if response.protocol_version != ProtocolVersion::V1 {
            return Err(Error::Version(response.protocol_version.to_string()));
        }
        Ok(response)
    }

    /// As [`Connection::initialize`], but an agent that does not answer in this time is given up.
    ///
    /// # Errors
    /// Also [`Error::AgentSilent`].
    pub async fn initialize_within(
        &self,
        info: schema::Implementation,
        limit: Duration,
    ) -> Result<schema::InitializeResponse, Error> {
        match tokio::time::timeout(limit, self.initialize(info)).await {
            Ok(response) => response,
            Err(_elapsed) => {
                let stderr = self.caller.stderr().await;
                Err(Error::AgentSilent { seconds: limit.as_secs(), stderr })
            }
        }
    }

    /// Waits for the next update; `None` once the agent has exited. Cancel safe.
    ///
    /// Updates that the agent sent before a reply are available before the reply is.
    pub async fn next_update(&mut self) -> Option<Update> {
        self.updates.recv().await
    }

    /// Returns the next update that has already been received.
    pub fn ready_update(&mut self) -> Option<Update> {
        self.updates.try_recv().ok()
    }

    /// Ends the connection to an agent that is gone, or that must go now, and returns what is known about its end. An agent that
    /// still runs is killed.
    pub async fn last_words(mut self) -> LastWords {
        self.updates.close();
        let nothing = serde_json::json!({});
        let asked = self.caller.call::<serde_json::Value>("initialize", &nothing);
        // The driver answers at once if the agent has closed its output.
        let stderr = match tokio::time::timeout(LAST_WORDS, asked).await {
            Ok(Err(Error::AgentGone { stderr })) => stderr,
            _ => String::new(),
        };
        let now = Grace { after_close: LAST_WORDS, after_term: LAST_WORDS };
        self.caller.commands.send(Command::Close).await.ok();
        let status = match &mut self.child {
            Some(child) => child.end(now).await.ok(),
            None => None,
        };
        LastWords { status, stderr }
    }

    /// Closes the agent's input and waits until it exits. A program that was started here is terminated, then killed, when
    /// it does not exit in time. Returns its exit status.
    ///
    /// # Errors
    /// Fails if the exit status cannot be read.
    pub async fn end(mut self, grace: Grace) -> Result<Option<ExitStatus>, Error> {
        // An error means that the driver has ended, and the input is closed already.
        self.caller.commands.send(Command::Close).await.ok();
        // No code receives updates any more; an agent that still has many must not wait for us.
        self.updates.close();
        if let Some(child) = &mut self.child {
            return Ok(Some(child.end(grace).await?));
        }
        let all_done = async { while self.tasks.join_next().await.is_some() {} };
        // An agent that keeps running is disconnected when the tasks are dropped.
        tokio::time::timeout(grace.after_close, all_done).await.ok();
        Ok(None)
    }
}

impl Caller {
    /// Calls a method and reads its result.
    ///
    /// # Errors
    /// [`Error::Refused`] has the agent's error, [`Error::BadShape`] is a result that does not match its type,
    /// [`Error::AgentGone`] has the last output on stderr of an agent that has exited.
    pub async fn call<R: DeserializeOwned>(
        &self,
        method: &'static str,
        params: &impl Serialize,
    ) -> Result<R, Error> {
        let params = print(method, params)?;
        let (reply, replied) = oneshot::channel();
        let gone = || Error::AgentGone { stderr: String::new() };
        self.commands.send(Command::Call { method, params, reply }).await.map_err(|_| gone())?;
        let result = replied.await.map_err(|_| gone())??;
        // An empty result may be null.
        let text = if result.get() == "null" { "{}" } else { result.get() };
        serde_json::from_str(text).map_err(|source| Error::BadShape { what: method, source })
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// Fails if the parameters cannot be serialised or the agent has exited.
    pub async fn notify(&self, method: &'static str, params: &impl Serialize) -> Result<(), Error> {
        let params = print(method, params)?;
        let sent = self.commands.send(Command::Note { method, params }).await;
        sent.map_err(|_| Error::AgentGone { stderr: String::new() })
    }

    /// Returns the last output of the agent on stderr.
    async fn stderr(&self) -> String {
        let (reply, replied) = oneshot::channel();
        // Fails only if the driver has ended; then no output is left.
        self.commands.send(Command::Stderr(reply)).await.ok();
        replied.await.unwrap_or_default()
    }

    /// Opens a session.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub async fn new_session(
        &self,
        request: schema::NewSessionRequest,
    ) -> Result<schema::NewSessionResponse, Error> {
        self.call("session/new", &request).await
    }

    /// Sends a prompt and waits for the end of the turn.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub async fn prompt(
        &self,
        request: schema::PromptRequest,
    ) -> Result<schema::PromptResponse, Error> {
        self.call("session/prompt", &request).await
    }

    /// Asks the agent to end a turn; its prompt is still answered. The owner must also drop open permission requests.
    ///
    /// # Errors
    /// Fails if the agent has exited.
    pub async fn cancel(&self, session: &schema::SessionId) -> Result<(), Error> {
        let note = schema::CancelNotification::new(session.clone());
        self.notify("session/cancel", &note).await
    }
}

impl Update {
    /// Returns the parameters as the agent wrote them.
    #[must_use]
    pub fn raw(&self) -> &str {
        self.0.get()
    }

    /// Reads the parameters.
    ///
    /// # Errors
    /// Fails for invalid updates and for updates of a later protocol version.
    pub fn read(&self) -> Result<schema::SessionNotification, Error> {
        serde_json::from_str(self.raw())
            .map_err(|source| Error::BadShape { what: "session/update", source })
    }
}

fn print(method: &'static str, params: &impl Serialize) -> Result<Box<RawValue>, Error> {
    serde_json::value::to_raw_value(params).map_err(|source| Error::Unwritable { method, source })
}

/// The writing task. Ends, and so closes the agent's input, when the driver drops its sender or the pipe breaks.
async fn write_lines(mut lines: mpsc::Receiver<Vec<u8>>, mut output: impl AsyncWrite + Unpin) {
    while let Some(line) = lines.recv().await {
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if let Err(err) = written.await {
            tracing::debug!(%err, "the agent no longer reads its input");
            return;
        }
    }
    output.shutdown().await.ok();
}

#[cfg(test)]
mod tests;
