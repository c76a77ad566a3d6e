//! Streamable HTTP: one request per message to the server. A reply is the response to its request, as JSON or as events.
//! The server's own messages arrive on a separate stream that we request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use tokio_util::sync::CancellationToken;
use wire::sse::SseDecoder;

use super::{MAX_MESSAGE, Pipe};
use crate::connection::Inbox;
use crate::error::Error;
use crate::http::{chain, secret};
use crate::oauth::Signer;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const LAST_EVENT: &str = "last-event-id";
/// How long the request that ends the session may take.
const DELETE_TIMEOUT: Duration = Duration::from_millis(300);
/// The delays before a stream is requested again: the first and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The shortest such delay, even if the server requests a shorter one.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
/// The most attempts in a row to resume a response that bring no new event.
const MAX_RESUMES: u32 = 5;

/// A server that uses this transport. Clones share it.
#[derive(Clone)]
pub(crate) struct Http(Arc<Endpoint>);

struct Endpoint {
    client: Client,
    url: String,
    headers: HeaderMap,
    signer: Option<Signer>,
    inbox: Arc<Inbox>,
    name: String,
    /// The headers with the session id and the protocol version, once the server has sent them.
    session_headers: Mutex<HeaderMap>,
    initialized: CancellationToken,
}

/// How far an event stream was received, so that it can be resumed.
#[derive(Default)]
struct StreamPosition {
    /// The id of the last event, if the server sends ids.
    last: Option<HeaderValue>,
    /// The delay that the server requests.
    retry: Option<Duration>,
}

impl StreamPosition {
    fn update(&mut self, events: &SseDecoder) {
        if let Some(id) = events.last_id() {
            self.last = HeaderValue::from_bytes(id).ok();
        }
        self.retry = events.retry().or(self.retry);
    }

    fn wait(&self, usual: Duration) -> Duration {
        self.retry.unwrap_or(usual).clamp(MIN_RETRY_DELAY, RETRY_DELAYS.1)
    }
}

impl Http {
    pub(crate) fn new(
        client: Client,
        url: &str,
        headers: HeaderMap,
        signer: Option<Signer>,
        inbox: Arc<Inbox>,
        name: &str,
    ) -> Http {
        Http(Arc::new(Endpoint {
            client,
            url: url.to_owned(),
            headers,
            signer,
            inbox,
            name: name.to_owned(),
            session_headers: Mutex::default(),
            initialized: CancellationToken::new(),
        }))
    }

    fn session_headers(&self) -> HeaderMap {
        self.0.session_headers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_session_header(&self, name: &'static str, value: HeaderValue) {
        let mut session_headers =
            self.0.session_headers.lock().unwrap_or_else(PoisonError::into_inner);
        session_headers.entry(name).or_insert(value);
    }

    async fn request(&self, method: Method) -> Result<RequestBuilder, Error> {
        let endpoint = &self.0;
        let mut request = endpoint.client.request(method, &endpoint.url);
        request = request.headers(endpoint.headers.clone()).headers(self.session_headers());
        if let Some(signer) = &endpoint.signer {
            let token = signer.token().await?;
            request = request.header(AUTHORIZATION, secret(&format!("Bearer {token}"))?);
        }
        Ok(request)
    }

    async fn post(self, message: Vec<u8>, call: Option<u64>) -> Result<(), Error> {
        let request = self.request(Method::POST).await?.body(message);
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        let response = request.send().await.map_err(|err| unreachable(&err))?;
        let status = response.status();
        if status.is_success()
            && let Some(session) = response.headers().get(SESSION)
        {
            self.set_session_header(SESSION, session.clone());
        }
        if status == StatusCode::UNAUTHORIZED {
            return Err(Error::LoginRequired(self.0.name.clone()));
        }
        let mut position = StreamPosition::default();
        let mut received = self.receive(response, &mut position).await;
        if let Some(call) = call.filter(|_| status.is_success() && position.last.is_some()) {
            received = self.resume(call, position).await.and(received);
        }
        let is_answered = call.is_none_or(|call| !self.0.inbox.is_pending(call));
        if status == StatusCode::NOT_FOUND && self.session_headers().contains_key(SESSION) {
            self.0.inbox.close();
            return Err(Error::Unreachable("the server no longer knows this session".to_owned()));
        }
        match status.is_success() {
            true if is_answered => Ok(()),
            true => {
                received?;
                Err(Error::Unreachable("it sent no response".to_owned()))
            }
            // The body may have contained an error reply to the call.
            false if call.is_some() && is_answered => Ok(()),
            false => Err(Error::Unreachable(format!("it returned HTTP {status}"))),
        }
    }

    /// Resumes the response to a call after the last received event, as long as new events arrive.
    async fn resume(&self, call: u64, mut position: StreamPosition) -> Result<(), Error> {
        let mut tries = 0;
        while tries < MAX_RESUMES && self.0.inbox.is_pending(call) {
            tokio::time::sleep(position.wait(RETRY_DELAYS.0 * 2_u32.pow(tries))).await;
            tries += 1;
            let before = position.last.clone();
            // The next attempt may succeed.
            let Ok(response) = self.stream(&position).await? else {
                continue;
            };
            if !is_stream(&response) {
                let status = response.status();
                let why =
                    format!("the response was cut off; resuming it failed with HTTP {status}");
                return Err(Error::Unreachable(why));
            }
            if let Err(err) = self.receive(response, &mut position).await {
                tracing::debug!(server = self.0.name, "the response was cut off again: {err}");
            }
            if position.last != before {
                tries = 0;
            }
        }
        Ok(())
    }

    /// Requests a stream: the server's own, or the one to resume at a position.
    async fn stream(&self, position: &StreamPosition) -> Result<reqwest::Result<Response>, Error> {
        let mut request = self.request(Method::GET).await?.header(ACCEPT, "text/event-stream");
        if let Some(last) = &position.last {
            request = request.header(LAST_EVENT, last.clone());
        }
        Ok(request.send().await)
    }

    /// Receives a response: events to the end of the stream, or one message.
    async fn receive(
        &self,
        mut response: Response,
        position: &mut StreamPosition,
    ) -> Result<(), Error> {
        let inbox = &self.0.inbox;
        let broken = |err: reqwest::Error| unreachable(&err);
        if has_content_type(&response, "text/event-stream") {
            let mut events = SseDecoder::new(MAX_MESSAGE);
            while let Some(bytes) = response.chunk().await.map_err(broken)? {
                events.feed(&bytes);
                while let Some(data) = super::sse::next_event(&mut events, "message") {
                    inbox.receive(data.as_bytes());
                }
                position.update(&events);
            }
            return Ok(());
        }
        let is_json = has_content_type(&response, "application/json");
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(broken)? {
            if body.len() + bytes.len() > MAX_MESSAGE {
                return Err(Error::Refused("its response is too large".to_owned()));
            }
            body.extend_from_slice(&bytes);
        }
        if is_json {
            inbox.receive(body.trim_ascii());
        }
        Ok(())
    }

    /// Receives the messages that the server sends on its own, if it supports that.
    pub(crate) async fn listen(self) {
        self.0.initialized.cancelled().await;
        let (mut wait, longest) = RETRY_DELAYS;
        let mut position = StreamPosition::default();
        loop {
            if let Ok(Ok(response)) = self.stream(&position).await {
                if response.status() == StatusCode::NOT_FOUND
                    && self.session_headers().contains_key(SESSION)
                {
                    return self.0.inbox.close();
                }
                if !is_stream(&response) {
                    return;
                }
                wait = RETRY_DELAYS.0;
                if let Err(err) = self.receive(response, &mut position).await {
                    tracing::debug!(server = self.0.name, "its stream was cut off: {err}");
                }
            }
            tokio::time::sleep(position.wait(wait)).await;
            wait = longest.min(wait * 2);
        }
    }
}

impl Pipe for Http {
    fn send(&self, message: Vec<u8>, call: Option<u64>) -> BoxFuture<'static, Result<(), Error>> {
        self.clone().post(message, call).boxed()
    }

    fn set_version(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.set_session_header(VERSION, version);
        }
        self.0.initialized.cancel();
    }

    fn end(&self) -> BoxFuture<'static, ()> {
        let this = self.clone();
        async move {
            if !this.session_headers().contains_key(SESSION) {
                return;
            }
            let delete = async {
                this.request(Method::DELETE).await?.send().await.map_err(|err| unreachable(&err))
            };
            // If this fails, the server expires the session by itself.
            drop(tokio::time::timeout(DELETE_TIMEOUT, delete).await);
        }
        .boxed()
    }
}

fn unreachable(err: &reqwest::Error) -> Error {
    Error::Unreachable(chain(err))
}

fn is_stream(response: &Response) -> bool {
    response.status().is_success() && has_content_type(response, "text/event-stream")
}

fn has_content_type(response: &Response, kind: &str) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|given| given.trim_start().to_ascii_lowercase().starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: M2
    #[test]
    fn retry_delay_of_a_server_is_limited() {
        let wait = |retry: Option<u64>| {
            let retry = retry.map(Duration::from_millis);
            StreamPosition { retry, ..StreamPosition::default() }.wait(RETRY_DELAYS.0)
        };
        assert_eq!(wait(Some(0)), MIN_RETRY_DELAY);
        assert_eq!(wait(Some(2000)), Duration::from_secs(2));
        assert_eq!(wait(Some(999_999_999)), RETRY_DELAYS.1);
        assert_eq!(wait(None), RETRY_DELAYS.0);
    }
}
