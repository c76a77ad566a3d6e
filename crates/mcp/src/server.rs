//! One server: its state, its offer, its log. `supervisor` changes them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ports::Editor;
use process::Tail;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clean::clean;
use crate::config::ServerConfig;
use crate::connection::Peer;
use crate::error::Error;
use crate::offer::Offer;

/// How many bytes of a server's log are kept in memory.
const LOG: usize = 64 * 1024;
/// How many bytes of the log an error repeats.
const LAST_WORDS: usize = 400;

/// A server that is supervised.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    /// The folders of its session, the working folder first; empty for a shared server.
    pub(crate) roots: Vec<PathBuf>,
    status: watch::Sender<Status>,
    log: Mutex<Tail>,
    /// Fires when it is no longer needed.
    pub(crate) stop: CancellationToken,
    /// Its lists changed.
    pub(crate) relist: Notify,
    /// A restart was requested after it was given up.
    pub(crate) retry: Notify,
    /// The number of consecutive calls without an answer.
    hangs: AtomicU32,
    pub(crate) hung: Notify,
    /// Listeners for the progress of calls.
    progress: Mutex<HashMap<u64, mpsc::Sender<String>>>,
    /// The client whose user it may ask; `None` for a shared server.
    editor: Mutex<Option<Arc<dyn Editor>>>,
    /// Locked while the server asks a question: further ones are refused.
    pub(crate) questions: Semaphore,
}

/// The status of a server.
#[derive(Clone)]
pub(crate) struct Status {
    pub(crate) phase: Phase,
    pub(crate) offer: Arc<Offer>,
    pub(crate) peer: Option<Peer>,
    /// The last error; stays after a recovery.
    pub(crate) error: Option<Error>,
    /// Grows when the offer changes.
    pub(crate) version: u64,
}

/// The phase of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Starting.
    Starting,
    /// Still starting, after the time limit.
    Late,
    /// Ready.
    Ready,
    /// Failed; it restarts after this time.
    Waiting(Duration),
    /// Failed for good.
    Failed,
    /// Stopped.
    Stopped,
}

impl Server {
    pub(crate) fn new(config: ServerConfig, roots: Vec<PathBuf>) -> Server {
        let status = Status {
            phase: Phase::Starting,
            offer: Arc::default(),
            peer: None,
            error: None,
            version: 0,
        };
        Server {
            config,
            roots,
            status: watch::Sender::new(status),
            log: Mutex::new(Tail::new(LOG)),
            stop: CancellationToken::new(),
            relist: Notify::new(),
            retry: Notify::new(),
            hangs: AtomicU32::new(0),
            hung: Notify::new(),
            progress: Mutex::default(),
            editor: Mutex::default(),
            questions: Semaphore::new(1),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Changes the phase. Only a ready server has a peer.
    pub(crate) fn set_phase(&self, phase: Phase, error: Option<Error>) {
        self.status.send_modify(|status| {
            status.phase = phase;
            if phase != Phase::Ready && status.peer.take().is_some() {
                status.version += 1;
            }
            if error.is_some() {
                status.error = error;
            }
        });
    }

    pub(crate) fn set_ready(&self, peer: Peer, offer: Offer) {
        self.hangs.store(0, Ordering::Relaxed);
        self.status.send_modify(|status| {
            status.phase = Phase::Ready;
            status.peer = Some(peer);
            status.offer = Arc::new(offer);
            status.version += 1;
        });
    }

    /// Adds log output.
    pub(crate) fn log(&self, bytes: &[u8]) {
        lock(&self.log).push(bytes);
    }

    /// Returns the end of the log, cleaned.
    pub(crate) fn log_tail(&self, limit: usize) -> String {
        let text = lock(&self.log).text();
        let start = text.ceil_char_boundary(text.len().saturating_sub(limit));
        clean(text[start..].trim(), limit)
    }

    pub(crate) fn last_words(&self) -> String {
        self.log_tail(LAST_WORDS)
    }

    /// Notes a call without an answer; after two in a row the server is stopped.
    pub(crate) fn note_hang(&self) {
        if self.hangs.fetch_add(1, Ordering::Relaxed) + 1 >= 2 {
            self.hung.notify_one();
        }
    }

    pub(crate) fn note_answer(&self) {
        self.hangs.store(0, Ordering::Relaxed);
    }

    /// Sends the progress of a call to `listener` until the returned guard is dropped.
    pub(crate) fn listen(self: &Arc<Self>, call: u64, listener: mpsc::Sender<String>) -> Listening {
        lock(&self.progress).insert(call, listener);
        Listening { server: Arc::clone(self), call }
    }

    /// Passes progress on. If the listener is slow, it is dropped: the next one is more recent.
    pub(crate) fn tell_progress(&self, call: u64, progress: impl FnOnce() -> String) {
        if let Some(listener) = lock(&self.progress).get(&call) {
            drop(listener.try_send(progress()));
        }
    }

    pub(crate) fn set_editor(&self, editor: Option<Arc<dyn Editor>>) {
        *lock(&self.editor) = editor;
    }

    pub(crate) fn editor(&self) -> Option<Arc<dyn Editor>> {
        lock(&self.editor).clone()
    }
}

/// A listener for the progress of a call.
pub(crate) struct Listening {
    server: Arc<Server>,
    call: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.server.progress).remove(&self.call);
    }
}

/// Locks a mutex. The data is valid even after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
