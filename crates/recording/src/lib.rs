//! A recording: everything that sessions depended on, so that they can be played again without models, tools and network.
//!
//! All facts from outside reach a session through the engine's ports. Each file here wraps some of them: while a
//! recording is made, the wrapper asks the real port and writes down what it returned; in a replay it returns
//! what was written, in the same order. [`Tape`] says which of the two happens. `serve` adds the wakes of the
//! dispatcher, so that the output is the same byte for byte.

mod act;
mod clock;
mod error_value;
mod extension;
mod journal;
mod model;
mod player;
mod preferences;
mod recorder;
mod tape;
mod tool;
mod workspace;

pub use player::Player;
pub use recorder::{Masks, Recorder};
pub use tape::Tape;

/// The file with the entries of a recording.
pub const ENTRIES: &str = "entries.jsonl";
/// The file with the lines that the client got.
pub const OUTPUT: &str = "output.jsonl";
