//! A thread that starts programs: starting takes a moment and would block everything else.
//!
//! The thread stays alive, because a sandboxed program ends with the thread that started it.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How many starts may wait. When it is full, the next one is refused.
const WAITING: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Starts programs. Clones share one thread.
#[derive(Debug, Clone, Default)]
pub struct Starter {
    jobs: Arc<OnceLock<Option<SyncSender<Job>>>>,
}

impl Starter {
    /// Runs a start on the thread. `None` if that is impossible.
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
        let jobs = self.jobs.get_or_init(begin);
        jobs.as_ref()?.try_send(job).ok()?;
        started.await.ok()
    }
}

fn begin() -> Option<SyncSender<Job>> {
    let (jobs, waiting) = sync_channel::<Job>(WAITING);
    let work = move || waiting.iter().for_each(|job| job());
    std::thread::Builder::new().name("start".to_owned()).spawn(work).ok()?;
    Some(jobs)
}
