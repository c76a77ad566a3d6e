//! The thread that makes commits survive the death of the machine. It waits for the disk so that nobody else has to.
//!
//! It syncs the write-ahead log through a handle of its own: SQLite's own sync would hold up every write behind it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use engine::ports::JournalError;
use tokio::sync::oneshot;

/// Who waits for a sync.
pub(crate) type Ack = oneshot::Sender<Result<(), JournalError>>;

/// How many may wait for a sync. Full: whoever asks for one waits, too.
const WAITING: usize = 1024;

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Syncer {
    requests: SyncSender<Option<Ack>>,
}

impl Syncer {
    /// Starts the thread for a log.
    pub(crate) fn start(log: PathBuf) -> std::io::Result<Syncer> {
        let (requests, waiting) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("sync".to_owned()).stack_size(128 * 1024);
        thread.spawn(move || run(&log, &waiting))?;
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
            answer(err.0, &Err(JournalError::Failed("the disk is not synced any more".to_owned())));
        }
    }
}

fn run(log: &PathBuf, waiting: &Receiver<Option<Ack>>) {
    let mut file = None;
    while let Ok(first) = waiting.recv() {
        // One sync does for all that asked before it began.
        let mut acks = vec![first];
        acks.extend(waiting.try_iter());
        let synced = sync(log, &mut file).map_err(|err| {
            // What the disk refused once it may claim to have later; it is never asked about the same writes again.
            tracing::error!("the disk does not sync: {err}");
            JournalError::Failed(format!("the disk does not sync: {err}"))
        });
        acks.into_iter().for_each(|ack| answer(ack, &synced));
    }
}

fn sync(log: &PathBuf, file: &mut Option<File>) -> std::io::Result<()> {
    match file {
        Some(file) => file.sync_data(),
        None => file.insert(File::open(log)?).sync_data(),
    }
}

fn answer(ack: Option<Ack>, synced: &Result<(), JournalError>) {
    // Whoever stopped waiting was cancelled.
    drop(ack.map(|ack| ack.send(synced.clone())));
}
