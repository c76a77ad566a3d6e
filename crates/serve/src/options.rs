//! What a connection is served with: its options, its pipes and its limits.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use engine::hub::{HubLimits, HubOptions};
use recording::Tape;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::acp::dialect::Dialect;

use crate::workspace::Workspaces;

/// What a connection is served with.
pub struct Options {
    /// What all sessions share.
    pub hub: HubOptions,
    /// The dialect to speak, whatever the client's `initialize` looks like.
    pub dialect: Option<Dialect>,
    /// The directory that a client means by `.`.
    pub cwd: PathBuf,
    /// Ends the connection, like the end of input.
    pub stop: CancellationToken,
    /// Opens what sessions work with.
    pub workspaces: Arc<Workspaces>,
    /// Takes the API keys that the client gives; `None` where keys are of no use.
    pub keys: Option<Arc<dyn ClientKeys>>,
    /// Sees the bytes of the connection; `None` if nobody does.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Records the connection, or plays a recording.
    pub tape: Option<Tape>,
}

/// Sees the bytes of a connection, in the order in which they are handled. Its methods never wait.
pub trait Watcher: Send + Sync {
    /// Takes bytes from the client, before they are handled.
    fn received(&self, bytes: &[u8]);

    /// Takes whole lines for the client, before they are written.
    fn sent(&self, lines: &[u8]);
}

/// Takes the API keys that a client gives with `authenticate`.
pub trait ClientKeys: Send + Sync {
    /// Uses a key from now on, for sessions that open later.
    fn give(&self, provider: &str, key: &str);

    /// Forgets the keys that were given, and looks for models again when the next session opens.
    fn forget(&self);
}

/// The two directions of a connection, as channels.
pub struct Pipes {
    /// Bytes from the client; the end of the channel is the end of input. Full: the reader waits.
    pub input: mpsc::Receiver<Vec<u8>>,
    /// Batches of whole lines for the client. Has room for one: the next is sent when the last is written.
    pub output: mpsc::Sender<Vec<u8>>,
    /// Returns each batch when it is written, or the error that ended the output.
    pub written: mpsc::Receiver<std::io::Result<Vec<u8>>>,
    /// Grows with every write, to distinguish a slow client from one that does not read.
    pub progress: Arc<AtomicU64>,
}

/// Returns the limits that the hub needs.
pub(crate) fn hub_limits(limits: &settings::Limits) -> HubLimits {
    HubLimits {
        max_requests_per_turn: usize::try_from(limits.max_requests_per_turn).unwrap_or(usize::MAX),
        max_sessions: usize::try_from(limits.max_sessions).unwrap_or(usize::MAX),
        no_progress: limits.no_progress(),
        idle_pause: Duration::from_secs(limits.idle_pause_seconds),
    }
}

/// Returns the limits that the wire needs.
pub(crate) fn size_limits(limits: &settings::Limits) -> wire::SizeLimits {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    wire::SizeLimits {
        initialize: size(limits.max_initialize_bytes),
        new_session: size(limits.max_new_session_bytes),
        prompt: size(limits.max_prompt_bytes),
        prompt_data: size(limits.max_prompt_data_bytes),
        update: size(limits.max_update_bytes),
        file: size(limits.max_file_bytes),
        other: size(limits.max_other_bytes),
    }
}
