//! Rate limits: an exact sliding window, and a token bucket.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// Allows a number of events in any sixty seconds. A limit of 0 allows everything.
#[derive(Debug)]
pub(crate) struct Window {
    limit: usize,
    taken: VecDeque<Instant>,
}

impl Window {
    pub(crate) fn new(per_minute: u64) -> Window {
        Window { limit: usize::try_from(per_minute).unwrap_or(usize::MAX), taken: VecDeque::new() }
    }

    /// Counts an event, or returns how long to wait.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        if self.limit == 0 {
            return Ok(());
        }
        while self.taken.front().is_some_and(|first| now.duration_since(*first) >= MINUTE) {
            self.taken.pop_front();
        }
        match self.taken.front() {
            Some(first) if self.taken.len() >= self.limit => {
                Err(MINUTE - now.duration_since(*first))
            }
            _ => {
                self.taken.push_back(now);
                Ok(())
            }
        }
    }
}

/// Allows a tenth of the limit at once and the rest evenly, so that any sixty seconds stay within the limit.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Tokens per second; `None` without a limit.
    rate: Option<f64>,
    room: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(per_minute: u64, now: Instant) -> Bucket {
        let limit = per_minute as f64;
        let room = (limit / 10.0).max(1.0);
        let rate = (per_minute > 0).then_some(((limit - room) / 60.0).max(1.0 / 60.0));
        Bucket { rate, room, tokens: room, filled: now }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let Some(rate) = self.rate else {
            return true;
        };
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * rate).min(self.room);
        self.filled = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    /// Takes a token that is not there yet: what must not wait makes what follows wait longer.
    pub(crate) fn take_in_advance(&mut self) {
        self.tokens = (self.tokens - 1.0).max(-self.room);
    }

    /// Returns when the next token is available.
    pub(crate) fn next(&self) -> Instant {
        let missing = (1.0 - self.tokens).max(0.0);
        let wait = self.rate.map_or(0.0, |rate| missing / rate);
        // Slightly late rather than early: an early wake would find no token and spin.
        self.filled + Duration::from_secs_f64(wait) + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn window_allows_exactly_the_limit() {
        let mut window = Window::new(10);
        let start = Instant::now();
        assert!((0..10).all(|_| window.take(start).is_ok()));
        assert_eq!(window.take(start + Duration::from_secs(20)), Err(Duration::from_secs(40)));
        assert_eq!(window.take(start + MINUTE), Ok(()));
        assert!((0..10_000).all(|_| Window::new(0).take(start).is_ok()));
    }

    // R: W11
    #[tokio::test(start_paused = true)]
    async fn bucket_stays_within_the_limit_in_any_minute() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1000, start);
        let mut taken = Vec::new();
        for tick in 0..180_000u64 {
            let now = start + Duration::from_millis(tick);
            if bucket.take(now) {
                taken.push(tick);
            }
        }
        for (index, first) in taken.iter().enumerate() {
            let within = taken[index..].iter().take_while(|tick| **tick < first + 60_000).count();
            assert!(within <= 1000, "{within} in the minute from {first}");
        }
        assert!(taken.len() > 2500);
    }
}
