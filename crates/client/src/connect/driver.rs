//! The driver: the task that reads an agent's output and knows which calls are open, in both directions.
//!
//! It waits in one place and never for one thing alone: not for the writer, not for the owner, not for a call
//! that the host serves. So neither side can block the other into a standstill.

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

/// How much is kept of what the agent writes to its error output.
const STDERR_BYTES: usize = 16 * 1024;

/// An agent with more open calls than this is told to slow down.
const MAX_OPEN_CALLS: usize = 256;

/// How long the last words of an agent are awaited when its output has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the owner of the connection wants.
#[derive(Debug)]
pub(super) enum Order {
    Call { method: &'static str, params: Box<RawValue>, reply: Reply },
    Note { method: &'static str, params: Box<RawValue> },
    Close,
}

type Reply = oneshot::Sender<Result<Box<RawValue>, Error>>;

/// Where the agent is heard.
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
    orders: mpsc::Receiver<Order>,
    /// `None` once the agent's input is closed.
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    updates: mpsc::Sender<Update>,
    /// Calls of ours that have no reply yet.
    waiting: HashMap<u64, Reply>,
    /// Calls of the agent that the host serves.
    served: JoinSet<Result<Box<RawValue>, RpcError>>,
    serving: HashMap<tokio::task::Id, (RequestId, AbortHandle)>,
}

/// Why the driver woke up.
enum Wake {
    Bytes(usize),
    Stderr(usize),
    Order(Option<Order>),
    Served(tokio::task::Id, Result<Box<RawValue>, RpcError>),
    Room,
}

impl<R: AsyncRead + Unpin> Driver<R> {
    pub(super) fn new(
        pipes: Pipes<R>,
        host: Host,
        orders: mpsc::Receiver<Order>,
        outgoing: mpsc::Sender<Vec<u8>>,
        updates: mpsc::Sender<Update>,
    ) -> Driver<R> {
        Driver {
            pipes,
            stderr: Tail::new(STDERR_BYTES),
            peer: Peer::new(lenient_limits()),
            host,
            orders,
            outgoing: Some(outgoing),
            updates,
            waiting: HashMap::new(),
            served: JoinSet::new(),
            serving: HashMap::new(),
        }
    }

    /// Runs until the agent's output has ended and nobody calls any more.
    pub(super) async fn run(mut self) {
        let mut buffer = vec![0; 64 * 1024];
        let mut stderr_buffer = vec![0; 4 * 1024];
        loop {
            let is_drained = self.take_events();
            match self.next_wake(is_drained, &mut buffer, &mut stderr_buffer).await {
                Wake::Bytes(0) => break,
                Wake::Bytes(count) => self.peer.feed(&buffer[..count]),
                Wake::Stderr(0) => self.pipes.stderr = None,
                Wake::Stderr(count) => self.stderr.push(&stderr_buffer[..count]),
                Wake::Order(Some(order)) => self.obey(order),
                Wake::Order(None) => self.outgoing = None,
                Wake::Served(task, outcome) => self.answer(task, outcome),
                Wake::Room => {}
            }
        }
        self.peer.finish();
        self.take_events();
        self.part(&mut stderr_buffer).await;
    }

    /// Reads on only when everything that was read is handled, so the agent waits if the owner does.
    async fn next_wake(
        &mut self,
        is_drained: bool,
        buffer: &mut [u8],
        stderr_buffer: &mut [u8],
    ) -> Wake {
        let has_room_out = has_room(self.outgoing.as_ref());
        let is_open = self.outgoing.is_some();
        tokio::select! {
            // Answers and orders first: a flood of updates must not hold up a cancel.
            biased;
            Some(done) = self.served.join_next_with_id(), if has_room_out => match done {
                Ok((task, outcome)) => Wake::Served(task, outcome),
                Err(err) if err.is_cancelled() => {
                    Wake::Served(err.id(), Err(RpcError::of(Code::REQUEST_CANCELLED)))
                }
                Err(err) => Wake::Served(err.id(), Err(RpcError::of(Code::INTERNAL_ERROR))),
            },
            order = self.orders.recv(), if has_room_out && is_open => Wake::Order(order),
            () = room(self.outgoing.as_ref()), if !has_room_out => Wake::Room,
            () = room(Some(&self.updates)), if !is_drained => Wake::Room,
            count = read_stderr(&mut self.pipes.stderr, stderr_buffer) => Wake::Stderr(count),
            count = self.pipes.input.read(buffer), if is_drained => Wake::Bytes(count.unwrap_or(0)),
        }
    }

    /// Handles what was read, for as long as there is room for updates. Returns whether that was all.
    fn take_events(&mut self) -> bool {
        while has_room(Some(&self.updates)) {
            let Some(event) = self.peer.poll_event() else { return true };
            match event {
                Incoming::Call { id, method, params } => {
                    if self.serving.len() >= MAX_OPEN_CALLS {
                        self.peer.close(&id);
                        self.refuse(Some(&id), &RpcError::of(Code::RATE_LIMITED));
                        continue;
                    }
                    let answer = self.host.serve(&method, params);
                    let handle = self.served.spawn(answer);
                    self.serving.insert(handle.id(), (id, handle));
                }
                Incoming::Note { method, params } if method == "session/update" => {
                    if let Some(params) = params {
                        // Fails only if the owner no longer listens.
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
                        // Fails only if the caller no longer waits.
                        reply.send(outcome.map_err(|error| Error::Refused { method, error })).ok();
                    }
                }
                Incoming::Refused { id, error } => {
                    tracing::warn!(code = error.code.0, "the agent sent a line that is no message");
                    self.refuse(id.as_ref(), &error);
                }
                Incoming::Ignored(what) => tracing::debug!(what, "the agent sent"),
            }
        }
        false
    }

    fn obey(&mut self, order: Order) {
        let mut line = Vec::new();
        match order {
            Order::Close => self.outgoing = None,
            Order::Note { method, params } => {
                if rpc::print_note(&mut line, method, &params).is_ok() {
                    self.send(line);
                }
            }
            Order::Call { method, params, reply } => {
                let number = self.peer.call(method);
                let printed =
                    rpc::print_call(&mut line, &RequestId::number(number), method, &params);
                match printed {
                    Ok(()) if self.send(line) => {
                        self.waiting.insert(number, reply);
                    }
                    Ok(()) => {
                        self.peer.forget(number);
                        reply.send(Err(self.gone())).ok();
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
            Err(error) => self.refuse(Some(&id), &error),
        }
    }

    fn refuse(&mut self, id: Option<&RequestId>, error: &RpcError) {
        let mut line = Vec::new();
        if rpc::print_error(&mut line, id, error).is_ok() && !self.send(line) {
            tracing::warn!("an error reply is dropped: the agent does not read");
        }
    }

    /// Returns false if the line cannot go out: the agent's input is closed, or full of what it does not read.
    fn send(&mut self, line: Vec<u8>) -> bool {
        self.outgoing.as_ref().is_some_and(|outgoing| outgoing.try_send(line).is_ok())
    }

    fn gone(&self) -> Error {
        Error::AgentGone { stderr: self.stderr.text() }
    }

    /// The agent is gone: fails every call, those of later as well, until nobody can call any more.
    async fn part(&mut self, stderr_buffer: &mut [u8]) {
        // A child of the agent may hold the pipe; what came until then is enough.
        timeout(LAST_WORDS, self.hear_last_words(stderr_buffer)).await.ok();
        // Updates end here, so that an owner who waits for one learns of it.
        let (nobody, _) = mpsc::channel(1);
        self.updates = nobody;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().for_each(|reply| {
            reply.send(Err(self.gone())).ok();
        });
        if self.outgoing.take().is_none() {
            return;
        }
        while let Some(order) = self.orders.recv().await {
            match order {
                Order::Call { reply, .. } => {
                    reply.send(Err(self.gone())).ok();
                }
                Order::Note { .. } => {}
                Order::Close => return,
            }
        }
    }

    async fn hear_last_words(&mut self, buffer: &mut [u8]) {
        while self.pipes.stderr.is_some() {
            match read_stderr(&mut self.pipes.stderr, buffer).await {
                0 => self.pipes.stderr = None,
                count => self.stderr.push(&buffer[..count]),
            }
        }
    }
}

/// A closed channel has room: what is put there is dropped, and nobody waits for it.
fn has_room<T>(channel: Option<&mpsc::Sender<T>>) -> bool {
    channel.is_none_or(|channel| channel.capacity() > 0 || channel.is_closed())
}

async fn room<T>(channel: Option<&mpsc::Sender<T>>) {
    if let Some(channel) = channel {
        // The permit is given back at once; the driver is the only sender, so the room stays.
        drop(channel.reserve().await);
    }
}

/// Returns 0 at the end, and never if there is nothing to read from.
async fn read_stderr(stderr: &mut Option<ChildStderr>, buffer: &mut [u8]) -> usize {
    match stderr {
        Some(stderr) => stderr.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// We trust the agent that we started more than it may trust us; the limit only keeps a broken one from
/// eating all memory.
pub(crate) fn lenient_limits() -> SizeLimits {
    const MOST: usize = 64 * 1024 * 1024;
    SizeLimits {
        initialize: MOST,
        new_session: MOST,
        prompt: MOST,
        prompt_data: MOST,
        update: MOST,
        file: MOST,
        other: MOST,
    }
}
