//! The trace: every message of a connection, written down as it passed, and shown to people afterwards.
//!
//! [`tap`] stands at the pipes and never holds them up; `record` makes a line of each message, with secrets masked;
//! [`show`] prints a trace as a list or as a sequence diagram. Made from what went over the wire alone.

pub mod mask;
mod record;
pub mod show;
pub mod tap;

pub use record::{Direction, Record};
pub use tap::Tap;
