//! The command corpus, properties of the parser, and comparisons with a real bash and a real git.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod commands;
mod fuzz;
mod harmless;
mod names;
mod needs;
mod parser;
mod repository;
