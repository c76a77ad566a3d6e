//! A session and its turns: the vocabulary, the ports to the outside, the loop between model and tools.
//!
//! Knows no wire format, no files and no network; the outside implements [`ports`]. Start with [`turn`].

pub mod permission;
pub mod ports;
pub mod script;
mod turn;
pub mod words;

pub use ports::error::{self, Error};
pub use ports::event::{self, Event};
pub use ports::reply::{self, Reply};
pub use turn::{
    commands, context, hooks, hub, instructions as primer, prompt_commands as orders, scene,
    session, undo,
};
pub use words::{agents, bill as cost, modes, nearest, pictures, stamp, visible};
