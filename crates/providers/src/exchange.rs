//! One request to a model and its answer: sends it, retries it when that is safe, and decodes the stream.
//!
//! A retry is safe as long as nothing of the answer was shown. After that a failure ends the answer.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{ModelError, ModelEvent, Request};
use engine::words::StopReason;
use tokio::time::{sleep, timeout};
use wire::sse::{MAX_EVENT, SseDecoder};

use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::format::{Decoder, Events};
use crate::http::{self, Body, Post};

/// Consecutive text events are merged up to this length, in bytes.
const MAX_MERGED: usize = 4096;

/// The state of one answer.
pub(crate) struct Exchange {
    endpoint: Arc<Endpoint>,
    request: Request,
    body: Vec<u8>,
    url: String,
    phase: Phase,
    /// Events that are decoded but not returned yet.
    ready: VecDeque<Result<ModelEvent, ModelError>>,
    /// Tool calls and ends of thoughts that arrived before anything was shown. A retry discards them.
    held: Vec<ModelEvent>,
    /// How many attempts have failed.
    attempts: u32,
    /// Whether anything was shown that a retry would show again.
    was_shown: bool,
}

enum Phase {
    Send,
    Wait(Duration),
    Read(Box<Reading>),
    Over,
}

/// An answer that is being read.
struct Reading {
    body: Body,
    events: SseDecoder,
    decoder: Decoder,
    /// Whether any event has arrived.
    has_events: bool,
}

impl Exchange {
    pub(crate) fn new(
        endpoint: Arc<Endpoint>,
        request: Request,
        url: String,
        body: Vec<u8>,
    ) -> Exchange {
        Exchange {
            endpoint,
            request,
            body,
            url,
            phase: Phase::Send,
            ready: VecDeque::new(),
            held: Vec::new(),
            attempts: 0,
            was_shown: false,
        }
    }

    /// Returns the next event, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match &mut self.phase {
                Phase::Send => match self.send().await {
                    Ok(reading) => self.phase = Phase::Read(Box::new(reading)),
                    Err(fault) => self.fail(fault),
                },
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

    async fn send(&self) -> Result<Reading, Fault> {
        let endpoint = &self.endpoint;
        let post = Post {
            url: &self.url,
            key: endpoint.key.as_ref().map(|key| (key, endpoint.key_header())),
            headers: &endpoint.headers.0,
            body: self.body.clone(),
        };
        let body = http::post(post, endpoint.timing).await?;
        let decoder = endpoint.format.decoder(&self.request);
        Ok(Reading { body, events: SseDecoder::default(), decoder, has_events: false })
    }

    /// Handles the decoded events and the result of the read.
    fn take(&mut self, events: Events, read: Result<(), Fault>) {
        for event in events {
            match event {
                ModelEvent::Tool(_) | ModelEvent::ThoughtEnd(_) if !self.was_shown => {
                    self.held.push(event);
                }
                ModelEvent::Text(_) | ModelEvent::Thought(_) => {
                    self.was_shown = true;
                    self.release();
                    self.push(event);
                }
                ModelEvent::Stop(stop) => {
                    if stop == StopReason::EndTurn && self.is_empty() {
                        self.fail(Fault::EmptyAnswer);
                        return;
                    }
                    self.release();
                    self.push(event);
                    // Events after the end are ignored.
                    self.phase = Phase::Over;
                    return;
                }
                ModelEvent::Tool(_)
                | ModelEvent::ThoughtEnd(_)
                | ModelEvent::Usage(_)
                | ModelEvent::Waiting(_) => self.push(event),
            }
        }
        if let Err(fault) = read {
            self.fail(fault);
        }
    }

    fn is_empty(&self) -> bool {
        !self.was_shown && !self.held.iter().any(|event| matches!(event, ModelEvent::Tool(_)))
    }

    /// Releases the held events: there will be no retry.
    fn release(&mut self) {
        self.ready.extend(self.held.drain(..).map(Ok));
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

    /// Schedules a retry if that is safe and useful; otherwise ends the answer with the error.
    fn fail(&mut self, fault: Fault) {
        self.attempts += 1;
        self.held.clear();
        let endpoint = &self.endpoint;
        let again = fault
            .retry_after(self.attempts, self.endpoint.timing.first_wait, random())
            .filter(|_| !self.was_shown);
        match again {
            Some(wait) => {
                let why = self.endpoint.explain(&fault);
                let retry = match wait.as_secs() {
                    0 => "Retrying…".to_owned(),
                    seconds => format!("Retrying in {seconds} s…"),
                };
                self.ready.push_back(Ok(ModelEvent::Waiting(format!(
                    "{}. {retry}",
                    why.trim_end_matches('.')
                ))));
                self.phase = Phase::Wait(wait);
            }
            None => {
                let fault = match (fault, &self.endpoint.key) {
                    (Fault::Auth(message), None) => {
                        Fault::Auth(format!("{}; {message}", self.endpoint.no_key()))
                    }
                    (fault, _) => fault,
                };
                let advice = fault.advice(self.was_shown);
                let message = endpoint.explain(&fault);
                let error = fault.into_error(message, self.was_shown);
                self.ready.push_back(Err(self.endpoint.with_advice(error, advice)));
                self.phase = Phase::Over;
            }
        }
    }
}

impl Reading {
    /// Reads until an event is decoded, or the end.
    async fn read(&mut self, out: &mut Events) -> Result<(), Fault> {
        while out.is_empty() {
            let chunk = match self.body.next().await {
                Ok(chunk) => chunk,
                // If the server has already sent the stop reason, the answer is complete.
                Err(fault) => return self.decoder.finish(out).map_err(|_| fault),
            };
            let is_end = chunk.is_none();
            match chunk {
                Some(chunk) => self.events.feed(&chunk),
                None => self.events.finish(),
            }
            while let Some(event) = self.events.next_event() {
                let event = event.map_err(|err| Fault::InvalidAnswer(err.to_string()))?;
                self.has_events = true;
                self.decoder.decode(event.data, out)?;
            }
            if self.events.is_skipping() {
                return Err(Fault::InvalidAnswer(format!(
                    "an event exceeds the limit of {MAX_EVENT} bytes"
                )));
            }
            if is_end {
                if !self.has_events && !self.body.is_stream {
                    return Err(Fault::InvalidAnswer(
                        "it has no events. Check the base URL".to_owned(),
                    ));
                }
                if out.iter().any(|event| matches!(event, ModelEvent::Stop(_))) {
                    return Ok(());
                }
                return self.decoder.finish(out);
            }
        }
        if out.iter().any(|event| matches!(event, ModelEvent::Stop(_))) {
            self.read_rest().await;
        }
        Ok(())
    }

    /// Reads the rest of the body for a short time: only after its end can the connection be reused.
    async fn read_rest(&mut self) {
        const SHORT_WAIT: Duration = Duration::from_millis(20);
        let rest = async { while let Ok(Some(_)) = self.body.next().await {} };
        if timeout(SHORT_WAIT, rest).await.is_err() {
            tracing::debug!(
                "the body continues after the end of the answer; its connection is closed"
            );
        }
    }
}

/// Returns a random number between 0 and 1. It need not be unpredictable.
fn random() -> f64 {
    (RandomState::new().hash_one(0) % 1000) as f64 / 1000.0
}
