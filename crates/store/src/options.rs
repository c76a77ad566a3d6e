//! What a store is created with, and what its threads share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use engine::ports::{Clock, SpanScope, Spans};

use crate::journal::Backend;
use crate::location::Location;

/// What a store is created with.
#[derive(Clone)]
pub struct Options {
    /// Where sessions are stored.
    pub location: Location,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Records how long syncs take; `None` if nobody does.
    pub spans: Option<Arc<dyn Spans>>,
    /// The largest size of one session in bytes; 0 for no limit.
    pub max_history_bytes: u64,
    /// After how many days without use a session expires; 0 for never.
    pub expire_days: u64,
    /// Shows events before they are written, to prove that the crash test detects it.
    pub late_for_tests: bool,
}

/// Another backend, and the function that syncs its writes.
pub struct CustomBackend {
    /// Stores the records.
    pub backend: Box<dyn Backend>,
    /// Syncs everything that was written. It is called on a separate thread.
    pub sync: SyncAll,
}

/// Syncs everything that was written.
pub type SyncAll = Box<dyn FnMut() -> std::io::Result<()> + Send>;

/// State that the store and its threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Where the spans of syncs go.
    pub(crate) spans: SpanScope,
    /// Why sessions are not stored. The lock is held only to read or set it.
    pub(crate) problem: Mutex<Option<String>>,
    /// What a recovery of the store did, if there was one. The lock is held only to read or set it.
    pub(crate) recovery: Mutex<Option<String>>,
    /// A write of a running turn failed: until that turn has ended, no event may be acknowledged before it is written.
    pub(crate) has_failed: AtomicBool,
    /// Why the last sync failed, until an append reports it. The lock is held only to set or take it.
    pub(crate) unsynced: Mutex<Option<String>>,
    /// Whether the data directory was checked.
    pub(crate) is_probed: AtomicBool,
}
