//! What happened, as records: of the messages of a connection, and of the spans that the program hands in.
//!
//! [`Tap`] takes copies of what passes through the pipes without slowing them down, and gives records to a trace file, to
//! those who watch ([`live`]), and to the log. [`mask`] removes secrets first. [`show`] and [`view`] print a trace. Knows
//! nothing about the engine: spans come in as records.

pub mod board;
mod dashboard_page;
mod derive;
#[cfg(unix)]
pub mod live;
pub mod mask;
mod record;
mod recorder;
mod row;
mod sessions;
pub mod show;
mod tap;
pub mod view;

pub use dashboard_page::dashboard_page;
pub use record::{Direction, MessageRecord, ProcessInfo, Record, SpanRecord};
pub use sessions::{SessionState, Sessions};
pub use tap::{LogRecord, Tap, TapOptions, Tapped};
