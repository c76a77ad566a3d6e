//! A histogram of times, with fixed limits.

use serde_json::{Value, json};

/// The upper limits, in milliseconds.
pub(super) const LIMITS: [f64; 13] =
    [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 10_000.0, 60_000.0];

/// Counts times by their length.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    /// One more than there are limits: the last is for all that is longer.
    pub(super) counts: [u64; LIMITS.len() + 1],
    pub(super) sum: f64,
}

impl Histogram {
    pub(super) fn add(&mut self, ms: f64) {
        let at = LIMITS.iter().position(|limit| ms <= *limit).unwrap_or(LIMITS.len());
        self.counts[at] += 1;
        self.sum += ms;
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the limit that a part of the times is below.
    fn quantile(&self, part: f64) -> f64 {
        let wanted = self.count() as f64 * part;
        let mut seen = 0;
        for (count, limit) in self.counts.iter().zip(LIMITS) {
            seen += count;
            if seen as f64 >= wanted {
                return limit;
            }
        }
        LIMITS[LIMITS.len() - 1]
    }

    pub(super) fn shown(&self, name: &str) -> Value {
        json!({
            "name": name, "limits": LIMITS, "counts": self.counts, "count": self.count(),
            "p50": self.quantile(0.5), "p95": self.quantile(0.95), "p99": self.quantile(0.99),
        })
    }
}
