//! Start, watch and end programs. The only crate that starts any.
//!
//! Every program gets a process group of its own and a working folder that the caller chose; nothing it
//! started outlives it. Start with [`spawn`]; [`sandbox`] restricts what a program can reach, [`end`] has the kill
//! ladder, [`guard`] what ends programs when we are killed, [`output`] the bounded tail of what a program said.

pub mod end;
mod error;
pub mod guard;
pub mod output;
#[cfg(unix)]
mod raw;
pub mod sandbox;
pub mod spawn;

pub use end::Grace;
pub use error::Error;
pub use guard::Guard;
pub use output::Tail;
pub use spawn::{Child, Spec, spawn};
pub use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
