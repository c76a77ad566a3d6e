//! What a session has cost. Calls that run at once add to the same meter.

use std::sync::{Mutex, PoisonError};

/// Counts what a session costs, in US dollars. Never held across an await.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<f64>);

impl Meter {
    /// Makes the meter of a session that has cost this much already.
    pub(crate) fn new(spent: f64) -> Meter {
        Meter(Mutex::new(spent))
    }

    /// Adds to it. Returns what it has cost then.
    pub(crate) fn add(&self, cost: f64) -> f64 {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *spent += cost;
        *spent
    }
}
