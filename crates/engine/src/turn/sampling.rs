//! One exchange with the model: a request goes out, its answer is streamed back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::timeout;

use super::compact::{self, Cause};
use super::context;
use super::cx::{TurnCx, TurnError};
use crate::ports::{
    Error, Event, ModelChoice, ModelError, ModelEvent, ModelStream, OpenSpan, Record, Severity,
    SpanEnd, SpanFacts, SpanKind, SpanScope, ToolSpec,
};
use crate::words::{
    History, Message, ModelId, Seal, StopReason, Thought, ToolCallId, ToolRequest, Usage,
};

/// How many times requests may be sent again in one turn; a provider that needs more does not work.
const MAX_RETRIES: usize = 30;

/// The answer of the model.
pub(crate) struct Answer {
    /// Its tool calls.
    pub(crate) calls: Vec<ToolRequest>,
    /// Why it stopped.
    pub(crate) stop: StopReason,
    /// Whether it has neither text nor calls.
    pub(crate) is_empty: bool,
    /// Why a call in its text was not run, for the model.
    pub(crate) not_run: Option<String>,
}

/// Asks the model for its next answer. Compacts the conversation if it is too long for the context window.
pub(crate) async fn sample(cx: &mut TurnCx<'_>) -> Result<Answer, TurnError> {
    if let Some(choice) = cx.settings().choice() {
        cx.or_cancelled(choice.model.prepare()).await?;
    }
    compact::if_needed(cx).await?;
    match ask(cx).await {
        Err(TurnError::Failed(Error::Model(ModelError::ContextFull(why)))) => {
            tracing::info!("the conversation was too long: {why}");
            if !compact::compact(cx, Cause::Overflow).await? {
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
    let settings = cx.settings();
    let Some(choice) = settings.choice() else {
        return Err(Error::NoSuchModel(settings.model).into());
    };
    let mut request = context::view(cx, &settings, choice).await;
    let mut span = begin_request(&cx.turn.spans, choice);
    request.traceparent = cx.turn.spans.traceparent(&span);
    let tools = request.tools.clone();
    let mut stream = choice.model.answer(request);
    cx.wait_for_prompt().await?;
    let mut draft = Draft::new(settings.model.clone(), tools);
    let ended = receive(cx, &mut stream, &mut draft, &mut span).await;
    let (usage, not_run) = (draft.usage, draft.not_run.take());
    if ended.is_err() {
        draft.break_off();
    }
    let has_text = !draft.text.trim().is_empty();
    let calls = save(cx, draft).await?;
    report_usage(cx, choice, usage, &mut span).await?;
    span.end(match &ended {
        Ok(_) => SpanEnd::Completed,
        Err(err) => err.span_end(),
    });
    let is_empty = !has_text && calls.is_empty();
    Ok(Answer { calls, stop: ended?, is_empty, not_run })
}

/// Begins the span of a request.
pub(super) fn begin_request(spans: &SpanScope, choice: &ModelChoice) -> OpenSpan {
    let facts = SpanFacts {
        model: Some(choice.id.clone()),
        window: Some(choice.window()),
        ..SpanFacts::default()
    };
    spans.begin(SpanKind::Model, choice.id.as_str(), facts)
}

/// Receives an answer and shows it as it comes. Returns why the model stopped.
async fn receive(
    cx: &mut TurnCx<'_>,
    stream: &mut ModelStream,
    draft: &mut Draft,
    span: &mut OpenSpan,
) -> Result<StopReason, TurnError> {
    let message = cx.fresh_message();
    loop {
        let no_progress = cx.turn.limits.no_progress;
        let next = cx.or_cancelled(timeout(no_progress, stream.next())).await?;
        let next = next.map_err(|_| Error::NoProgress(no_progress))?;
        let before = draft.text.len();
        let next = next.transpose().map_err(Error::Model)?;
        if !matches!(next, None | Some(ModelEvent::Waiting { .. } | ModelEvent::Notice(_))) {
            span.first_byte();
        }
        let shown = match next {
            Some(ModelEvent::Text(text)) => {
                draft.text.push_str(&text);
                Event::Text { message: message.clone(), text }
            }
            Some(ModelEvent::Thought(text)) => {
                draft.thought.push_str(&text);
                Event::Thought { message: message.clone(), text }
            }
            Some(ModelEvent::Waiting { reason, remaining }) => {
                let why = retry_notice(&reason, remaining);
                let (session, request) =
                    (cx.conversation.session.as_str(), cx.turn.spans.request());
                let model = draft.model.as_str();
                tracing::warn!(session, request, operation = "model", model, "{why}");
                cx.turn.retries += 1;
                span.note(|facts| facts.retries += 1);
                if cx.turn.retries > MAX_RETRIES {
                    let words = format!("Gave up after {MAX_RETRIES} retries in this turn. {why}");
                    return Err(Error::Model(ModelError::Unavailable(words)).into());
                }
                cx.notice(message.clone(), Severity::Warning, &why, None)
            }
            Some(ModelEvent::Notice(what)) => {
                tracing::info!(model = %draft.model, "{what}");
                cx.notice(message.clone(), Severity::Warning, &what, None)
            }
            Some(ModelEvent::ThoughtEnd(seal)) => {
                draft.end_thought(seal);
                continue;
            }
            Some(ModelEvent::Tool(call)) => {
                draft.add(call, cx.conversation.history);
                continue;
            }
            Some(ModelEvent::NotRun(why)) => {
                draft.not_run = Some(why);
                continue;
            }
            Some(ModelEvent::Usage(now)) => {
                draft.usage = now;
                continue;
            }
            Some(ModelEvent::Stop(stop)) => return Ok(stop),
            None => return Ok(StopReason::EndTurn),
        };
        if let Err(err) = cx.or_cancelled(cx.emit(shown)).await.flatten() {
            draft.text.truncate(before);
            return Err(err);
        }
    }
}

/// Says why a request is sent again, and when.
fn retry_notice(reason: &str, remaining: Duration) -> String {
    let retry = match remaining.as_secs() {
        0 => "Retrying…".to_owned(),
        seconds => format!("Retrying in {seconds} s…"),
    };
    format!("{}. {retry}", reason.trim_end_matches('.'))
}

/// Adds an answer to the history and to the journal. Returns its tool calls.
async fn save(cx: &mut TurnCx<'_>, draft: Draft) -> Result<Vec<ToolRequest>, TurnError> {
    let thoughts = draft.thoughts.clone();
    let calls = draft.save(cx);
    if !thoughts.is_empty() {
        cx.record(Record::Thoughts(&thoughts)).await?;
    }
    if !calls.is_empty() {
        cx.record(Record::Answer(&calls)).await?;
    }
    Ok(calls)
}

/// An answer on its way into the history.
struct Draft {
    model: ModelId,
    /// The tools that were offered.
    tools: Vec<Arc<ToolSpec>>,
    thoughts: Vec<Thought>,
    /// The thought that is being streamed.
    thought: String,
    text: String,
    calls: Vec<ToolRequest>,
    /// Why a call in the text was not run.
    not_run: Option<String>,
    usage: Usage,
}

impl Draft {
    fn new(model: ModelId, tools: Vec<Arc<ToolSpec>>) -> Draft {
        Draft {
            model,
            tools,
            thoughts: Vec::new(),
            thought: String::new(),
            text: String::new(),
            calls: Vec::new(),
            not_run: None,
            usage: Usage::default(),
        }
    }

    fn end_thought(&mut self, seal: Option<Seal>) {
        let text = std::mem::take(&mut self.thought);
        self.thoughts.push(Thought { by: self.model.clone(), text, seal, at: self.text.len() });
    }

    /// Adds a call. One with a name that a tool adopts becomes a call of that tool. A duplicate is dropped; a different call with an id that was used before
    /// gets a new one.
    fn add(&mut self, mut call: ToolRequest, history: &History) {
        if let Some((tool, Some(input))) = ToolSpec::find(&self.tools, &call.name, &call.input)
            && tool.name != call.name
        {
            call = ToolRequest { id: call.id, name: tool.name.clone(), input: input.into() };
        }
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

    /// Drops the calls of an answer that was cut off.
    fn break_off(&mut self) {
        self.calls.clear();
        // A thought without its end has no seal, and a model accepts only complete ones.
        self.thoughts.clear();
    }

    /// Puts the answer into the history and returns its calls.
    fn save(self, cx: &mut TurnCx<'_>) -> Vec<ToolRequest> {
        if !self.text.is_empty() || !self.calls.is_empty() {
            let (thoughts, text, calls) = (self.thoughts, self.text, self.calls.clone());
            cx.conversation.history.push(Message::Agent { thoughts, text, calls });
        }
        self.calls
    }
}

async fn report_usage(
    cx: &mut TurnCx<'_>,
    choice: &ModelChoice,
    usage: Usage,
    span: &mut OpenSpan,
) -> Result<(), TurnError> {
    if usage == Usage::default() {
        return Ok(());
    }
    let messages = cx.conversation.history.len();
    cx.conversation.context.measure(messages, usage.total());
    let cost = cx.add_cost(choice, usage, span).await?;
    let (used, size) = (usage.total(), choice.window());
    if cx.turn.parent.is_none() {
        cx.conversation.meter.fill(used, size);
    }
    cx.emit(Event::Usage { used, size, cost }).await
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Mutex, watch};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::permission::policy::Policy;
    use crate::ports::{NoInstructions, NoJournal, Settings, SystemClock, Toolbox};
    use crate::script::ScriptedModel;
    use crate::test_support::{NoFiles, StubEditor};
    use crate::turn::context_state::ContextState;
    use crate::turn::cx::{Conversation, Ports, Turn, TurnLimits};
    use crate::turn::meter::Meter;
    use crate::turn::steering::Steering;
    use crate::words::SessionId;

    #[test]
    fn call_with_a_used_id_gets_a_new_one() {
        let call = |command: &str| ToolRequest {
            id: ToolCallId::new("c"),
            name: "bash".into(),
            input: serde_json::json!({ "command": command }).into(),
        };
        let mut history = History::default();
        let (thoughts, text) = (Vec::new(), String::new());
        history.push(Message::Agent { thoughts, text, calls: vec![call("one")] });
        // The client knows the call for ever.
        history.compact(1, "summary".to_owned(), None);
        let mut draft = Draft::new(ModelId::new("m"), Vec::new());
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
    async fn text_shown_before_a_cancel_stays_in_the_history() {
        let script = "model text \"one \"\nmodel text \"two\"\nmodel text \" three\"";
        let model = ModelChoice {
            id: ModelId::new("m"),
            name: String::new(),
            context_size: 1000,
            price: None,
            can_think: false,
            profile: None,
            model: Arc::new(ScriptedModel::parse(script).unwrap()),
        };
        let editor = StubEditor::with_room_for(2);
        let mut history = History::default();
        let cancel = CancellationToken::new();
        let settings = Settings::new(vec![model].into()).unwrap();
        let limits = TurnLimits { max_requests: 1, no_progress: Duration::from_secs(60) };
        let mut cx = TurnCx {
            ports: Ports {
                toolbox: &Toolbox::default(),
                policy: &Policy::default(),
                editor: &editor,
                files: &NoFiles,
                instructions: &NoInstructions,
                journal: &NoJournal,
                clock: &SystemClock,
            },
            conversation: Conversation {
                session: &SessionId::new("s"),
                cwd: "/w".as_ref(),
                settings: &watch::Sender::new(settings),
                history: &mut history,
                context: &mut ContextState::default(),
                meter: &Meter::default(),
                steering: &Steering::default(),
                asking: &Mutex::default(),
            },
            turn: Turn::new(limits, cancel.clone(), SpanScope::default()),
        };
        let cancelled = async {
            editor.is_full().await;
            cancel.cancel();
        };
        let (answer, ()) = tokio::join!(sample(&mut cx), cancelled);
        assert!(matches!(answer, Err(TurnError::Cancelled)));
        let (thoughts, text) = (Vec::new(), "one two".to_owned());
        let said = Message::Agent { thoughts, text, calls: Vec::new() };
        assert_eq!(history.messages(), [Arc::new(said)]);
    }
}
