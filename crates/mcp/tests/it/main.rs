//! Integration tests: sessions with working and with faulty servers.
//!
//! `bench` runs a session with a scripted model. `faults` has a test for each fault of a server.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy does not treat test helpers as tests"
)]

mod bench;
mod faults;
mod good;
mod login;
mod remote;
