//! Why a server cannot be used, in messages that the user can act on.

use std::time::Duration;

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Its program is missing.
    #[error("program `{0}` not found; install it or fix `command`")]
    NoProgram(String),
    /// Its program could not be started.
    #[error("{0}")]
    Start(String),
    /// Its program exited.
    #[error("its program exited with {how}{}", log_tail(.log))]
    Exited {
        /// Exit code or signal.
        how: String,
        /// The end of its stderr.
        log: String,
    },
    /// It did not become ready in time.
    #[error("it did not answer within {} s; {}{}", .after.as_secs(), timeout_hint(.package_runner.as_deref()), log_tail(.log))]
    TimedOut {
        /// How long it was waited for.
        after: Duration,
        /// The package runner that starts it, if it uses one: it may still be downloading.
        package_runner: Option<String>,
        /// The end of its stderr.
        log: String,
    },
    /// Too many lines on its stdout are not MCP messages.
    #[error("its program writes text to stdout that is not an MCP message; it must log to stderr")]
    InvalidOutput,
    /// Two calls in a row timed out.
    #[error("it did not answer two calls in a row and was stopped")]
    Unresponsive,
    /// It requires a login.
    #[error("login required: run `purlin mcp login {0}`")]
    LoginRequired(String),
    /// It answered with an error or an invalid response.
    #[error("it returned an error: {0}")]
    Refused(String),
    /// It cannot be reached, or the connection was lost.
    #[error("{0}")]
    Unreachable(String),
}

impl Error {
    /// Returns whether a retry cannot succeed.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Error::NoProgram(_) | Error::Start(_) | Error::LoginRequired(_) => true,
            Error::Exited { .. }
            | Error::TimedOut { .. }
            | Error::InvalidOutput
            | Error::Unresponsive
            | Error::Refused(_)
            | Error::Unreachable(_) => false,
        }
    }
}

fn timeout_hint(package_runner: Option<&str>) -> String {
    let download = match package_runner {
        Some(runner) => {
            format!("`{runner}` downloads it at the first start and may not have finished; ")
        }
        None => String::new(),
    };
    format!("{download}set `timeout` (in milliseconds) in its configuration to allow more time")
}

fn log_tail(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; last output: {log}") }
}
