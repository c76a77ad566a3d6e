//! The error of this crate: why a program could not be started or awaited.

use std::io;
use std::path::PathBuf;

/// Why a program could not be started or awaited.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is neither a path nor found in the search path.
    #[error("there is no program {}", program.display())]
    NoSuchProgram {
        /// What was to be started.
        program: PathBuf,
    },
    /// The working folder is missing or is no folder.
    #[error("there is no working folder {}", folder.display())]
    NoSuchFolder {
        /// Where the program was to run.
        folder: PathBuf,
    },
    /// The system refused.
    #[error("{} could not be started", program.display())]
    Start {
        /// What was to be started.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The program that restricts commands is gone.
    #[error("the sandbox cannot be set up: {} is gone", program.display())]
    NoHelper {
        /// Which program.
        program: PathBuf,
    },
    /// A path that must stay as it is is a link, and a link can be replaced.
    #[error("the sandbox cannot protect {}: it is a symbolic link", path.display())]
    Unprotected {
        /// Which path.
        path: PathBuf,
    },
    /// A folder that may be written is behind a link now, which may lead anywhere.
    #[error("{} is not where it was: a symbolic link has taken its place", path.display())]
    Moved {
        /// Which folder.
        path: PathBuf,
    },
    /// A path that must not be made cannot be kept free.
    #[error("the sandbox cannot protect {}", path.display())]
    Reserve {
        /// Which path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The command ended before all restrictions held: it did not run.
    #[error("the sandbox could not be set up")]
    NotConfined,
    /// The program runs or ran, and the system does not tell how it ended.
    #[error("the end of a program could not be awaited")]
    Wait(#[source] io::Error),
}

/// Writes an error with all its causes.
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
