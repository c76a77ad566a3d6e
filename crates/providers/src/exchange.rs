//! One request to a model and its answer: sends it, retries it, and decodes the stream.
//!
//! As long as nothing of the answer was shown, a retry starts again. After that the answer is resumed: the model gets its
//! own text back and is asked to continue it. Tool calls are held until the end of the answer, so a retry never repeats one.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{ModelError, ModelEvent, Request};
use engine::words::{Block, Message, Prompt, StopReason};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};

use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::format::{Events, NOT_RUN};
use crate::model::RemoteModel;
use crate::reading::Reading;
use crate::repetition::Repetition;
use crate::retry::Retries;

/// Consecutive text events are merged up to this length, in bytes.
const MAX_MERGED: usize = 4096;

/// How many connections that had ended unnoticed one answer may meet: several are kept open if requests ran in parallel.
const MAX_RECONNECTS: u32 = 3;

/// Asks the model to continue an answer that broke off.
const CONTINUE: &str = "Your answer was interrupted by a network failure after the text above. Continue it exactly where it \
                        stopped, within the sentence if need be. Do not repeat any of it and do not mention the interruption.";

/// The state of one answer.
pub(crate) struct Exchange {
    model: RemoteModel,
    endpoint: Arc<Endpoint>,
    request: Request,
    /// Whether the limit for the answer is sent. Servers that reject it get none.
    has_limit: bool,
    phase: Phase,
    /// Events that are decoded but not returned yet.
    ready: VecDeque<Result<ModelEvent, ModelError>>,
    /// Ends of thoughts that arrived before anything was shown. A retry discards them.
    held: Vec<ModelEvent>,
    /// The tool calls so far. A retry discards them.
    calls: Vec<ModelEvent>,
    retries: Retries,
    /// How many connections had ended unnoticed. The user is not told: nothing is wrong.
    reconnects: u32,
    shown: Shown,
    /// Stops an answer that repeats itself.
    repetition: Repetition,
    progress: Progress,
}

/// What was shown of the answer.
#[derive(Debug, Default)]
struct Shown {
    /// Its text.
    text: String,
    /// Whether a thought was shown that has not ended.
    is_thinking: bool,
    /// Whether anything was shown.
    is_any: bool,
}

enum Phase {
    Send,
    Sending(BoxFuture<'static, Result<Reading, Fault>>),
    Wait(Duration),
    Read(Box<Reading>),
    Over,
}

impl Exchange {
    pub(crate) fn new(model: RemoteModel, request: Request) -> Exchange {
        Exchange {
            endpoint: Arc::clone(&model.endpoint),
            model,
            request,
            has_limit: true,
            phase: Phase::Send,
            ready: VecDeque::new(),
            held: Vec::new(),
            calls: Vec::new(),
            retries: Retries::default(),
            reconnects: 0,
            shown: Shown::default(),
            repetition: Repetition::default(),
            progress: Progress::default(),
        }
    }

    /// Returns the next event, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match &mut self.phase {
                Phase::Send => self.send(),
                Phase::Sending(answer) => {
                    match timeout(self.progress.patience(&self.endpoint), answer).await {
                        Ok(Ok(reading)) => self.phase = Phase::Read(Box::new(reading)),
                        Ok(Err(fault)) => self.fail(fault),
                        Err(_) => self.report_silence(),
                    }
                }
                Phase::Wait(time) => {
                    let time = *time;
                    sleep(time).await;
                    self.phase = Phase::Send;
                }
                Phase::Read(reading) => {
                    let mut events = Events::new();
                    let read = reading.read(&mut events).await;
                    self.take(events, read);
                }
                Phase::Over => return None,
            }
        }
    }

    /// Starts the next attempt.
    fn send(&mut self) {
        let resumed = self.resumed();
        let request = resumed.as_ref().unwrap_or(&self.request);
        let body = match self.model.encode(request, self.has_limit) {
            Ok(body) => body,
            Err(err) => {
                return self
                    .fail(Fault::Rejected(format!("the request could not be serialised: {err}")));
            }
        };
        self.progress.begin();
        let decoder = self.endpoint.format.decoder(request);
        let (endpoint, context) = (Arc::clone(&self.endpoint), self.request.traceparent.clone());
        let send = Reading::open(endpoint, self.model.path(), body, decoder, context);
        self.phase = Phase::Sending(Box::pin(send));
    }

    /// Returns the request that continues the answer, if some of its text was shown.
    fn resumed(&self) -> Option<Request> {
        let text = self.shown.text.trim_end();
        if text.is_empty() {
            return None;
        }
        let mut request = self.request.clone();
        let (thoughts, calls) = (Vec::new(), Vec::new());
        let partial = Message::Agent { thoughts, text: text.to_owned(), calls };
        let ask = Message::User(Prompt::from(vec![Block::Text(CONTINUE.to_owned())]));
        request.messages.extend([Arc::new(partial), Arc::new(ask)]);
        Some(request)
    }

    /// Tells the user that a server on this machine is silent: it loads the model or reads the prompt.
    fn report_silence(&mut self) {
        let seconds = self.progress.report().as_secs();
        self.push(ModelEvent::Notice(format!(
            "{} is loading the model or reading the prompt ({seconds} s so far)",
            self.endpoint.name
        )));
    }

    /// Handles the decoded events and the result of the read.
    fn take(&mut self, events: Events, read: Result<(), Fault>) {
        for event in events {
            match event {
                ModelEvent::Tool(_) => self.calls.push(event),
                ModelEvent::ThoughtEnd(_) if !self.shown.is_any => self.held.push(event),
                ModelEvent::Text(_) | ModelEvent::Thought(_) | ModelEvent::ThoughtEnd(_) => {
                    if self.show(event) {
                        self.stop_repetition();
                        return;
                    }
                }
                ModelEvent::Stop(stop) => {
                    if stop == StopReason::EndTurn && self.is_empty() && !self.follows_results() {
                        self.fail(Fault::EmptyAnswer);
                    } else {
                        self.end(stop);
                    }
                    // Events after the end are ignored.
                    return;
                }
                ModelEvent::Usage(usage) => {
                    self.push(event);
                    let counted = usage.input + usage.cache_read + usage.cache_write;
                    if self.endpoint.is_nearby
                        && let Some(notice) = self.model.learned.check_count(&self.request, counted)
                    {
                        self.push(ModelEvent::Notice(notice));
                    }
                }
                // The progress of reading the prompt, as the server counts it.
                ModelEvent::Notice(progress) => {
                    if self.progress.is_due() {
                        let name = &self.endpoint.name;
                        let notice = format!("{name} is reading the prompt: {progress}");
                        self.push(ModelEvent::Notice(notice));
                    }
                }
                ModelEvent::Waiting { .. } | ModelEvent::NotRun(_) => self.push(event),
            }
        }
        if let Err(fault) = read {
            self.fail(fault);
        }
    }

    /// Passes on text, a thought or its end. Returns whether the answer repeats itself without end.
    fn show(&mut self, event: ModelEvent) -> bool {
        let shown = &mut self.shown;
        shown.is_any = true;
        let is_endless = match &event {
            ModelEvent::Text(chunk) => {
                shown.text.push_str(chunk);
                self.repetition.push(chunk)
            }
            ModelEvent::Thought(chunk) => {
                shown.is_thinking = true;
                self.repetition.push(chunk)
            }
            _ => {
                shown.is_thinking = false;
                false
            }
        };
        self.ready.extend(self.held.drain(..).map(Ok));
        self.push(event);
        is_endless
    }

    fn is_empty(&self) -> bool {
        !self.shown.is_any && self.calls.is_empty()
    }

    /// Tells whether the request ends with results of tools, perhaps with a message after them, or says that a call was not run.
    /// A model that has nothing to add is not broken.
    fn follows_results(&self) -> bool {
        let last = self.request.messages.last().map(|message| &**message);
        if let Some(Message::User(prompt)) = last
            && prompt.text().starts_with(NOT_RUN)
        {
            return true;
        }
        let messages = self.request.messages.iter().rev();
        let mut messages = messages.skip_while(|message| matches!(***message, Message::User(_)));
        messages.next().is_some_and(|message| matches!(**message, Message::ToolResult { .. }))
    }

    /// Ends the answer.
    fn end(&mut self, stop: StopReason) {
        let rest = self.held.drain(..).chain(self.calls.drain(..));
        self.ready.extend(rest.map(Ok));
        self.push(ModelEvent::Stop(stop));
        self.phase = Phase::Over;
    }

    /// Ends an answer that repeats itself. The request is dropped, which stops the server.
    fn stop_repetition(&mut self) {
        self.calls.clear();
        let name = &self.endpoint.name;
        self.push(ModelEvent::Notice(format!(
            "{name} repeated the same text again and again, so the answer was stopped. \
             Rephrase the message, start a new session, or choose another model"
        )));
        self.end(StopReason::MaxTokens);
    }

    /// Queues an event. Merges text that arrived in one read, because each event costs a journal record and a message.
    fn push(&mut self, event: ModelEvent) {
        match (self.ready.back_mut(), event) {
            (Some(Ok(ModelEvent::Text(before))), ModelEvent::Text(text))
            | (Some(Ok(ModelEvent::Thought(before))), ModelEvent::Thought(text))
                if before.len() < MAX_MERGED =>
            {
                before.push_str(&text);
            }
            (_, event) => self.ready.push_back(Ok(event)),
        }
    }

    /// Schedules a retry if that is useful; otherwise ends the answer with the error.
    fn fail(&mut self, fault: Fault) {
        self.held.clear();
        self.calls.clear();
        if self.has_limit && fault.is_about_output_limit() {
            tracing::debug!("{} rejects the limit for the answer; sent again", self.model.name);
            self.has_limit = false;
            self.phase = Phase::Send;
            return;
        }
        if matches!(fault, Fault::Lost(_)) && self.reconnects < MAX_RECONNECTS {
            self.reconnects += 1;
            tracing::debug!("a connection to {} had ended; sent again", self.endpoint.name);
            self.phase = Phase::Send;
            return;
        }
        if let Fault::ContextFull(message) = &fault {
            self.model.learned.overflow(message);
        }
        if std::mem::take(&mut self.shown.is_thinking) {
            // An unfinished thought has no signature, and must not get that of the next one.
            self.push(ModelEvent::ThoughtEnd(None));
        }
        match self.retries.next(&fault, &self.endpoint.timing, random()) {
            Some(wait) => {
                let reason = self.endpoint.explain(&fault);
                self.ready.push_back(Ok(ModelEvent::Waiting { reason, remaining: wait }));
                self.phase = Phase::Wait(wait);
            }
            None => {
                self.ready.push_back(Err(self.error(fault)));
                self.phase = Phase::Over;
            }
        }
    }

    /// Returns the error for the user: what happened and what to do.
    fn error(&self, fault: Fault) -> ModelError {
        let endpoint = &self.endpoint;
        let fault = match (fault, &endpoint.key) {
            (Fault::Auth(message), None) if endpoint.aws.is_none() => {
                Fault::Auth(format!("{}; {message}", endpoint.no_key()))
            }
            (fault, _) => fault,
        };
        let advice = fault.advice(self.shown.is_any);
        let message = endpoint.explain(&fault);
        endpoint.with_advice(fault.into_error(message, self.shown.is_any), advice)
    }
}

/// Paces the progress that is shown while a server is silent.
#[derive(Debug, Default)]
struct Progress {
    begun: Option<Instant>,
    reported: Option<Instant>,
}

/// After this time the first report follows, so that quick answers have none.
const FIRST_REPORT: Duration = Duration::from_secs(2);
const NEXT_REPORT: Duration = Duration::from_secs(10);
/// After this time without a byte the server reads or loads; longer than a connection may take to open.
const FIRST_SILENCE: Duration = Duration::from_secs(15);

impl Progress {
    fn begin(&mut self) {
        *self = Progress { begun: Some(Instant::now()), reported: None };
    }

    /// Returns how long to wait in silence. A remote server has its time-out instead.
    fn patience(&self, endpoint: &Endpoint) -> Duration {
        match self.reported {
            _ if !endpoint.is_nearby => Duration::MAX,
            Some(_) => NEXT_REPORT.saturating_mul(3),
            None => FIRST_SILENCE,
        }
    }

    /// Returns whether a report is due, and notes it.
    fn is_due(&mut self) -> bool {
        let is_due = match (self.begun, self.reported) {
            (_, Some(reported)) => reported.elapsed() >= NEXT_REPORT,
            (Some(begun), None) => begun.elapsed() >= FIRST_REPORT,
            (None, None) => false,
        };
        if is_due {
            self.report();
        }
        is_due
    }

    /// Notes a report. Returns how long the attempt has taken.
    fn report(&mut self) -> Duration {
        self.reported = Some(Instant::now());
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }
}

/// Returns a random number between 0 and 1. It need not be unpredictable.
fn random() -> f64 {
    (RandomState::new().hash_one(0) % 1000) as f64 / 1000.0
}
