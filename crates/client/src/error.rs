//! The error type of this crate.

use std::io;
use std::path::PathBuf;

use wire::RpcError;

/// Why a connection to an agent or the replay of a transcript failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The agent could not be started, or its exit status could not be read.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The connection was lost: the agent closed its output, or no longer reads its input.
    #[error("the connection to the agent was lost{}", last_output(stderr))]
    AgentGone {
        /// The last output of the agent on stderr.
        stderr: String,
    },
    /// The agent on a server cannot be reached. The text has neither the address nor the token.
    #[error("cannot reach the server: {0}")]
    Remote(String),
    /// The server or its address is wrong, and will be at the next try. The text has neither the address nor the token.
    #[error("cannot connect to the server: {0}")]
    RemoteRefused(String),
    /// The agent did not answer `initialize` in time.
    #[error("the agent did not answer `initialize` within {seconds} s{}", last_output(stderr))]
    AgentSilent {
        /// How long it had.
        seconds: u64,
        /// The last output of the agent on stderr.
        stderr: String,
    },
    /// The agent answered with an error.
    #[error("{method} failed: {} ({}){}", error.message, error.code.0, details(error))]
    Refused {
        /// The method that was called.
        method: &'static str,
        /// The agent's error.
        error: RpcError,
    },
    /// The agent sent a value of the wrong type.
    #[error("the agent's {what} does not match the protocol")]
    BadShape {
        /// The method whose result or parameters are invalid.
        what: &'static str,
        /// The position and the reason.
        #[source]
        source: serde_json::Error,
    },
    /// The agent supports only another version of the protocol.
    #[error("the agent supports version {0} of the protocol, not 1")]
    Version(String),
    /// Parameters could not be serialised as JSON.
    #[error("the parameters of {method} cannot be serialised")]
    Unwritable {
        /// The method that was to be called.
        method: &'static str,
        /// The reason.
        #[source]
        source: serde_json::Error,
    },
    /// A transcript has an invalid line.
    #[error("{}line {line}: {reason}", in_file(file.as_deref()))]
    BadTranscript {
        /// The name of the file that was included, if it is not the transcript itself.
        file: Option<String>,
        /// The line, counting from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or directory that a transcript needs could not be created or read.
    #[error("cannot create or read {}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn last_output(stderr: &str) -> String {
    match stderr.trim_end() {
        "" => String::new(),
        stderr => format!("; its last output was:\n{stderr}"),
    }
}

fn details(error: &RpcError) -> String {
    let details = error.data.as_ref().and_then(|data| data.get("details")?.as_str());
    let new = details.filter(|details| !error.message.contains(details));
    new.map(|details| format!(": {details}")).unwrap_or_default()
}

fn in_file(file: Option<&str>) -> String {
    file.map(|file| format!("{file}, ")).unwrap_or_default()
}
