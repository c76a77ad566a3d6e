//! The tools as a session uses them, on a real disk and with a client that serves files; the rule corpus, and properties of
//! the parser of commands.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod client;
mod commands;
mod desk;
mod faults;
mod harmless;
mod leave;
mod names;
mod parser;
mod paths;
mod race;
mod repository;
mod search;
