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

/// What all servers are run with.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long things may take.
    pub timing: Timing,
    /// The variables that every program gets; nothing else of ours reaches it.
    pub environment: Vec<(OsString, OsString)>,
    /// Where a program runs that belongs to no session.
    pub folder: PathBuf,
    /// The log-ins that are kept.
    pub login: Login,
    /// Ends the programs when we are killed.
    pub guard: process::Guard,
    /// Starts them.
    pub starter: Starter,
    /// What holds them back, if anything does.
    pub confine: Option<Confine>,
}

/// What the programs of servers are held back by. They may use the network, and read what is not hidden.
#[derive(Debug, Clone)]
pub struct Confine {
    /// The sandbox of this machine.
    pub sandbox: Arc<Sandbox>,
    /// What they cannot see.
    pub hidden: Vec<PathBuf>,
    /// What they can write besides the folders of their session.
    pub writable: Vec<PathBuf>,
    /// Folders among those that programs of these names need.
    pub caches: Vec<(&'static str, PathBuf)>,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A start, before the user is told.
    pub start: Duration,
    /// A start that is late, before it is given up.
    pub start_most: Duration,
    /// A call that tells nothing.
    pub call: Duration,
    /// A call that tells of its progress.
    pub call_most: Duration,
    /// The first wait before another start; each is twice as long as the last.
    pub first_wait: Duration,
    /// The longest wait before another start.
    pub longest_wait: Duration,
    /// After how long without a failure the count begins anew.
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
    /// The servers that several sessions use, as long as one of them does.
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

    /// Returns a server that runs: one that is shared, or one for this session alone.
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
        // What ended is forgotten, or the set would grow for as long as the program runs.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Waits a moment for servers that were stopped to end, then kills what is left. Their sessions are gone by now.
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
