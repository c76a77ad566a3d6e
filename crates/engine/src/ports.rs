//! The traits that the outside implements: model, tool, editor, files, journal, clock.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::agents::Agent;
use crate::commands::SlashCommand;
use crate::context::{Cut, History};
use crate::cost::Bill;
use crate::error::Error;
use crate::event::Event;
use crate::hooks::{Moment, Ruling};
use crate::permission::{Access, Answer, Question};
use crate::scene::Scene;
use crate::session::{ModelChoice, Settings};
use crate::turn::{TurnCx, TurnError};
use crate::undo::Turns;
use crate::words::{
    ContentId, Location, Message, MessageId, ModeId, ModelId, Prompt, Seal, SessionId, StopReason,
    TerminalId, Thinking, Thought, ToolCallId, ToolContent, ToolKind, ToolRequest, Usage,
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
    /// How much it should think.
    pub thinking: Thinking,
}

/// One event of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The next piece of text.
    Text(String),
    /// The next piece of thinking.
    Thought(String),
    /// The thought so far is whole; this goes back to the model with it.
    ThoughtEnd(Option<Seal>),
    /// Nothing comes for a while; why, in words for the user.
    Waiting(String),
    /// A tool it asks for.
    Tool(ToolRequest),
    /// Tokens used so far by this answer.
    Usage(Usage),
    /// The end.
    Stop(StopReason),
}

/// How a model can fail. The text is for the user: what happened and what can be done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A credential is missing or was refused.
    #[error("{0}")]
    AuthNeeded(String),
    /// The conversation is longer than the model can take.
    #[error("{0}")]
    ContextFull(String),
    /// Too much was asked for in too little time, or the money ran out.
    #[error("{0}")]
    RateLimited(String),
    /// The provider cannot be reached or does not work now; a later try may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The answer broke off. What came of it was shown.
    #[error("{0}")]
    Incomplete(String),
    /// Anything else.
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

    /// Tells whether several calls of one answer may run at once: those that only look.
    fn runs_beside_others(&self) -> bool {
        matches!(self.kind(), ToolKind::Read | ToolKind::Search | ToolKind::Fetch)
    }

    /// Tells whether a model is offered it. One that calls it all the same is answered.
    fn suits(&self, _model: &ModelId) -> bool {
        true
    }

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

/// The tools of one session, as they are now: servers may join and leave.
pub trait Tools: Send + Sync {
    /// Returns them. Asked before every request to a model.
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]>;

    /// Begins what must not hold up the opening of a session. Called when the client knows the session, and again when
    /// it wakes from a rest; from here on the client may be shown things.
    fn start(&self, _editor: &Arc<dyn Editor>) {}

    /// Ends what [`Tools::start`] began, until it is called again: the session is not used for now.
    fn rest(&self) {}

    /// Returns the agents that were described for the session. Asked when it is opened.
    fn agents(&self) -> Vec<Arc<Agent>> {
        Vec::new()
    }

    /// Asks the user's hooks about what happens in a turn.
    fn hook<'a>(&'a self, _moment: Moment<'a>) -> BoxFuture<'a, Ruling> {
        Box::pin(async { Ruling::default() })
    }

    /// Returns the slash commands that come with the tools.
    fn commands(&self) -> Vec<SlashCommand> {
        Vec::new()
    }

    /// Returns what the user has not been told yet, where the client shows no notices. Asked when a turn begins.
    fn news(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the scene that a prompt asks for, or why it cannot be played.
    fn scene(&self, _prompt: &Prompt) -> Option<Result<Scene, String>> {
        None
    }

    /// Makes of a prompt what the model is to see, or answers it: commands of [`Tools::commands`], things to attach.
    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        Box::pin(async { Expanded::Prompt(prompt) })
    }
}

impl std::fmt::Debug for dyn Tools {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Tools")
    }
}

/// What becomes of a prompt before the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum Expanded {
    /// This goes to the model.
    Prompt(Prompt),
    /// This goes to the model, in another mode or to another model for this turn.
    As(Prompt, Guise),
    /// It is answered with this; the model is not asked.
    Say(String),
}

/// What a turn is run with instead of the session's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guise {
    /// The mode.
    pub mode: Option<ModeId>,
    /// The model.
    pub model: Option<ModelId>,
}

/// Tools that never change.
impl Tools for Arc<[Arc<dyn AnyTool>]> {
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]> {
        Arc::clone(self)
    }
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
    /// What it needs leave for; nothing for a call that only talks to the user.
    pub access: Vec<Access>,
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
    /// The session.
    pub session: &'a SessionId,
    /// Where the session is kept.
    pub journal: &'a dyn Journal,
    /// The turn it runs in, for tools of the engine; without one, it runs on its own.
    pub inside: Option<Inside<'a>>,
}

/// The turn that a tool runs in.
#[derive(Clone, Copy)]
pub struct Inside<'a>(pub(crate) &'a TurnCx<'a>);

impl ToolCx<'_> {
    /// Journals an event and shows it.
    ///
    /// # Errors
    /// Fails if the event could not be kept; then it was not shown.
    pub async fn show(&self, event: Event) -> Result<(), ToolError> {
        if let Some(Inside(turn)) = self.inside {
            return match turn.emit(event).await {
                Ok(()) => Ok(()),
                Err(TurnError::Cancelled) => Err(ToolError::Cancelled),
                Err(TurnError::Failed(err)) => Err(err.into()),
            };
        }
        Ok(crate::turn::emit(self.session, self.journal, self.editor, event).await?)
    }

    /// Keeps what a file holds and will hold, `None` for no file, so that the turn can be taken back.
    ///
    /// Called before the change: if it fails, the file must be left as it is.
    ///
    /// # Errors
    /// Fails if it could not be kept.
    pub async fn keep_change(
        &self,
        path: &Path,
        before: Option<Vec<u8>>,
        after: Option<Vec<u8>>,
    ) -> Result<(), ToolError> {
        let change = FileChange { path: path.to_owned(), before, after };
        let kept = self.journal.keep_change(self.session, change).await;
        kept.map_err(|err| Error::of_journal(self.session, err).into())
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
    /// Makes room for an event and returns what shows it. Waits while the client is slow, so that memory stays
    /// bounded. `None` if the client does not want the event, or is gone.
    fn make_room<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Option<Show>>;

    /// Shows an event that needs no keeping, such as one of a history that is shown again.
    fn show(&self, event: Event) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(show) = self.make_room(&event).await {
                show(event);
            }
        })
    }

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
    /// Shows what our commands say while they run.
    pub live: bool,
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
    /// Nobody answered a question; the text tells the user how to.
    #[error("nobody answered")]
    Unanswered(String),
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

/// A question to the user: one answer in text, several fields, or something to do on a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// What is asked.
    pub message: String,
    /// The tool call it belongs to.
    pub call: Option<ToolCallId>,
    /// The page to open instead of asking for text.
    pub page: Option<Page>,
    /// The fields to ask for instead of one text: an object of JSON schema with plain properties.
    pub fields: Option<Value>,
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
    /// Filled in the fields that were asked for.
    Fields(serde_json::Map<String, Value>),
    /// Declined to answer.
    Declined,
    /// Closed it.
    Cancelled,
}

/// Shows an event for which there is room. Never waits; the journal calls it on whatever thread kept the event.
pub type Show = Box<dyn FnOnce(Event) + Send>;

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

    /// Appends a record; returns when a crash of this process can no longer lose it. A tool intent also survives a
    /// crash of the machine.
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub before: Option<Vec<u8>>,
    /// What it will hold.
    pub after: Option<Vec<u8>>,
}

/// The files of a session's folders, as a turn that is taken back needs them.
pub trait Files: Send + Sync {
    /// Returns what a file holds now, unsaved changes included; `None` if there is no such file.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Option<Vec<u8>>, EditorError>>;

    /// Makes a file hold this; `None` removes it.
    fn write<'a>(
        &'a self,
        path: &'a Path,
        content: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), EditorError>>;
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

/// What the user is used to: the last choices, and who does small work.
pub trait Habits: Send + Sync {
    /// Returns the model that new sessions begin with, if one was chosen; it may be there no more.
    fn model(&self) -> Option<ModelId>;

    /// Returns how much the model of new sessions thinks, if that was chosen.
    fn thinking(&self) -> Option<Thinking>;

    /// Keeps what was chosen.
    fn keep(&self, model: &ModelId, thinking: Thinking);

    /// Returns the model for small work beside a session's own, such as its title.
    fn small_model(&self, settings: &Settings) -> Option<ModelChoice>;
}

/// Time and fresh ids, so that a conversation can be repeated to the byte.
pub trait Clock: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> SystemTime;

    /// Returns an id that was never given before.
    fn fresh_id(&self) -> String;
}
