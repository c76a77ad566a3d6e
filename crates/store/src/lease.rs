//! Which machines are running, by leases in the shared store and its clock.
//!
//! Each process has one lease, however many sessions it owns, and renews it. A lease only decides when another process may
//! take a session; that the old owner cannot write any more is the work of the epoch.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::ports::{Clock, SystemClock};

use crate::journal::Error;
use crate::owner::{Owner, describe_process};

/// How often the lease is renewed.
const RENEWED: Duration = Duration::from_secs(3);

/// How many seconds a lease lasts.
pub(crate) const LEASE_SECONDS: u32 = 10;

/// The leases in a store.
pub trait Leases: Send {
    /// Takes or renews the lease of a process.
    ///
    /// # Errors
    /// Says why the store cannot be used.
    fn renew(&mut self, id: &str, description: &str) -> Result<(), Error>;

    /// Returns the description of a process whose lease has not ended.
    ///
    /// # Errors
    /// Says why the store cannot be used.
    fn find(&mut self, id: &str) -> Result<Option<String>, Error>;

    /// Ends a lease.
    ///
    /// # Errors
    /// Says why the store cannot be used.
    fn end(&mut self, id: &str) -> Result<(), Error>;
}

/// This process, as an owner of sessions in a shared store.
pub struct Lease {
    id: String,
    shared: Arc<Mutex<Shared>>,
    /// Dropping it stops the thread that renews the lease.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the lease and its thread share. The lock is held while the store is asked.
struct Shared {
    leases: Box<dyn Leases>,
    /// When the lease was last renewed.
    renewed: Option<Instant>,
}

impl Lease {
    /// Makes an owner without a lease, and starts the thread that renews it.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn new(leases: Box<dyn Leases>) -> std::io::Result<Lease> {
        let id = SystemClock.fresh_id();
        let shared = Arc::new(Mutex::new(Shared { leases, renewed: None }));
        // Nothing is ever sent: the channel only signals its end.
        let (stop, stopped) = sync_channel(0);
        let (of_thread, name) = (Arc::clone(&shared), id.clone());
        let work = move || {
            while stopped.recv_timeout(RENEWED) == Err(RecvTimeoutError::Timeout) {
                let mut shared = of_thread.lock().unwrap_or_else(PoisonError::into_inner);
                // A process without sessions needs no lease.
                if shared.renewed.is_some()
                    && let Err(err) = shared.renew(&name)
                {
                    tracing::warn!("cannot renew the lease on sessions: {err}");
                }
            }
        };
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(work)?;
        Ok(Lease { id, shared, stop: Some(stop), thread: Some(thread) })
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn renew(&mut self, id: &str) -> Result<(), Error> {
        let started = Instant::now();
        self.leases.renew(id, &describe_process())?;
        self.renewed = Some(started);
        Ok(())
    }
}

impl Owner for Lease {
    fn id(&self) -> &str {
        &self.id
    }

    fn renew(&self) -> Result<(), Error> {
        let mut shared = self.shared();
        if shared.renewed.is_some_and(|renewed| renewed.elapsed() < RENEWED) {
            return Ok(());
        }
        shared.renew(&self.id)
    }

    fn describe_owner(&self, owner: &str) -> Option<String> {
        // Nobody takes a session from an owner that may be running.
        self.shared()
            .leases
            .find(owner)
            .unwrap_or_else(|err| Some(format!("an unknown process: {err}")))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It only fails if the thread panicked, and that was reported.
            drop(thread.join());
        }
        let mut shared = self.shared();
        if shared.renewed.is_some()
            && let Err(err) = shared.leases.end(&self.id)
        {
            tracing::debug!("cannot end the lease on sessions: {err}");
        }
    }
}
