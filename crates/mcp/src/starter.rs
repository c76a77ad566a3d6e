//! A separate thread that starts processes, because starting one blocks its thread for a moment.
//!
//! The thread lives until the starter is dropped: a sandboxed process is killed when the thread that started it exits.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The most queued starts. If the queue is full, the next start fails.
const WAITING: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Starts processes. Clones share one thread.
#[derive(Debug, Clone, Default)]
pub struct Starter {
    jobs: Arc<OnceLock<Option<SyncSender<Job>>>>,
}

impl Starter {
    /// Runs `start` on the thread. Returns `None` if the queue is full or the thread could not be started.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        start: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, started) = oneshot::channel();
        let runtime = Handle::current();
        let job = Box::new(move || {
            let _inside = runtime.enter();
            drop(sender.send(start()));
        });
        let jobs = self.jobs.get_or_init(spawn_thread);
        jobs.as_ref()?.try_send(job).ok()?;
        started.await.ok()
    }
}

fn spawn_thread() -> Option<SyncSender<Job>> {
    let (jobs, waiting) = sync_channel::<Job>(WAITING);
    let work = move || waiting.iter().for_each(|job| job());
    std::thread::Builder::new().name("start".to_owned()).spawn(work).ok()?;
    Some(jobs)
}
