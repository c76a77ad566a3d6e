//! Serving one client: the reader, the dispatcher and the writer of a connection, and the hub behind them.
//!
//! [`serve`] knows channels only; `serve::stdio` moves the bytes of stdin and stdout.

mod calls;
mod dispatcher;
mod opened;
pub(crate) mod outbox;
pub mod stdio;
mod steer;
pub(crate) mod wake;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use engine::hub::{Hub, HubOptions};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::acp::dialect::Dialect;

use crate::assemble::OpenTools;
use crate::bridge::editor::Outlet;
use crate::ladder::Ladder;
use crate::limits::Limits;
use crate::permissions::OpenPolicy;
use crate::primer::OpenPrimer;
use dispatcher::{Channels, Dispatcher, Place};

/// What a connection is served with.
pub struct Options {
    /// The limits in force.
    pub limits: Limits,
    /// What all sessions share; the limits are taken over from `limits`.
    pub hub: HubOptions,
    /// The dialect to speak, whatever the client's `initialize` looks like.
    pub dialect: Option<Dialect>,
    /// The folder that a client means by `.`.
    pub cwd: PathBuf,
    /// Ends the connection, as the end of input does.
    pub stop: CancellationToken,
    /// Makes the tools of a session.
    pub tools: OpenTools,
    /// Makes what decides about their calls.
    pub policy: OpenPolicy,
    /// Finds what the model should know of a session's project.
    pub primer: OpenPrimer,
    /// Where keys go that the client gives us; `None` where no key is of use.
    pub ladder: Option<Arc<Ladder>>,
}

/// The two directions of a connection, as channels.
pub struct Pipes {
    /// What the client sends, as it comes; the end of the channel is the end of input. The reader waits while it is full.
    pub input: mpsc::Receiver<Vec<u8>>,
    /// What the client is to get, a batch of whole lines each. Holds one batch: the next is sent when the last is written.
    pub output: mpsc::Sender<Vec<u8>>,
    /// Each batch, given back when it is written, or the error that ended the output.
    pub written: mpsc::Receiver<std::io::Result<Vec<u8>>>,
    /// Grows with every piece of a batch that is written, so that a slow client is told from one that reads nothing.
    pub progress: Arc<AtomicU64>,
}

/// How many events and answers may be under way to the dispatcher. Full: the session waits.
const FROM_SESSIONS: usize = 1024;
/// How many calls to the client may be open at once. Full: the next call waits.
const OPEN_CALLS: usize = 1024;

/// Serves a client until it closes its end or `stop` fires, then ends everything that runs for it.
pub async fn serve(pipes: Pipes, options: Options) {
    let Options { limits, hub, dialect, cwd, stop, tools, policy, primer, ladder } = options;
    let hub = HubOptions {
        max_requests_per_turn: usize::try_from(limits.max_requests_per_turn).unwrap_or(usize::MAX),
        max_sessions: usize::try_from(limits.max_sessions).unwrap_or(usize::MAX),
        no_progress: limits.no_progress(),
        idle_pause: std::time::Duration::from_secs(limits.idle_pause_seconds),
        ..hub
    };
    let (clock, journal) = (Arc::clone(&hub.clock), Arc::clone(&hub.journal));
    let (hub, hub_handle) = Hub::new(hub);
    let mut tasks = JoinSet::new();
    tasks.spawn(hub.run());
    let (to_dispatcher, from_sessions) = mpsc::channel(FROM_SESSIONS);
    let (abandoned, abandoned_calls) = mpsc::channel(OPEN_CALLS);
    let outbox = outbox::Outbox::new(&limits);
    let outlet = Outlet {
        to_dispatcher,
        abandoned,
        numbers: Arc::new(AtomicU64::new(1)),
        total: outbox.total(),
    };
    let channels = Channels { pipes, from_sessions, abandoned_calls, stop };
    let limits = Arc::new(limits);
    let place = Place { forced: dialect, cwd, tools, policy, primer };
    let mut dispatcher = Dispatcher::new(limits, outbox, outlet, hub_handle, clock, journal, place);
    dispatcher.ladder = ladder;
    dispatcher.run(channels).await;
    // The dispatcher dropped the hub's handle and every session's; what still runs has been cancelled.
    if tokio::time::timeout(dispatcher::GRACE, tasks.join_next()).await.is_err() {
        tracing::warn!("a session did not end in time and is dropped");
    }
}
