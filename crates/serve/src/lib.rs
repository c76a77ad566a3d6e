//! The agent's side of ACP: serves one client over a transport, and opens the workspaces of its sessions.
//!
//! [`serve()`] knows channels only; [`stdio`] moves the bytes of stdin and stdout. Reads no configuration files and no
//! environment: the program hands in [`settings::Settings`] and a [`Machine`].

mod branch;
mod bridge;
mod claude_hooks;
mod client_call;
mod connection;
pub mod container;
mod custom;
mod diagnostics;
mod dialect;
mod dispatcher;
pub mod error_table;
mod forge;
mod hooks;
mod instructions;
mod machine;
pub mod mcp_servers;
mod methods;
pub mod network;
mod options;
mod outbox;
mod outlet;
mod rate;
mod session_entry;
mod shared;
mod skill_tool;
pub mod stdio;
mod taped_wakes;
mod wake;
pub mod workspace;
mod worktree;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use engine::hub::Hub;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::Peer;
use wire::acp::dialect::Dialect;

use crate::connection::{Attached, Connection, Services};
use crate::dialect::Translator;
use crate::dispatcher::{Channels, Dispatcher};
use crate::options::{hub_limits, size_limits};
use crate::outlet::Outlet;

pub use forge::GitHubEnvironment;
pub use machine::{Machine, MachineOptions, sandbox};
pub use options::{ClientKeys, Options, Pipes, Watcher};
pub use shared::Tenant;
pub use workspace::{WorkspaceOptions, Workspaces};

/// How many messages may wait for the dispatcher. Full: the session waits.
const FROM_SESSIONS: usize = 1024;
/// How many calls to the client may be open. Full: the next call waits.
const OPEN_CALLS: usize = 1024;

/// Serves a client until it disconnects or `stop` fires, then ends its sessions.
pub async fn serve(pipes: Pipes, options: Options) {
    let Options { hub, dialect, cwd, stop, workspaces, keys, watcher, tape } = options;
    let limits = workspaces.settings().config.limits.clone();
    let (clock, journal) = (Arc::clone(&hub.clock), Arc::clone(&hub.journal));
    let (hub, hub_handle) = Hub::new(hub, hub_limits(&limits));
    let mut tasks = JoinSet::new();
    tasks.spawn(hub.run());
    let services = Services {
        hub: hub_handle,
        clock,
        journal,
        limits: Arc::new(limits),
        workspaces,
        keys,
        cwd,
        tape,
        tenant: None,
    };
    connect(pipes, services, dialect, stop, watcher).await;
    // The dispatcher dropped all handles; what still runs was cancelled.
    if tokio::time::timeout(dispatcher::GRACE, tasks.join_next()).await.is_err() {
        tracing::warn!("dropped a session that did not end in time");
    }
}

/// Serves a client of a tenant until it disconnects or `stop` fires. Its sessions outlive the connection.
pub(crate) async fn serve_shared(
    pipes: Pipes,
    tenant: Arc<Tenant>,
    workspaces: Arc<Workspaces>,
    cwd: PathBuf,
    stop: CancellationToken,
    watcher: Option<Arc<dyn Watcher>>,
) {
    let services = Services {
        hub: tenant.hub.clone(),
        clock: Arc::clone(&tenant.clock),
        journal: Arc::clone(&tenant.journal),
        limits: Arc::new(workspaces.settings().config.limits.clone()),
        workspaces,
        keys: None,
        cwd,
        tape: None,
        tenant: Some(tenant),
    };
    connect(pipes, services, None, stop, watcher).await;
}

async fn connect(
    pipes: Pipes,
    services: Services,
    dialect: Option<Dialect>,
    stop: CancellationToken,
    watcher: Option<Arc<dyn Watcher>>,
) {
    let (to_dispatcher, from_sessions) = mpsc::channel(FROM_SESSIONS);
    let (abandoned, abandoned_calls) = mpsc::channel(OPEN_CALLS);
    let limits = Arc::clone(&services.limits);
    let outbox = outbox::Outbox::new(&limits);
    let outlet = Outlet {
        to_dispatcher,
        abandoned,
        numbers: Arc::new(AtomicU64::new(1)),
        total: outbox.total(),
    };
    let channels = Channels { pipes, from_sessions, abandoned_calls, stop };
    let connection = Connection {
        peer: Peer::new(size_limits(&limits)),
        outbox,
        translator: Translator::new(dialect, &limits, Arc::clone(&services.clock)),
        outlet,
        sessions: HashMap::new(),
        loading: HashSet::new(),
        offers: None,
        is_logged_in: true,
        waiting: HashMap::new(),
        asked: HashMap::new(),
        attached: Attached::default(),
        followers: JoinSet::new(),
        now: tokio::time::Instant::now(),
        services,
    };
    Dispatcher::new(connection, watcher).run(channels).await;
}
