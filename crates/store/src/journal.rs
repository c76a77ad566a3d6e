//! The interface of a backend that stores sessions: compare-and-append, without locks that are held between calls.
//!
//! A session is a row of facts and a list of records, numbered from 1. A process that takes a session increments its epoch
//! and appends a record. Each append names the expected epoch and the number of the last record, and is rejected if either
//! has changed. So a process that was suspended and resumes late can do no harm.

use std::time::SystemTime;

use engine::ports::{JournalError, SessionInfo, State};

use crate::content::{Content, Hash};
use crate::index::{Filter, Page};
use crate::record::Encoded;

/// Stores sessions.
pub trait Backend: Send {
    /// Creates a session that belongs to `owner`, with its first record.
    ///
    /// # Errors
    /// Fails if the id exists.
    fn create(&mut self, info: &SessionInfo, owner: &str, own: &Encoded) -> Result<Claim, Error>;

    /// Takes a session: increments its epoch and appends `own`, unless another running process owns it. If `owner` already
    /// owns it, nothing changes.
    ///
    /// # Errors
    /// [`Error::Owned`] with the description that `describe_owner` returns for a running owner.
    fn take(
        &mut self,
        session: &str,
        owner: &str,
        own: &Encoded,
        describe_owner: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Claim, Error>;

    /// Appends records and changes facts in one transaction, if epoch and head are as expected. Returns the new head.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another process took the session or wrote to it.
    fn append(
        &mut self,
        session: &str,
        epoch: u64,
        expected_head: u64,
        records: &[Encoded],
        change: Option<&Change>,
    ) -> Result<u64, Error>;

    /// Returns records starting with the number `from`: at least one if there is one, and not much more than `bytes`.
    ///
    /// # Errors
    /// Fails if the session does not exist.
    fn read(&mut self, session: &str, from: u64, bytes: usize) -> Result<Vec<Stored>, Error>;

    /// Stores content under its hash as long as the session exists. Returns whether it was new to the session.
    ///
    /// # Errors
    /// Fails if the session does not exist.
    fn put(&mut self, session: &str, content: &Content<'_>) -> Result<bool, Error>;

    /// Returns the session's content with a hash.
    ///
    /// # Errors
    /// Fails if the session does not exist.
    fn get(&mut self, session: &str, hash: &Hash) -> Result<Option<Vec<u8>>, Error>;

    /// Changes the facts of a session; a fact that is `None` stays.
    ///
    /// # Errors
    /// Fails if the session does not exist.
    fn change(&mut self, session: &str, change: &Change) -> Result<(), Error>;

    /// Releases a session, if it is still at this epoch.
    ///
    /// # Errors
    /// Fails if the backend fails.
    fn release(&mut self, session: &str, epoch: u64) -> Result<(), Error>;

    /// Tells whether another process may have written to the store since the last call.
    ///
    /// # Errors
    /// Fails if the backend fails.
    fn has_changed(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Returns the facts of a session and its owner.
    ///
    /// # Errors
    /// Fails if the backend fails.
    fn find(&mut self, session: &str) -> Result<Option<Facts>, Error>;

    /// Returns sessions, the most recently used first.
    ///
    /// # Errors
    /// Fails if the backend fails.
    fn list(&mut self, filter: &Filter) -> Result<Page, Error>;

    /// Copies a session with all its records to another id; the copy has no owner.
    ///
    /// # Errors
    /// Fails if the session does not exist, or the new id does.
    fn copy(&mut self, from: &str, to: &str, now: SystemTime) -> Result<(), Error>;

    /// Deletes a session and everything stored for it. A missing session is not an error.
    ///
    /// # Errors
    /// Fails if the backend fails.
    fn delete(&mut self, session: &str) -> Result<(), Error>;
}

/// A session that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The epoch to append with.
    pub epoch: u64,
    /// The number of the last record.
    pub head: u64,
    /// How many bytes are stored.
    pub bytes: u64,
    /// Whether this process did not own it before.
    pub is_fresh: bool,
}

/// A record with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its number.
    pub seq: u64,
    /// The record.
    pub record: Encoded,
}

/// The facts about a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The public facts.
    pub info: SessionInfo,
    /// Its owner.
    pub owner: Option<String>,
}

/// A change to the facts of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// Its title.
    pub title: Option<String>,
    /// Its state.
    pub state: Option<State>,
    /// The time of its last use.
    pub updated: Option<SystemTime>,
    /// How many bytes are stored.
    pub bytes: Option<u64>,
}

/// Why a backend failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The session does not exist.
    #[error("session not found")]
    NotFound,
    /// The session exists already.
    #[error("the session already exists")]
    Exists,
    /// Another running process owns the session.
    #[error("the session is open in {0}")]
    Owned(String),
    /// Another process took the session or wrote to it.
    #[error("another process has taken over the session")]
    Fenced,
    /// The cursor is invalid.
    #[error("invalid cursor")]
    BadCursor,
    /// It can be read but not written.
    #[error("{0}")]
    ReadOnly(String),
    /// The stored data is damaged.
    #[error("{0}")]
    Damaged(String),
    /// Another process has recovered the store; it must be opened again.
    #[error("the store was replaced")]
    Replaced,
    /// The connection to the store was lost, and could not be made again in time.
    #[error("{0}")]
    Disconnected(String),
    /// Another failure.
    #[error("{0}")]
    Failed(String),
}

impl From<Error> for JournalError {
    fn from(err: Error) -> JournalError {
        match err {
            Error::NotFound => JournalError::NotFound,
            Error::Owned(owner) => JournalError::OpenElsewhere(owner),
            Error::Fenced => JournalError::TakenOver,
            Error::BadCursor => JournalError::BadCursor,
            Error::ReadOnly(why) => JournalError::ReadOnly(why),
            Error::Disconnected(why) => JournalError::Unreachable(why),
            Error::Exists | Error::Damaged(_) | Error::Replaced | Error::Failed(_) => {
                JournalError::Failed(err.to_string())
            }
        }
    }
}
