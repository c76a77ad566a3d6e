//! The thread that makes commits survive the death of the machine. It waits for the disk so that nobody else has to.
//!
//! It syncs the write-ahead log through a handle of its own: SQLite's own sync would hold up every write behind it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use engine::ports::JournalError;
use tokio::sync::oneshot;

use crate::store::{Shared, SyncAll};

/// Who waits for a sync.
pub(crate) type Ack = oneshot::Sender<Result<(), JournalError>>;

/// How many may wait for a sync. Full: whoever asks for one waits, too.
const WAITING: usize = 1024;

/// How long a sync that nobody waits for gathers others. Meanwhile the disk, and a core, are free for the answer.
const SOON: Duration = Duration::from_millis(20);

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Syncer {
    requests: SyncSender<Option<Ack>>,
}

impl Syncer {
    /// Starts the thread.
    pub(crate) fn start(sync: SyncAll, shared: &Arc<Shared>) -> std::io::Result<Syncer> {
        let (requests, waiting) = sync_channel(WAITING);
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("sync".to_owned()).stack_size(128 * 1024);
        thread.spawn(move || run(sync, &waiting, &shared))?;
        Ok(Syncer { requests })
    }

    /// Asks for a sync of all that is written; `ack` is answered when it is done.
    pub(crate) fn request(&self, ack: Option<Ack>) {
        let request = match self.requests.try_send(ack) {
            Ok(()) => return,
            // Without anybody waiting, the syncs that are due already will do.
            Err(TrySendError::Full(None)) => return,
            Err(TrySendError::Full(ack) | TrySendError::Disconnected(ack)) => ack,
        };
        if let Err(err) = self.requests.send(request) {
            let why = "the disk is not synced any more".to_owned();
            err.0.into_iter().for_each(|ack| answer(ack, Err(JournalError::Failed(why.clone()))));
        }
    }
}

/// Returns what syncs a log.
pub(crate) fn of_log(log: PathBuf) -> SyncAll {
    let mut file: Option<File> = None;
    Box::new(move || match &file {
        Some(file) => file.sync_data(),
        None => file.insert(File::open(&log)?).sync_data(),
    })
}

fn run(mut sync: SyncAll, waiting: &Receiver<Option<Ack>>, shared: &Shared) {
    while let Ok(first) = waiting.recv() {
        let begun = Instant::now();
        let mut acks: Vec<Ack> = first.into_iter().collect();
        while acks.is_empty()
            && let Ok(next) = waiting.recv_timeout(SOON.saturating_sub(begun.elapsed()))
        {
            acks.extend(next);
        }
        // One sync does for all that asked before it began.
        acks.extend(waiting.try_iter().flatten());
        let synced = sync().map_err(|err| {
            // What the disk refused once it may claim to have later; it is never asked about the same writes again.
            tracing::error!("the disk does not sync: {err}");
            let why = format!("the disk does not sync: {err}");
            // Nobody may be waiting now: the next record of any turn is told.
            *shared.unsynced.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
            JournalError::Failed(why)
        });
        acks.into_iter().for_each(|ack| answer(ack, synced.clone()));
    }
}

fn answer(ack: Ack, synced: Result<(), JournalError>) {
    // Whoever stopped waiting was cancelled.
    drop(ack.send(synced));
}
