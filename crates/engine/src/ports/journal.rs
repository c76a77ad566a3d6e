//! Where sessions are stored, and the files whose changes can be undone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::editor::Editor;
use super::error::JournalError;
use super::event::{DisplayPermit, Event, Place};
use crate::words::{
    Bill, ContentId, Cut, History, MessageId, ModeId, ModelId, Prompt, SessionId, StopReason,
    Thinking, Thought, ToolCallId, ToolRequest, Turns, Usage,
};

/// A record on its way into the journal. Drop it if you do not want to wait.
#[derive(Debug)]
pub struct PendingWrite(Option<oneshot::Receiver<Result<(), JournalError>>>);

impl PendingWrite {
    /// Makes one that is already written.
    #[must_use]
    pub fn done() -> PendingWrite {
        PendingWrite(None)
    }

    /// Makes one whose outcome arrives later.
    #[must_use]
    pub fn when(written: oneshot::Receiver<Result<(), JournalError>>) -> PendingWrite {
        PendingWrite(Some(written))
    }

    /// Waits until the record is written.
    ///
    /// # Errors
    /// Says why it could not be written.
    pub async fn wait(self) -> Result<(), JournalError> {
        let Some(written) = self.0 else { return Ok(()) };
        written
            .await
            .unwrap_or_else(|_| Err(JournalError::Failed("the journal has stopped".to_owned())))
    }
}

/// Where sessions are stored. What is not journalled did not happen.
///
/// A session belongs to one process at a time: `create` and `load` acquire it, `release` gives it up, and so does the end
/// of the process.
pub trait Journal: Send + Sync {
    /// Tells whether sessions outlive this process.
    fn is_persistent(&self) -> bool;

    /// Says why sessions are not stored although they should be.
    fn problem(&self) -> Option<String>;

    /// Says what was recovered if stored sessions were found damaged.
    fn recovery(&self) -> Option<String>;

    /// Creates a session and acquires it.
    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        cwd: &'a Path,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Finds a session without acquiring it.
    fn find<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<SessionInfo, JournalError>>;

    /// Acquires a session, closes what a crash left open, shows its history to `editor` and returns its state.
    fn load<'a>(
        &'a self,
        session: &'a SessionId,
        editor: Option<&'a dyn Editor>,
    ) -> BoxFuture<'a, Result<StoredSession, JournalError>>;

    /// Releases a session that another process has open, even if a turn runs there; that turn ends. The next load acquires it.
    fn take_over<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        let _only_here = session;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the sessions of this process that another one has acquired since. Cheap, because it is asked every few
    /// seconds. A session is returned until it is released here.
    fn lost_sessions(&self) -> BoxFuture<'_, Vec<SessionId>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Starts to append a record. If it cannot be written, nothing after it is written until the turn ends.
    fn begin<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<PendingWrite, JournalError>>;

    /// Appends a record; returns when a crash of this process can no longer lose it. A tool intent also survives a
    /// crash of the machine.
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        async move { self.begin(session, record).await?.wait().await }.boxed()
    }

    /// Appends an event and shows it once it is written.
    ///
    /// Returns then, except for chunks of text, which follow each other quickly: they are written and shown in order, a
    /// little later. If that fails, the next call returns the error.
    fn append_event<'a>(
        &'a self,
        session: &'a SessionId,
        event: Event,
        show: Option<DisplayPermit>,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Reads the events of the next records after the one of this number; `None` reads nothing, and returns the number of
    /// the last record. The session must be open here.
    fn events_after<'a>(
        &'a self,
        session: &'a SessionId,
        after: Option<u64>,
    ) -> BoxFuture<'a, Result<EventPage, JournalError>> {
        let _nothing_stored = session;
        Box::pin(std::future::ready(Ok(EventPage {
            last: after.unwrap_or(0),
            ..EventPage::default()
        })))
    }

    /// Saves the content of a file before and after a change; returns when a crash of this process can no longer lose it.
    fn save_change<'a>(
        &'a self,
        session: &'a SessionId,
        change: FileChange,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Returns the turns of a session and the files they changed.
    fn turns<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Turns, JournalError>>;

    /// Returns the saved content of a file; `None` if it was too large to save.
    fn content<'a>(
        &'a self,
        session: &'a SessionId,
        content: &'a ContentId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, JournalError>>;

    /// Releases a session.
    fn release<'a>(
        &'a self,
        session: &'a SessionId,
        state: State,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Changes a session's title, even if another process has the session.
    fn set_title<'a>(
        &'a self,
        session: &'a SessionId,
        title: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Lists sessions, the last used first.
    fn list(&self, query: Query) -> BoxFuture<'_, Result<Listing, JournalError>>;

    /// Copies a session as it is now; the copy is not acquired.
    fn fork<'a>(
        &'a self,
        from: &'a SessionId,
        to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Appends a copy of the conversation of `from` to a session that is acquired, and shows it to `editor`.
    fn copy_into<'a>(
        &'a self,
        session: &'a SessionId,
        from: &'a SessionId,
        editor: &'a dyn Editor,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Deletes a session and everything stored for it. Deleting an unknown session is not an error.
    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>>;
}

/// One record of the journal, besides the events.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// The user sent this.
    Prompt {
        /// The id it has in a replay.
        message: &'a MessageId,
        /// What was sent.
        prompt: &'a Prompt,
        /// Who it is for.
        kind: PromptKind,
    },
    /// The model's thoughts, in the form that must be sent back to it.
    Thoughts(&'a [Thought]),
    /// The model's answer ended with these tool calls.
    Answer(&'a [ToolRequest]),
    /// A tool is about to run.
    ToolIntent(&'a ToolRequest),
    /// The result of a tool call, for the model.
    ToolResult {
        /// Which call.
        id: &'a ToolCallId,
        /// The result.
        text: &'a str,
        /// Whether it went wrong.
        failed: bool,
    },
    /// A message of our own to the model, in the middle of a turn.
    Reminder(&'a str),
    /// The model answered, and used this much.
    Spent {
        /// Which model.
        model: &'a ModelId,
        /// Its tokens.
        usage: &'a Usage,
        /// What that cost, in US dollars, where a price is known.
        dollars: Option<f64>,
    },
    /// The conversation before a place was replaced by a summary.
    Compacted {
        /// The summary.
        summary: &'a str,
        /// The place.
        from: &'a Cut,
        /// How many bytes of each result after it remain, if not all.
        cap: Option<usize>,
    },
    /// The turn ended; `None` after a failure.
    TurnEnd(Option<StopReason>),
    /// The turn that began with this message was undone, and all after it.
    Undone(&'a MessageId),
    /// Undone turns were redone, up to the one that began with this message.
    Redone(&'a MessageId),
}

/// A change of a file, with its whole content before and after; `None` stands for no file.
#[derive(Debug, Clone)]
pub struct FileChange {
    /// The file.
    pub path: PathBuf,
    /// Its content before.
    pub before: Option<Content>,
    /// Its content after.
    pub after: Option<Content>,
}

/// The content of a file. Shared, because it may be large.
#[derive(Debug, Clone)]
pub struct Content(Arc<Hashed>);

#[derive(Debug)]
struct Hashed {
    bytes: Vec<u8>,
    hash: OnceLock<[u8; 32]>,
}

impl Content {
    /// Takes the bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Content {
        Content(Arc::new(Hashed { bytes, hash: OnceLock::new() }))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Returns their SHA-256, which identifies the content. Computed on first use.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        *self.0.hash.get_or_init(|| Sha256::digest(&self.0.bytes).into())
    }

    /// Sets the hash, if it is already known.
    pub fn set_hash(&self, hash: [u8; 32]) {
        self.0.hash.get_or_init(|| hash);
    }
}

/// The files of a session's directories, read and replaced as a whole. Undo, redo and rewind use it.
pub trait Files: Send + Sync {
    /// Returns the content of a file, unsaved changes in the editor included; `None` if it does not exist.
    fn read<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, FileError>>;

    /// Checks that [`Files::replace`] could write a file, as far as that is known before: it is not read-only.
    fn check<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
        new: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<(), FileError>>;

    /// Replaces the content of a file, but only if its SHA-256 is still the expected one. `None` stands for no file.
    fn replace<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
        expected: Option<[u8; 32]>,
        new: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), FileError>>;
}

/// Why a file cannot be read or replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum FileError {
    /// The path is not inside the session's directories.
    #[error("{} is outside the folders of this session", .0.display())]
    Outside(PathBuf),
    /// A link has taken the place of the file or of one of its directories.
    #[error("a link now leads to {}, which was not touched", .0.display())]
    Redirected(PathBuf),
    /// Its content is no longer the expected one; it was not changed.
    #[error("changed in the meantime, so it was not touched")]
    Changed,
    /// The editor is gone.
    #[error("the editor is gone")]
    Gone,
    /// Anything else, in words for the user.
    #[error("{0}")]
    Failed(String),
}

/// Some consecutive events of a session, as they were shown.
#[derive(Debug, Default)]
pub struct EventPage {
    /// The events, each with its place. Prompts of the user are among them.
    pub events: Vec<(Place, Event)>,
    /// The number of the last record that was read. At the end of the journal it is the number that was given.
    pub last: u64,
}

/// What became of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptEnd {
    /// Its turn ended; `None` after a failure.
    Ended(Option<StopReason>),
    /// A crash ended its turn, which can be continued.
    Interrupted,
    /// A crash ended its slash command, which is not repeated.
    CommandInterrupted,
}

/// Who a prompt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    /// For the model.
    Message,
    /// A slash command: the model sees neither it nor our answer.
    Command,
    /// `/continue`: the model does not see it, but what follows is its own work.
    Continue,
    /// For the model, in the middle of a turn.
    Steering,
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Open: at work, or waiting for the next prompt.
    Active,
    /// No process has it open; it can be loaded.
    Paused,
    /// The client closed it; it can be loaded.
    Completed,
    /// Its last turn failed.
    Error,
}

/// What is known about a stored session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its id.
    pub id: SessionId,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Its title.
    pub title: Option<String>,
    /// What it is doing.
    pub state: State,
    /// When it began.
    pub created: SystemTime,
    /// When it was last used.
    pub updated: SystemTime,
    /// How many bytes are stored for it.
    pub bytes: u64,
}

/// The state of a session that was loaded.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredSession {
    /// What is known of it.
    pub info: SessionInfo,
    /// What the model sees.
    pub history: History,
    /// Its mode, if it was ever changed.
    pub mode: Option<ModeId>,
    /// Its model, if it was ever changed.
    pub model: Option<ModelId>,
    /// Its thinking level, if it was ever changed.
    pub thinking: Option<Thinking>,
    /// What the session has cost, in US dollars.
    pub spent: f64,
    /// What it has used, by model.
    pub bill: Bill,
    /// What could not be read, for the user.
    pub problems: Vec<String>,
    /// What became of the last prompts, the oldest first.
    pub prompts: Vec<(MessageId, PromptEnd)>,
}

impl StoredSession {
    /// Returns the state of a session that was just created.
    #[must_use]
    pub fn new(id: SessionId, cwd: PathBuf, now: SystemTime) -> StoredSession {
        StoredSession {
            info: SessionInfo {
                id,
                cwd,
                title: None,
                state: State::Active,
                created: now,
                updated: now,
                bytes: 0,
            },
            history: History::default(),
            mode: None,
            model: None,
            thinking: None,
            spent: 0.0,
            bill: Bill::default(),
            problems: Vec::new(),
            prompts: Vec::new(),
        }
    }
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// Only sessions of this directory.
    pub cwd: Option<PathBuf>,
    /// Where the last listing ended.
    pub cursor: Option<String>,
}

/// Some sessions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// The sessions, the last used first.
    pub sessions: Vec<SessionInfo>,
    /// The cursor of the next page, if there is one.
    pub next: Option<String>,
}
