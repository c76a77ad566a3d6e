//! The list of sessions, in pages, the most recently used first.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::ports::{JournalError, State};

use crate::journal::{Error, Facts};

/// The number of sessions in a page.
pub const PAGE: usize = 100;

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those with this working directory.
    pub cwd: Option<PathBuf>,
    /// Only those after this position.
    pub after: Option<Cursor>,
}

/// A page of sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The sessions.
    pub sessions: Vec<Facts>,
    /// The position of the last one, if there are more.
    pub next: Option<Cursor>,
}

/// A position in the list: the last session of a page, by time and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// When it was last used, in milliseconds since 1970.
    pub updated: u64,
    /// Its number in the backend, which orders sessions with the same time.
    pub number: u64,
}

impl Cursor {
    /// Returns the cursor in the form for clients.
    #[must_use]
    pub fn print(&self) -> String {
        format!("{}.{}", self.updated, self.number)
    }

    /// Parses a cursor that a client sent.
    ///
    /// # Errors
    /// [`Error::BadCursor`] if it is not a valid cursor.
    pub fn parse(text: &str) -> Result<Cursor, Error> {
        let number = |text: &str| text.parse().map_err(|_| Error::BadCursor);
        let (updated, row) = text.split_once('.').ok_or(Error::BadCursor)?;
        Ok(Cursor { updated: number(updated)?, number: number(row)? })
    }
}

/// Converts a query.
///
/// # Errors
/// Fails if its cursor is invalid.
pub fn filter_in(query: engine::ports::Query) -> Result<Filter, JournalError> {
    let after = query.cursor.as_deref().map(Cursor::parse).transpose()?;
    Ok(Filter { cwd: query.cwd, after })
}

/// Converts a time to milliseconds since 1970.
#[must_use]
pub fn time_in(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Converts milliseconds since 1970 to a time.
#[must_use]
pub fn time_out(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

/// Returns the stored name of a state.
#[must_use]
pub fn state_in(state: State) -> &'static str {
    match state {
        State::Active => "active",
        State::Paused => "paused",
        State::Completed => "completed",
        State::Error => "error",
    }
}

/// Returns the state with a stored name. An unknown name, written by a newer version, is treated as paused.
#[must_use]
pub fn state_out(text: &str) -> State {
    match text {
        "active" => State::Active,
        "completed" => State::Completed,
        "error" => State::Error,
        _ => State::Paused,
    }
}
