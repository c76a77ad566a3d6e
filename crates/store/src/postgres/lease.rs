//! Which processes are running, by leases in the database and its clock.
//!
//! Each process has one row, however many sessions it owns, and renews it. A lease only decides when another process may
//! take a session; that the old owner cannot write any more is the work of the epoch.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::ports::{Clock, SystemClock};

use super::connection::{Connection, Server};
use crate::journal::Error;
use crate::owner::{Owner, describe_process};

/// How often the lease is renewed.
const RENEWED: Duration = Duration::from_secs(3);

/// How long a lease lasts, for PostgreSQL.
const LEASE: &str = "interval '10 seconds'";

/// This process, as an owner of sessions in a shared database.
pub struct Lease {
    id: String,
    shared: Arc<Mutex<Shared>>,
    /// Dropping it stops the thread that renews the lease.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the lease and its thread share. The lock is held while the server is asked.
struct Shared {
    connection: Connection,
    /// When the lease was last renewed.
    renewed: Option<Instant>,
}

impl Lease {
    /// Makes an owner without a lease, and starts the thread that renews it.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn new(server: Server) -> std::io::Result<Lease> {
        let id = SystemClock.fresh_id();
        let shared = Shared { connection: Connection::new(server), renewed: None };
        let shared = Arc::new(Mutex::new(shared));
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
        renew(&mut self.connection, id)?;
        self.renewed = Some(started);
        Ok(())
    }
}

fn renew(connection: &mut Connection, id: &str) -> Result<(), Error> {
    let statement = format!(
        "INSERT INTO purlin_node(id, description, lease_until) VALUES ($1, $2, now() + {LEASE})
         ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until"
    );
    connection.run(|client, _| {
        client.execute(&statement, &[&id, &describe_process()])?;
        client
            .execute("DELETE FROM purlin_node WHERE lease_until < now() - interval '1 day'", &[])?;
        Ok(())
    })
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
        let found = self.shared().connection.run(|client, _| {
            client.query_opt(
                "SELECT description FROM purlin_node WHERE id = $1 AND lease_until > now()",
                &[&owner],
            )
        });
        match found {
            Ok(row) => row.map(|row| row.get(0)),
            // Nobody takes a session from an owner that may be running.
            Err(err) => Some(format!("an unknown process: {err}")),
        }
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
        if shared.renewed.is_none() {
            return;
        }
        let ended = shared
            .connection
            .run(|client, _| client.execute("DELETE FROM purlin_node WHERE id = $1", &[&self.id]));
        if let Err(err) = ended {
            tracing::debug!("cannot end the lease on sessions: {err}");
        }
    }
}
