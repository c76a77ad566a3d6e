//! Spans: what a turn does, from when to when. The program hands in who records them; without anybody, a span costs nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::words::{ModelId, SessionId, StopReason, ToolCallId, Usage};

/// Records spans. Its methods are called in the middle of turns, so they never wait.
pub trait Spans: Send + Sync {
    /// Returns the time since 1970. It never goes back.
    fn now(&self) -> Duration;

    /// Returns an id that no other span has.
    fn fresh_id(&self) -> u64;

    /// Takes a span that has begun.
    fn begun(&self, span: &Span);

    /// Takes a span that has ended.
    fn ended(&self, span: &Span);

    /// Tells whether models and MCP servers get the context of the client's trace.
    fn passes_context_on(&self) -> bool {
        false
    }
}

/// What a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// The answer to a prompt.
    Turn,
    /// One request to a model.
    Model,
    /// A tool call, from its announcement to its result.
    Tool,
    /// The wait for the user's permission.
    Permission,
    /// A tool at work, after it was allowed.
    Run,
    /// A call to an MCP server.
    Mcp,
    /// A command of the shell.
    Command,
    /// The compaction of a conversation.
    Compaction,
    /// The work of an agent on a task.
    Subagent,
    /// A sync of the journal to disk.
    Sync,
}

impl SpanKind {
    /// Returns its name in traces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SpanKind::Turn => "turn",
            SpanKind::Model => "model",
            SpanKind::Tool => "tool",
            SpanKind::Permission => "permission",
            SpanKind::Run => "run",
            SpanKind::Mcp => "mcp",
            SpanKind::Command => "command",
            SpanKind::Compaction => "compaction",
            SpanKind::Subagent => "subagent",
            SpanKind::Sync => "sync",
        }
    }
}

/// How a span ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SpanEnd {
    /// It was dropped: its turn was cancelled.
    #[default]
    Cancelled,
    /// As it should.
    Completed,
    /// The user, a rule or a mode said no.
    Rejected,
    /// It failed, for this reason.
    Failed(String),
}

/// Something that took time.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its id.
    pub id: u64,
    /// The span that it is part of.
    pub parent: Option<u64>,
    /// What it is about.
    pub kind: SpanKind,
    /// Which tool, model, server or command.
    pub name: String,
    /// The session.
    pub session: Option<SessionId>,
    /// When it began, since 1970.
    pub begun: Duration,
    /// How long it took; zero before its end.
    pub took: Duration,
    /// How it ended.
    pub end: SpanEnd,
    /// What is known about it.
    pub facts: SpanFacts,
}

/// What is known about a span besides its times. Most kinds have only some of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpanFacts {
    /// The id of the turn's call on the wire, as JSON.
    pub request: Option<Arc<str>>,
    /// Of a turn: the context of the client's own trace.
    pub traceparent: Option<Arc<str>>,
    /// Of a turn: the working directory.
    pub cwd: Option<String>,
    /// Of a turn: the mode.
    pub mode: Option<String>,
    /// Of a turn: why it stopped.
    pub stop: Option<StopReason>,
    /// Of a turn: the tokens of all its requests.
    pub total: Usage,
    /// The tool call it belongs to.
    pub call: Option<ToolCallId>,
    /// The model.
    pub model: Option<ModelId>,
    /// Of a request: how long after the beginning its first byte came.
    pub first_byte: Option<Duration>,
    /// The tokens it used.
    pub usage: Usage,
    /// What it cost, in US dollars.
    pub dollars: Option<f64>,
    /// The size of the model's context window.
    pub window: Option<u64>,
    /// How many times it was sent again.
    pub retries: usize,
}

/// Where new spans go, and what they are part of.
#[derive(Clone, Default)]
pub struct SpanScope {
    recorder: Option<Arc<dyn Spans>>,
    session: Option<SessionId>,
    parent: Option<u64>,
    /// The id of the turn's call on the wire.
    request: Option<Arc<str>>,
    /// The context of the client's trace, if it is passed on.
    context: Option<Arc<str>>,
}

impl SpanScope {
    /// Makes the scope of spans that are part of no other.
    #[must_use]
    pub fn new(recorder: Option<Arc<dyn Spans>>, session: Option<SessionId>) -> SpanScope {
        SpanScope { recorder, session, ..SpanScope::default() }
    }

    /// Begins a span.
    #[must_use]
    pub fn begin(&self, kind: SpanKind, name: &str, mut facts: SpanFacts) -> OpenSpan {
        let Some(recorder) = &self.recorder else {
            return OpenSpan { recorder: None, span: None };
        };
        facts.request = facts.request.or_else(|| self.request.clone());
        let span = Box::new(Span {
            id: recorder.fresh_id(),
            parent: self.parent,
            kind,
            name: name.to_owned(),
            session: self.session.clone(),
            begun: recorder.now(),
            took: Duration::ZERO,
            end: SpanEnd::Cancelled,
            facts,
        });
        recorder.begun(&span);
        OpenSpan { recorder: Some(Arc::clone(recorder)), span: Some(span) }
    }

    /// Returns the scope of what happens inside a span.
    #[must_use]
    pub fn inside(&self, span: &OpenSpan) -> SpanScope {
        let Some(span) = &span.span else { return self.clone() };
        let passes_on = self.recorder.as_ref().is_some_and(|it| it.passes_context_on());
        let given = span.facts.traceparent.clone().filter(|_| passes_on);
        let context = given.or_else(|| self.context.clone());
        let request = span.facts.request.clone();
        SpanScope { parent: Some(span.id), request, context, ..self.clone() }
    }

    /// Returns the id of the turn's call on the wire, for the log.
    #[must_use]
    pub fn request(&self) -> &str {
        self.request.as_deref().unwrap_or_default()
    }

    /// Returns the context that the receiver of a request gets, if there is one to pass on: the client's trace, with the
    /// request's span as the parent.
    #[must_use]
    pub fn traceparent(&self, request: &OpenSpan) -> Option<String> {
        let (context, span) = (self.context.as_deref()?, request.span.as_ref()?);
        let mut parts = context.split('-');
        let (version, trace, flags) = (parts.next()?, parts.next()?, parts.nth(1)?);
        Some(format!("{version}-{trace}-{:016x}-{flags}", span.id))
    }
}

impl std::fmt::Debug for SpanScope {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "SpanScope({:?})", self.parent)
    }
}

/// A span that has not ended. It ends when it is dropped: as cancelled, unless something else was noted.
pub struct OpenSpan {
    recorder: Option<Arc<dyn Spans>>,
    /// `None` if nobody records it.
    span: Option<Box<Span>>,
}

impl OpenSpan {
    /// Changes what is known about it.
    pub fn note(&mut self, change: impl FnOnce(&mut SpanFacts)) {
        if let Some(span) = &mut self.span {
            change(&mut span.facts);
        }
    }

    /// Notes the first byte of an answer, once.
    pub fn first_byte(&mut self) {
        if let (Some(recorder), Some(span)) = (&self.recorder, &mut self.span)
            && span.facts.first_byte.is_none()
        {
            span.facts.first_byte = Some(recorder.now().saturating_sub(span.begun));
        }
    }

    /// Ends it.
    pub fn end(mut self, end: SpanEnd) {
        if let Some(span) = &mut self.span {
            span.end = end;
        }
    }

    /// Ends it with a result.
    pub fn end_with<T, E: std::fmt::Display>(self, result: &Result<T, E>) {
        match result {
            Ok(_) => self.end(SpanEnd::Completed),
            Err(err) if self.span.is_some() => self.end(SpanEnd::Failed(err.to_string())),
            Err(_) => {}
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let (Some(recorder), Some(mut span)) = (self.recorder.take(), self.span.take()) {
            span.took = recorder.now().saturating_sub(span.begun);
            recorder.ended(&span);
        }
    }
}

impl std::fmt::Debug for OpenSpan {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "OpenSpan({:?})", self.span)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Counts ids, and moves its clock by a second with every look at it.
    #[derive(Default)]
    struct Notes {
        count: AtomicU64,
        ended: Mutex<Vec<Span>>,
    }

    impl Spans for Notes {
        fn now(&self) -> Duration {
            Duration::from_secs(self.count.fetch_add(1, Ordering::Relaxed))
        }

        fn fresh_id(&self) -> u64 {
            self.count.fetch_add(1, Ordering::Relaxed)
        }

        fn begun(&self, _: &Span) {}

        fn passes_context_on(&self) -> bool {
            true
        }

        fn ended(&self, span: &Span) {
            self.ended.lock().unwrap().push(span.clone());
        }
    }

    // R: O1
    #[test]
    fn spans_nest_and_a_dropped_one_is_cancelled() {
        let notes = Arc::new(Notes::default());
        let scope = SpanScope::new(Some(notes.clone()), Some(SessionId::new("s")));
        let facts = SpanFacts { request: Some("7".into()), ..SpanFacts::default() };
        let turn = scope.begin(SpanKind::Turn, "prompt", facts);
        let mut model = scope.inside(&turn).begin(SpanKind::Model, "m", SpanFacts::default());
        model.first_byte();
        model.first_byte();
        model.end_with(&Err::<(), _>("HTTP 400"));
        drop(turn);
        let ended = notes.ended.lock().unwrap();
        let [model, turn] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!((model.parent, turn.parent), (Some(turn.id), None));
        assert_eq!(model.facts.request.as_deref(), Some("7"));
        assert_eq!(model.facts.first_byte, Some(Duration::from_secs(1)));
        assert_eq!(model.end, SpanEnd::Failed("HTTP 400".to_owned()));
        assert_eq!((&turn.end, turn.took), (&SpanEnd::Cancelled, Duration::from_secs(5)));
    }

    // R: O1
    #[test]
    fn request_passes_on_the_trace_of_the_client_with_itself_as_the_parent() {
        let notes = Arc::new(Notes::default());
        let scope = SpanScope::new(Some(notes), None);
        let context = "00-0123456789abcdef0123456789abcdef-00f067aa0ba902b7-01";
        let facts = SpanFacts { traceparent: Some(context.into()), ..SpanFacts::default() };
        let turn = scope.begin(SpanKind::Turn, "turn", facts);
        let inside = scope.inside(&turn);
        let model = inside.begin(SpanKind::Model, "m", SpanFacts::default());
        let id = model.span.as_ref().unwrap().id;
        let expected = format!("00-0123456789abcdef0123456789abcdef-{id:016x}-01");
        assert_eq!(inside.traceparent(&model), Some(expected));
        assert_eq!(scope.traceparent(&model), None);
    }

    #[test]
    fn nothing_is_made_when_nobody_records() {
        let scope = SpanScope::default();
        let mut span = scope.begin(SpanKind::Turn, "prompt", SpanFacts::default());
        span.note(|_| panic!("there is nothing to note it on"));
        assert!(span.span.is_none());
    }
}
