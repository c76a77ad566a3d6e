//! The turns of a session and the files they changed, as `/undo`, `/redo` and `/rewind` need them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ids::{ContentId, MessageId};

/// The turns of a session, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// Those that are part of the conversation, as far back as the journal reaches.
    pub done: Vec<PastTurn>,
    /// Those that were undone and can be redone.
    pub undone: Vec<PastTurn>,
}

/// One turn of the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastTurn {
    /// The number of its message in the conversation, counting from 1.
    pub number: usize,
    /// The message that began it.
    pub message: MessageId,
    /// The first line of that message.
    pub title: String,
    /// The files that it changed, in order.
    pub changes: Vec<Change>,
    /// The commands it ran, which may have changed other files.
    pub commands: Vec<String>,
}

/// A change of a file; `None` stands for no file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// Its content before.
    pub before: Option<ContentId>,
    /// Its content after.
    pub after: Option<ContentId>,
}
