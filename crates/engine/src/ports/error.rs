//! What can go wrong, by the branch a caller takes. Codes are given in `purlin::error_table`.

use std::time::Duration;

use super::model::ModelError;
use crate::words::{ModeId, ModelId, SessionId};

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No session has this id.
    #[error("no session {0}")]
    NoSuchSession(SessionId),
    /// The session is at work on something else.
    #[error("session {0} already runs a turn")]
    Busy(SessionId),
    /// The session runs no turn that could be steered.
    #[error("session {0} runs no turn")]
    NoTurn(SessionId),
    /// As many messages wait for the running turn as may.
    #[error(
        "{0} messages wait for the running turn already; it takes them up after its next answer"
    )]
    TooMuchSteering(usize),
    /// Another process has the session open.
    #[error("session {session} is open in {place}")]
    OpenElsewhere {
        /// The session.
        session: SessionId,
        /// Which process, and where.
        place: String,
    },
    /// The session was not used for too long.
    #[error("session {session} was not used for {days} days")]
    Expired {
        /// The session.
        session: SessionId,
        /// After how many days a session expires.
        days: u64,
    },
    /// As much is kept of the session as may be.
    #[error("the session has reached {0} bytes; it still loads, but takes no more")]
    HistoryFull(u64),
    /// What is kept can be read, not written.
    #[error("{0}")]
    ReadOnly(String),
    /// A cursor that was never given.
    #[error("the cursor is none that session/list gave")]
    BadCursor,
    /// As many sessions are open as may be.
    #[error("{0} sessions are open; close one first")]
    TooManySessions(usize),
    /// As much waits for the hub as may.
    #[error("too many requests are under way; wait for some of them")]
    Crowded,
    /// No such mode.
    #[error("no mode {0}")]
    NoSuchMode(ModeId),
    /// No such model.
    #[error("no model {0}")]
    NoSuchModel(ModelId),
    /// A prompt that cannot be used.
    #[error("{0}")]
    BadPrompt(String),
    /// The client has logged out.
    #[error("the client is logged out")]
    AuthNeeded,
    /// The model said nothing for too long.
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
    /// A fault of ours ended the work.
    #[error("internal error")]
    Broken,
}

impl Error {
    /// Says what an error of the journal means for a session.
    #[must_use]
    pub fn of_journal(session: &SessionId, err: JournalError) -> Error {
        match err {
            JournalError::NotFound => Error::NoSuchSession(session.clone()),
            JournalError::OpenElsewhere(place) => {
                Error::OpenElsewhere { session: session.clone(), place }
            }
            JournalError::Expired(days) => Error::Expired { session: session.clone(), days },
            JournalError::Full(limit) => Error::HistoryFull(limit),
            JournalError::ReadOnly(why) => Error::ReadOnly(why),
            JournalError::BadCursor => Error::BadCursor,
            JournalError::Failed(why) => Error::Journal(why),
        }
    }
}

/// Why a session cannot be stored or read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JournalError {
    /// Unknown session.
    #[error("no such session")]
    NotFound,
    /// Another process has it open.
    #[error("the session is open in {0}")]
    OpenElsewhere(String),
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
    /// Anything else; the text is for the log.
    #[error("{0}")]
    Failed(String),
}
