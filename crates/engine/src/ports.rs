//! The five traits that the outside implements: model, tool, editor, journal, clock.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::event::Event;
use crate::permission::{Answer, Question};
use crate::words::{
    Location, Message, ModelId, Prompt, SessionId, StopReason, TerminalId, ToolCallId, ToolContent,
    ToolKind, ToolRequest, Usage,
};

/// A model that answers requests.
pub trait Model: Send + Sync {
    /// Asks for one answer. The stream ends after [`ModelEvent::Stop`]; dropping it stops the model.
    fn answer(&self, request: Request) -> ModelStream;
}

/// The events of one answer.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which model.
    pub model: ModelId,
    /// What it should keep in mind.
    pub instructions: Arc<str>,
    /// The conversation; entries are shared with the history, not copied.
    pub messages: Vec<Arc<Message>>,
    /// The tools it may ask for.
    pub tools: Vec<Arc<ToolSpec>>,
}

/// One event of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The next piece of text.
    Text(String),
    /// The next piece of thinking.
    Thought(String),
    /// A tool it asks for.
    Tool(ToolRequest),
    /// Tokens used so far by this answer.
    Usage(Usage),
    /// The end.
    Stop(StopReason),
}

/// How a model can fail.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ModelError {
    /// A credential is missing or was refused.
    #[error("authentication needed")]
    AuthNeeded,
    /// Anything else, in words for the user.
    #[error("{0}")]
    Failed(String),
}

/// What a model is told of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its input.
    pub schema: Value,
}

/// A tool, built in or from elsewhere.
pub trait AnyTool: Send + Sync {
    /// Returns what a model is told of it.
    fn spec(&self) -> Arc<ToolSpec>;

    /// Returns what kind of work it does.
    fn kind(&self) -> ToolKind;

    /// Says what a call would do, before anybody is asked and anything is done.
    fn intent<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Intent, ToolError>>;

    /// Does it.
    fn run<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Output, ToolError>>;
}

/// What a tool call is about to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Intent {
    /// One line, with the file or the command.
    pub title: String,
    /// Diffs, where files will change.
    pub content: Vec<ToolContent>,
    /// Files it touches.
    pub locations: Vec<Location>,
}

/// What a tool did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// What the model is told.
    pub text: String,
    /// What the user is shown; `None` keeps what the call showed before.
    pub content: Option<Vec<ToolContent>>,
}

/// Why a tool could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The model can mend this; the text says how.
    #[error("{0}")]
    Model(String),
    /// The editor refused or failed.
    #[error(transparent)]
    Editor(#[from] EditorError),
    /// The turn was cancelled while the tool ran.
    #[error("cancelled")]
    Cancelled,
    /// What the tool wanted to show could not be kept.
    #[error(transparent)]
    Broken(#[from] Error),
}

/// What a running tool may use.
pub struct ToolCx<'a> {
    /// The call.
    pub id: &'a ToolCallId,
    /// The session's working folder.
    pub cwd: &'a Path,
    /// The client.
    pub editor: &'a dyn Editor,
    /// Fires when the turn is cancelled; a tool then has a moment to clean up.
    pub cancel: &'a CancellationToken,
    pub(crate) session: &'a SessionId,
    pub(crate) journal: &'a dyn Journal,
}

impl ToolCx<'_> {
    /// Journals an event and shows it.
    ///
    /// # Errors
    /// Fails if the event could not be kept; then it was not shown.
    pub async fn show(&self, event: Event) -> Result<(), ToolError> {
        Ok(crate::turn::emit(self.session, self.journal, self.editor, event).await?)
    }

    /// Waits for `work`, unless the turn is cancelled first.
    ///
    /// # Errors
    /// [`ToolError::Cancelled`] in that case.
    pub async fn or_cancelled<T>(&self, work: impl Future<Output = T>) -> Result<T, ToolError> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(ToolError::Cancelled),
            done = work => Ok(done),
        }
    }
}

/// The client of one session: it is shown what happens, and it can be asked.
///
/// A call that the client does not offer answers [`EditorError::NotOffered`]; nothing is sent then.
pub trait Editor: Send + Sync {
    /// Shows an event. Waits while the client is slow, so that memory stays bounded.
    fn show(&self, event: Event) -> BoxFuture<'_, ()>;

    /// Returns what the client offers.
    fn offers(&self) -> Offers;

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
    fn write_text_file(
        &self,
        path: PathBuf,
        content: String,
    ) -> BoxFuture<'_, Result<(), EditorError>>;

    /// Starts a command in a terminal of the client.
    fn create_terminal(
        &self,
        command: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>>;

    /// Returns what a terminal shows.
    fn terminal_output(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<TerminalOutput, EditorError>>;

    /// Waits for a terminal's command to end.
    fn wait_for_exit(&self, terminal: TerminalId)
    -> BoxFuture<'_, Result<ExitStatus, EditorError>>;

    /// Ends a terminal's command; the terminal stays.
    fn kill_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>>;

    /// Gives a terminal back; ends its command if it still runs.
    fn release_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>>;

    /// Asks the user something.
    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>>;

    /// Tells the client that what the user was sent to a page for is done.
    fn page_done(&self, page: &Page) -> BoxFuture<'_, ()>;
}

/// What a client offers.
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
    /// Shows notices.
    pub notices: bool,
    /// Shows compactions.
    pub compaction: bool,
}

/// Why the client did not do what it was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EditorError {
    /// The client does not offer this.
    #[error("the client does not offer {0}")]
    NotOffered(&'static str),
    /// No such file.
    #[error("no file {}", .0.display())]
    FileNotFound(PathBuf),
    /// The path is not inside the session's folders.
    #[error("{} is outside the folders of this session", .0.display())]
    Outside(PathBuf),
    /// The client did not answer in time.
    #[error("the client did not answer {0} in time")]
    TimedOut(&'static str),
    /// The client answered with an error.
    #[error("the client refused: {0}")]
    Refused(String),
    /// The client is gone.
    #[error("the client is gone")]
    Gone,
}

/// A command for a terminal.
#[derive(Debug, Clone, PartialEq)]
pub struct TerminalCommand {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// How much of its output is kept.
    pub output_limit: u64,
}

/// What a terminal shows.
#[derive(Debug, Clone, PartialEq)]
pub struct TerminalOutput {
    /// The text.
    pub text: String,
    /// Whether the front was cut off.
    pub is_truncated: bool,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExitStatus {
    /// Its exit code.
    pub code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// A question to the user: one answer in text, or something to do on a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// What is asked.
    pub message: String,
    /// The tool call it belongs to.
    pub call: Option<ToolCallId>,
    /// The page to open instead of asking for text.
    pub page: Option<Page>,
}

/// A page that the client opens for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// What [`Editor::page_done`] names it by.
    pub id: String,
    /// Where it is.
    pub url: String,
}

/// What the user did with a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormAnswer {
    /// Answered; for a page, agreed to open it.
    Text(String),
    /// Declined to answer.
    Declined,
    /// Closed it.
    Cancelled,
}

/// Where a session is kept. What is not journalled did not happen.
pub trait Journal: Send + Sync {
    /// Appends a record; returns when a crash of this process can no longer lose it.
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<(), JournalError>>;
}

/// One thing to remember.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// The user sent this.
    Prompt(&'a Prompt),
    /// The client is about to be shown this.
    Event(&'a Event),
    /// A tool is about to run.
    ToolIntent(&'a ToolRequest),
    /// The turn ended; `None` after a failure.
    TurnEnd(Option<StopReason>),
}

/// The journal cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JournalError(pub String);

/// Time and fresh ids, so that a conversation can be repeated to the byte.
pub trait Clock: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> SystemTime;

    /// Returns an id that was never given before.
    fn fresh_id(&self) -> String;
}
