//! The shared state of one server: its status, what it offers, its log. `supervisor` updates it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ports::Editor;
use process::Tail;
use process::container::Containers;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clean::clean;
use crate::config::{ServerConfig, Transport};
use crate::connection::Peer;
use crate::error::Error;
use crate::offer::Offer;

/// How many bytes of a server's stderr are stored.
const LOG_SIZE: usize = 64 * 1024;
/// Shorter values of variables and headers are no secrets.
const MIN_SECRET: usize = 8;
/// How many bytes of it an error message quotes.
const LOG_EXCERPT: usize = 400;

/// A supervised server.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    /// The directories of its session, the working directory first. Empty for a shared server.
    pub(crate) roots: Vec<PathBuf>,
    /// The session, for the log. Empty for a shared server.
    pub(crate) session: Arc<str>,
    /// The containers of the session, if it has any.
    pub(crate) containers: Option<Arc<Containers>>,
    status: watch::Sender<Status>,
    log: Mutex<Tail>,
    /// Cancelled when no session uses it any more.
    pub(crate) stop: CancellationToken,
    /// Notified when its lists changed.
    pub(crate) relist: Notify,
    /// Notified when the user requests a restart.
    pub(crate) retry: Notify,
    /// The number of calls in a row that timed out.
    timeouts: AtomicU32,
    /// Notified when it is to be ended because it does not respond.
    pub(crate) unresponsive: Notify,
    /// Where to send the progress of each call.
    progress: Mutex<HashMap<u64, mpsc::Sender<String>>>,
    /// The editor whose user it may ask. None for a shared server.
    editor: Mutex<Option<Arc<dyn Editor>>>,
    /// Allows one elicitation at a time; further ones are cancelled at once.
    pub(crate) elicitations: Semaphore,
}

/// The status of a server.
#[derive(Clone)]
pub(crate) struct Status {
    pub(crate) phase: Phase,
    pub(crate) offer: Arc<Offer>,
    pub(crate) peer: Option<Peer>,
    /// The last error. It remains after the server has recovered.
    pub(crate) error: Option<Error>,
    /// Increases when the offer changes.
    pub(crate) version: u64,
}

/// The phase of a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Starting.
    Starting,
    /// Starting, and taking longer than expected.
    Late,
    /// Its tools can be used.
    Ready,
    /// Failed, and restarted after this delay.
    Waiting(Duration),
    /// Failed, and not restarted automatically.
    Failed,
    /// Stopped, because no session uses it.
    Stopped,
}

impl Server {
    pub(crate) fn new(
        config: ServerConfig,
        roots: Vec<PathBuf>,
        containers: Option<Arc<Containers>>,
    ) -> Server {
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
            session: "".into(),
            containers,
            status: watch::Sender::new(status),
            log: Mutex::new(Tail::new(LOG_SIZE)),
            stop: CancellationToken::new(),
            relist: Notify::new(),
            retry: Notify::new(),
            timeouts: AtomicU32::new(0),
            unresponsive: Notify::new(),
            progress: Mutex::default(),
            editor: Mutex::default(),
            elicitations: Semaphore::new(1),
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

    /// Changes the phase. A server that is not ready has no connection.
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
        self.timeouts.store(0, Ordering::Relaxed);
        self.status.send_modify(|status| {
            status.phase = Phase::Ready;
            status.peer = Some(peer);
            status.offer = Arc::new(offer);
            status.version += 1;
        });
    }

    /// Appends output to the log.
    pub(crate) fn log(&self, bytes: &[u8]) {
        lock(&self.log).push(bytes);
    }

    /// Returns the end of the log, cleaned for display, without the values of its variables and headers: it may print them.
    pub(crate) fn log_tail(&self, limit: usize) -> String {
        let mut text = lock(&self.log).text();
        let secrets = match &self.config.transport {
            Transport::Command(command) => &command.env,
            Transport::Http(remote) | Transport::Sse(remote) => &remote.headers,
        };
        for (_, secret) in secrets {
            if secret.reveal().len() >= MIN_SECRET {
                text = text.replace(secret.reveal(), "****");
            }
        }
        let start = text.ceil_char_boundary(text.len().saturating_sub(limit));
        clean(text[start..].trim(), limit)
    }

    /// Returns the end of the log for an error message.
    pub(crate) fn log_excerpt(&self) -> String {
        self.log_tail(LOG_EXCERPT)
    }

    /// Records that a call timed out. After two in a row the server is ended.
    pub(crate) fn record_timeout(&self) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= 2 {
            self.unresponsive.notify_one();
        }
    }

    pub(crate) fn record_answer(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
    }

    /// Sends the progress of a call to `listener` until the returned guard is dropped.
    pub(crate) fn listen(
        self: &Arc<Self>,
        call: u64,
        listener: mpsc::Sender<String>,
    ) -> ProgressGuard {
        lock(&self.progress).insert(call, listener);
        ProgressGuard { server: Arc::clone(self), call }
    }

    /// Forwards the progress of a call. If the listener is full, it is dropped: the next one supersedes it.
    pub(crate) fn forward_progress(&self, call: u64, progress: impl FnOnce() -> String) {
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

/// Removes the listener of a call when it is dropped.
pub(crate) struct ProgressGuard {
    server: Arc<Server>,
    call: u64,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        lock(&self.server.progress).remove(&self.call);
    }
}

/// Locks a mutex. A poisoned one is used as well: no update here can be left half done by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
