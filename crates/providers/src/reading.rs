//! An answer that is being read: sends the request, splits its bytes into events and decodes them.

use std::sync::Arc;
use std::time::Duration;

use engine::ports::ModelEvent;
use tokio::time::timeout;
use wire::sse::{MAX_EVENT, SseDecoder};

use crate::endpoint::Endpoint;
use crate::event_stream::EventStream;
use crate::fault::Fault;
use crate::format::{Decoder, Events, Format};
use crate::http::{self, Body, Post};

/// An answer that is being read.
pub(crate) struct Reading {
    body: Body,
    framing: Framing,
    decoder: Decoder,
    /// Whether any event has arrived.
    has_events: bool,
}

/// How events are separated.
enum Framing {
    ServerSent(Box<SseDecoder>),
    Amazon(EventStream),
}

impl Reading {
    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn open(
        endpoint: Arc<Endpoint>,
        path: String,
        body: Vec<u8>,
        decoder: Decoder,
        traceparent: Option<String>,
    ) -> Result<Reading, Fault> {
        let url = endpoint.url(&path);
        let mut own = endpoint.sign(&url, &body)?;
        own.extend(traceparent.map(|context| ("traceparent".to_owned(), context)));
        let post = Post {
            url: &url,
            key: endpoint.key.as_ref().map(|key| (key, endpoint.key_header())),
            headers: &endpoint.headers.0,
            own: &own,
            body,
        };
        let body = http::post(post, endpoint.timing).await?;
        let framing = match endpoint.format {
            Format::BedrockConverse => Framing::Amazon(EventStream::default()),
            _ => Framing::ServerSent(Box::default()),
        };
        Ok(Reading { body, framing, decoder, has_events: false })
    }

    /// Reads until an event is decoded, or the end.
    pub(crate) async fn read(&mut self, out: &mut Events) -> Result<(), Fault> {
        while out.is_empty() {
            let chunk = match self.body.next().await {
                Ok(chunk) => chunk,
                // If the server has already sent the stop reason, the answer is complete.
                Err(fault) => return self.decoder.finish(out).map_err(|_| fault),
            };
            let is_end = chunk.is_none();
            self.decode(chunk.as_deref(), out)?;
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

    /// Decodes the next bytes, or the end.
    fn decode(&mut self, chunk: Option<&[u8]>, out: &mut Events) -> Result<(), Fault> {
        match &mut self.framing {
            Framing::ServerSent(events) => {
                match chunk {
                    Some(chunk) => events.feed(chunk),
                    None => events.finish(),
                }
                while let Some(event) = events.next_event() {
                    let event = event.map_err(|err| Fault::InvalidAnswer(err.to_string()))?;
                    self.has_events = true;
                    self.decoder.decode(event.data, out)?;
                }
                if events.is_skipping() {
                    return Err(Fault::InvalidAnswer(format!(
                        "an event exceeds the limit of {MAX_EVENT} bytes"
                    )));
                }
            }
            Framing::Amazon(events) => {
                events.feed(chunk.unwrap_or_default());
                while let Some(event) = events.next_event()? {
                    self.has_events = true;
                    self.decoder.decode(&event, out)?;
                }
                if chunk.is_none() && events.is_inside() {
                    return Err(Fault::CutOff);
                }
            }
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
