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
    /// The program runs or ran, and the system does not tell how it ended.
    #[error("the end of a program could not be awaited")]
    Wait(#[source] io::Error),
}
