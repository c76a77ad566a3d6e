//! The error of this crate: why a program could not be started or waited for.

use std::io;
use std::path::PathBuf;

/// Why a program could not be started or waited for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is neither a path nor found in the search path.
    #[error("program {} not found", program.display())]
    NoSuchProgram {
        /// The program.
        program: PathBuf,
    },
    /// The working directory does not exist or is not a directory.
    #[error("working folder {} not found", directory.display())]
    NoSuchDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// The system refused.
    #[error("{} could not be started", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The program that restricts commands is gone.
    #[error("the sandbox cannot be set up: {} not found", program.display())]
    NoHelper {
        /// Which program.
        program: PathBuf,
    },
    /// A protected path is a symbolic link, which a command could replace.
    #[error("the sandbox cannot protect {}: it is a symbolic link", path.display())]
    Unprotected {
        /// Which path.
        path: PathBuf,
    },
    /// A writable directory was replaced by a symbolic link, which may lead anywhere.
    #[error("{} was replaced by a symbolic link", path.display())]
    Moved {
        /// Which directory.
        path: PathBuf,
    },
    /// A protected path that does not exist cannot be reserved.
    #[error("the sandbox cannot protect {}", path.display())]
    Reserve {
        /// Which path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The helper ended before all restrictions were in effect, so the command did not run.
    #[error("the sandbox could not be set up")]
    NotConfined,
    /// A container could not be started or used.
    #[error("the container could not be used: {0}")]
    Container(String),
    /// The exit status of the program cannot be read.
    #[error("the exit status could not be read")]
    Wait(#[source] io::Error),
}

/// Formats an error with all its causes.
#[cfg(target_os = "linux")]
pub(crate) fn whole(err: &Error) -> String {
    let mut text = err.to_string();
    let mut cause = std::error::Error::source(err);
    while let Some(err) = cause {
        text.push_str(": ");
        text.push_str(&err.to_string());
        cause = err.source();
    }
    text
}
