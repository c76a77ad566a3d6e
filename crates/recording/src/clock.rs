//! Time and ids.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::ports::Clock;

use crate::tape::Tape;

impl Tape {
    /// Wraps the clock.
    #[must_use]
    pub fn clock(&self, inner: Arc<dyn Clock>) -> Arc<dyn Clock> {
        Arc::new(TapedClock { tape: self.clone(), inner })
    }
}

struct TapedClock {
    tape: Tape,
    inner: Arc<dyn Clock>,
}

impl Clock for TapedClock {
    fn now(&self) -> SystemTime {
        let read = || self.inner.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UNIX_EPOCH + self.tape.next::<Duration>("now", read)
    }

    fn fresh_id(&self) -> String {
        self.tape.next("id", || self.inner.fresh_id())
    }
}
