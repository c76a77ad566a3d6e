//! The store from outside: every backend by one suite, sessions through crashes, files that were damaged.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod apart;
mod backends;
mod contents;
mod disk;
mod faults;
mod folder;
mod pause;
mod sessions;
mod undo;
