//! The trace: records every message of a connection, and prints the records.
//!
//! [`tap`] copies what passes through the pipes without slowing them down; `record` turns each message into a line, with
//! secrets masked; [`show`] prints a trace as a list or as a sequence diagram. Uses only what was sent and received.

pub mod mask;
mod record;
pub mod show;
pub mod tap;

pub use record::{Direction, Record};
pub use tap::Tap;
