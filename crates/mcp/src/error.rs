//! Why a server cannot be used, with what the user can do.

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
        /// The end of its log on stderr.
        log: String,
    },
    /// It does not answer.
    #[error("it did not answer within {} s; {}{}", .after.as_secs(), more_time(.fetcher.as_deref()), last_words(.log))]
    Silent {
        /// For how long.
        after: Duration,
        /// The program that starts it, if that program may still be downloading it.
        fetcher: Option<String>,
        /// The end of its log on stderr.
        log: String,
    },
    /// It wrote too much on stdout that is not a message.
    #[error("its program writes text to stdout that is not an MCP message; it must log to stderr")]
    Garbage,
    /// Two calls in a row got no answer.
    #[error("it did not answer two calls in a row and was stopped")]
    Hung,
    /// It requires a login.
    #[error("login required: run `purlin mcp login {0}`")]
    AuthNeeded(String),
    /// It answered with an error or an invalid result.
    #[error("it returned an error: {0}")]
    Refused(String),
    /// It cannot be reached, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
}

impl Error {
    /// Tells whether a retry cannot help.
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
            format!("`{fetcher}` may still be downloading it (first start); ")
        }
        None => String::new(),
    };
    format!("{first}set `timeout` in its configuration (milliseconds) to give it more time")
}

fn last_words(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; last log output: {log}") }
}
