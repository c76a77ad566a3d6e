//! The editor's side of ACP: drives an agent, serves its calls, and replays transcripts against it.
//!
//! It knows the protocol but nothing about our own agent, so it works with any agent. Start with [`connect`] for a live
//! agent, [`host`] for the calls that it makes to us, and [`script`] for transcripts.

pub mod connect;
mod error;
pub mod host;
pub mod remote;
pub mod script;
pub mod transcript;

pub use connect::{Caller, Connection, LastWords, Update};
pub use error::Error;
pub use host::{FormQuestion, Host, HostOptions, Permission, PermissionQuestion, TerminalOutput};
pub use process::{Grace, Spec, run_on_terminal};
pub use script::{
    Failure, LogEntry, PlayOptions, ProgramSetup, Replay, Stopped, play, play_program,
    play_program_with,
};
pub use transcript::Transcript;
