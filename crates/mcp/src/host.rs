//! The host: runs the servers of all sessions, shares those that may be shared, ends them all.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use process::sandbox::Sandbox;
use tokio::task::JoinSet;

use crate::config::ServerConfig;
use crate::oauth::Login;
use crate::server::{Server, lock};
use crate::starter::Starter;
use crate::supervisor::supervise;

/// What all servers run with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time limits.
    pub timing: Timing,
    /// The environment variables that every program gets. It gets none of our others.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder of a program that belongs to no session.
    pub folder: PathBuf,
    /// The stored logins.
    pub login: Login,
    /// Ends the programs when we are killed.
    pub guard: process::Guard,
    /// Starts them.
    pub starter: Starter,
    /// Their sandbox, if there is one.
    pub confine: Option<Confine>,
}

/// What the programs of servers are held back by. They may use the network, and read what is not hidden.
#[derive(Debug, Clone)]
pub struct Confine {
    /// The sandbox of this machine.
    pub sandbox: Arc<Sandbox>,
    /// Hidden paths.
    pub hidden: Vec<PathBuf>,
    /// Writable paths in addition to the folders of their session.
    pub writable: Vec<PathBuf>,
    /// Writable folders that programs of these names need.
    pub caches: Vec<(&'static str, PathBuf)>,
}

/// Time limits.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A start, before the user is warned.
    pub start: Duration,
    /// A slow start, before it is given up.
    pub start_most: Duration,
    /// A call without progress.
    pub call: Duration,
    /// A call with progress.
    pub call_most: Duration,
    /// The first delay before a restart; each is twice as long as the last.
    pub first_wait: Duration,
    /// The longest delay before a restart.
    pub longest_wait: Duration,
    /// After how long without a failure the count is reset.
    pub steady: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            start: Duration::from_secs(5),
            start_most: Duration::from_secs(55),
            call: Duration::from_secs(60),
            call_most: Duration::from_secs(600),
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

/// How long all servers may take to end by themselves when the program ends.
const END: Duration = Duration::from_millis(700);

/// Runs the servers of all sessions.
pub struct Host {
    pub(crate) options: Arc<Options>,
    tasks: Mutex<JoinSet<()>>,
    /// The shared servers that are in use.
    shared: Mutex<HashMap<ServerConfig, Weak<Lease>>>,
}

impl Host {
    /// Makes a host that runs nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Arc<Host> {
        Arc::new(Host {
            options: Arc::new(options),
            tasks: Mutex::default(),
            shared: Mutex::default(),
        })
    }

    /// Returns a running server: a shared one, or one for this session only.
    pub(crate) fn lease(&self, config: &ServerConfig, roots: &[PathBuf]) -> Arc<Lease> {
        if !config.is_shared {
            return self.run(config, roots.to_vec());
        }
        let mut shared = lock(&self.shared);
        shared.retain(|_, lease| lease.strong_count() > 0);
        if let Some(lease) = shared.get(config).and_then(Weak::upgrade) {
            return lease;
        }
        let lease = self.run(config, Vec::new());
        shared.insert(config.clone(), Arc::downgrade(&lease));
        lease
    }

    fn run(&self, config: &ServerConfig, roots: Vec<PathBuf>) -> Arc<Lease> {
        let server = Arc::new(Server::new(config.clone(), roots));
        self.spawn(supervise(Arc::clone(&server), Arc::clone(&self.options)));
        Arc::new(Lease { server })
    }

    /// Runs something until it is done or the host ends.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        // Removes finished tasks; otherwise the set would grow forever.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Waits a moment for stopped servers to end, then kills the rest. Their sessions have already ended.
    pub async fn end(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(END, ended).await.is_err() {
            tracing::debug!("MCP servers that did not end in time are killed");
        }
        tasks.shutdown().await;
    }
}

/// The right to use a server; the last one to go stops it.
pub(crate) struct Lease {
    pub(crate) server: Arc<Server>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.stop.cancel();
    }
}
