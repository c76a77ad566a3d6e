//! The store of sessions, and ids.

use std::sync::Arc;

use engine::ports::{Clock, SystemClock};
use settings::{Config, Limits};
use store::{Location, Store};

use crate::env;

/// Makes the store of the user's sessions. Opens nothing yet.
#[must_use]
pub fn store(config: &Config) -> Store {
    store_in(location(config), &config.limits)
}

/// Returns where the user's sessions are stored.
pub(crate) fn location(config: &Config) -> Location {
    match (&config.store, env::directories().data) {
        (Some(url), _) => Location::parse(url.clone()),
        (None, Some(folder)) => Location::Directory(folder),
        (None, None) => Location::Nowhere,
    }
}

/// Makes a store. Opens nothing yet.
#[must_use]
pub fn store_in(location: Location, limits: &Limits) -> Store {
    Store::new(store::Options {
        location,
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
