//! Streamable HTTP: one request per message. Replies come in its response, as JSON or as events; messages of the server
//! itself come on a separate stream.

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
/// How long closing the connection may take.
const FAREWELL: Duration = Duration::from_millis(300);
/// The first and the longest delay before a stream is requested again.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The shortest delay, whatever the server asks for.
const LEAST_WAIT: Duration = Duration::from_millis(250);
/// How many times in a row the rest of a response is requested without progress.
const RESUMES: u32 = 5;

/// A server that is reached this way. Clones share it.
#[derive(Clone)]
pub(crate) struct Http(Arc<Place>);

struct Place {
    client: Client,
    url: String,
    headers: HeaderMap,
    signer: Option<Signer>,
    inbox: Arc<Inbox>,
    name: String,
    /// The session id of the server and the protocol version, once known.
    given: Mutex<HeaderMap>,
    agreed: CancellationToken,
}

/// The position in a stream of events, to resume it.
#[derive(Default)]
struct Mark {
    /// The id of the last event, if the server sends ids.
    last: Option<HeaderValue>,
    /// The delay that the server asks for.
    retry: Option<Duration>,
}

impl Mark {
    fn note(&mut self, events: &SseDecoder) {
        if let Some(id) = events.last_id() {
            self.last = HeaderValue::from_bytes(id).ok();
        }
        self.retry = events.retry().or(self.retry);
    }

    fn wait(&self, usual: Duration) -> Duration {
        self.retry.unwrap_or(usual).clamp(LEAST_WAIT, WAITS.1)
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
        Http(Arc::new(Place {
            client,
            url: url.to_owned(),
            headers,
            signer,
            inbox,
            name: name.to_owned(),
            given: Mutex::default(),
            agreed: CancellationToken::new(),
        }))
    }

    fn given(&self) -> HeaderMap {
        self.0.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn give(&self, name: &'static str, value: HeaderValue) {
        let mut given = self.0.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.entry(name).or_insert(value);
    }

    async fn request(&self, method: Method) -> Result<RequestBuilder, Error> {
        let place = &self.0;
        let mut request = place.client.request(method, &place.url);
        request = request.headers(place.headers.clone()).headers(self.given());
        if let Some(signer) = &place.signer {
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
        let answer = request.send().await.map_err(|err| unreachable(&err))?;
        let status = answer.status();
        if status.is_success()
            && let Some(session) = answer.headers().get(SESSION)
        {
            self.give(SESSION, session.clone());
        }
        if status == StatusCode::UNAUTHORIZED {
            return Err(Error::AuthNeeded(self.0.name.clone()));
        }
        let mut mark = Mark::default();
        let mut heard = self.hear(answer, &mut mark).await;
        if let Some(call) = call.filter(|_| status.is_success() && mark.last.is_some()) {
            heard = self.hear_rest(call, mark).await.and(heard);
        }
        let is_answered = call.is_none_or(|call| !self.0.inbox.awaits(call));
        if status == StatusCode::NOT_FOUND && self.given().contains_key(SESSION) {
            self.0.inbox.close();
            return Err(Error::Unreachable("it closed the connection".to_owned()));
        }
        match status.is_success() {
            true if is_answered => Ok(()),
            true => {
                heard?;
                Err(Error::Unreachable("it sent no answer".to_owned()))
            }
            // The body may contain the error for the call.
            false if call.is_some() && is_answered => Ok(()),
            false => Err(Error::Unreachable(format!("it answered with HTTP {status}"))),
        }
    }

    /// Resumes a broken response after its last event, while there is progress.
    async fn hear_rest(&self, call: u64, mut mark: Mark) -> Result<(), Error> {
        let mut tries = 0;
        while tries < RESUMES && self.0.inbox.awaits(call) {
            tokio::time::sleep(mark.wait(WAITS.0 * 2_u32.pow(tries))).await;
            tries += 1;
            let before = mark.last.clone();
            // It may work the next time.
            let Ok(answer) = self.stream(&mark).await? else {
                continue;
            };
            if !is_stream(&answer) {
                let status = answer.status();
                let why =
                    format!("its answer was cut off and could not be resumed (HTTP {status})");
                return Err(Error::Unreachable(why));
            }
            if let Err(err) = self.hear(answer, &mut mark).await {
                tracing::debug!(server = self.0.name, "its answer broke off again: {err}");
            }
            if mark.last != before {
                tries = 0;
            }
        }
        Ok(())
    }

    /// Requests a stream: the server's own, or the rest of a broken one.
    async fn stream(&self, mark: &Mark) -> Result<reqwest::Result<Response>, Error> {
        let mut request = self.request(Method::GET).await?.header(ACCEPT, "text/event-stream");
        if let Some(last) = &mark.last {
            request = request.header(LAST_EVENT, last.clone());
        }
        Ok(request.send().await)
    }

    /// Reads a response: events until they end, or one message.
    async fn hear(&self, mut answer: Response, mark: &mut Mark) -> Result<(), Error> {
        let inbox = &self.0.inbox;
        let broken = |err: reqwest::Error| unreachable(&err);
        if is_of(&answer, "text/event-stream") {
            let mut events = SseDecoder::new(MAX_MESSAGE);
            while let Some(bytes) = answer.chunk().await.map_err(broken)? {
                events.feed(&bytes);
                while let Some(data) = super::sse::next_event(&mut events, "message") {
                    inbox.hear(data.as_bytes());
                }
                mark.note(&events);
            }
            return Ok(());
        }
        let is_json = is_of(&answer, "application/json");
        let mut body = Vec::new();
        while let Some(bytes) = answer.chunk().await.map_err(broken)? {
            if body.len() + bytes.len() > MAX_MESSAGE {
                return Err(Error::Refused("its answer is too long".to_owned()));
            }
            body.extend_from_slice(&bytes);
        }
        if is_json {
            inbox.hear(body.trim_ascii());
        }
        Ok(())
    }

    /// Reads the server's own stream, if it has one.
    pub(crate) async fn listen(self) {
        self.0.agreed.cancelled().await;
        let (mut wait, longest) = WAITS;
        let mut mark = Mark::default();
        loop {
            if let Ok(Ok(answer)) = self.stream(&mark).await {
                if answer.status() == StatusCode::NOT_FOUND && self.given().contains_key(SESSION) {
                    return self.0.inbox.close();
                }
                if !is_stream(&answer) {
                    return;
                }
                wait = WAITS.0;
                if let Err(err) = self.hear(answer, &mut mark).await {
                    tracing::debug!(server = self.0.name, "its own stream broke: {err}");
                }
            }
            tokio::time::sleep(mark.wait(wait)).await;
            wait = longest.min(wait * 2);
        }
    }
}

impl Pipe for Http {
    fn send(&self, message: Vec<u8>, call: Option<u64>) -> BoxFuture<'static, Result<(), Error>> {
        self.clone().post(message, call).boxed()
    }

    fn agree(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.give(VERSION, version);
        }
        self.0.agreed.cancel();
    }

    fn end(&self) -> BoxFuture<'static, ()> {
        let this = self.clone();
        async move {
            if !this.given().contains_key(SESSION) {
                return;
            }
            let farewell = async {
                this.request(Method::DELETE).await?.send().await.map_err(|err| unreachable(&err))
            };
            // A server that does not respond drops the session by itself.
            drop(tokio::time::timeout(FAREWELL, farewell).await);
        }
        .boxed()
    }
}

fn unreachable(err: &reqwest::Error) -> Error {
    Error::Unreachable(chain(err))
}

fn is_stream(answer: &Response) -> bool {
    answer.status().is_success() && is_of(answer, "text/event-stream")
}

fn is_of(answer: &Response, kind: &str) -> bool {
    let given = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    given.is_some_and(|given| given.trim_start().to_ascii_lowercase().starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: M2
    #[test]
    fn requested_delay_is_bounded() {
        let wait = |retry: Option<u64>| {
            let retry = retry.map(Duration::from_millis);
            Mark { retry, ..Mark::default() }.wait(WAITS.0)
        };
        assert_eq!(wait(Some(0)), LEAST_WAIT);
        assert_eq!(wait(Some(2000)), Duration::from_secs(2));
        assert_eq!(wait(Some(999_999_999)), WAITS.1);
        assert_eq!(wait(None), WAITS.0);
    }
}
