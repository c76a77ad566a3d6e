//! The error type of this crate.

use std::path::PathBuf;

/// Why an agent could not be checked. Faults of the agent are not errors, but results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The catalogue that is built in has an invalid line.
    #[error("the catalogue is invalid: {0}")]
    Catalogue(String),
    /// A profile cannot be read.
    #[error("cannot read the profile {}: {reason}", path.display())]
    Profile {
        /// Its file or name.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("cannot read or write {}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The agent cannot be started or played against.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The model server cannot be started.
    #[error("the model server cannot be started: {0}")]
    Model(String),
    /// The agent's program was not found.
    #[error("the program {0} was not found")]
    NoProgram(String),
    /// No row matches the filter.
    #[error("no row of the catalogue matches {0}; see --list")]
    NoRow(String),
    /// No case matches the filter.
    #[error("no case of the catalogue has a name that begins with {0}")]
    NoCase(String),
    /// The agent did not do what a load test needs.
    #[error("{0}")]
    Load(String),
}
