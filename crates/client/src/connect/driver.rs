//! The driver: the task that reads an agent's output and tracks the open calls in both directions.
//!
//! It waits in one place for all its events at once, and never only for the writer, the owner, or a call that the host
//! serves. This rules out a deadlock between the two sides.

use std::collections::HashMap;

use process::{ChildStderr, Tail};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Duration, timeout};
use wire::acp::AgentNote;
use wire::{Code, Incoming, Peer, RequestId, RpcError, SizeLimits, rpc};

use super::Update;
use crate::error::Error;
use crate::host::Host;

/// How many bytes of the agent's stderr are stored.
const STDERR_BYTES: usize = 16 * 1024;

/// Further calls of the agent are answered with a rate-limit error.
const MAX_OPEN_CALLS: usize = 256;

/// How long to wait for the rest of stderr after the agent's output has ended.
const STDERR_GRACE: Duration = Duration::from_secs(1);

/// A command from the owner of the connection.
#[derive(Debug)]
pub(super) enum Command {
    Call {
        method: &'static str,
        params: Box<RawValue>,
        reply: Reply,
    },
    Note {
        method: &'static str,
        params: Box<RawValue>,
    },
    /// Asks for the last output of the agent on stderr.
    Stderr(oneshot::Sender<String>),
    Close,
}

type Reply = oneshot::Sender<Result<Box<RawValue>, Error>>;

/// The agent's output pipes.
#[derive(Debug)]
pub(super) struct Pipes<R> {
    pub(super) input: R,
    pub(super) stderr: Option<ChildStderr>,
}

pub(super) struct Driver<R> {
    pipes: Pipes<R>,
    stderr: Tail,
    peer: Peer,
    host: Host,
    commands: mpsc::Receiver<Command>,
    /// `None` once the agent's input is closed.
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    updates: mpsc::Sender<Update>,
    /// Our own calls that have no reply yet.
    waiting: HashMap<u64, Reply>,
    /// The agent's calls that the host is serving.
    served: JoinSet<Result<Box<RawValue>, RpcError>>,
    serving: HashMap<tokio::task::Id, (RequestId, AbortHandle)>,
}

/// Why the driver woke up.
enum Wake {
    Bytes(usize),
    Stderr(usize),
    Command(Option<Command>),
    Served(tokio::task::Id, Result<Box<RawValue>, RpcError>),
    Room,
}

impl<R: AsyncRead + Unpin> Driver<R> {
    pub(super) fn new(
        pipes: Pipes<R>,
        host: Host,
        commands: mpsc::Receiver<Command>,
        outgoing: mpsc::Sender<Vec<u8>>,
        updates: mpsc::Sender<Update>,
    ) -> Driver<R> {
        Driver {
            pipes,
            stderr: Tail::new(STDERR_BYTES),
            peer: Peer::new(lenient_limits()),
            host,
            commands,
            outgoing: Some(outgoing),
            updates,
            waiting: HashMap::new(),
            served: JoinSet::new(),
            serving: HashMap::new(),
        }
    }

    /// Runs until the agent's output has ended and all callers are gone.
    pub(super) async fn run(mut self) {
        let mut buffer = vec![0; 64 * 1024];
        let mut stderr_buffer = vec![0; 4 * 1024];
        loop {
            let is_drained = self.handle_events();
            match self.next_wake(is_drained, &mut buffer, &mut stderr_buffer).await {
                Wake::Bytes(0) => break,
                Wake::Bytes(count) => self.peer.feed(&buffer[..count]),
                Wake::Stderr(0) => self.pipes.stderr = None,
                Wake::Stderr(count) => self.stderr.push(&stderr_buffer[..count]),
                Wake::Command(Some(command)) => self.run_command(command),
                Wake::Command(None) => self.outgoing = None,
                Wake::Served(task, outcome) => self.answer(task, outcome),
                Wake::Room => {}
            }
        }
        self.peer.finish();
        self.handle_events();
        self.wind_down(&mut stderr_buffer).await;
    }

    /// Waits for the next event. Reads more output only when everything read so far is handled, so that the agent waits
    /// when the owner is slow.
    async fn next_wake(
        &mut self,
        is_drained: bool,
        buffer: &mut [u8],
        stderr_buffer: &mut [u8],
    ) -> Wake {
        let has_room_out = has_room(self.outgoing.as_ref());
        let is_open = self.outgoing.is_some();
        tokio::select! {
            // Answers and commands first: a flood of updates must not delay a cancel.
            biased;
            Some(done) = self.served.join_next_with_id(), if has_room_out => match done {
                Ok((task, outcome)) => Wake::Served(task, outcome),
                Err(err) if err.is_cancelled() => {
                    Wake::Served(err.id(), Err(RpcError::of(Code::REQUEST_CANCELLED)))
                }
                Err(err) => Wake::Served(err.id(), Err(RpcError::of(Code::INTERNAL_ERROR))),
            },
            command = self.commands.recv(), if has_room_out && is_open => Wake::Command(command),
            () = room(self.outgoing.as_ref()), if !has_room_out => Wake::Room,
            () = room(Some(&self.updates)), if !is_drained => Wake::Room,
            count = read_stderr(&mut self.pipes.stderr, stderr_buffer) => Wake::Stderr(count),
            count = self.pipes.input.read(buffer), if is_drained => Wake::Bytes(count.unwrap_or(0)),
        }
    }

    /// Handles what was read while there is room for updates. Returns whether everything was handled.
    fn handle_events(&mut self) -> bool {
        while has_room(Some(&self.updates)) {
            let Some(event) = self.peer.poll_event() else { return true };
            match event {
                Incoming::Call { id, method, params } => {
                    if self.serving.len() >= MAX_OPEN_CALLS {
                        self.peer.close(&id);
                        self.send_error(Some(&id), &RpcError::of(Code::RATE_LIMITED));
                        continue;
                    }
                    let answer = self.host.serve(&method, params);
                    let handle = self.served.spawn(answer);
                    self.serving.insert(handle.id(), (id, handle));
                }
                Incoming::Note { method, params } if method == "session/update" => {
                    if let Some(params) = params {
                        // Fails only if the owner no longer receives updates.
                        self.updates.try_send(Update(params.to_owned())).ok();
                    }
                }
                Incoming::Note { method, params } => {
                    if let Ok(Some(AgentNote::CancelRequest(id))) =
                        AgentNote::decode(&method, params)
                    {
                        self.serving
                            .values()
                            .filter(|(open, _)| *open == id)
                            .for_each(|(_, handle)| handle.abort());
                    }
                }
                Incoming::Reply { number, method, outcome } => {
                    if let Some(reply) = self.waiting.remove(&number) {
                        let outcome = outcome.map(ToOwned::to_owned);
                        // Fails only if the caller no longer waits for the reply.
                        reply.send(outcome.map_err(|error| Error::Refused { method, error })).ok();
                    }
                }
                Incoming::Refused { id, error } => {
                    tracing::warn!(code = error.code.0, "the agent sent an invalid message");
                    self.send_error(id.as_ref(), &error);
                }
                Incoming::Ignored(what) => {
                    tracing::debug!(what, "ignored a message from the agent")
                }
            }
        }
        false
    }

    fn run_command(&mut self, command: Command) {
        let mut line = Vec::new();
        match command {
            Command::Close => self.outgoing = None,
            // Fails only if the caller no longer waits for it.
            Command::Stderr(reply) => drop(reply.send(self.stderr.text())),
            Command::Note { method, params } => {
                if rpc::print_note(&mut line, method, &params).is_ok() {
                    self.send(line);
                }
            }
            Command::Call { method, params, reply } => {
                let number = self.peer.call(method);
                let printed =
                    rpc::print_call(&mut line, &RequestId::number(number), method, &params);
                match printed {
                    Ok(()) if self.send(line) => {
                        self.waiting.insert(number, reply);
                    }
                    Ok(()) => {
                        self.peer.forget(number);
                        reply.send(Err(self.agent_gone())).ok();
                    }
                    Err(source) => {
                        self.peer.forget(number);
                        reply.send(Err(Error::Unwritable { method, source })).ok();
                    }
                }
            }
        }
    }

    fn answer(&mut self, task: tokio::task::Id, outcome: Result<Box<RawValue>, RpcError>) {
        let Some((id, _)) = self.serving.remove(&task) else { return };
        self.peer.close(&id);
        let mut line = Vec::new();
        match outcome {
            Ok(result) => {
                if rpc::print_result(&mut line, &id, &result).is_ok() {
                    self.send(line);
                }
            }
            Err(error) => self.send_error(Some(&id), &error),
        }
    }

    fn send_error(&mut self, id: Option<&RequestId>, error: &RpcError) {
        let mut line = Vec::new();
        if rpc::print_error(&mut line, id, error).is_ok() && !self.send(line) {
            tracing::warn!("dropped an error reply: the agent does not read its input");
        }
    }

    /// Returns false if the line cannot be sent: the agent's input is closed, or the agent does not read.
    fn send(&mut self, line: Vec<u8>) -> bool {
        self.outgoing.as_ref().is_some_and(|outgoing| outgoing.try_send(line).is_ok())
    }

    fn agent_gone(&self) -> Error {
        Error::AgentGone { stderr: self.stderr.text() }
    }

    /// The agent has exited: fails every open and later call, until all callers are gone.
    async fn wind_down(&mut self, stderr_buffer: &mut [u8]) {
        // A child of the agent may keep the pipe open, so the wait has a limit.
        timeout(STDERR_GRACE, self.read_remaining_stderr(stderr_buffer)).await.ok();
        // Closes the channel of updates, so that an owner who waits for one returns.
        let (closed, _) = mpsc::channel(1);
        self.updates = closed;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().for_each(|reply| {
            reply.send(Err(self.agent_gone())).ok();
        });
        if self.outgoing.take().is_none() {
            return;
        }
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Call { reply, .. } => {
                    reply.send(Err(self.agent_gone())).ok();
                }
                Command::Stderr(reply) => drop(reply.send(self.stderr.text())),
                Command::Note { .. } => {}
                Command::Close => return,
            }
        }
    }

    async fn read_remaining_stderr(&mut self, buffer: &mut [u8]) {
        while self.pipes.stderr.is_some() {
            match read_stderr(&mut self.pipes.stderr, buffer).await {
                0 => self.pipes.stderr = None,
                count => self.stderr.push(&buffer[..count]),
            }
        }
    }
}

/// Returns whether a message can be sent. A closed channel has room: messages sent to it are dropped.
fn has_room<T>(channel: Option<&mpsc::Sender<T>>) -> bool {
    channel.is_none_or(|channel| channel.capacity() > 0 || channel.is_closed())
}

async fn room<T>(channel: Option<&mpsc::Sender<T>>) {
    if let Some(channel) = channel {
        // The permit is released at once. The driver is the only sender, so the room remains.
        drop(channel.reserve().await);
    }
}

/// Returns 0 at the end of the stream. Waits forever without a stream.
async fn read_stderr(stderr: &mut Option<ChildStderr>, buffer: &mut [u8]) -> usize {
    match stderr {
        Some(stderr) => stderr.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// Generous limits for an agent that we started ourselves. They only keep a broken agent from using all memory.
pub(crate) fn lenient_limits() -> SizeLimits {
    const LIMIT: usize = 64 * 1024 * 1024;
    SizeLimits {
        initialize: LIMIT,
        new_session: LIMIT,
        prompt: LIMIT,
        prompt_data: LIMIT,
        update: LIMIT,
        file: LIMIT,
        other: LIMIT,
    }
}
