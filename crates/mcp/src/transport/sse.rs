//! HTTP with server-sent events, the predecessor of streamable HTTP: one stream from the server, one request per message
//! to it.

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

/// The sending side.
pub(crate) struct Sse {
    client: Client,
    headers: HeaderMap,
    /// Where messages are sent. The server's first event names it.
    endpoint: Url,
}

/// The receiving side.
pub(crate) struct Stream {
    stream: Response,
    events: SseDecoder,
}

impl Sse {
    /// Opens the stream and waits for the `endpoint` event.
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
            StatusCode::UNAUTHORIZED => return Err(Error::LoginRequired(name.to_owned())),
            status => return Err(Error::Unreachable(format!("it returned HTTP {status}"))),
        }
        let mut events = SseDecoder::new(MAX_MESSAGE);
        let endpoint = loop {
            if let Some(data) = next_event(&mut events, "endpoint") {
                break base.join(data.trim()).map_err(|err| Error::Refused(err.to_string()))?;
            }
            match stream.chunk().await {
                Ok(Some(bytes)) => events.feed(&bytes),
                _ => {
                    return Err(Error::Unreachable(
                        "its stream ended before the `endpoint` event".to_owned(),
                    ));
                }
            }
        };
        if endpoint.origin() != base.origin() {
            // The headers, and with them the keys, would be sent to the other host.
            return Err(Error::Refused("it redirects to another host".to_owned()));
        }
        Ok((Sse { client, headers, endpoint }, Stream { stream, events }))
    }
}

/// Returns the data of the next event of this name. Others are skipped.
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
                status => Err(Error::Unreachable(format!("it returned HTTP {status}"))),
            }
        }
        .boxed()
    }

    fn end(&self) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

impl Stream {
    /// Reads the stream until it ends. The stream is the session: when it ends, a new connection is needed.
    pub(crate) async fn read(mut self, inbox: Arc<Inbox>) {
        loop {
            while let Some(data) = next_event(&mut self.events, "message") {
                inbox.receive(data.as_bytes());
            }
            match self.stream.chunk().await {
                Ok(Some(bytes)) => self.events.feed(&bytes),
                Ok(None) | Err(_) => return inbox.close(),
            }
        }
    }
}
