//! The older HTTP transport: one stream of server-sent events down, one request per message up.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, StatusCode, Url};
use wire::sse::SseDecoder;

use super::{MAX_MESSAGE, Pipe};
use crate::connection::Inbox;
use crate::error::Error;
use crate::http::chain;

/// Sends messages to such a server.
pub(crate) struct Sse {
    client: Client,
    headers: HeaderMap,
    /// The address for messages, from the server's first event.
    endpoint: Url,
}

/// Receives messages.
pub(crate) struct Stream {
    stream: Response,
    events: SseDecoder,
}

impl Sse {
    /// Opens the stream and waits for the address for messages.
    pub(crate) async fn connect(
        client: Client,
        url: &str,
        headers: HeaderMap,
        name: &str,
    ) -> Result<(Sse, Stream), Error> {
        let base = Url::parse(url).map_err(|err| Error::Unreachable(err.to_string()))?;
        let request = client.get(base.clone()).headers(headers.clone());
        let sent = request.header(ACCEPT, "text/event-stream").send().await;
        let mut stream = sent.map_err(|err| Error::Unreachable(chain(&err.without_url())))?;
        match stream.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED => return Err(Error::AuthNeeded(name.to_owned())),
            status => return Err(Error::Unreachable(format!("it answered with HTTP {status}"))),
        }
        let mut events = SseDecoder::new(MAX_MESSAGE);
        let endpoint = loop {
            if let Some(data) = next_event(&mut events, "endpoint") {
                break base.join(data.trim()).map_err(|err| Error::Refused(err.to_string()))?;
            }
            match stream.chunk().await {
                Ok(Some(bytes)) => events.feed(&bytes),
                _ => return Err(Error::Unreachable("its stream ended immediately".to_owned())),
            }
        };
        if endpoint.origin() != base.origin() {
            // Our headers, and with them our keys, would be sent there.
            return Err(Error::Refused("it redirects to another host".to_owned()));
        }
        Ok((Sse { client, headers, endpoint }, Stream { stream, events }))
    }
}

/// Takes the data of the next event of this name; others are skipped.
pub(super) fn next_event(events: &mut SseDecoder, name: &str) -> Option<String> {
    while let Some(event) = events.next_event() {
        if let Ok(event) = event
            && (event.name == name || (name == "message" && event.name.is_empty()))
        {
            return Some(event.data.to_owned());
        }
    }
    None
}

impl Pipe for Sse {
    fn send(&self, message: Vec<u8>, _call: Option<u64>) -> BoxFuture<'static, Result<(), Error>> {
        let request = self.client.post(self.endpoint.clone()).headers(self.headers.clone());
        async move {
            let sent = request.header(CONTENT_TYPE, "application/json").body(message).send().await;
            let response = sent.map_err(|err| Error::Unreachable(chain(&err.without_url())))?;
            match response.status() {
                status if status.is_success() => Ok(()),
                status => Err(Error::Unreachable(format!("it answered with HTTP {status}"))),
            }
        }
        .boxed()
    }

    fn end(&self) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

impl Stream {
    /// Reads the stream until it ends. The stream is the session: without it a new connection is needed.
    pub(crate) async fn read(mut self, inbox: Arc<Inbox>) {
        loop {
            while let Some(data) = next_event(&mut self.events, "message") {
                inbox.hear(data.as_bytes());
            }
            match self.stream.chunk().await {
                Ok(Some(bytes)) => self.events.feed(&bytes),
                Ok(None) | Err(_) => return inbox.close(),
            }
        }
    }
}
