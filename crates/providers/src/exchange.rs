//! One request to a model and its answer: sent, retried where that is safe, decoded as it comes.
//!
//! Safe means: nothing of the answer was shown yet. Afterwards a failure ends the answer, and what was shown stays.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{ModelError, ModelEvent, Request};
use engine::words::StopReason;
use tokio::time::{sleep, timeout};
use wire::sse::{MAX_EVENT, SseDecoder};

use crate::fault::Fault;
use crate::format::{Decoder, Events};
use crate::http::{self, Body, Post};
use crate::model::Endpoint;

/// A piece of this length grows no further, in bytes.
const LONG_PIECE: usize = 4096;

/// The state of one answer.
pub(crate) struct Exchange {
    endpoint: Arc<Endpoint>,
    request: Request,
    body: Vec<u8>,
    url: String,
    phase: Phase,
    /// Decoded and not yet taken.
    ready: VecDeque<Result<ModelEvent, ModelError>>,
    /// Calls and ends of thoughts that came before anything was shown. A further try brings them anew.
    held: Vec<ModelEvent>,
    /// How often it failed.
    tried: u32,
    /// Whether anything was shown that a second try would show again.
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
    /// Whether any event has come.
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
            tried: 0,
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

    /// Takes over what was decoded, and what became of the reading.
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
                        self.fail(Fault::Empty);
                        return;
                    }
                    self.release();
                    self.push(event);
                    // Whatever comes behind the end does not count.
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

    /// Lets out what was held: no further try will bring it again.
    fn release(&mut self) {
        self.ready.extend(self.held.drain(..).map(Ok));
    }

    /// Queues an event. Text that came in one read is one piece: each costs a record and a message.
    fn push(&mut self, event: ModelEvent) {
        match (self.ready.back_mut(), event) {
            (Some(Ok(ModelEvent::Text(before))), ModelEvent::Text(text))
            | (Some(Ok(ModelEvent::Thought(before))), ModelEvent::Thought(text))
                if before.len() < LONG_PIECE =>
            {
                before.push_str(&text);
            }
            (_, event) => self.ready.push_back(Ok(event)),
        }
    }

    /// Tries again if that is safe and of use; else ends the answer with the reason.
    fn fail(&mut self, fault: Fault) {
        self.tried += 1;
        self.held.clear();
        let who = &self.endpoint;
        let again = fault
            .retry_after(self.tried, self.endpoint.timing.first_wait, chance())
            .filter(|_| !self.was_shown);
        match again {
            Some(wait) => {
                let why = self.endpoint.hide_keys(&fault.explain(who));
                let wait_words = match wait.as_secs() {
                    0 => "trying again".to_owned(),
                    seconds => format!("trying again in {seconds} s"),
                };
                self.ready.push_back(Ok(ModelEvent::Waiting(format!("{why}; {wait_words}"))));
                self.phase = Phase::Wait(wait);
            }
            None => {
                let fault = match (fault, &self.endpoint.key) {
                    (Fault::Auth(words), None) => {
                        Fault::Auth(format!("{}; {words}", self.endpoint.no_key()))
                    }
                    (fault, _) => fault,
                };
                let advice = fault.advice(self.was_shown);
                let error = fault.into_error(who, self.was_shown);
                self.ready.push_back(Err(self.endpoint.with_advice(error, advice)));
                self.phase = Phase::Over;
            }
        }
    }
}

impl Reading {
    /// Reads until there is something to show, or the end.
    async fn read(&mut self, out: &mut Events) -> Result<(), Fault> {
        while out.is_empty() {
            let piece = match self.body.next().await {
                Ok(piece) => piece,
                // A server that said why it stopped and then went silent has said everything.
                Err(fault) => return self.decoder.finish(out).map_err(|_| fault),
            };
            let is_end = piece.is_none();
            match piece {
                Some(piece) => self.events.feed(&piece),
                None => self.events.finish(),
            }
            while let Some(event) = self.events.next_event() {
                let event = event.map_err(|err| Fault::Garbled(err.to_string()))?;
                self.has_events = true;
                self.decoder.decode(event.data, out)?;
            }
            if self.events.is_skipping() {
                return Err(Fault::Garbled(format!("an event is longer than {MAX_EVENT} bytes")));
            }
            if is_end {
                if !self.has_events && !self.body.is_stream {
                    return Err(Fault::Garbled("no events; check the base URL".to_owned()));
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

    /// Reads what stands behind the end, a moment long: a body that was read to its end leaves a connection that can
    /// be used again.
    async fn read_rest(&mut self) {
        const MOMENT: Duration = Duration::from_millis(20);
        let rest = async { while let Ok(Some(_)) = self.body.next().await {} };
        if timeout(MOMENT, rest).await.is_err() {
            tracing::debug!("an answer has an end and goes on; its connection is given up");
        }
    }
}

/// A number between 0 and 1 that differs each time: nothing that must be hard to guess.
fn chance() -> f64 {
    (RandomState::new().hash_one(0) % 1000) as f64 / 1000.0
}
