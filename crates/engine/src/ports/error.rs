//! The errors of the engine, one variant per branch that a caller takes. Codes are assigned in `serve::error_table`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::ModelError;
use crate::words::{ModeId, ModelId, SessionId};

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No session has this id.
    #[error("no session {0}")]
    NoSuchSession(SessionId),
    /// The session is busy.
    #[error("session {0} already has a running turn")]
    Busy(SessionId),
    /// The session has no running turn.
    #[error("session {0} has no running turn")]
    NoTurn(SessionId),
    /// Too many messages wait for the running turn.
    #[error("{0} messages already wait for the running turn; it takes them after its next answer")]
    TooMuchSteering(usize),
    /// Another process has the session open.
    #[error("session {session} is open in {place}")]
    OpenElsewhere {
        /// The session.
        session: SessionId,
        /// Which process, and where.
        place: String,
    },
    /// Another process continues the session.
    #[error("session {0} was continued in another process")]
    TakenOver(SessionId),
    /// The session was not used for too long.
    #[error("session {session} was not used for {days} days")]
    Expired {
        /// The session.
        session: SessionId,
        /// After how many days a session expires.
        days: u64,
    },
    /// The session has reached the size limit.
    #[error(
        "the session has reached its limit of {0} bytes; it can be loaded, but not continued; start a new session"
    )]
    HistoryFull(u64),
    /// The session can be read, not written.
    #[error("{0}")]
    ReadOnly(String),
    /// The cursor is invalid.
    #[error("invalid cursor: use one that session/list returned")]
    BadCursor,
    /// A directory of a new session cannot be used.
    #[error("directory {number} of the session: {why}")]
    BadDirectory {
        /// Which one; the working directory is 0.
        number: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Too many sessions are open.
    #[error("{0} sessions are open; close one first")]
    TooManySessions(usize),
    /// Too many requests are open.
    #[error("too many open requests; wait for some of them")]
    Crowded,
    /// No such mode.
    #[error("no mode {0}")]
    NoSuchMode(ModeId),
    /// No such model.
    #[error("no model {0}")]
    NoSuchModel(ModelId),
    /// The prompt is invalid.
    #[error("{0}")]
    BadPrompt(String),
    /// The client has logged out.
    #[error("the client is logged out")]
    AuthNeeded,
    /// The model sent nothing for too long.
    #[error("the model sent nothing for {} s", .0.as_secs())]
    NoProgress(Duration),
    /// The client did not read for too long.
    #[error("the client read nothing for {} s", .0.as_secs())]
    ClientStalled(Duration),
    /// The model failed.
    #[error("{0}")]
    Model(ModelError),
    /// The journal could not be written, so nothing further may be shown.
    #[error("the session could not be stored: {0}")]
    Journal(String),
    /// The server that stores sessions cannot be reached. The text has no address and no password.
    #[error("the store of sessions cannot be reached: {0}")]
    StoreUnreachable(String),
    /// An internal error.
    #[error("internal error")]
    Broken,
}

impl Error {
    /// Converts an error of the journal.
    #[must_use]
    pub fn of_journal(session: &SessionId, err: JournalError) -> Error {
        match err {
            JournalError::NotFound => Error::NoSuchSession(session.clone()),
            JournalError::OpenElsewhere(place) => {
                Error::OpenElsewhere { session: session.clone(), place }
            }
            JournalError::TakenOver => Error::TakenOver(session.clone()),
            JournalError::Expired(days) => Error::Expired { session: session.clone(), days },
            JournalError::Full(limit) => Error::HistoryFull(limit),
            JournalError::ReadOnly(why) => Error::ReadOnly(why),
            JournalError::BadCursor => Error::BadCursor,
            JournalError::Unreachable(why) => Error::StoreUnreachable(why),
            JournalError::Failed(why) => Error::Journal(why),
        }
    }
}

/// Why a session cannot be stored or read.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum JournalError {
    /// Unknown session.
    #[error("no such session")]
    NotFound,
    /// Another process has it open.
    #[error("the session is open in {0}")]
    OpenElsewhere(String),
    /// Another process has taken it over.
    #[error("the session was continued in another process")]
    TakenOver,
    /// It was not used for too long.
    #[error("the session was not used for {0} days")]
    Expired(u64),
    /// It has reached the size limit.
    #[error("the session has reached its limit of {0} bytes")]
    Full(u64),
    /// The cursor of a query is invalid.
    #[error("invalid cursor")]
    BadCursor,
    /// It can be read, not written.
    #[error("{0}")]
    ReadOnly(String),
    /// The server that stores sessions cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// Anything else; the text is for the log.
    #[error("{0}")]
    Failed(String),
}
