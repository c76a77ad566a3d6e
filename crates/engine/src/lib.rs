//! A session and its turns: the vocabulary, the ports to the outside, the loop between model and tools.
//!
//! Knows no wire format, no files and no network; the outside implements [`ports`]. Four directories import in one direction:
//! `words` ← `ports` ← `permission` ← `turn`. `script` is a model that plays transcripts. Start with `turn::run_turn`.

pub mod permission;
pub mod ports;
pub mod script;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod turn;
pub mod words;

pub use ports::{Error, Event, Reply};
pub use turn::{commands, hub, prompt_commands, session};
