//! The journal of sessions as a backend keeps it: compare-and-append, nothing that waits for anybody.
//!
//! A session is a row of facts and a list of records, numbered from 1. Whoever takes a session raises its epoch with a
//! record of its own; an append names the epoch and the number of the last record it knows, and is refused if either has
//! moved on. So a process that was paused and wakes up late can do no harm, whatever the backend is.

use std::time::SystemTime;

use engine::ports::{Info, JournalError, State};
use sha2::{Digest, Sha256};

use crate::index::{Filter, Page};
use crate::record::Encoded;

/// A place where sessions are kept.
pub trait Backend: Send {
    /// Begins a session that belongs to `owner`, with its first record.
    ///
    /// # Errors
    /// Fails if the id is taken.
    fn create(&mut self, info: &Info, owner: &str, own: &Encoded) -> Result<Claim, Error>;

    /// Takes a session: raises its epoch and appends `own`, unless somebody alive has it. What `owner` already has stays
    /// as it is.
    ///
    /// # Errors
    /// [`Error::Owned`] with the place that `place_of` gives for a living owner.
    fn take(
        &mut self,
        session: &str,
        owner: &str,
        own: &Encoded,
        place_of: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Claim, Error>;

    /// Appends records and changes facts, all or nothing, if epoch and head are still what the caller believes. Returns
    /// the new head.
    ///
    /// # Errors
    /// [`Error::Fenced`] if somebody else took the session or wrote to it.
    fn append(
        &mut self,
        session: &str,
        epoch: u64,
        expected_head: u64,
        records: &[Encoded],
        change: Option<&Change>,
    ) -> Result<u64, Error>;

    /// Returns records from the number `from` on: at least one if there is one, and then not much more than `bytes`.
    ///
    /// # Errors
    /// Fails if there is no such session.
    fn read(&mut self, session: &str, from: u64, bytes: usize) -> Result<Vec<Stored>, Error>;

    /// Keeps content under its hash, for as long as the session is there. Tells whether it was new to the session.
    ///
    /// # Errors
    /// Fails if there is no such session.
    fn put(&mut self, session: &str, content: &Content<'_>) -> Result<bool, Error>;

    /// Returns the content that the session keeps under a hash.
    ///
    /// # Errors
    /// Fails if there is no such session.
    fn get(&mut self, session: &str, hash: &Hash) -> Result<Option<Vec<u8>>, Error>;

    /// Changes the facts of a session; what is `None` stays.
    ///
    /// # Errors
    /// Fails if there is no such session.
    fn change(&mut self, session: &str, change: &Change) -> Result<(), Error>;

    /// Gives a session back, if it still is at this epoch.
    ///
    /// # Errors
    /// Fails if the backend does.
    fn release(&mut self, session: &str, epoch: u64) -> Result<(), Error>;

    /// Returns the facts of a session and its owner.
    ///
    /// # Errors
    /// Fails if the backend does.
    fn find(&mut self, session: &str) -> Result<Option<Facts>, Error>;

    /// Returns sessions, the last used first.
    ///
    /// # Errors
    /// Fails if the backend does.
    fn list(&mut self, filter: &Filter) -> Result<Page, Error>;

    /// Copies a session with all its records under another id; the copy belongs to nobody.
    ///
    /// # Errors
    /// Fails if there is no such session, or there is one with the new id.
    fn copy(&mut self, from: &str, to: &str, now: SystemTime) -> Result<(), Error>;

    /// Deletes a session and all that is kept of it. That there is none is no error.
    ///
    /// # Errors
    /// Fails if the backend does.
    fn delete(&mut self, session: &str) -> Result<(), Error>;
}

/// The SHA-256 of some content.
pub type Hash = [u8; 32];

/// Content with its hash.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// Its hash.
    pub hash: Hash,
    /// The bytes.
    pub body: &'a [u8],
}

impl Content<'_> {
    /// Hashes some content.
    #[must_use]
    pub fn of(body: &[u8]) -> Content<'_> {
        Content { hash: Sha256::digest(body).into(), body }
    }
}

/// What whoever took a session knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The epoch to append with.
    pub epoch: u64,
    /// The number of the last record.
    pub head: u64,
    /// How many bytes are kept.
    pub bytes: u64,
    /// Whether it was somebody else's, or nobody's, before.
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

/// What is known of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// For everybody.
    pub info: Info,
    /// Who has it.
    pub owner: Option<String>,
}

/// A change of a session's facts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// Its title.
    pub title: Option<String>,
    /// Its state.
    pub state: Option<State>,
    /// When it was last used.
    pub updated: Option<SystemTime>,
    /// How many bytes are kept.
    pub bytes: Option<u64>,
}

/// Why a backend did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such session.
    #[error("no such session")]
    NotFound,
    /// There is one already.
    #[error("there is such a session already")]
    Exists,
    /// Somebody alive has the session.
    #[error("the session is open in {0}")]
    Owned(String),
    /// Somebody else took the session or wrote to it.
    #[error("another process took the session over")]
    Fenced,
    /// The cursor of a listing is none of ours.
    #[error("the cursor is none that was given")]
    BadCursor,
    /// It can be read, not written.
    #[error("{0}")]
    ReadOnly(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<Error> for JournalError {
    fn from(err: Error) -> JournalError {
        match err {
            Error::NotFound => JournalError::NotFound,
            Error::Owned(place) => JournalError::OpenElsewhere(place),
            Error::Fenced => JournalError::OpenElsewhere("a process that took it over".to_owned()),
            Error::BadCursor => JournalError::BadCursor,
            Error::ReadOnly(why) => JournalError::ReadOnly(why),
            Error::Exists | Error::Failed(_) => JournalError::Failed(err.to_string()),
        }
    }
}
