//! Tools: what a call would do, then the call itself as a value that can only do that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::answers::Denied;
use super::editor::{Editor, EditorError, Offers};
use super::error::Error;
use super::event::Event;
use super::form::{Form, FormAnswer};
use super::journal::{Content, FileChange, Journal};
use super::model::ToolSpec;
use super::span::SpanScope;
use crate::words::{
    Access, Agent, Answer, Location, ModelId, PermissionKey, Question, SessionId, ToolCall,
    ToolCallId, ToolContent, ToolFailure, ToolKind,
};

/// A tool, built in or from elsewhere.
pub trait Tool: Send + Sync {
    /// Returns how it is described to a model.
    fn spec(&self) -> Arc<ToolSpec>;

    /// Returns how it is described to a small model, which is offered few tools; `None` if this is not one of them.
    fn brief_spec(&self) -> Option<Arc<ToolSpec>> {
        Some(self.spec())
    }

    /// Returns what kind of work it does.
    fn kind(&self) -> ToolKind;

    /// Tells whether several calls of one answer may run at the same time: those that only read.
    fn is_parallel(&self) -> bool {
        matches!(self.kind(), ToolKind::Read | ToolKind::Search | ToolKind::Fetch)
    }

    /// Tells whether the agents that work on a task for a turn have it. They do not change the session's mode.
    fn is_for_children(&self) -> bool {
        self.kind() != ToolKind::SwitchMode
    }

    /// Tells whether a model is offered it, given what the client supports. A model that calls it anyway gets an answer.
    fn suits(&self, _model: &ModelId, _offers: Offers) -> bool {
        true
    }

    /// Reads the title and the files of a call from its input, for a call that cannot be planned.
    fn outline(&self, _input: &Value) -> Outline {
        Outline { title: self.spec().name.clone(), paths: Vec::new() }
    }

    /// Decides what a call would do, before the user is asked. Changes nothing.
    ///
    /// What runs later is exactly what this returns, so a tool cannot do anything that was not shown.
    fn plan<'a>(self: Arc<Self>, cx: &'a ToolCx<'a>, input: &'a Value)
    -> BoxFuture<'a, PlanResult>;
}

/// What planning a call returns: what is shown, and what runs if it is allowed.
pub type PlanResult = Result<(Intent, Box<dyn Planned>), ToolError>;

/// A call that was planned and shown. It runs at most once, and only after it was allowed.
pub trait Planned: Send {
    /// Returns what the user is shown if the call takes long; `None` if it shows its progress itself, or waits for the user.
    fn wait(&self) -> Option<Wait> {
        Some(Wait::default())
    }

    /// Does what was planned.
    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>>;
}

/// What a tool call waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// What it waits for, such as a host; `None` if it works itself.
    pub subject: Option<String>,
    /// When it gives up.
    pub limit: Option<Duration>,
}

impl Wait {
    /// Makes a wait for somebody who is given this long.
    #[must_use]
    pub fn new(subject: impl Into<String>, limit: Duration) -> Wait {
        Wait { subject: Some(subject.into()), limit: Some(limit) }
    }

    /// Describes the wait to the user.
    #[must_use]
    pub fn print(&self, passed: Duration) -> String {
        let state = self.subject.as_ref().map(|subject| format!("Waiting for {subject}"));
        let (state, seconds) = (state.as_deref().unwrap_or("Running"), passed.as_secs().max(1));
        match self.limit {
            Some(limit) => {
                let left = limit.saturating_sub(passed).as_secs();
                format!("{state}: {seconds} s so far, {left} s left")
            }
            None => format!("{state}: {seconds} s so far"),
        }
    }
}

/// What a tool call is about to do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// One line, with the file or the command.
    pub title: String,
    /// Diffs, if files will change.
    pub content: Vec<ToolContent>,
    /// The files it touches.
    pub locations: Vec<Location>,
    /// What it needs permission for; empty for a call that only talks to the user.
    pub access: Vec<Access>,
}

/// What the input of a call says about it, without looking at any file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// One line, with the file or the command.
    pub title: String,
    /// The files it names, as the model wrote them.
    pub paths: Vec<String>,
}

/// What a tool did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// The result for the model.
    pub text: String,
    /// What the user sees; `None` leaves what the call showed before.
    pub content: Option<Vec<ToolContent>>,
    /// The result for programs.
    pub raw: Option<Value>,
}

/// Why a tool call failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The model can fix this; the text says how.
    #[error("{0}")]
    Model(String),
    /// The same, with more for the user or for programs.
    #[error("{text}")]
    Failed {
        /// Its kind, if programs can tell it apart.
        failure: Option<ToolFailure>,
        /// The explanation for the model.
        text: String,
        /// What the user sees instead of the text.
        content: Option<Vec<ToolContent>>,
    },
    /// The editor refused or failed.
    #[error(transparent)]
    Editor(#[from] EditorError),
    /// The turn was cancelled while the tool ran.
    #[error("cancelled")]
    Cancelled,
    /// What the tool wanted to show could not be journalled.
    #[error(transparent)]
    Broken(#[from] Error),
}

impl ToolError {
    /// Makes a failure of a known kind.
    pub fn failed(failure: ToolFailure, text: impl Into<String>) -> ToolError {
        ToolError::Failed { failure: Some(failure), text: text.into(), content: None }
    }
}

/// What a tool may use while it plans or runs.
pub struct ToolCx<'a> {
    /// The call.
    pub id: &'a ToolCallId,
    /// The session's working directory.
    pub cwd: &'a Path,
    /// The client.
    pub editor: &'a dyn Editor,
    /// Fires when the turn is cancelled; a tool then has a moment to clean up.
    pub cancel: &'a CancellationToken,
    /// The session.
    pub session: &'a SessionId,
    /// Where the session is stored.
    pub journal: &'a dyn Journal,
    /// The turn that the call is part of.
    pub turn: &'a dyn ToolHost,
    /// Where its spans go.
    pub spans: SpanScope,
}

/// What a turn does for the tools that run in it.
pub trait ToolHost: Send + Sync {
    /// Returns how long a result may be, in bytes. A longer one is cut before the model sees it.
    fn result_limit(&self) -> usize;

    /// Tells whether the model accepts pictures.
    fn sees_pictures(&self) -> bool;

    /// Returns what rules deny for a key.
    fn denied(&self, key: &PermissionKey) -> Arc<dyn Denied>;

    /// Tells whether reading is allowed without a question.
    fn allows(&self, _access: &[Access]) -> bool {
        false
    }

    /// Journals an event and shows it.
    fn show(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>>;

    /// Warns the user, whatever the client can show.
    fn warn<'a>(
        &'a self,
        title: &'a str,
        description: Option<String>,
    ) -> BoxFuture<'a, Result<(), ToolError>>;

    /// Asks the user to fill in a form. Questions are asked one at a time.
    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, ToolError>>;

    /// Decides about something that turned out to be needed while a call runs, and asks the user if necessary. The call is
    /// what the question shows.
    fn require<'a>(
        &'a self,
        call: ToolCall,
        access: &'a [Access],
    ) -> BoxFuture<'a, Result<(), ToolError>>;

    /// Asks the user to choose. Questions are asked one at a time.
    fn confirm(&self, question: Question) -> BoxFuture<'_, Result<Answer, ToolError>>;

    /// Changes the session's mode. Returns whether the mode exists.
    fn set_mode<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, ToolError>>;

    /// Runs an agent on a task, with a conversation of its own, and returns its last message.
    fn run_child<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        task: ChildTask,
    ) -> BoxFuture<'a, Result<Output, ToolError>>;
}

/// A task for an agent.
#[derive(Debug, Clone)]
pub struct ChildTask {
    /// Who works on it.
    pub helper: Helper,
    /// A few words for the user.
    pub title: String,
    /// The task itself.
    pub prompt: String,
}

/// An agent that can be given tasks.
#[derive(Debug, Clone)]
pub struct Helper {
    /// Its definition.
    pub agent: Arc<Agent>,
    /// Whether it may change anything, if the turn that starts it may.
    pub may_change: bool,
}

impl ToolCx<'_> {
    /// Saves the content of a file before and after a change, so that the turn can be undone; `None` stands for no file.
    ///
    /// Call it before the change. If it fails, the file must not be changed.
    ///
    /// # Errors
    /// Fails if the journal cannot be written.
    pub async fn save_change(
        &self,
        path: &Path,
        before: Option<Content>,
        after: Option<Content>,
    ) -> Result<(), ToolError> {
        let change = FileChange { path: PathBuf::from(path), before, after };
        let saved = self.journal.save_change(self.session, change).await;
        saved.map_err(|err| Error::of_journal(self.session, err).into())
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
