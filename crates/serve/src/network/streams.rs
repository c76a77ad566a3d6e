//! Streamable HTTP as the pipes of a connection: messages come by POST, and leave on server-sent event streams.
//!
//! A connection has one stream for itself and one for each session. Each buffers a bounded number of messages until it is
//! read. When one is full, nothing more is taken from the dispatcher, which then marks the connection as behind.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::options::Pipes;

/// How many messages a stream buffers.
const MESSAGES: usize = 256;
/// How many bytes it buffers; one message may exceed it.
const BYTES: usize = 1024 * 1024;
/// How many streams a connection may have.
const STREAMS: usize = 1024;
/// How many requests of the client may be unanswered.
const REQUESTS: usize = 4096;
/// How often a silent stream gets a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many messages may wait for the dispatcher. Full: the POST waits.
const READS: usize = 4;
/// Begins the ids of requests that we make for the client; their answers are dropped.
const OWN: &str = "\"purlin-replay-";

/// Which stream; `None` is that of the connection.
type StreamId = Option<Arc<str>>;

/// One connection over Streamable HTTP.
pub(super) struct HttpConnection {
    pub(super) tenant: Arc<str>,
    input: mpsc::Sender<Vec<u8>>,
    state: Mutex<State>,
    /// Wakes the task that sorts messages when a stream has room again.
    room: Notify,
    pub(super) stop: CancellationToken,
    replays: AtomicU64,
}

struct State {
    streams: HashMap<StreamId, Stream>,
    /// Where the answer to a request goes, by its id as JSON.
    requests: HashMap<String, StreamId>,
    first: Option<oneshot::Sender<Vec<u8>>>,
    /// When it was used last.
    used: Instant,
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<Queued>,
    bytes: usize,
    /// The reader that has it now.
    reader: u64,
    has_reader: bool,
    wake: Arc<Notify>,
}

struct Queued {
    line: Vec<u8>,
    seq: Option<u64>,
}

/// Why a request is refused: an HTTP status and a text.
pub(super) type Refusal = (u16, &'static str);

/// What is needed of a message to know where it goes.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Params>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Params {
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default, rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    seq: Option<u64>,
}

/// What sorts the messages of the dispatcher to the streams.
pub(super) struct Sorter {
    connection: Arc<HttpConnection>,
    batches: mpsc::Receiver<Vec<u8>>,
    to_ack: mpsc::Sender<std::io::Result<Vec<u8>>>,
    progress: Arc<AtomicU64>,
}

/// Opens a connection. Its first message must be `initialize`; the answer comes from the receiver.
pub(super) fn open(
    tenant: Arc<str>,
    stop: CancellationToken,
) -> (Arc<HttpConnection>, Sorter, Pipes, oneshot::Receiver<Vec<u8>>) {
    let (input, from_client) = mpsc::channel(READS);
    // Has room for one: the dispatcher sends the next when the last is sorted.
    let (output, batches) = mpsc::channel(1);
    let (to_ack, written) = mpsc::channel(1);
    let (first, answer) = oneshot::channel();
    let streams = HashMap::from([(None, Stream::default())]);
    let state =
        State { streams, requests: HashMap::new(), first: Some(first), used: Instant::now() };
    let connection = Arc::new(HttpConnection {
        tenant,
        input,
        state: Mutex::new(state),
        room: Notify::new(),
        stop,
        replays: AtomicU64::new(0),
    });
    let progress = Arc::new(AtomicU64::new(0));
    let pipes = Pipes { input: from_client, output, written, progress: Arc::clone(&progress) };
    let sorter = Sorter { connection: Arc::clone(&connection), batches, to_ack, progress };
    (connection, sorter, pipes, answer)
}

impl HttpConnection {
    /// The lock is held only to look at the queues or change them.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether nobody reads or writes it for this long.
    pub(super) fn is_idle(&self, limit: Duration) -> bool {
        let state = self.lock();
        let is_read = state.streams.values().any(|stream| stream.has_reader);
        !is_read && state.used.elapsed() > limit
    }

    /// Passes a message on to the dispatcher.
    pub(super) async fn post(&self, body: &[u8], header: Option<&str>) -> Result<(), Refusal> {
        let Ok(message) = serde_json::from_slice::<Envelope<'_>>(body) else {
            return Err((400, "the body is not a JSON-RPC message"));
        };
        if message.method.as_deref() == Some("initialize") {
            return Err((400, "this connection is already initialized"));
        }
        let session = message.params.and_then(|params| params.session_id);
        if let (Some(header), Some(session)) = (header, &session)
            && header != session
        {
            return Err((400, "Acp-Session-Id is not the session of the message"));
        }
        let is_call = message.method.is_some();
        if let (true, Some(id)) = (is_call, message.id) {
            let is_new = matches!(message.method.as_deref(), Some("session/fork"));
            let stream = session.filter(|_| !is_new).map(Arc::from);
            let mut state = self.lock();
            state.used = Instant::now();
            if state.requests.len() >= REQUESTS {
                return Err((429, "too many unanswered requests"));
            }
            state.requests.insert(id.get().to_owned(), stream);
        }
        let line = super::websocket::line_of(body);
        self.input.send(line).await.map_err(|_| (404, "the connection has ended"))
    }

    /// Sends the first message.
    pub(super) async fn initialize(&self, body: &[u8]) -> Result<(), Refusal> {
        let line = super::websocket::line_of(body);
        self.input.send(line).await.map_err(|_| (404, "the connection has ended"))
    }

    /// Begins to read a stream. A reader that names the last event it has replaces the one before; any other must wait.
    pub(super) async fn read(
        self: &Arc<Self>,
        session: Option<&str>,
        last: Option<u64>,
    ) -> Result<Reader, Refusal> {
        let id: StreamId = session.map(Arc::from);
        let (reader, wake) = {
            let mut state = self.lock();
            state.used = Instant::now();
            if !state.streams.contains_key(&id) && state.streams.len() >= STREAMS {
                return Err((429, "too many streams"));
            }
            let stream = state.streams.entry(id.clone()).or_default();
            if stream.has_reader && last.is_none() {
                return Err((409, "the stream already has a reader"));
            }
            if last.is_some() {
                // What is numbered is read again from the journal.
                stream.queue.retain(|queued| queued.seq.is_none());
                stream.bytes = stream.queue.iter().map(|queued| queued.line.len()).sum();
            }
            stream.has_reader = true;
            stream.reader += 1;
            stream.wake.notify_waiters();
            (stream.reader, Arc::clone(&stream.wake))
        };
        self.room.notify_one();
        if let (Some(session), Some(last)) = (session, last) {
            let number = self.replays.fetch_add(1, Ordering::Relaxed);
            let call = serde_json::json!({
                "jsonrpc": "2.0",
                "id": format!("purlin-replay-{number}"),
                "method": "session/resume",
                "params": { "sessionId": session, "_meta": { "lastSeq": last } },
            });
            let line = super::websocket::line_of(call.to_string().as_bytes());
            self.input.send(line).await.map_err(|_| (404, "the connection has ended"))?;
        }
        Ok(Reader { connection: Arc::clone(self), id, reader, wake })
    }

    /// Queues a message; returns it if its stream is full.
    fn sort(&self, line: Vec<u8>) -> Result<(), Vec<u8>> {
        let mut state = self.lock();
        let Ok(message) = serde_json::from_slice::<Envelope<'_>>(&line) else { return Ok(()) };
        let (mut id, mut seq) = (None, None);
        match (&message.method, message.id) {
            (None, Some(request)) if request.get().starts_with(OWN) => return Ok(()),
            (None, request) => {
                if let Some(first) = state.first.take() {
                    // The receiver is dropped if the request was.
                    drop(first.send(line));
                    return Ok(());
                }
                if let Some(request) = request {
                    id = state.requests.get(request.get()).cloned().flatten();
                }
            }
            (Some(method), _) if method.starts_with("$/") => {}
            (Some(_), _) => {
                let params = message.params.unwrap_or_default();
                seq = params.meta.and_then(|meta| meta.seq);
                id = params.session_id.map(Arc::from);
            }
        }
        if id.is_some() && !state.streams.contains_key(&id) && state.streams.len() >= STREAMS {
            id = None;
        }
        let stream = state.streams.entry(id).or_default();
        if stream.queue.len() >= MESSAGES || (stream.bytes >= BYTES && !stream.queue.is_empty()) {
            return Err(line);
        }
        if message.method.is_none()
            && let Some(request) = message.id
        {
            let key = request.get().to_owned();
            stream.push(Queued { line: line.clone(), seq });
            state.requests.remove(&key);
            return Ok(());
        }
        stream.push(Queued { line: line.clone(), seq });
        Ok(())
    }
}

impl Stream {
    fn push(&mut self, queued: Queued) {
        self.bytes += queued.line.len();
        self.queue.push_back(queued);
        self.wake.notify_waiters();
    }
}

impl Sorter {
    /// Sorts messages until the dispatcher ends.
    pub(super) async fn run(mut self) {
        while let Some(mut batch) = self.batches.recv().await {
            for line in batch.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let mut waiting = Some(line.to_vec());
                while let Some(line) = waiting.take() {
                    let room = self.connection.room.notified();
                    tokio::pin!(room);
                    room.as_mut().enable();
                    if let Err(line) = self.connection.sort(line) {
                        waiting = Some(line);
                        tokio::select! {
                            () = room => {}
                            () = self.connection.stop.cancelled() => return,
                        }
                    }
                }
                self.progress.fetch_add(1, Ordering::Relaxed);
            }
            batch.clear();
            if self.to_ack.send(Ok(batch)).await.is_err() {
                return;
            }
        }
    }
}

/// Reads one stream, as the body of a response.
pub(super) struct Reader {
    connection: Arc<HttpConnection>,
    id: StreamId,
    reader: u64,
    wake: Arc<Notify>,
}

impl Reader {
    /// Returns the next event; `None` when another reader has taken the stream, or the connection has ended.
    pub(super) async fn next(&self) -> Option<Bytes> {
        loop {
            let wake = self.wake.notified();
            tokio::pin!(wake);
            wake.as_mut().enable();
            if let Some(event) = self.pop()? {
                self.connection.room.notify_one();
                return Some(event);
            }
            tokio::select! {
                woken = timeout(KEEP_ALIVE, wake) => {
                    if woken.is_err() {
                        return Some(Bytes::from_static(b":\n\n"));
                    }
                }
                () = self.connection.stop.cancelled() => return None,
            }
        }
    }

    /// Takes the next message; the outer `None` if the stream is no longer ours.
    fn pop(&self) -> Option<Option<Bytes>> {
        let mut state = self.connection.lock();
        let stream = state.streams.get_mut(&self.id)?;
        if stream.reader != self.reader {
            return None;
        }
        let Some(Queued { line, seq }) = stream.queue.pop_front() else { return Some(None) };
        stream.bytes -= line.len();
        let mut event = Vec::with_capacity(line.len() + 32);
        if let Some(seq) = seq {
            event.extend_from_slice(format!("id: {seq}\n").as_bytes());
        }
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(&line);
        event.extend_from_slice(b"\n\n");
        Some(Some(event.into()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        state.used = Instant::now();
        if let Some(stream) = state.streams.get_mut(&self.id)
            && stream.reader == self.reader
        {
            stream.has_reader = false;
        }
    }
}
