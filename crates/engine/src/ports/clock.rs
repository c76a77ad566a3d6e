//! Time and fresh ids.

use std::time::SystemTime;

/// Time and fresh ids, so that a test can repeat a conversation byte for byte.
pub trait Clock: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> SystemTime;

    /// Returns an id that was never returned before.
    fn fresh_id(&self) -> String;
}

/// The time of the machine, and ids that sort by it.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn fresh_id(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }
}
