//! HTTP with server-sent events, as servers had it before streamable HTTP: one stream down, a request per message up.

use std::sync::Arc;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, StatusCode, Url};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use wire::sse::SseDecoder;

use super::{MAX_MESSAGE, OpenCalls};
use crate::error::Error;
use crate::http::chain;

/// A connection to such a server.
pub(crate) struct Sse {
    client: Client,
    headers: HeaderMap,
    stream: Response,
    events: SseDecoder,
    /// Where messages go, as the server said in its first event.
    endpoint: Arc<Url>,
    calls: OpenCalls,
}

/// What can go wrong with one message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SendError(String);

impl Sse {
    /// Opens the stream and waits for the address that messages go to.
    pub(crate) async fn connect(
        client: Client,
        url: &str,
        headers: HeaderMap,
        name: &str,
    ) -> Result<Sse, Error> {
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
                _ => return Err(Error::Unreachable("its stream ended at once".to_owned())),
            }
        };
        if endpoint.origin() != base.origin() {
            // Our headers, and with them our keys, would go along.
            return Err(Error::Refused("it sends us on to another place".to_owned()));
        }
        Ok(Sse {
            client,
            headers,
            stream,
            events,
            endpoint: Arc::new(endpoint),
            calls: OpenCalls::default(),
        })
    }
}

/// Takes the data of the next event of this name; others are skipped.
fn next_event(events: &mut SseDecoder, name: &str) -> Option<String> {
    while let Some(event) = events.next_event() {
        if let Ok(event) = event
            && (event.name == name || (name == "message" && event.name.is_empty()))
        {
            return Some(event.data.to_owned());
        }
    }
    None
}

impl Transport<RoleClient> for Sse {
    type Error = SendError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        self.calls.note_sent(&message);
        let request = self.client.post((*self.endpoint).clone()).headers(self.headers.clone());
        async move {
            let body = serde_json::to_vec(&message).map_err(|err| SendError(err.to_string()))?;
            let sent = request.header(CONTENT_TYPE, "application/json").body(body).send().await;
            let response = sent.map_err(|err| SendError(chain(&err.without_url())))?;
            match response.status() {
                status if status.is_success() => Ok(()),
                status => Err(SendError(format!("it answered with HTTP {status}"))),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            while let Some(data) = next_event(&mut self.events, "message") {
                if let Some(message) = super::read(data.as_bytes())
                    && self.calls.is_wanted(&message)
                {
                    return Some(message);
                }
            }
            match self.stream.chunk().await {
                Ok(Some(bytes)) => self.events.feed(&bytes),
                // The stream is the session: without it the server must be connected anew.
                Ok(None) | Err(_) => return None,
            }
        }
    }

    async fn close(&mut self) -> Result<(), SendError> {
        Ok(())
    }
}
