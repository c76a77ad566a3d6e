//! The store of sessions, and ids.

use std::path::PathBuf;
use std::sync::Arc;

use engine::ports::{Clock, SystemClock};
use settings::Limits;
use store::Store;

use crate::env;

/// Makes the store of the user's sessions. Opens nothing yet.
#[must_use]
pub fn store(limits: &Limits) -> Store {
    store_in(env::directories().data, limits)
}

/// Makes a store in a directory, or in memory without one. Opens nothing yet.
#[must_use]
pub fn store_in(folder: Option<PathBuf>, limits: &Limits) -> Store {
    Store::new(store::Options {
        folder,
        clock: Arc::new(SystemClock),
        max_history_bytes: limits.max_history_bytes,
        expire_days: limits.expire_days,
        late_for_tests: env::is_journal_late(),
    })
}

/// Returns a new unique id.
pub(crate) fn fresh_id() -> String {
    SystemClock.fresh_id()
}
