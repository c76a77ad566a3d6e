//! The editor's side of the pipe: drive an agent, serve its calls, play transcripts against it.
//!
//! Knows the protocol and nothing of our own agent, so what works here works with any agent. Start with
//! [`connect`] for a live agent, [`host`] for what it may ask of us, [`script`] for transcripts.

pub mod connect;
mod error;
pub mod host;
pub mod script;
pub mod transcript;

pub use connect::{Caller, Connection, Update};
pub use error::Error;
pub use host::{Host, HostOptions, Permission, Question};
pub use process::{Grace, Spec};
pub use script::{Failure, Played, Stage, play, play_program};
pub use transcript::Transcript;
