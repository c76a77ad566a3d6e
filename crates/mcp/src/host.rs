//! The host: runs the servers of all sessions. Sessions share a server if its configuration permits it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use process::container::Containers;
use process::sandbox::Sandbox;
use tokio::task::JoinSet;

use crate::config::ServerConfig;
use crate::oauth::Login;
use crate::server::{Server, lock};
use crate::starter::Starter;
use crate::supervisor::supervise;

/// The options that apply to all servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Timeouts and delays.
    pub timing: Timing,
    /// The environment variables that every server gets. It inherits no others.
    pub environment: Vec<(OsString, OsString)>,
    /// The working directory of a server that belongs to no session.
    pub directory: PathBuf,
    /// The stored logins.
    pub login: Login,
    /// Ends the servers' processes if this process is killed.
    pub guard: process::Guard,
    /// The thread that starts processes.
    pub starter: Starter,
    /// The restrictions on local servers, if there are any.
    pub confinement: Option<Confinement>,
}

/// The restrictions on local servers. They may use the network, and read everything that is not hidden.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The sandbox of this machine.
    pub sandbox: Arc<Sandbox>,
    /// Paths that they cannot see.
    pub hidden: Vec<PathBuf>,
    /// Directories that they can write to, in addition to those of their session.
    pub writable: Vec<PathBuf>,
    /// Where each server gets a directory of its own for caches; `None` for none.
    pub caches: Option<PathBuf>,
    /// Names at the top of the session's directories that they cannot change, because other programs run what is in them.
    pub protected: Vec<&'static str>,
}

/// Timeouts and delays.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long a start may take before the user is notified.
    pub start: Duration,
    /// How much longer a late start may take before it fails.
    pub start_limit: Duration,
    /// How long a call may take without reporting progress.
    pub call: Duration,
    /// How long a call that reports progress may take in total.
    pub call_limit: Duration,
    /// The first delay before a restart. It doubles with each failure.
    pub first_wait: Duration,
    /// The longest delay before a restart.
    pub longest_wait: Duration,
    /// How long a server must run before its failures are forgotten.
    pub steady: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            start: Duration::from_secs(5),
            start_limit: Duration::from_secs(55),
            call: Duration::from_secs(60),
            call_limit: Duration::from_secs(600),
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
            steady: Duration::from_secs(120),
        }
    }
}

impl Timing {
    pub(crate) fn wait_after(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_wait.saturating_mul(doubled).min(self.longest_wait)
    }
}

/// How long all servers together may take to exit at shutdown.
const SHUTDOWN: Duration = Duration::from_millis(700);

/// Runs the servers of all sessions.
pub struct Host {
    pub(crate) options: Arc<Options>,
    tasks: Mutex<JoinSet<()>>,
    /// The shared servers that at least one session uses.
    shared: Mutex<HashMap<ServerConfig, Weak<Lease>>>,
}

impl Host {
    /// Creates a host without any servers.
    #[must_use]
    pub fn new(options: Options) -> Arc<Host> {
        Arc::new(Host {
            options: Arc::new(options),
            tasks: Mutex::default(),
            shared: Mutex::default(),
        })
    }

    /// Starts a server for a session, or returns the running one if it is shared.
    pub(crate) fn lease(
        &self,
        config: &ServerConfig,
        roots: &[PathBuf],
        containers: Option<&Arc<Containers>>,
        session: &Arc<str>,
    ) -> Arc<Lease> {
        if !config.is_shared || config.is_in_container {
            return self.run(config, roots.to_vec(), containers.cloned(), Arc::clone(session));
        }
        let mut shared = lock(&self.shared);
        shared.retain(|_, lease| lease.strong_count() > 0);
        if let Some(lease) = shared.get(config).and_then(Weak::upgrade) {
            return lease;
        }
        let lease = self.run(config, Vec::new(), None, "".into());
        shared.insert(config.clone(), Arc::downgrade(&lease));
        lease
    }

    fn run(
        &self,
        config: &ServerConfig,
        roots: Vec<PathBuf>,
        containers: Option<Arc<Containers>>,
        session: Arc<str>,
    ) -> Arc<Lease> {
        let mut server = Server::new(config.clone(), roots, containers);
        server.session = session;
        let server = Arc::new(server);
        self.spawn(supervise(Arc::clone(&server), Arc::clone(&self.options)));
        Arc::new(Lease { server })
    }

    /// Runs a task until it is done or the host ends.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        // Finished tasks are removed here; otherwise the set would grow without bound.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Waits briefly for stopped servers to exit, then kills the rest. All sessions must be closed before.
    pub async fn end(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN, ended).await.is_err() {
            tracing::debug!("killing MCP servers that did not exit in time");
        }
        tasks.shutdown().await;
    }
}

/// A reference to a running server. Dropping the last one stops it.
pub(crate) struct Lease {
    pub(crate) server: Arc<Server>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.stop.cancel();
    }
}
