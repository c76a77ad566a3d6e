//! The session journal: stores everything that a client was shown, so that none of it is ever lost.
//!
//! [`Store`] implements the engine's journal. Its own thread owns a [`journal::Backend`]: SQLite, PostgreSQL, or memory if
//! nothing can be written. [`record`] has the format of records, [`replay`] restores a session from them.

mod check;
pub mod content;
mod content_files;
mod copier;
mod copy;
pub mod durable_objects;
mod files;
#[cfg(test)]
mod fuzz;
pub mod index;
pub mod journal;
mod large_values;
pub mod lease;
mod location;
pub mod memory;
mod options;
pub mod owner;
pub mod postgres;
pub mod record;
mod recovering;
pub mod replay;
pub mod sqlite;
mod store;
mod sync;
#[cfg(feature = "test-support")]
pub mod test_support;
mod writer;

pub use check::{Check, check};
pub use content::Content;
pub use copier::Copier;
pub use location::{Location, reach};
pub use options::{CustomBackend, Options, SyncAll};
pub use store::Store;
