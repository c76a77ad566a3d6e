//! What a turn works with: the ports, the conversation, and the turn itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use super::context_state::ContextState;
use super::emit::emit;
use super::meter::Meter;
use super::steering::Steering;
use crate::permission::policy::Policy;
use crate::ports::{
    Clock, Editor, Error, Event, Files, Form, InstructionSource, Journal, ModelChoice, Offers,
    OpenSpan, PendingWrite, Record, Settings, Severity, SpanEnd, SpanScope, Tool, ToolError,
    Toolbox,
};
use crate::words::{History, MessageId, Mode, Question, SessionId, ToolCallId, Usage};

/// What bounds a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnLimits {
    /// How many requests one turn may make. Stops runaway loops.
    pub(crate) max_requests: usize,
    /// How long a model may send nothing at all.
    pub(crate) no_progress: Duration,
}

/// Everything that a turn works with.
pub(crate) struct TurnCx<'a> {
    pub(crate) ports: Ports<'a>,
    pub(crate) conversation: Conversation<'a>,
    pub(crate) turn: Turn<'a>,
}

/// What the outside gives to a turn.
#[derive(Clone, Copy)]
pub(crate) struct Ports<'a> {
    pub(crate) toolbox: &'a Toolbox,
    pub(crate) policy: &'a Policy,
    pub(crate) editor: &'a dyn Editor,
    pub(crate) files: &'a dyn Files,
    pub(crate) instructions: &'a dyn InstructionSource,
    pub(crate) journal: &'a dyn Journal,
    pub(crate) clock: &'a dyn Clock,
}

/// What outlives the turn.
pub(crate) struct Conversation<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) cwd: &'a Path,
    pub(crate) settings: &'a watch::Sender<Settings>,
    pub(crate) history: &'a mut History,
    pub(crate) context: &'a mut ContextState,
    pub(crate) meter: &'a Meter,
    pub(crate) steering: &'a Steering,
    /// Locked while the user is asked: one question at a time.
    pub(crate) asking: &'a Mutex<()>,
}

/// What belongs to this turn alone.
pub(crate) struct Turn<'a> {
    pub(crate) limits: TurnLimits,
    pub(crate) cancel: CancellationToken,
    /// The prompt, while it is being written to the journal.
    pub(crate) pending_prompt: Option<PendingWrite>,
    /// How many times the model has retried in this turn.
    pub(crate) retries: usize,
    /// Where its spans go.
    pub(crate) spans: SpanScope,
    /// The turn that started this one, if it is a child's.
    pub(crate) parent: Option<&'a dyn Parent>,
}

impl<'a> Turn<'a> {
    /// Makes a turn of the user's.
    pub(crate) fn new(limits: TurnLimits, cancel: CancellationToken, spans: SpanScope) -> Turn<'a> {
        Turn { limits, cancel, pending_prompt: None, retries: 0, spans, parent: None }
    }
}

/// The turn that started a child, as the child's turn sees it.
pub(crate) trait Parent: Send + Sync {
    /// Returns an id for one of the child's calls that no other call has, whatever ids its model gives.
    fn call_id(&self, id: &ToolCallId) -> ToolCallId;

    /// Returns the mode of the parent's turn now: the user may have changed it since the child started.
    fn mode(&self) -> Mode;

    /// Shows what an event of the child means for the parent's turn.
    fn emit(&self, event: Event) -> BoxFuture<'_, Result<(), TurnError>>;

    /// Journals what must be known about a child after a crash or for undo.
    fn record<'a>(&'a self, record: Record<'a>) -> BoxFuture<'a, Result<(), TurnError>>;

    /// Shows the call that the user is asked about, and names the child in the question.
    fn present(&self, question: Question) -> BoxFuture<'_, Result<Question, TurnError>>;

    /// Shows the call that asks the user something, and names the child in the form.
    fn present_form(&self, form: Form) -> BoxFuture<'_, Result<Form, TurnError>>;
}

impl TurnError {
    /// Returns how the span of something that ended with it ends.
    pub(crate) fn span_end(&self) -> SpanEnd {
        match self {
            TurnError::Cancelled => SpanEnd::Cancelled,
            TurnError::Failed(err) => SpanEnd::Failed(err.to_string()),
        }
    }
}

/// Why a turn stopped before its end.
#[derive(Debug)]
pub(crate) enum TurnError {
    /// The user stopped it.
    Cancelled,
    /// It failed.
    Failed(Error),
}

impl From<Error> for TurnError {
    fn from(err: Error) -> TurnError {
        TurnError::Failed(err)
    }
}

impl From<TurnError> for ToolError {
    fn from(err: TurnError) -> ToolError {
        match err {
            TurnError::Cancelled => ToolError::Cancelled,
            TurnError::Failed(err) => err.into(),
        }
    }
}

impl TurnCx<'_> {
    /// Journals an event and shows it.
    pub(crate) async fn emit(&self, event: Event) -> Result<(), TurnError> {
        if let Some(parent) = self.turn.parent {
            return parent.emit(event).await;
        }
        let Ports { journal, editor, .. } = self.ports;
        emit(self.conversation.session, journal, editor, event).await?;
        Ok(())
    }

    /// Journals something that is not shown.
    pub(crate) async fn record(&self, record: Record<'_>) -> Result<(), TurnError> {
        if let Some(parent) = self.turn.parent {
            return parent.record(record).await;
        }
        let session = self.conversation.session;
        let written = self.ports.journal.append(session, record).await;
        written.map_err(|err| Error::of_journal(session, err).into())
    }

    /// Starts to journal something that is not shown.
    pub(crate) async fn begin(&self, record: Record<'_>) -> Result<PendingWrite, TurnError> {
        let session = self.conversation.session;
        let begun = self.ports.journal.begin(session, record).await;
        begun.map_err(|err| Error::of_journal(session, err).into())
    }

    /// Waits until the prompt is journalled: only then may the model answer.
    pub(crate) async fn wait_for_prompt(&mut self) -> Result<(), TurnError> {
        match self.turn.pending_prompt.take() {
            Some(pending) => pending
                .wait()
                .await
                .map_err(|err| Error::of_journal(self.conversation.session, err).into()),
            None => Ok(()),
        }
    }

    /// Returns a copy of the settings.
    pub(crate) fn settings(&self) -> Settings {
        self.conversation.settings.borrow().clone()
    }

    /// Returns the tools as they are now.
    pub(crate) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.ports.toolbox.now();
        if self.turn.parent.is_some() {
            tools.retain(|tool| tool.is_for_children());
        }
        tools
    }

    /// Returns the modes that restrict the turn: a child may do what both its own and its parent's mode allow.
    pub(crate) fn modes(&self) -> Vec<Mode> {
        let own = self.conversation.settings.borrow().mode().clone();
        self.turn.parent.map(Parent::mode).into_iter().chain([own]).collect()
    }

    /// Returns what the client supports.
    pub(crate) fn offers(&self) -> Offers {
        self.ports.editor.offers()
    }

    /// Returns a new message id.
    pub(crate) fn fresh_message(&self) -> MessageId {
        MessageId::new(self.ports.clock.fresh_id())
    }

    /// Says something to the user as the agent.
    pub(crate) async fn say(&self, text: String) -> Result<(), TurnError> {
        self.emit(Event::Text { message: self.fresh_message(), text }).await
    }

    /// Changes the mode and shows the change.
    pub(crate) async fn set_mode(&self, mode: &Mode) -> Result<(), TurnError> {
        self.conversation.settings.send_if_modified(|settings| settings.begin(mode));
        self.emit(Event::Mode(mode.mode_id())).await?;
        self.emit_settings().await
    }

    /// Shows the settings.
    pub(crate) async fn emit_settings(&self) -> Result<(), TurnError> {
        self.emit(Event::Settings(self.settings())).await
    }

    /// Informs the user, whatever the client can show.
    pub(crate) async fn notify(
        &self,
        severity: Severity,
        title: &str,
        description: Option<String>,
    ) -> Result<(), TurnError> {
        self.emit(self.notice(self.fresh_message(), severity, title, description)).await
    }

    /// Returns what informs the user: a notice if the client shows them, else a thought of this message.
    pub(crate) fn notice(
        &self,
        message: MessageId,
        severity: Severity,
        title: &str,
        description: Option<String>,
    ) -> Event {
        if self.offers().notices {
            return Event::Notice { severity, title: title.to_owned(), description };
        }
        let text = match description {
            Some(description) => format!("{title}. {description}\n"),
            None => format!("{title}\n"),
        };
        Event::Thought { message, text }
    }

    /// Journals what an answer used, and notes it on the span of its request. Returns what the session has cost so far, if
    /// a price is known.
    pub(crate) async fn add_cost(
        &self,
        choice: &ModelChoice,
        usage: Usage,
        span: &mut OpenSpan,
    ) -> Result<Option<f64>, TurnError> {
        if usage == Usage::default() {
            return Ok(None);
        }
        let dollars = choice.price.map(|price| price.of(&usage));
        span.note(|facts| (facts.usage, facts.dollars) = (usage, dollars));
        self.record(Record::Spent { model: &choice.id, usage: &usage, dollars }).await?;
        Ok(self.conversation.meter.add(&choice.id, &usage, dollars))
    }

    /// Waits for `work`, unless the turn is cancelled first.
    pub(crate) async fn or_cancelled<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, TurnError> {
        tokio::select! {
            biased;
            () = self.turn.cancel.cancelled() => Err(TurnError::Cancelled),
            done = work => Ok(done),
        }
    }
}
