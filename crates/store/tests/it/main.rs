//! Tests of the store: one suite for every backend, sessions after crashes, damaged files.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod backends;
mod content_files;
mod disk;
mod faults;
mod large_values;
mod pause;
mod recovery;
mod sessions;
mod shared;
mod undo;
