//! What the settings of other agents mean here: a row for each of them, for `purlin config import`.
//!
//! The rows are made by the code that applies the settings, so they say what really happens.

pub mod files;

/// What becomes of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is in effect as it is.
    Taken,
    /// It is in effect in another way.
    Changed,
    /// It has no effect.
    NotSupported,
}

impl State {
    /// Names it for the user.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            State::Taken => "taken",
            State::Changed => "changed",
            State::NotSupported => "not supported",
        }
    }
}

/// A setting of another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The file it is in.
    pub source: String,
    /// The setting.
    pub setting: String,
    /// What becomes of it.
    pub state: State,
    /// How or why; may be empty.
    pub note: String,
}

impl Row {
    /// Makes a row.
    pub(crate) fn new(
        source: &str,
        setting: impl Into<String>,
        state: State,
        note: impl Into<String>,
    ) -> Row {
        Row { source: source.to_owned(), setting: setting.into(), state, note: note.into() }
    }
}
