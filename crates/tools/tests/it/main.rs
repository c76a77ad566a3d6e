//! The tools as a session uses them: planned, asked for, run; on a real disk and with a client that serves files.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod client;
mod desk;
mod faults;
mod paths;
mod race;
mod search;
