//! Starts, restricts and ends programs. The only crate that starts any.
//!
//! Every program gets its own process group and a working directory chosen by the caller; nothing that it started outlives it.
//! [`spawn`] starts programs, [`sandbox`] restricts what they can reach, [`container`] runs them in containers, [`end`] ends them, [`guard`] ends them if we are killed,
//! [`output`] keeps the end of their output.

#[cfg(unix)]
pub mod container;
pub mod end;
mod error;
mod group;
pub mod guard;
pub mod output;
#[cfg(unix)]
mod pty;
#[cfg(unix)]
mod raw;
pub mod sandbox;
pub mod spawn;

pub use end::Grace;
pub use error::Error;
pub use guard::Guard;
pub use output::Tail;
#[cfg(unix)]
pub use raw::{harden, share_one_heap};
#[cfg(unix)]
pub use spawn::replace_this_process;
pub use spawn::{Child, Spec, TerminalSize, run_on_terminal, spawn};
pub use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
