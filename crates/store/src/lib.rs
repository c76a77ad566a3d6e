//! The session journal: what was said and done, kept so that nothing a client was shown is ever lost.
//!
//! [`Store`] is the engine's journal. Behind it a thread of its own owns a [`journal::Backend`]: SQLite, or memory where
//! nothing can be written. What a record looks like is in [`record`], how a session comes back in [`replay`].

mod apart;
mod contents;
pub mod index;
pub mod journal;
pub mod memory;
pub mod owner;
pub mod record;
pub mod replay;
pub mod sqlite;
mod store;
mod sync;
mod writer;

pub use store::{Options, Place, Store, SyncAll};
