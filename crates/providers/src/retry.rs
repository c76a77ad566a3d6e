//! When a failed request is sent again, and after how long. Pure.
//!
//! Time-outs and lost connections have a number of retries. Overload and rate limits have a budget of time instead: waiting
//! is all that helps, and nobody knows how long it takes.

use std::time::Duration;

use crate::fault::Fault;
use crate::http::Timing;

/// The longest wait that a provider may ask for.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// The longest wait of our own between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// How a failure is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// At most this many times, after growing waits.
    Times(u32),
    /// At most three times, after the wait that the provider asked for.
    After(Duration),
    /// Until the waits have used up the budget.
    Budget,
}

/// The retries of one answer.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// The failures with a number of retries.
    counted: u32,
    /// The failures with a budget.
    overloads: u32,
    /// How much of the budget is used: the longest waits, so that the number of attempts does not depend on chance.
    waited: Duration,
}

impl Retries {
    /// Returns how long to wait before the next attempt; `None` for no retry. `random` is between 0 and 1: the wait is
    /// partly random, so that many clients do not retry at the same time.
    pub(crate) fn next(&mut self, fault: &Fault, timing: &Timing, random: f64) -> Option<Duration> {
        let random = random.clamp(0.0, 1.0);
        match policy(fault) {
            Policy::Times(most) => {
                self.counted += 1;
                let longest = backoff(timing.first_wait, self.counted);
                (self.counted <= most).then(|| longest.mul_f64(random))
            }
            Policy::After(wait) => {
                self.counted += 1;
                (self.counted <= 3).then_some(wait)
            }
            Policy::Budget => {
                self.overloads += 1;
                let left = timing.retry_budget.saturating_sub(self.waited);
                let longest = backoff(timing.first_wait, self.overloads).min(left);
                self.waited += longest;
                (!longest.is_zero()).then(|| longest.mul_f64(0.5 + random / 2.0))
            }
        }
    }
}

fn policy(fault: &Fault) -> Policy {
    match fault {
        Fault::Unreachable(_) | Fault::Lost(_) | Fault::TimedOut(_) | Fault::CutOff => {
            Policy::Times(3)
        }
        Fault::RateLimited { wait: Some(wait), .. } if *wait <= MAX_WAIT => Policy::After(*wait),
        Fault::RateLimited { wait: None, .. } | Fault::ServerError(_) => Policy::Budget,
        Fault::EmptyAnswer => Policy::Times(1),
        Fault::RateLimited { .. }
        | Fault::OutOfCredit(_)
        | Fault::Auth(_)
        | Fault::ContextFull(_)
        | Fault::Rejected(_)
        | Fault::InvalidAnswer(_) => Policy::Times(0),
    }
}

/// Returns the longest wait after this many failures: it doubles each time.
fn backoff(first: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(10)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(fault: &Fault, random: f64) -> Vec<f64> {
        let (mut retries, timing) = (Retries::default(), Timing::default());
        let waits = std::iter::from_fn(|| retries.next(fault, &timing, random));
        waits.map(|wait| wait.as_secs_f64()).take(100).collect()
    }

    // R: P6
    #[test]
    fn each_failure_has_its_number_of_retries() {
        let retries = |fault: Fault| waits(&fault, 0.5).len();
        assert_eq!(retries(Fault::Unreachable(String::new())), 3);
        assert_eq!(retries(Fault::TimedOut(Duration::from_secs(60))), 3);
        assert_eq!(retries(Fault::of_status(401, None, "")), 0);
        assert_eq!(retries(Fault::of_status(403, None, "")), 0);
        assert_eq!(retries(Fault::of_status(400, None, "")), 0);
        assert_eq!(retries(Fault::of_status(429, Some(Duration::from_secs(2)), "")), 3);
        assert_eq!(retries(Fault::of_status(429, Some(Duration::from_secs(10_000)), "")), 0);
        assert_eq!(retries(Fault::EmptyAnswer), 1);
    }

    // R: P6
    #[test]
    fn overload_and_rate_limits_are_waited_for_two_minutes() {
        for status in [429, 500, 502, 503, 504, 529] {
            let fault = Fault::of_status(status, None, "");
            let longest = waits(&fault, 1.0);
            assert_eq!(longest, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 29.0], "{status}");
            let shortest = waits(&fault, 0.0);
            assert_eq!(shortest.len(), longest.len());
            assert_eq!(shortest.iter().sum::<f64>(), 60.0);
        }
    }

    #[test]
    fn waits_grow_and_follow_the_provider() {
        let fault = Fault::Unreachable(String::new());
        assert_eq!(waits(&fault, 1.0), [1.0, 2.0, 4.0]);
        assert_eq!(waits(&fault, 0.0), [0.0, 0.0, 0.0]);
        let two = Fault::of_status(429, Some(Duration::from_secs(2)), "");
        assert_eq!(waits(&two, 0.3), [2.0, 2.0, 2.0]);
    }
}
