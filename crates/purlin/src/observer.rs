//! The observer: takes the spans of the engine and the bytes of the connection, and hands both to the tap and the log.

use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use engine::ports::{Span, SpanEnd, SpanKind, Spans};
use engine::words::{StopReason, Usage};
use observe::{Direction, ProcessInfo, Record, SpanRecord, Tap, TapOptions};
use serve::Watcher;
use tracing::Level;
use wire::acp::dialect::Dialect;

use crate::env;

/// Sees what the agent does.
pub(crate) struct Observer {
    tap: Tap,
    /// The next span's id. The first is random, so that several processes can share a trace.
    next: AtomicU64,
    /// The socket for those who watch.
    socket: Mutex<Option<PathBuf>>,
    trace: Option<PathBuf>,
    passes_context_on: bool,
}

impl Observer {
    /// Makes the observer. With a file, every message and span is recorded there.
    ///
    /// # Errors
    /// Says which file cannot be written.
    pub(crate) fn new(trace: Option<&Path>, forced: Option<Dialect>) -> anyhow::Result<Observer> {
        let options = TapOptions { forced, process: this_process(), ..TapOptions::default() };
        let tap = make_tap(options, trace)?;
        let random = std::hash::RandomState::new().build_hasher().finish();
        Ok(Observer {
            tap,
            next: AtomicU64::new(random),
            socket: Mutex::default(),
            trace: trace.map(Path::to_path_buf),
            passes_context_on: false,
        })
    }

    /// Passes the context of clients' traces on to models and MCP servers, if the user wants that.
    #[must_use]
    pub(crate) fn passing_context_on(self, passes_context_on: bool) -> Observer {
        Observer { passes_context_on, ..self }
    }

    /// Returns the last spans.
    pub(crate) fn recent(&self) -> Vec<SpanRecord> {
        self.tap.recent()
    }

    /// Returns the trace file.
    pub(crate) fn trace_file(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// Lets others of this user watch.
    pub(crate) fn listen(&self) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = listen(&self.tap);
    }

    /// Writes the last records, and removes the socket.
    pub(crate) fn end(&self) {
        self.tap.end();
        remove(self.socket.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Makes a tap for another agent.
///
/// # Errors
/// Says which file cannot be written.
pub(crate) fn tap_of(program: &str, trace: Option<&Path>) -> anyhow::Result<Tap> {
    let mut process = this_process();
    process.program = program.to_owned();
    process.version = String::new();
    make_tap(TapOptions { process, ..TapOptions::default() }, trace)
}

/// Makes who logs the messages of one connection of a server; `None` if the log has no messages.
pub(crate) fn message_log() -> Option<Arc<dyn Watcher>> {
    tracing::event_enabled!(Level::DEBUG).then(|| {
        let log: observe::LogRecord = Box::new(log_record);
        let tap = Tap::new(TapOptions { log: Some(log), ..TapOptions::default() });
        Arc::new(MessageLog(tap)) as Arc<dyn Watcher>
    })
}

/// Logs the messages of a connection.
struct MessageLog(Tap);

impl Watcher for MessageLog {
    fn received(&self, bytes: &[u8]) {
        self.0.bytes(Direction::In, bytes);
    }

    fn sent(&self, lines: &[u8]) {
        self.0.bytes(Direction::Out, lines);
    }
}

fn make_tap(mut options: TapOptions, trace: Option<&Path>) -> anyhow::Result<Tap> {
    if tracing::event_enabled!(Level::DEBUG) {
        options.log = Some(Box::new(log_record));
    }
    if let Some(file) = trace {
        let opened = options.trace_to(file);
        options = opened.with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(Tap::new(options))
}

/// Lets others of this user watch a tap, through a socket in their runtime directory. Returns the socket.
pub(crate) fn listen(tap: &Tap) -> Option<PathBuf> {
    let directory = env::runtime_directory()?;
    let name = format!("{}.sock", std::process::id());
    #[cfg(unix)]
    let listening = observe::live::listen(&directory, &name, tap);
    #[cfg(not(unix))]
    let listening = Err::<PathBuf, _>(format!("{name} is for {tap:?}"));
    match listening {
        Ok(path) => Some(path),
        Err(err) => {
            tracing::debug!("no dashboard can watch this process: {}: {err}", directory.display());
            None
        }
    }
}

/// Removes a socket.
pub(crate) fn remove(socket: Option<PathBuf>) {
    if let Some(Err(err)) = socket.map(std::fs::remove_file) {
        tracing::debug!("cannot remove the socket: {err}");
    }
}

/// Describes this process to those who watch it.
fn this_process() -> ProcessInfo {
    ProcessInfo {
        pid: std::process::id(),
        program: "purlin".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cwd: std::env::current_dir().unwrap_or_default().display().to_string(),
        started: millis_since_1970(),
    }
}

fn millis_since_1970() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

impl Watcher for Observer {
    fn received(&self, bytes: &[u8]) {
        self.tap.bytes(Direction::In, bytes);
    }

    fn sent(&self, lines: &[u8]) {
        self.tap.bytes(Direction::Out, lines);
    }
}

impl Spans for Observer {
    fn now(&self) -> Duration {
        self.tap.now()
    }

    fn fresh_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn passes_context_on(&self) -> bool {
        self.passes_context_on
    }

    fn begun(&self, span: &Span) {
        log_begin(span);
        if span.kind != SpanKind::Sync {
            self.tap.span(record_of(span, false));
        }
    }

    fn ended(&self, span: &Span) {
        log_span(span);
        // Syncs are frequent, and only a trace shows them.
        if span.kind != SpanKind::Sync || self.tap.is_wanted() {
            self.tap.span(record_of(span, true));
        }
    }
}

/// Writes the begin of a flow to the log. What is inside a tool call is seen when it ends.
fn log_begin(span: &Span) {
    let session = span.session.as_ref().map_or("", |session| session.as_str());
    let request = span.facts.request.as_deref().unwrap_or_default();
    match span.kind {
        SpanKind::Turn => tracing::info!(session, request, operation = "turn", "begun"),
        SpanKind::Tool => {
            let call = span.facts.call.as_ref().map_or("", |call| call.as_str());
            tracing::info!(session, request, call, operation = "tool", "{}: begun", span.name);
        }
        _ => {}
    }
}

/// Writes the end of a span to the log: failures of turns and models as errors, the rest as information.
fn log_span(span: &Span) {
    let session = span.session.as_ref().map_or("", |session| session.as_str());
    let request = span.facts.request.as_deref().unwrap_or_default();
    let (operation, name) = (span.kind.name(), span.name.as_str());
    let duration_ms = u64::try_from(span.took.as_millis()).unwrap_or(u64::MAX);
    let call = span.facts.call.as_ref().map_or("", |call| call.as_str());
    let what = observe::mask::mask_text(&format!("{name}: {}", outcome(span)));
    match (span.kind, &span.end) {
        (SpanKind::Sync | SpanKind::Run, _) => {
            tracing::debug!(session, request, call, operation, duration_ms, "{what}");
        }
        (SpanKind::Turn | SpanKind::Model, SpanEnd::Failed(_)) => {
            tracing::error!(session, request, operation, duration_ms, "{what}");
        }
        (SpanKind::Turn, _) => {
            let stop = span.facts.stop.map_or("", StopReason::id);
            let (tokens_in, tokens_out) = tokens(&span.facts.total);
            tracing::info!(
                session,
                request,
                operation,
                duration_ms,
                stop,
                tokens_in,
                tokens_out,
                "{what}"
            );
        }
        (SpanKind::Model, _) => {
            let (tokens_in, tokens_out) = tokens(&span.facts.usage);
            let retries = span.facts.retries;
            tracing::info!(
                session,
                request,
                operation,
                duration_ms,
                tokens_in,
                tokens_out,
                retries,
                "{what}"
            );
        }
        _ => tracing::info!(session, request, call, operation, duration_ms, "{what}"),
    }
}

/// Returns the tokens in and out, the cached ones included.
fn tokens(usage: &Usage) -> (u64, u64) {
    (usage.input + usage.cache_read + usage.cache_write, usage.output)
}

fn outcome(span: &Span) -> String {
    match &span.end {
        SpanEnd::Completed => "completed".to_owned(),
        SpanEnd::Cancelled => "cancelled".to_owned(),
        SpanEnd::Rejected => "rejected".to_owned(),
        SpanEnd::Failed(why) => format!("failed: {why}"),
    }
}

/// Writes a message to the log, at the level where every message is of interest.
fn log_record(record: &Record) {
    match record {
        Record::Message(message) => {
            let session = message.session.as_deref().unwrap_or_default();
            let operation = message.method.as_deref().unwrap_or("invalid line");
            let request = message.id.as_ref().map(ToString::to_string).unwrap_or_default();
            let direction = match message.direction {
                Direction::In => "received",
                Direction::Out => "sent",
            };
            let content = message.message.as_ref().map(ToString::to_string);
            let content = content.or_else(|| message.invalid.clone()).unwrap_or_default();
            let short = &content[..content.floor_char_boundary(MAX_CONTENT)];
            let (bytes, duration_ms) = (message.bytes, message.duration_ms);
            match duration_ms {
                Some(duration_ms) => tracing::debug!(
                    session,
                    request,
                    operation,
                    duration_ms,
                    bytes,
                    "{direction} {short}"
                ),
                None => {
                    tracing::debug!(session, request, operation, bytes, "{direction} {short}");
                }
            }
        }
        Record::Dialect { dialect, why, .. } => tracing::debug!("dialect {dialect}: {why}"),
        Record::Lost { lost, .. } => tracing::debug!("{lost} messages were not logged"),
        Record::Span(_) | Record::Process { .. } => {}
    }
}

/// How many bytes of a message the log has.
const MAX_CONTENT: usize = 1000;

fn record_of(span: &Span, has_ended: bool) -> SpanRecord {
    let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let facts = &span.facts;
    let id = |id: u64| format!("{id:016x}");
    let (end, error) = match &span.end {
        SpanEnd::Completed => ("completed", None),
        SpanEnd::Cancelled => ("cancelled", None),
        SpanEnd::Rejected => ("rejected", None),
        SpanEnd::Failed(why) => ("failed", Some(why.clone())),
    };
    SpanRecord {
        time: millis(span.begun),
        span: id(span.id),
        parent: span.parent.map(id),
        kind: span.kind.name().to_owned(),
        name: span.name.clone(),
        session: span.session.as_ref().map(|session| session.as_str().to_owned()),
        duration_ms: has_ended.then(|| millis(span.took)),
        end: has_ended.then(|| end.to_owned()),
        error: error.filter(|_| has_ended),
        request: facts.request.as_deref().and_then(|id| serde_json::from_str(id).ok()),
        traceparent: facts.traceparent.as_deref().map(str::to_owned),
        cwd: facts.cwd.clone(),
        mode: facts.mode.clone(),
        stop: facts.stop.map(|stop| stop.id().to_owned()),
        call: facts.call.as_ref().map(|call| call.as_str().to_owned()),
        model: facts.model.as_ref().map(|model| model.as_str().to_owned()),
        first_byte_ms: facts.first_byte.map(millis),
        tokens_in: facts.usage.input,
        tokens_out: facts.usage.output,
        cache_read: facts.usage.cache_read,
        cache_write: facts.usage.cache_write,
        cost: facts.dollars,
        window: facts.window,
        retries: facts.retries as u64,
    }
}
