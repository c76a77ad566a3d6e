//! One exchange with the model: a request goes out, its answer comes back in pieces.

use futures_util::StreamExt;
use tokio::time::timeout;

use crate::ports::error::Error;
use crate::ports::event::{Event, Severity};
use crate::ports::{ModelError, ModelEvent, Record};
use crate::turn::compact::{self, Cause};
use crate::turn::context::{self, History};
use crate::turn::session::ModelChoice;
use crate::turn::{TurnCx, TurnError};
use crate::words::{
    Message, MessageId, ModelId, Seal, StopReason, Thought, ToolCallId, ToolRequest, Usage,
};

/// How often a model may try again in one turn, whatever it is asked: more is a provider that does not work.
const MAX_WAITS: usize = 10;

/// What the model answered.
pub(crate) struct Answer {
    /// The tools it asked for.
    pub(crate) calls: Vec<ToolRequest>,
    /// Why it stopped.
    pub(crate) stop: StopReason,
}

/// Asks the model for its next answer. Makes room before, and again if the provider finds that there is too little.
pub(crate) async fn sample(cx: &mut TurnCx<'_>) -> Result<Answer, TurnError> {
    compact::if_needed(cx).await?;
    match ask(cx).await {
        Err(TurnError::Failed(Error::Model(ModelError::ContextFull(why)))) => {
            tracing::info!("the conversation was too long: {why}");
            if !Box::pin(compact::compact(cx, Cause::Overflow)).await? {
                return Err(Error::Model(ModelError::ContextFull(why)).into());
            }
            ask(cx).await
        }
        answer => answer,
    }
}

/// Asks the model once and shows its answer as it comes.
///
/// What was shown stays in the history, also when the answer is cut off.
async fn ask(cx: &mut TurnCx<'_>) -> Result<Answer, TurnError> {
    let settings = cx.settings.borrow().clone();
    let Some(choice) = settings.choice() else {
        return Err(Error::NoSuchModel(settings.model).into());
    };
    let request = context::view(cx, &settings, choice).await;
    let mut stream = choice.model.answer(request);
    cx.settle().await?;
    let message = MessageId::new(cx.clock.fresh_id());
    let mut draft = Draft::new(settings.model.clone());
    let ended = loop {
        let next = match cx.or_cancelled(timeout(cx.limits.no_progress, stream.next())).await {
            Ok(Ok(next)) => next,
            Ok(Err(_)) => break Err(Error::NoProgress(cx.limits.no_progress).into()),
            Err(cancelled) => break Err(cancelled),
        };
        let before = draft.text.len();
        let shown = match next {
            Some(Ok(ModelEvent::Text(text))) => {
                draft.text.push_str(&text);
                Event::Text { message: message.clone(), text }
            }
            Some(Ok(ModelEvent::Thought(text))) => {
                draft.thought.push_str(&text);
                Event::Thought { message: message.clone(), text }
            }
            Some(Ok(ModelEvent::Waiting(why))) => {
                tracing::info!(model = %settings.model, "{why}");
                cx.waits += 1;
                if cx.waits > MAX_WAITS {
                    let words = format!("{why}; that was tried {MAX_WAITS} times in this turn");
                    break Err(Error::Model(ModelError::Unavailable(words)).into());
                }
                waiting(cx, &message, why)
            }
            Some(Ok(ModelEvent::ThoughtEnd(seal))) => {
                draft.end_thought(seal);
                continue;
            }
            Some(Ok(ModelEvent::Tool(call))) => {
                draft.add(call, cx.history);
                continue;
            }
            Some(Ok(ModelEvent::Usage(now))) => {
                draft.usage = now;
                continue;
            }
            Some(Ok(ModelEvent::Stop(stop))) => break Ok(stop),
            Some(Err(err)) => break Err(Error::Model(err).into()),
            None => break Ok(StopReason::EndTurn),
        };
        if let Err(err) = cx.or_cancelled(cx.emit(shown)).await.flatten() {
            draft.text.truncate(before);
            break Err(err);
        }
    };
    let usage = draft.usage;
    if ended.is_err() {
        draft.break_off();
    }
    let thoughts = draft.thoughts.clone();
    let calls = draft.keep(cx);
    if !thoughts.is_empty() {
        cx.record(Record::Thoughts(&thoughts)).await?;
    }
    if !calls.is_empty() {
        cx.record(Record::Answer(&calls)).await?;
    }
    report_usage(cx, choice, usage).await?;
    Ok(Answer { calls, stop: ended? })
}

/// An answer on its way into the history.
struct Draft {
    model: ModelId,
    thoughts: Vec<Thought>,
    /// The thought in hand.
    thought: String,
    text: String,
    calls: Vec<ToolRequest>,
    usage: Usage,
}

impl Draft {
    fn new(model: ModelId) -> Draft {
        Draft {
            model,
            thoughts: Vec::new(),
            thought: String::new(),
            text: String::new(),
            calls: Vec::new(),
            usage: Usage::default(),
        }
    }

    fn end_thought(&mut self, seal: Option<Seal>) {
        let text = std::mem::take(&mut self.thought);
        self.thoughts.push(Thought { by: self.model.clone(), text, seal, at: self.text.len() });
    }

    /// Takes a call. One that is there already came twice, and what it asks for is done once; another with an id that was
    /// used before gets one of its own.
    fn add(&mut self, mut call: ToolRequest, history: &History) {
        let is_same = |known: &ToolRequest| {
            known.id.given() == call.id.given()
                && (&known.name, &known.input) == (&call.name, &call.input)
        };
        if self.calls.iter().any(is_same) {
            return;
        }
        let is_used =
            |id: &ToolCallId| history.had_call(id) || self.calls.iter().any(|call| call.id == *id);
        let ids = std::iter::once(call.id.clone()).chain((2..).map(|number| call.id.again(number)));
        call.id = ids.into_iter().find(|id| !is_used(id)).unwrap_or_else(|| call.id.clone());
        self.calls.push(call);
    }

    /// A broken answer asks for nothing.
    fn break_off(&mut self) {
        self.calls.clear();
        // A thought without its end has no seal, and a model takes back only whole ones.
        self.thoughts.clear();
    }

    /// Puts the answer into the history and returns the tools to run.
    fn keep(self, cx: &mut TurnCx<'_>) -> Vec<ToolRequest> {
        if !self.text.is_empty() || !self.calls.is_empty() {
            let (thoughts, text, calls) = (self.thoughts, self.text, self.calls.clone());
            cx.history.push(Message::Agent { thoughts, text, calls });
        }
        self.calls
    }
}

/// Tells the user why nothing comes: as a notice where the client shows them, else as a thought.
fn waiting(cx: &TurnCx<'_>, message: &MessageId, why: String) -> Event {
    if cx.editor.offers().notices {
        Event::Notice { severity: Severity::Warning, title: why, description: None }
    } else {
        Event::Thought { message: message.clone(), text: format!("{why}\n") }
    }
}

async fn report_usage(
    cx: &mut TurnCx<'_>,
    choice: &ModelChoice,
    usage: Usage,
) -> Result<(), TurnError> {
    if usage == Usage::default() {
        return Ok(());
    }
    cx.mind.measure(cx.history.len(), usage.total());
    let cost = add_cost(cx, choice, usage).await?;
    let (used, size) = (usage.total(), choice.context_size);
    if cx.child.is_none() {
        cx.meter.fill(used, size);
    }
    cx.emit(Event::Usage { used, size, cost }).await
}

/// Keeps what an answer used. Returns what the session has cost so far, where a price is known.
pub(crate) async fn add_cost(
    cx: &TurnCx<'_>,
    choice: &ModelChoice,
    usage: Usage,
) -> Result<Option<f64>, TurnError> {
    if usage == Usage::default() {
        return Ok(None);
    }
    let dollars = choice.price.map(|price| price.of(&usage));
    cx.record(Record::Spent { model: &choice.id, usage: &usage, dollars }).await?;
    Ok(cx.meter.add(&choice.id, &usage, dollars))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::{self, BoxFuture};
    use tokio::sync::{Mutex, Notify, watch};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::permission::policy::Policy;
    use crate::permission::{self, Question};
    use crate::ports::{
        Editor, EditorError, ExitStatus, Form, FormAnswer, Offers, Page, Show, TerminalCommand,
        TerminalOutput,
    };
    use crate::script::{NoFiles, NoJournal, ScriptedModel, SystemClock};
    use crate::turn::TurnLimits;
    use crate::turn::context::Mind;
    use crate::turn::instructions::NoPrimer;
    use crate::turn::meter::Meter;
    use crate::turn::session::{ModelChoice, Settings};
    use crate::turn::steering::Steering;
    use crate::words::{ModelId, SessionId, TerminalId};

    /// Takes so many events and no more.
    struct Full {
        room: AtomicUsize,
        is_full: Notify,
    }

    type Asked<'a, T> = BoxFuture<'a, Result<T, EditorError>>;

    impl Editor for Full {
        fn make_room<'a>(&'a self, _: &'a Event) -> BoxFuture<'a, Option<Show>> {
            async {
                let left = |room: usize| room.checked_sub(1);
                if self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err() {
                    self.is_full.notify_one();
                    future::pending::<()>().await;
                }
                Some(Box::new(drop) as Show)
            }
            .boxed()
        }

        fn offers(&self) -> Offers {
            Offers::default()
        }

        fn ask_permission(&self, _: Question) -> Asked<'_, permission::Answer> {
            future::pending().boxed()
        }

        fn read_text_file(&self, _: PathBuf, _: Option<u32>, _: Option<u32>) -> Asked<'_, String> {
            future::pending().boxed()
        }

        fn write_text_file<'a>(&'a self, _: &'a Path, _: &'a str) -> Asked<'a, ()> {
            future::pending().boxed()
        }

        fn create_terminal(&self, _: TerminalCommand) -> Asked<'_, TerminalId> {
            future::pending().boxed()
        }

        fn terminal_output(&self, _: TerminalId) -> Asked<'_, TerminalOutput> {
            future::pending().boxed()
        }

        fn wait_for_exit(&self, _: TerminalId) -> Asked<'_, ExitStatus> {
            future::pending().boxed()
        }

        fn kill_terminal(&self, _: TerminalId) -> Asked<'_, ()> {
            future::pending().boxed()
        }

        fn release_terminal(&self, _: TerminalId) -> Asked<'_, ()> {
            future::pending().boxed()
        }

        fn elicit(&self, _: Form) -> Asked<'_, FormAnswer> {
            future::pending().boxed()
        }

        fn page_done(&self, _: &Page) -> BoxFuture<'_, ()> {
            future::pending().boxed()
        }
    }

    #[test]
    fn a_call_with_an_id_that_was_used_gets_one_of_its_own() {
        let call = |command: &str| ToolRequest {
            id: ToolCallId::new("c"),
            name: "bash".into(),
            input: serde_json::json!({ "command": command }).into(),
        };
        let mut history = History::default();
        let (thoughts, text) = (Vec::new(), String::new());
        history.push(Message::Agent { thoughts, text, calls: vec![call("one")] });
        // The client knows the call for ever.
        history.compact(1, "summed up".to_owned(), None);
        let mut draft = Draft::new(ModelId::new("m"));
        for command in ["two", "two", "three"] {
            draft.add(call(command), &history);
        }
        let ids: Vec<&str> = draft.calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["c·2", "c·3"]);
        assert!(draft.calls.iter().all(|call| call.id.given() == "c"));
    }

    /// The user saw it, so the model must know that it said it.
    // R: S5, W16
    #[tokio::test]
    async fn what_was_shown_before_a_cancel_stays_in_the_history() {
        let script = "model text \"one \"\nmodel text \"two\"\nmodel text \" three\"";
        let model = ModelChoice {
            id: ModelId::new("m"),
            name: String::new(),
            context_size: 1000,
            price: None,
            can_think: false,
            model: Arc::new(ScriptedModel::parse(script).unwrap()),
        };
        let editor = Full { room: AtomicUsize::new(2), is_full: Notify::new() };
        let mut history = History::default();
        let cancel = CancellationToken::new();
        let settings = Settings::new(vec![model].into()).unwrap();
        let mut cx = TurnCx {
            session: &SessionId::new("s"),
            cwd: "/w".as_ref(),
            settings: &watch::Sender::new(settings.clone()),
            history: &mut history,
            mind: &mut Mind::default(),
            primer: &NoPrimer,
            policy: &Policy::default(),
            asking: &Mutex::default(),
            has_title: &false.into(),
            meter: &Meter::default(),
            steering: &Steering::default(),
            titler: None,
            keeping: None,
            waits: 0,
            tools: &(Arc::new([]) as Arc<[Arc<dyn crate::ports::AnyTool>]>),
            editor: &editor,
            files: &NoFiles,
            journal: &NoJournal,
            clock: &SystemClock,
            limits: TurnLimits { max_requests: 1, no_progress: Duration::from_secs(60) },
            cancel: cancel.clone(),
            child: None,
        };
        let cancelled = async {
            editor.is_full.notified().await;
            cancel.cancel();
        };
        let (answer, ()) = tokio::join!(sample(&mut cx), cancelled);
        assert!(matches!(answer, Err(TurnError::Cancelled)));
        let (thoughts, text) = (Vec::new(), "one two".to_owned());
        let said = Message::Agent { thoughts, text, calls: Vec::new() };
        assert_eq!(history.messages(), [Arc::new(said)]);
    }
}
