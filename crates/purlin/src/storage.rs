//! The store of sessions, and ids.

use std::sync::Arc;

use engine::ports::{Clock, Spans, SystemClock};
use settings::{Config, Limits};
use store::{Location, Store};

use crate::env;

/// Makes the store of the user's sessions. Opens nothing yet.
#[must_use]
pub fn store(config: &Config) -> Store {
    store_in(location(config), &config.limits)
}

/// The same, with somebody who records how long syncs take.
pub(crate) fn observed_store(config: &Config, spans: Arc<dyn Spans>) -> Store {
    new_store(location(config), &config.limits, Some(spans))
}

/// Returns where the user's sessions are stored.
pub(crate) fn location(config: &Config) -> Location {
    match (&config.store, env::directories().data) {
        (Some(url), _) => Location::parse(url.clone()),
        (None, Some(directory)) => Location::Directory(directory),
        (None, None) => Location::Nowhere,
    }
}

/// Makes a store. Opens nothing yet.
#[must_use]
pub fn store_in(location: Location, limits: &Limits) -> Store {
    new_store(location, limits, None)
}

fn new_store(location: Location, limits: &Limits, spans: Option<Arc<dyn Spans>>) -> Store {
    Store::new(store::Options {
        location,
        clock: Arc::new(SystemClock),
        max_history_bytes: limits.max_history_bytes,
        expire_days: limits.expire_days,
        spans,
        late_for_tests: env::is_journal_late(),
    })
}

/// Returns a new unique id.
pub(crate) fn fresh_id() -> String {
    SystemClock.fresh_id()
}
