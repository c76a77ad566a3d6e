//! Tests of the crate from outside: sessions with good and with faulty servers.
//!
//! `bench` runs a session with a scripted model; `faults` has a test for each fault of a server.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod bench;
mod faults;
mod good;
mod login;
mod remote;
