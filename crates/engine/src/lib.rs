//! A session and its turns: the vocabulary, the ports to the outside, the loop between model and tools.
//!
//! Knows no wire format, no files and no network; the outside implements [`ports`]. Start with [`turn`].

pub mod agents;
mod brief;
mod calls;
mod child;
pub mod commands;
mod compact;
pub mod context;
pub mod cost;
mod dispatch;
pub mod error;
pub mod event;
mod exit_plan;
mod guard;
mod helpers;
pub mod hooks;
pub mod hub;
mod meter;
pub mod modes;
pub mod nearest;
pub mod orders;
mod own;
pub mod permission;
pub mod pictures;
pub mod ports;
pub mod primer;
pub mod reply;
mod sampling;
pub mod scene;
pub mod script;
pub mod session;
mod settings;
pub mod stamp;
mod steering;
mod task;
mod title;
mod turn;
pub mod undo;
pub mod visible;
pub mod words;

pub use error::Error;
pub use event::Event;
pub use reply::Reply;
