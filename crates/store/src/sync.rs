//! The thread that makes commits survive a power failure. It waits for the disk so that no other thread has to.
//!
//! It syncs the write-ahead log through its own file handle: SQLite's sync would block all later writes.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use engine::ports::{JournalError, SpanFacts, SpanKind};
use tokio::sync::oneshot;

use crate::options::{Shared, SyncAll};

/// Receives the result of a sync.
pub(crate) type Ack = oneshot::Sender<Result<(), JournalError>>;

/// How many requests may wait. When the channel is full, the sender waits.
const MAX_WAITING: usize = 1024;

/// How long a sync that no caller waits for is delayed, to combine it with others and to keep the disk free meanwhile.
const MAX_DELAY: Duration = Duration::from_millis(20);

/// A handle to the thread.
#[derive(Debug)]
pub(crate) struct Syncer {
    requests: SyncSender<Option<Ack>>,
}

impl Syncer {
    /// Starts the thread.
    pub(crate) fn start(sync: SyncAll, shared: &Arc<Shared>) -> std::io::Result<Syncer> {
        let (requests, waiting) = sync_channel(MAX_WAITING);
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("sync".to_owned()).stack_size(128 * 1024);
        thread.spawn(move || run(sync, &waiting, &shared))?;
        Ok(Syncer { requests })
    }

    /// Requests a sync of everything that is written; `ack` gets the result.
    pub(crate) fn request(&self, ack: Option<Ack>) {
        let request = match self.requests.try_send(ack) {
            Ok(()) => return,
            // No caller waits for this one, and the pending syncs include it.
            Err(TrySendError::Full(None)) => return,
            Err(TrySendError::Full(ack) | TrySendError::Disconnected(ack)) => ack,
        };
        if let Err(err) = self.requests.send(request) {
            let why = "the sync thread has stopped".to_owned();
            err.0.into_iter().for_each(|ack| answer(ack, Err(JournalError::Failed(why.clone()))));
        }
    }
}

/// Returns the function that syncs a log. It opens the log every time, because a recovery replaces the file.
pub(crate) fn of_log(log: PathBuf) -> SyncAll {
    Box::new(move || match File::open(&log) {
        Ok(file) => file.sync_data(),
        // No log, so nothing is only in the log.
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(err) => Err(err),
    })
}

fn run(mut sync: SyncAll, waiting: &Receiver<Option<Ack>>, shared: &Shared) {
    while let Ok(first) = waiting.recv() {
        let begun = Instant::now();
        let mut acks: Vec<Ack> = first.into_iter().collect();
        while acks.is_empty()
            && let Ok(next) = waiting.recv_timeout(MAX_DELAY.saturating_sub(begun.elapsed()))
        {
            acks.extend(next);
        }
        // One sync serves all requests that arrived before it started.
        acks.extend(waiting.try_iter().flatten());
        let span = shared.spans.begin(SpanKind::Sync, "journal", SpanFacts::default());
        let synced = sync();
        span.end_with(&synced);
        let synced = synced.map_err(|err| {
            // After a failed sync a later one may succeed although the data is lost, so the failure is final.
            tracing::error!("sync failed: {err}");
            let why = format!("sync to disk failed: {err}");
            // If no caller waits now, the next append reports it.
            *shared.unsynced.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
            JournalError::Failed(why)
        });
        acks.into_iter().for_each(|ack| answer(ack, synced.clone()));
    }
}

fn answer(ack: Ack, synced: Result<(), JournalError>) {
    // Fails only if the receiver was cancelled.
    drop(ack.send(synced));
}
