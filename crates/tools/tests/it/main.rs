//! The tools as a session uses them, on a real disk and with a client that serves files.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod client;
mod desk;
mod faults;
mod paths;
mod permissions;
mod race;
mod restore;
mod rules;
mod search;
