//! Where sessions are kept, and the files whose changes can be taken back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::Editor;
use crate::ports::event::Event;
use crate::turn::context::{Cut, History};
use crate::turn::undo::Turns;
use crate::words::bill::Bill;
use crate::words::{
    ContentId, MessageId, ModeId, ModelId, Prompt, SessionId, StopReason, Thinking, Thought,
    ToolCallId, ToolRequest, Usage,
};

/// Shows an event for which there is room. Never waits; the journal calls it on whatever thread kept the event.
pub type Show = Box<dyn FnOnce(Event) + Send>;

/// Tells when a record is kept. Whoever does not want to wait drops it.
#[derive(Debug)]
pub struct Kept(Option<oneshot::Receiver<Result<(), JournalError>>>);

impl Kept {
    /// For a journal that is done at once.
    #[must_use]
    pub fn already() -> Kept {
        Kept(None)
    }

    /// For a journal that tells later.
    #[must_use]
    pub fn when(told: oneshot::Receiver<Result<(), JournalError>>) -> Kept {
        Kept(Some(told))
    }

    /// Waits until it is kept.
    ///
    /// # Errors
    /// Says why it cannot be.
    pub async fn wait(self) -> Result<(), JournalError> {
        let Some(told) = self.0 else { return Ok(()) };
        told.await
            .unwrap_or_else(|_| Err(JournalError::Failed("the journal has stopped".to_owned())))
    }
}

/// Where sessions are kept. What is not journalled did not happen.
///
/// A session belongs to one process at a time: `create` and `load` take it, `leave` gives it back, and the death of the
/// process does so, too.
pub trait Journal: Send + Sync {
    /// Tells whether what is kept outlives this process.
    fn outlives(&self) -> bool;

    /// Says why sessions are not kept although they should be.
    fn problem(&self) -> Option<String>;

    /// Begins a session and takes it.
    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        cwd: &'a Path,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Finds a session without taking it.
    fn find<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Info, JournalError>>;

    /// Takes a session, closes what a crash left open, shows its history to `editor` and returns what to go on with.
    fn load<'a>(
        &'a self,
        session: &'a SessionId,
        editor: Option<&'a dyn Editor>,
    ) -> BoxFuture<'a, Result<Remembered, JournalError>>;

    /// Appends a record behind all that came before, and does not wait for it. If it cannot be kept, nothing behind it
    /// is, to the end of the turn.
    fn begin<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<Kept, JournalError>>;

    /// Appends a record; returns when a crash of this process can no longer lose it. A tool intent also survives a
    /// crash of the machine.
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        async move { self.begin(session, record).await?.wait().await }.boxed()
    }

    /// Appends an event and shows it once it is kept.
    ///
    /// Returns then, but for pieces of text, which follow each other too fast: they are kept and shown in order and a
    /// little later, and if that fails, the next call says so.
    fn keep<'a>(
        &'a self,
        session: &'a SessionId,
        event: Event,
        show: Option<Show>,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Keeps what a file holds and will hold; returns when a crash of this process can no longer lose it.
    fn keep_change<'a>(
        &'a self,
        session: &'a SessionId,
        change: FileChange,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Returns the turns of a session and the files they changed.
    fn turns<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Turns, JournalError>>;

    /// Returns what a file held; `None` if that was too much to keep.
    fn content<'a>(
        &'a self,
        session: &'a SessionId,
        content: &'a ContentId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, JournalError>>;

    /// Gives a session back.
    fn leave<'a>(
        &'a self,
        session: &'a SessionId,
        state: State,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Changes a session's title, whoever has the session.
    fn set_title<'a>(
        &'a self,
        session: &'a SessionId,
        title: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Lists sessions, the last used first.
    fn list(&self, query: Query) -> BoxFuture<'_, Result<Listing, JournalError>>;

    /// Copies a session as it is now; the copy belongs to nobody yet.
    fn fork<'a>(
        &'a self,
        from: &'a SessionId,
        to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Deletes a session and all that is kept of it. That there is none is no error.
    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>>;
}

/// One thing to remember, besides the events.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// The user sent this.
    Prompt {
        /// The id it gets when it is shown again.
        message: &'a MessageId,
        /// What was sent.
        prompt: &'a Prompt,
        /// Whom it is for.
        kind: PromptKind,
    },
    /// What the model thought in its answer, as it wants it back.
    Thoughts(&'a [Thought]),
    /// The model's answer ended and asks for these tools.
    Answer(&'a [ToolRequest]),
    /// A tool is about to run.
    ToolIntent(&'a ToolRequest),
    /// What the model is told of a tool call.
    ToolResult {
        /// Which call.
        id: &'a ToolCallId,
        /// What it is told.
        text: &'a str,
        /// Whether it went wrong.
        failed: bool,
    },
    /// The model was told this in the middle of a turn, by us.
    Told(&'a str),
    /// The model answered, and this is what it used.
    Spent {
        /// Which model.
        model: &'a ModelId,
        /// Its tokens.
        usage: &'a Usage,
        /// What that cost, in US dollars, where a price is known.
        dollars: Option<f64>,
    },
    /// The conversation before a place is a summary from now on.
    Compacted {
        /// What stands for it.
        summary: &'a str,
        /// The place.
        from: &'a Cut,
        /// How many bytes each result behind it keeps, if not all of it.
        cap: Option<usize>,
    },
    /// The turn ended; `None` after a failure.
    TurnEnd(Option<StopReason>),
    /// The turn that began with this message was taken back, and all behind it.
    TakenBack(&'a MessageId),
    /// The turns that were taken back are there again, up to the one that began with this message.
    BroughtBack(&'a MessageId),
}

/// A change of a file, with all that it held and will hold; `None` stands for no file.
#[derive(Debug, Clone)]
pub struct FileChange {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub before: Option<Content>,
    /// What it will hold.
    pub after: Option<Content>,
}

/// What a file holds. Shared, for it may be long.
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

    /// Returns their SHA-256, which the content is known by. To find it takes a while, but only the first time.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        *self.0.hash.get_or_init(|| Sha256::digest(&self.0.bytes).into())
    }

    /// Tells the hash of the content, for somebody who found it already.
    pub fn has_hash(&self, hash: [u8; 32]) {
        self.0.hash.get_or_init(|| hash);
    }
}

/// The files of a session's folders, read and replaced as a whole. Undo, redo and rewind use it.
pub trait Files: Send + Sync {
    /// Returns what a file holds now, unsaved changes in the editor included; `None` if there is no such file.
    fn read<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, FileError>>;

    /// Replaces what a file holds, but only if it still holds what is expected, which its SHA-256 tells. `None` stands for no
    /// file.
    fn replace<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
        expected: Option<[u8; 32]>,
        new: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), FileError>>;
}

/// Why a file cannot be read or replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The path is not inside the session's folders.
    #[error("{} is outside the folders of this session", .0.display())]
    Outside(PathBuf),
    /// It no longer holds what was expected, and was not touched.
    #[error("changed in the meantime, so it was not touched")]
    Changed,
    /// The editor is gone.
    #[error("the editor is gone")]
    Gone,
    /// Anything else, as a sentence.
    #[error("{0}")]
    Failed(String),
}

/// Whom a prompt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    /// For the model.
    Message,
    /// For us: the model never sees it, nor what we answer.
    Command,
    /// For us, to let the model go on: it never sees it, but what follows is its own.
    Continue,
    /// For the model, in the middle of a turn.
    Steering,
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Open: at work, or waiting for the next prompt.
    Active,
    /// Nobody has it open; it can be loaded.
    Paused,
    /// The client closed it; it can be loaded.
    Completed,
    /// Its last turn failed.
    Error,
}

/// What is known of a session that is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    /// Its id.
    pub id: SessionId,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Its title.
    pub title: Option<String>,
    /// What it is doing.
    pub state: State,
    /// When it began.
    pub created: SystemTime,
    /// When it was last used.
    pub updated: SystemTime,
    /// How many bytes are kept of it.
    pub bytes: u64,
}

/// What a session that is loaded goes on with.
#[derive(Debug)]
pub struct Remembered {
    /// What is known of it.
    pub info: Info,
    /// What the model sees.
    pub history: History,
    /// The mode it was in, if it was ever changed.
    pub mode: Option<ModeId>,
    /// The model it used, if it was ever changed.
    pub model: Option<ModelId>,
    /// How much the model was to think, if that was ever changed.
    pub thinking: Option<Thinking>,
    /// What the session has cost, in US dollars.
    pub spent: f64,
    /// What it has used, by model.
    pub bill: Bill,
    /// What could not be read, for the user.
    pub problems: Vec<String>,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// Only those of this folder.
    pub cwd: Option<PathBuf>,
    /// Where the last listing ended.
    pub cursor: Option<String>,
}

/// Some sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// The sessions, the last used first.
    pub sessions: Vec<Info>,
    /// Where to go on, if there are more.
    pub next: Option<String>,
}

/// Why a session cannot be kept or read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JournalError {
    /// There is no such session.
    #[error("no such session")]
    NotFound,
    /// Another process has it open.
    #[error("the session is open in {0}")]
    OpenElsewhere(String),
    /// It was not used for too long.
    #[error("the session was not used for {0} days")]
    Expired(u64),
    /// As much is kept of it as may be.
    #[error("the session has reached {0} bytes")]
    Full(u64),
    /// The cursor of a query is none of ours.
    #[error("the cursor is none that was given")]
    BadCursor,
    /// It can be read, not written.
    #[error("{0}")]
    ReadOnly(String),
    /// Anything else, in words for the log.
    #[error("{0}")]
    Failed(String),
}
