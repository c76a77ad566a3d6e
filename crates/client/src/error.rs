//! The error of this crate: why an agent could not be driven or a transcript not played.

use std::io;
use std::path::PathBuf;

use wire::RpcError;

/// Why an agent could not be driven or a transcript not played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The agent could not be started or its end not awaited.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The connection is lost: the agent closed its output, or no longer reads its input.
    #[error("the connection to the agent is lost{}", shown(stderr))]
    AgentGone {
        /// The end of what the agent wrote to its error output.
        stderr: String,
    },
    /// The agent answered with an error.
    #[error("{method} was refused: {} ({}){}", error.message, error.code.0, details(error))]
    Refused {
        /// What was called.
        method: &'static str,
        /// What the agent said.
        error: RpcError,
    },
    /// The agent sent something of the wrong shape.
    #[error("the agent's {what} has the wrong shape")]
    BadShape {
        /// A method whose result or parameters do not fit.
        what: &'static str,
        /// The place and the reason.
        #[source]
        source: serde_json::Error,
    },
    /// The agent speaks only a version of the protocol that we do not.
    #[error("the agent speaks version {0} of the protocol, not 1")]
    Version(String),
    /// Parameters of ours could not be written as JSON.
    #[error("the parameters of {method} cannot be written")]
    Unwritable {
        /// What was to be called.
        method: &'static str,
        /// The reason.
        #[source]
        source: serde_json::Error,
    },
    /// A transcript has a line that cannot be read.
    #[error("{}line {line}: {reason}", in_file(file.as_deref()))]
    BadTranscript {
        /// The name of the file that was included, if it is not the transcript itself.
        file: Option<String>,
        /// The line, counting from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or folder that a transcript needs could not be made or read.
    #[error("{} cannot be used", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

fn shown(stderr: &str) -> String {
    match stderr.trim_end() {
        "" => String::new(),
        stderr => format!("; it last said:\n{stderr}"),
    }
}

fn details(error: &RpcError) -> String {
    let details = error.data.as_ref().and_then(|data| data.get("details")?.as_str());
    details.map(|details| format!(": {details}")).unwrap_or_default()
}

fn in_file(file: Option<&str>) -> String {
    file.map(|file| format!("{file}, ")).unwrap_or_default()
}
