//! What a session has used. Calls that run at once add to the same meter.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts what a session costs, and knows how full its context is. Never held across an await.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    /// In US dollars.
    cost: f64,
    /// Tokens in use and tokens there are, in the conversation with the user.
    window: (u64, u64),
}

impl Meter {
    /// Makes the meter of a session that has cost this much already.
    pub(crate) fn new(cost: f64) -> Meter {
        Meter(Mutex::new(Used { cost, window: (0, 0) }))
    }

    /// Adds to it. Returns what it has cost then.
    pub(crate) fn add(&self, cost: f64) -> f64 {
        let mut used = self.used();
        used.cost += cost;
        used.cost
    }

    /// Notes how full the context is.
    pub(crate) fn fill(&self, used: u64, size: u64) {
        self.used().window = (used, size);
    }

    /// Returns how full the context was when that was last known.
    pub(crate) fn window(&self) -> (u64, u64) {
        self.used().window
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
