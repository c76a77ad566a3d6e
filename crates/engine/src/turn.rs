//! The turn: ask the model, do what it asks, until it asks for nothing. The loop is [`run_turn`].

pub(crate) mod builtin_tools;
pub(crate) mod calls;
pub(crate) mod child;
pub mod commands;
pub(crate) mod compact;
pub mod context;
pub(crate) mod dispatch;
pub(crate) mod exit_plan;
pub(crate) mod guard;
pub(crate) mod helpers;
pub mod hooks;
pub mod hub;
pub mod instructions;
pub(crate) mod meter;
pub mod prompt_commands;
pub(crate) mod sampling;
pub mod scene;
pub mod session;
pub(crate) mod short_input;
pub(crate) mod steering;
pub(crate) mod task;
pub(crate) mod title;
pub mod undo;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::permission::policy::Policy;
use crate::ports::error::Error;
use crate::ports::event::{Event, Severity};
use crate::ports::{
    Clock, Editor, Expanded, Files, Guise, Journal, Kept, PromptKind, Record, Tools,
};
use crate::turn::child::Child;
use crate::turn::commands::Asked;
use crate::turn::compact::Cause;
use crate::turn::context::{History, Mind};
use crate::turn::guard::{Guard, Verdict};
use crate::turn::instructions::Primer;
use crate::turn::meter::Meter;
use crate::turn::sampling::Answer;
use crate::turn::session::Settings;
use crate::turn::steering::Steering;
use crate::turn::title::Titler;
use crate::words::modes::Mode;
use crate::words::stamp;
use crate::words::{Block, Message, MessageId, Prompt, SessionId, StopReason};

/// What bounds a turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnLimits {
    /// How often one turn may ask the model. Stops runaway loops.
    pub max_requests: usize,
    /// How long a model may send nothing at all.
    pub no_progress: Duration,
}

/// All that a turn works with.
pub(crate) struct TurnCx<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) cwd: &'a Path,
    pub(crate) settings: &'a watch::Sender<Settings>,
    pub(crate) history: &'a mut History,
    pub(crate) mind: &'a mut Mind,
    pub(crate) primer: &'a dyn Primer,
    pub(crate) policy: &'a Policy,
    /// Held while the user is asked: one question at a time.
    pub(crate) asking: &'a Mutex<()>,
    pub(crate) has_title: &'a AtomicBool,
    pub(crate) meter: &'a Meter,
    pub(crate) steering: &'a Steering,
    pub(crate) titler: Option<&'a Titler>,
    /// The prompt on its way into the journal.
    pub(crate) keeping: Option<Kept>,
    /// How often the model has said in this turn that it tries again.
    pub(crate) waits: usize,
    pub(crate) tools: &'a dyn Tools,
    pub(crate) editor: &'a dyn Editor,
    pub(crate) files: &'a dyn Files,
    pub(crate) journal: &'a dyn Journal,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) limits: TurnLimits,
    pub(crate) cancel: CancellationToken,
    /// What stands between this turn and whoever watches, if it is a child's.
    pub(crate) child: Option<&'a Child<'a>>,
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

/// Runs one turn.
pub(crate) async fn run_turn(cx: &mut TurnCx<'_>, prompt: Prompt) -> Result<StopReason, TurnError> {
    if let Some(scene) = cx.tools.scene(&prompt) {
        return Box::pin(scene::play(cx, &prompt, scene)).await;
    }
    let settings = cx.settings.borrow().clone();
    let (title, mut prompt) = (prompt.title(), prompt);
    let mut guise = Guise::default();
    let mut asked = commands::parse(&prompt, &settings, &cx.tools.commands());
    if let Some(work) = commands::work(&prompt, &settings) {
        prompt = work;
    } else if asked.is_none() {
        // What needs no waiting is done first: a turn that is cancelled at once has still begun.
        let expanded = tokio::select! {
            biased;
            expanded = cx.tools.expand(prompt.clone()) => expanded,
            () = cx.cancel.cancelled() => return Err(TurnError::Cancelled),
        };
        match expanded {
            Expanded::Prompt(expanded) if expanded == prompt => {
                asked = commands::unknown(&prompt, &cx.tools.commands()).map(Asked::Say);
            }
            Expanded::Prompt(expanded) => prompt = expanded,
            Expanded::As(expanded, wanted) => {
                prompt = expanded;
                guise = wanted;
            }
            Expanded::Say(text) => asked = Some(Asked::Say(text)),
        }
    }
    if asked.is_none() {
        check_length(&prompt, &settings)?;
        let objection = hooks::before_turn(cx, &mut prompt).await?;
        asked = objection.map(|why| Asked::Say(format!("This was not sent to the model: {why}")));
    }
    let message = MessageId::new(cx.clock.fresh_id());
    let kind = match &asked {
        None => PromptKind::Message,
        Some(Asked::Continue) if !cx.history.is_empty() => PromptKind::Continue,
        Some(_) => PromptKind::Command,
    };
    cx.keeping = Some(cx.begin(Record::Prompt { message: &message, prompt: &prompt, kind }).await?);
    if kind == PromptKind::Message
        && cx.journal.outlives()
        && !cx.has_title.swap(true, Ordering::Relaxed)
    {
        name_session(cx, title, &prompt).await?;
    }
    if kind != PromptKind::Command {
        cx.history.begin_turn(&message);
    }
    match asked {
        // The model goes on from where it was: nothing is said in the user's name.
        Some(Asked::Continue) if kind == PromptKind::Continue => {}
        Some(asked) => return obey(cx, asked).await,
        None => cx.history.push(Message::User(prompt.blocks.into())),
    }
    tell_news(cx).await?;
    in_guise(cx, guise).await
}

/// Runs the rest of a turn in the mode and with the model that were wanted for it, then takes the session's own again.
async fn in_guise(cx: &mut TurnCx<'_>, guise: Guise) -> Result<StopReason, TurnError> {
    let before = cx.settings.borrow().clone();
    let wanted = guise.mode.as_ref().and_then(|id| before.find_mode(id.as_str()).cloned());
    if let Some(problem) = guise.model.as_ref().and_then(|id| before.lacks(id)) {
        let more = format!("The command wants {problem}.");
        cx.tell(Severity::Warning, "Another model answers", more).await?;
    }
    let model = guise.model.filter(|id| before.lacks(id).is_none());
    if wanted.is_none() && model.is_none() {
        let ended = converse(cx).await;
        hooks::after_turn(cx, ended.as_ref().ok().copied()).await?;
        return ended;
    }
    let mut during = before.clone();
    if let Some(mode) = &wanted {
        during.begin(mode);
    }
    during.model = model.unwrap_or(during.model);
    change(cx, &during).await?;
    let ended = converse(cx).await;
    let now = cx.settings.borrow().clone();
    // What the user changed meanwhile stays.
    if now.mode == during.mode && now.model == during.model {
        change(cx, &before).await?;
    }
    hooks::after_turn(cx, ended.as_ref().ok().copied()).await?;
    ended
}

/// Changes mode and model, and shows both.
async fn change(cx: &TurnCx<'_>, to: &Settings) -> Result<(), TurnError> {
    cx.settings.send_modify(|settings| {
        settings.mode = to.mode.clone();
        settings.model = to.model.clone();
    });
    cx.emit(Event::Mode(to.mode.clone())).await?;
    cx.emit_settings().await
}

/// Asks the model and does what it asks, until it asks for nothing more.
///
/// On the heap, as all that a child passes through again: a turn and its child must fit on a small stack.
pub(crate) fn converse<'a>(cx: &'a mut TurnCx<'_>) -> BoxFuture<'a, Result<StopReason, TurnError>> {
    go_on(cx).boxed()
}

async fn go_on(cx: &mut TurnCx<'_>) -> Result<StopReason, TurnError> {
    let mut guard = Guard::default();
    for _ in 0..cx.limits.max_requests {
        let answer = ask(cx).await?;
        let is_done = answer.calls.is_empty();
        calls::run_all(cx, answer.calls).await?;
        let is_steered = steering::take_up(cx).await?;
        if is_done && !is_steered {
            return Ok(answer.stop);
        }
        // What the user said since is new, whatever the calls before were.
        let verdict = if is_steered { Verdict::GoOn } else { guard.step(cx.history.messages()) };
        match verdict {
            Verdict::GoOn => {}
            Verdict::Tell(text) => tell_model(cx, text).await?,
            Verdict::Stop(why) => return stop(cx, &why).await,
        }
    }
    let most = cx.limits.max_requests;
    let why = format!(
        "The turn has asked the model {most} times, as often as `max_requests_per_turn` allows."
    );
    stop(cx, &why).await
}

/// Tells the model something in the middle of a turn.
async fn tell_model(cx: &mut TurnCx<'_>, text: String) -> Result<(), TurnError> {
    cx.record(Record::Told(&text)).await?;
    cx.history.push(Message::User(Prompt::from(vec![Block::Text(text)])));
    Ok(())
}

/// Ends a turn that went too far: the user is told why, and what can be done.
async fn stop(cx: &mut TurnCx<'_>, why: &str) -> Result<StopReason, TurnError> {
    if cx.child.is_some() {
        // Its own last words go back to the turn that started it.
        return Ok(StopReason::MaxTurnRequests);
    }
    let text = format!("{why} `/continue` lets it go on; or say what to do instead.");
    let message = MessageId::new(cx.clock.fresh_id());
    cx.emit(Event::Text { message, text: text.clone() }).await?;
    let (thoughts, calls) = (Vec::new(), Vec::new());
    cx.history.push(Message::Agent { thoughts, text, calls });
    Ok(StopReason::MaxTurnRequests)
}

fn ask<'a>(cx: &'a mut TurnCx<'_>) -> BoxFuture<'a, Result<Answer, TurnError>> {
    sampling::sample(cx).boxed()
}

/// Refuses a prompt that no compaction could make room for.
fn check_length(prompt: &Prompt, settings: &Settings) -> Result<(), Error> {
    let Some(choice) = settings.choice() else { return Ok(()) };
    let mut alone = History::default();
    alone.push(Message::User(prompt.blocks.clone().into()));
    let (tokens, window) = (alone.tokens(), choice.context_size);
    if tokens <= window {
        return Ok(());
    }
    Err(Error::BadPrompt(format!(
        "the message has about {tokens} tokens and `{}` holds {window}: send less, or choose another model",
        choice.id
    )))
}

/// Tells in a thought what happened to the tools, where the client shows no notices.
async fn tell_news(cx: &TurnCx<'_>) -> Result<(), TurnError> {
    let news = cx.tools.news();
    if news.is_empty() {
        return Ok(());
    }
    let message = MessageId::new(cx.clock.fresh_id());
    cx.emit(Event::Thought { message, text: news.join("\n") }).await
}

/// Calls the session by the first line of its first prompt.
async fn name_session(
    cx: &TurnCx<'_>,
    title: Option<String>,
    prompt: &Prompt,
) -> Result<(), TurnError> {
    let Some(title) = title else {
        cx.has_title.store(false, Ordering::Relaxed);
        return Ok(());
    };
    let kept = cx.journal.set_title(cx.session, &title).await;
    kept.map_err(|err| Error::of_journal(cx.session, err))?;
    if let Some(titler) = cx.titler {
        titler.begin(&cx.settings.borrow(), prompt);
    }
    let updated_at = Some(stamp::iso_8601(cx.clock.now()));
    cx.emit(Event::Info { title: Some(title), updated_at }).await
}

async fn obey(cx: &mut TurnCx<'_>, asked: Asked) -> Result<StopReason, TurnError> {
    let said = match asked {
        Asked::Say(text) => text,
        Asked::Continue => "There is nothing to go on with yet.".to_owned(),
        Asked::Permissions => {
            let mode = cx.settings.borrow().mode().clone();
            let rules = cx.policy.describe(mode.narrowing());
            format!("The mode is `{}`: {}.\n\n{rules}", mode.id, mode.description)
        }
        Asked::Compact(focus) => {
            let before = cx.history.tokens();
            if Box::pin(compact::compact(cx, Cause::Asked(&focus))).await? {
                let after = cx.history.tokens();
                format!(
                    "The conversation is summed up: about {before} tokens before, {after} now. All of it is still kept."
                )
            } else {
                "There is nothing to sum up yet.".to_owned()
            }
        }
        Asked::Context => {
            let settings = cx.settings.borrow().clone();
            context::report(cx, &settings).await
        }
        Asked::Cost => cx.meter.print(),
        Asked::Undo => undo::undo(cx).await?,
        Asked::Redo => undo::redo(cx).await?,
        Asked::Rewind(number) => undo::rewind(cx, number).await?,
        Asked::SetMode(mode) => {
            cx.set_mode(&mode).await?;
            format!("The mode is now `{}`.", mode.id)
        }
        Asked::SetModel(model) => {
            cx.settings.send_modify(|settings| settings.model = model.clone());
            cx.emit_settings().await?;
            format!("The model is now `{model}`.")
        }
    };
    let message = MessageId::new(cx.clock.fresh_id());
    cx.emit(Event::Text { message, text: said }).await?;
    Ok(StopReason::EndTurn)
}

impl TurnCx<'_> {
    /// Journals an event and shows it. Also the place where a cancelled turn stops talking.
    pub(crate) async fn emit(&self, event: Event) -> Result<(), TurnError> {
        if let Some(child) = self.child {
            return child.emit(event).await;
        }
        emit(self.session, self.journal, self.editor, event).await?;
        Ok(())
    }

    /// Journals what is not shown.
    pub(crate) async fn record(&self, record: Record<'_>) -> Result<(), TurnError> {
        if let Some(child) = self.child {
            return child.record(record).await;
        }
        let kept = self.journal.append(self.session, record).await;
        kept.map_err(|err| Error::of_journal(self.session, err).into())
    }

    /// Begins to journal what is not shown, and does not wait for it.
    pub(crate) async fn begin(&self, record: Record<'_>) -> Result<Kept, TurnError> {
        let begun = self.journal.begin(self.session, record).await;
        begun.map_err(|err| Error::of_journal(self.session, err).into())
    }

    /// Waits until the prompt is kept: only then is a model asked.
    pub(crate) async fn settle(&mut self) -> Result<(), TurnError> {
        match self.keeping.take() {
            Some(kept) => {
                kept.wait().await.map_err(|err| Error::of_journal(self.session, err).into())
            }
            None => Ok(()),
        }
    }

    /// Changes the mode, and says so.
    pub(crate) async fn set_mode(&self, mode: &Mode) -> Result<(), TurnError> {
        self.settings.send_if_modified(|settings| settings.begin(mode));
        self.emit(Event::Mode(mode.mode_id())).await?;
        self.emit_settings().await
    }

    /// Tells the user something: as a notice where the client shows them, else as a thought.
    pub(crate) async fn tell(
        &self,
        severity: Severity,
        title: &str,
        more: String,
    ) -> Result<(), TurnError> {
        if self.editor.offers().notices {
            let (title, description) = (title.to_owned(), Some(more));
            return self.emit(Event::Notice { severity, title, description }).await;
        }
        let message = MessageId::new(self.clock.fresh_id());
        self.emit(Event::Thought { message, text: format!("{title}. {more}\n") }).await
    }

    async fn emit_settings(&self) -> Result<(), TurnError> {
        let settings = self.settings.borrow().clone();
        self.emit(Event::Settings(settings)).await
    }

    /// Waits for `work`, unless the turn is cancelled first.
    pub(crate) async fn or_cancelled<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, TurnError> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(TurnError::Cancelled),
            done = work => Ok(done),
        }
    }
}

/// Journals an event, then shows it: after a crash the client must never have seen more than we remember.
pub(crate) async fn emit(
    session: &SessionId,
    journal: &dyn Journal,
    editor: &dyn Editor,
    event: Event,
) -> Result<(), Error> {
    let show = editor.make_room(&event).await;
    journal.keep(session, event, show).await.map_err(|err| Error::of_journal(session, err))
}
