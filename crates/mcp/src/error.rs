//! Why a server cannot be used, in words that its user can act on.

use std::time::Duration;

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Its program is missing.
    #[error("program `{0}` not found; install it, or correct `command`")]
    NoProgram(String),
    /// Its program could not be started.
    #[error("{0}")]
    Start(String),
    /// Its program ended.
    #[error("its program ended with {how}{}", last_words(.log))]
    Ended {
        /// Code or signal.
        how: String,
        /// The end of what it said on stderr.
        log: String,
    },
    /// It says nothing.
    #[error("it did not answer within {} s; {}{}", .after.as_secs(), more_time(.fetcher.as_deref()), last_words(.log))]
    Silent {
        /// For how long.
        after: Duration,
        /// The program that starts it, if that one may still be fetching it from somewhere.
        fetcher: Option<String>,
        /// The end of what it said on stderr.
        log: String,
    },
    /// It wrote too much on stdout that is no message.
    #[error("its program writes text to stdout that is not an MCP message; it must log to stderr")]
    Garbage,
    /// Two calls in a row got no answer.
    #[error("it did not answer two calls in a row and was stopped")]
    Hung,
    /// It wants a log-in.
    #[error("login required: run `purlin mcp login {0}`")]
    AuthNeeded(String),
    /// It answered with an error, or with something that does not fit.
    #[error("it returned an error: {0}")]
    Refused(String),
    /// It cannot be reached, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
}

impl Error {
    /// Tells whether another try cannot help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Error::NoProgram(_) | Error::Start(_) | Error::AuthNeeded(_) => true,
            Error::Ended { .. }
            | Error::Silent { .. }
            | Error::Garbage
            | Error::Hung
            | Error::Refused(_)
            | Error::Unreachable(_) => false,
        }
    }
}

fn more_time(fetcher: Option<&str>) -> String {
    let first = match fetcher {
        Some(fetcher) => {
            format!("`{fetcher}` may still be downloading it, as it does at the first start; ")
        }
        None => String::new(),
    };
    format!("{first}`timeout` in its configuration, in milliseconds, gives it more time")
}

fn last_words(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; last log output: {log}") }
}
