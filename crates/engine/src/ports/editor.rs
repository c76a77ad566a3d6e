//! The client of one session: it shows what happens, and it can be asked.

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::{DisplayPermit, Event, Place};
use super::form::{Form, FormAnswer, Page};
use crate::words::{Answer, ExitStatus, Question, TerminalId, ToolFailure};

/// The client of one session.
///
/// A call that the client does not support returns [`EditorError::NotOffered`] without sending anything.
pub trait Editor: Send + Sync {
    /// Reserves room for an event and returns what shows it. Waits while the client is slow, so that memory stays
    /// bounded. `None` if the client does not want the event, or is gone.
    fn reserve<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Option<DisplayPermit>>;

    /// Shows an event that is not journalled, such as one of a history that is replayed.
    fn show(&self, event: Event) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(show) = self.reserve(&event).await {
                show(event, Place::Unrecorded);
            }
        })
    }

    /// Returns what the client supports.
    fn offers(&self) -> Offers;

    /// Returns what programs read about a failed tool call, such as its error code.
    fn raw_failure(&self, _failure: ToolFailure) -> Option<Value> {
        None
    }

    /// Asks the user for permission.
    fn ask_permission(&self, question: Question) -> BoxFuture<'_, Result<Answer, EditorError>>;

    /// Reads a text file, unsaved changes included.
    fn read_text_file(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, EditorError>>;

    /// Writes a text file.
    fn write_text_file<'a>(
        &'a self,
        path: &'a Path,
        content: &'a str,
    ) -> BoxFuture<'a, Result<(), EditorError>>;

    /// Starts a command in a terminal of the client.
    fn create_terminal(
        &self,
        command: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>>;

    /// Returns the output of a terminal.
    fn terminal_output(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<TerminalOutput, EditorError>>;

    /// Waits for a terminal's command to end.
    fn wait_for_exit(&self, terminal: TerminalId)
    -> BoxFuture<'_, Result<ExitStatus, EditorError>>;

    /// Ends a terminal's command; the terminal stays.
    fn kill_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>>;

    /// Releases a terminal; ends its command if it still runs.
    fn release_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>>;

    /// Asks the user something.
    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>>;

    /// Tells the client that the user has finished what a page was opened for.
    fn page_done(&self, page: &Page) -> BoxFuture<'_, ()>;
}

/// What a client supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offers {
    /// Reads text files.
    pub read: bool,
    /// Writes text files.
    pub write: bool,
    /// Runs commands in terminals.
    pub terminal: bool,
    /// Shows forms.
    pub form: bool,
    /// Opens pages for the user.
    pub page: bool,
    /// Shows the output of our commands while they run.
    pub live: bool,
    /// Shows notices.
    pub notices: bool,
    /// Shows compactions.
    pub compaction: bool,
    /// Knows the updates that came after the first stable schema. Older clients end the connection on them.
    pub later_updates: bool,
}

/// Why the client did not do what it was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EditorError {
    /// The client does not support this.
    #[error("The editor does not support {0}")]
    NotOffered(&'static str),
    /// No such file.
    #[error("{} not found", .0.display())]
    FileNotFound(PathBuf),
    /// The file may not be accessed.
    #[error("{}: permission denied by the editor", .0.display())]
    FileDenied(PathBuf),
    /// The file is too large to read or write through the editor.
    #[error("{} is too large to pass through the editor", .0.display())]
    FileTooLarge(PathBuf),
    /// The path is not inside the session's directories.
    #[error("{} is outside the folders of this session", .0.display())]
    Outside(PathBuf),
    /// The client did not answer in time. The advice, if any, tells the user what to do.
    #[error("The editor did not answer {call} in time")]
    TimedOut {
        /// What it was asked.
        call: &'static str,
        /// What the user can do about it.
        advice: Option<String>,
    },
    /// The client answered with an error.
    #[error("The editor returned an error: {0}")]
    Refused(String),
    /// The client is gone.
    #[error("The editor is gone")]
    Gone,
}

impl EditorError {
    /// Returns the kind of failure that programs can tell apart.
    #[must_use]
    pub fn failure(&self) -> Option<ToolFailure> {
        match self {
            EditorError::FileNotFound(_) => Some(ToolFailure::FileNotFound),
            EditorError::FileDenied(_) | EditorError::Outside(_) => Some(ToolFailure::FileDenied),
            EditorError::FileTooLarge(_) => Some(ToolFailure::FileTooLarge),
            EditorError::TimedOut { .. } => Some(ToolFailure::TimedOut),
            EditorError::NotOffered(_) | EditorError::Refused(_) | EditorError::Gone => None,
        }
    }
}

/// A command for a terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TerminalCommand {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The directory it runs in.
    pub cwd: PathBuf,
    /// How many bytes of its output the client retains.
    pub output_limit: u64,
}

/// The output of a terminal.
#[derive(Debug, Clone, PartialEq)]
pub struct TerminalOutput {
    /// The text.
    pub text: String,
    /// Whether the beginning was cut off.
    pub is_truncated: bool,
}
