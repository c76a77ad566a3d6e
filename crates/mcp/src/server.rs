//! One server as the rest sees it: its state, its offer, its log. `supervisor` changes them.

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

/// How much of what a server says on stderr is kept.
const LOG: usize = 64 * 1024;
/// How much of it an error repeats.
const LAST_WORDS: usize = 400;

/// A server that is supervised.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    /// The folders of its session, the working folder first; none for a server that sessions share.
    pub(crate) roots: Vec<PathBuf>,
    status: watch::Sender<Status>,
    log: Mutex<Tail>,
    /// Fires when nobody needs it any more.
    pub(crate) stop: CancellationToken,
    /// Its lists changed.
    pub(crate) relist: Notify,
    /// Somebody wants it tried again after it was given up.
    pub(crate) retry: Notify,
    /// Calls in a row that got no answer.
    hangs: AtomicU32,
    pub(crate) hung: Notify,
    /// Who waits for news of which call.
    progress: Mutex<HashMap<u64, mpsc::Sender<String>>>,
    /// Whose user it may ask; nobody's for a server that sessions share.
    editor: Mutex<Option<Arc<dyn Editor>>>,
    /// One question of a server at a time: a flood of them is refused.
    pub(crate) questions: Semaphore,
}

/// How a server is.
#[derive(Clone)]
pub(crate) struct Status {
    pub(crate) phase: Phase,
    pub(crate) offer: Arc<Offer>,
    pub(crate) peer: Option<Peer>,
    /// What went wrong last; stays when it works again.
    pub(crate) error: Option<Error>,
    /// Grows when the offer changes.
    pub(crate) version: u64,
}

/// What a server is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Being started.
    Starting,
    /// Being started, for longer than it should take.
    Late,
    /// Its tools can be used.
    Ready,
    /// Failed, and will be started again after this time.
    Waiting(Duration),
    /// Failed, and will not be tried again.
    Failed,
    /// Not needed.
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

    /// Changes the phase; what is not ready offers nothing.
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

    /// Takes what the server said on stderr.
    pub(crate) fn log(&self, bytes: &[u8]) {
        lock(&self.log).push(bytes);
    }

    /// Returns the end of what it said, fit to be shown.
    pub(crate) fn log_tail(&self, limit: usize) -> String {
        let text = lock(&self.log).text();
        let start = text.ceil_char_boundary(text.len().saturating_sub(limit));
        clean(text[start..].trim(), limit)
    }

    pub(crate) fn last_words(&self) -> String {
        self.log_tail(LAST_WORDS)
    }

    /// Notes that a call got no answer in time; after two in a row the server is ended.
    pub(crate) fn note_hang(&self) {
        if self.hangs.fetch_add(1, Ordering::Relaxed) + 1 >= 2 {
            self.hung.notify_one();
        }
    }

    pub(crate) fn note_answer(&self) {
        self.hangs.store(0, Ordering::Relaxed);
    }

    /// Sends the news of a call to `listener` until the returned guard is dropped.
    pub(crate) fn listen(self: &Arc<Self>, call: u64, listener: mpsc::Sender<String>) -> Listening {
        lock(&self.progress).insert(call, listener);
        Listening { server: Arc::clone(self), call }
    }

    /// Passes news on. Where nobody keeps up with them they are dropped: the next ones say more.
    pub(crate) fn tell_progress(&self, call: u64, news: impl FnOnce() -> String) {
        if let Some(listener) = lock(&self.progress).get(&call) {
            drop(listener.try_send(news()));
        }
    }

    pub(crate) fn set_editor(&self, editor: Option<Arc<dyn Editor>>) {
        *lock(&self.editor) = editor;
    }

    pub(crate) fn editor(&self) -> Option<Arc<dyn Editor>> {
        lock(&self.editor).clone()
    }
}

/// Somebody who wants news of a call.
pub(crate) struct Listening {
    server: Arc<Server>,
    call: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.server.progress).remove(&self.call);
    }
}

/// A map or a slot that was left by a panic is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
