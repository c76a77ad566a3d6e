//! The index: which sessions there are, in pages, the last used first.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::ports::{JournalError, State};

use crate::journal::{Error, Facts};

/// How many sessions a page has.
pub const PAGE: usize = 100;

/// Which sessions are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those of this folder.
    pub cwd: Option<PathBuf>,
    /// Only what comes behind this place.
    pub after: Option<Cursor>,
}

/// Some sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The sessions.
    pub sessions: Vec<Facts>,
    /// The place of the last one, if there are more.
    pub next: Option<Cursor>,
}

/// A place in the list: the last session of a page, by time and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// When it was last used, in milliseconds since 1970.
    pub updated: u64,
    /// Its number in the backend, which tells sessions of the same time apart.
    pub number: u64,
}

impl Cursor {
    /// Writes the cursor as a client gets it.
    #[must_use]
    pub fn print(&self) -> String {
        format!("{}.{}", self.updated, self.number)
    }

    /// Reads a cursor that a client gave back.
    ///
    /// # Errors
    /// [`Error::BadCursor`] for anything that we did not write.
    pub fn parse(text: &str) -> Result<Cursor, Error> {
        let number = |text: &str| text.parse().map_err(|_| Error::BadCursor);
        let (updated, row) = text.split_once('.').ok_or(Error::BadCursor)?;
        Ok(Cursor { updated: number(updated)?, number: number(row)? })
    }
}

/// Reads a query.
///
/// # Errors
/// Fails for a cursor that we did not write.
pub fn filter_in(query: engine::ports::Query) -> Result<Filter, JournalError> {
    let after = query.cursor.as_deref().map(Cursor::parse).transpose()?;
    Ok(Filter { cwd: query.cwd, after })
}

/// A time as the index has it: milliseconds since 1970.
#[must_use]
pub fn time_in(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time as the engine has it.
#[must_use]
pub fn time_out(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

/// A state as the index has it.
#[must_use]
pub fn state_in(state: State) -> &'static str {
    match state {
        State::Active => "active",
        State::Paused => "paused",
        State::Completed => "completed",
        State::Error => "error",
    }
}

/// A state as the engine has it. What a newer program wrote counts as paused: nobody has it open.
#[must_use]
pub fn state_out(text: &str) -> State {
    match text {
        "active" => State::Active,
        "completed" => State::Completed,
        "error" => State::Error,
        _ => State::Paused,
    }
}
