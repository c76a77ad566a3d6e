//! What a session has used. Calls that run in parallel add to the same meter.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::words::{Bill, ModelId, Usage};

/// Counts what a session uses and costs, and how full its context is. Never locked across an await.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    /// In US dollars.
    cost: f64,
    /// Tokens since the session was opened here.
    tokens: Usage,
    bill: Bill,
    /// Tokens in use and size of the context window, in the conversation with the user.
    window: (u64, u64),
}

impl Meter {
    /// Makes the meter of a session that has used and cost this much already.
    pub(crate) fn new(cost: f64, bill: Bill) -> Meter {
        Meter(Mutex::new(Used { cost, bill, ..Used::default() }))
    }

    /// Adds an answer. Returns what the session has cost then, if any price is known.
    pub(crate) fn add(&self, model: &ModelId, usage: &Usage, dollars: Option<f64>) -> Option<f64> {
        let mut used = self.used();
        used.bill.add(model, usage, dollars);
        used.tokens.add(usage);
        used.cost += dollars.unwrap_or_default();
        (dollars.is_some() || used.cost > 0.0).then_some(used.cost)
    }

    /// Returns the tokens that were used since the session was opened here.
    pub(crate) fn tokens(&self) -> Usage {
        self.used().tokens
    }

    /// Writes the bill for the user.
    pub(crate) fn print(&self) -> String {
        self.used().bill.print()
    }

    /// Notes how full the context is.
    pub(crate) fn fill(&self, used: u64, size: u64) {
        self.used().window = (used, size);
    }

    /// Returns how full the context was when it was last measured.
    pub(crate) fn window(&self) -> (u64, u64) {
        self.used().window
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
