//! The traits that the outside implements: model, tool, editor, files, journal, clock.

pub mod error;
pub mod event;
mod form;
mod journal;
pub mod reply;
pub(crate) mod settings;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use crate::permission::rules::Forbidden;
use crate::permission::{Access, Answer, Question};
use crate::ports::error::Error;
use crate::ports::event::Event;
use crate::turn::commands::SlashCommand;
use crate::turn::context;
use crate::turn::dispatch;
use crate::turn::hooks::{Moment, Ruling};
use crate::turn::scene::Scene;
use crate::turn::session::{ModelChoice, Settings};
use crate::turn::{TurnCx, TurnError};
use crate::words::agents::Agent;
use crate::words::{
    Location, Message, ModeId, ModelId, Prompt, Seal, SessionId, StopReason, TerminalId, Thinking,
    ToolCallId, ToolContent, ToolKind, ToolRequest, Usage,
};

pub use form::{Form, FormAnswer, Page};
pub use journal::{
    Content, FileChange, FileError, Files, Info, Journal, JournalError, Kept, Listing, PromptKind,
    Query, Record, Remembered, Show, State,
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
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its input.
    pub schema: Schema,
}

/// A JSON schema, written once: every request repeats it.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Schema(Box<RawValue>);

impl Schema {
    /// Returns its text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl From<&Value> for Schema {
    fn from(schema: &Value) -> Schema {
        // A value can always be written.
        Schema(to_raw_value(schema).unwrap_or_default())
    }
}

impl From<Value> for Schema {
    fn from(schema: Value) -> Schema {
        Schema::from(&schema)
    }
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

    /// Tells whether a model is offered it, with what the client offers. One that calls it all the same is answered.
    fn suits(&self, _model: &ModelId, _offers: Offers) -> bool {
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

    /// Returns the tools that these are a layer over: they do whatever the layer does not do itself.
    fn inner(&self) -> Option<&dyn Tools>;

    /// Begins what must not hold up the opening of a session. Called when the client knows the session, and again when
    /// it wakes from a rest; from here on the client may be shown things.
    fn start(&self, editor: &Arc<dyn Editor>) {
        if let Some(inner) = self.inner() {
            inner.start(editor);
        }
    }

    /// Ends what [`Tools::start`] began, until it is called again: the session is not used for now.
    fn rest(&self) {
        if let Some(inner) = self.inner() {
            inner.rest();
        }
    }

    /// Returns the agents that were described for the session. Asked when it is opened.
    fn agents(&self) -> Vec<Arc<Agent>> {
        self.inner().map(Tools::agents).unwrap_or_default()
    }

    /// Asks the user's hooks about what happens in a turn.
    fn hook<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, Ruling> {
        match self.inner() {
            Some(inner) => inner.hook(moment),
            None => Box::pin(async { Ruling::default() }),
        }
    }

    /// Returns the slash commands that come with the tools.
    fn commands(&self) -> Vec<SlashCommand> {
        self.inner().map(Tools::commands).unwrap_or_default()
    }

    /// Returns what the user has not been told yet, where the client shows no notices. Asked when a turn begins.
    fn news(&self) -> Vec<String> {
        self.inner().map(Tools::news).unwrap_or_default()
    }

    /// Returns the scene that a prompt asks for, or why it cannot be played.
    fn scene(&self, prompt: &Prompt) -> Option<Result<Scene, String>> {
        self.inner()?.scene(prompt)
    }

    /// Makes of a prompt what the model is to see, or answers it: commands of [`Tools::commands`], things to attach.
    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        match self.inner() {
            Some(inner) => inner.expand(prompt),
            None => Box::pin(async { Expanded::Prompt(prompt) }),
        }
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

    fn inner(&self) -> Option<&dyn Tools> {
        None
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
    /// What came out, for programs.
    pub raw: Option<Value>,
}

/// Why a tool could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The model can mend this; the text says how.
    #[error("{0}")]
    Model(String),
    /// The model can mend this, too; the user is shown the content in place of the text.
    #[error("{text}")]
    Shown {
        /// What the model is told.
        text: String,
        /// What the user is shown.
        content: Vec<ToolContent>,
    },
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

impl From<TurnError> for ToolError {
    fn from(err: TurnError) -> ToolError {
        match err {
            TurnError::Cancelled => ToolError::Cancelled,
            TurnError::Failed(err) => err.into(),
        }
    }
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
    /// Returns how long a result may be, in bytes: what is longer is cut before the model sees it.
    #[must_use]
    pub fn room(&self) -> usize {
        self.inside.map_or(usize::MAX, |Inside(turn)| context::room_for_result(turn))
    }

    /// Journals an event and shows it.
    ///
    /// # Errors
    /// Fails if the event could not be kept; then it was not shown.
    pub async fn show(&self, event: Event) -> Result<(), ToolError> {
        if let Some(Inside(turn)) = self.inside {
            return Ok(turn.emit(event).await?);
        }
        Ok(crate::turn::emit(self.session, self.journal, self.editor, event).await?)
    }

    /// Asks the user something, one question at a time. What a child asks names the child.
    ///
    /// # Errors
    /// Fails if the client does not answer, or the turn is cancelled.
    pub async fn elicit(&self, form: Form) -> Result<FormAnswer, ToolError> {
        let Some(Inside(turn)) = self.inside else {
            return Ok(self.or_cancelled(self.editor.elicit(form)).await??);
        };
        let _asking = self.or_cancelled(turn.asking.lock()).await?;
        let form = match turn.child {
            Some(child) => child.present_form(form).await?,
            None => form,
        };
        Ok(self.or_cancelled(self.editor.elicit(form)).await??)
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
        before: Option<Content>,
        after: Option<Content>,
    ) -> Result<(), ToolError> {
        let change = FileChange { path: path.to_owned(), before, after };
        let kept = self.journal.keep_change(self.session, change).await;
        kept.map_err(|err| Error::of_journal(self.session, err).into())
    }

    /// Returns what rules forbid of a key, for a tool that finds files by itself.
    #[must_use]
    pub fn forbidden(&self, key: &str) -> Forbidden {
        let of = |Inside(turn): Inside<'_>| turn.policy.forbidden(key, &dispatch::modes(turn));
        self.inside.map(of).unwrap_or_default()
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
