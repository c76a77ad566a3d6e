//! Conformance and load tests for any ACP agent.
//!
//! The catalogue has a row for each rule of the protocol and each requirement of our documents. A row is shown by cases,
//! which are transcripts that `client` plays, and by rules, which look at the messages of every case. Start with [`suite`]
//! for how an agent is checked, [`catalogue`] for the rows, [`report`] for what is printed, and [`load`] for load tests.

pub mod baseline;
pub mod catalogue;
mod error;
pub mod load;
pub mod mcp_probe;
pub mod profile;
mod record;
pub mod report;
mod rules;
pub mod schema;
pub mod suite;
pub mod verdict;

pub use catalogue::{Catalogue, Level, Origin, Row};
pub use error::Error;
pub use profile::Profile;
pub use suite::{Suite, SuiteOptions};
pub use verdict::{Outcome, RowResult, Status};
