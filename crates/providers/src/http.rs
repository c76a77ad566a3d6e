//! HTTP: the only module of this crate that opens connections. Sends a request and returns a body in chunks, or a fault.
//!
//! Knows no provider and no format. `exchange` retries, `fault` classifies failures.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url, header, redirect};
use tokio::time::timeout;

use crate::fault::{Fault, printable};
use crate::key::ApiKey;
use crate::url::is_loopback;

/// Time limits and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The limit for the first byte of an answer, including the connection.
    pub first_byte: Duration,
    /// The limit for the next byte; comments and pings count as bytes.
    pub idle: Duration,
    /// The unit of the waits before a retry; the longest wait doubles each time.
    pub first_wait: Duration,
    /// How long to wait in all for a provider that is overloaded or limits requests.
    pub retry_budget: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            first_wait: Duration::from_millis(500),
            retry_budget: Duration::from_secs(120),
        }
    }
}

/// The content type of every request.
pub(crate) const CONTENT_TYPE: &str = "application/json";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an error's body is read, after decompression.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// The largest answer, after decompression. Bounds a stream of endless small events.
const MAX_BODY: usize = 512 * 1024 * 1024;
const MAX_REDIRECTS: usize = 3;

/// The header for the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    Bearer,
    Named(&'static str),
}

/// One request.
#[derive(Debug)]
pub(crate) struct Post<'a> {
    pub(crate) url: &'a str,
    pub(crate) key: Option<(&'a ApiKey, KeyHeader)>,
    /// Headers of the provider and of the user's config.
    pub(crate) headers: &'a [(String, String)],
    /// Headers of this request alone: those that sign it, and the context of a trace.
    pub(crate) own: &'a [(String, String)],
    pub(crate) body: Vec<u8>,
}

/// Sends a request and waits for its headers.
pub(crate) async fn post(post: Post<'_>, timing: Timing) -> Result<Body, Fault> {
    let url = parse_url(post.url)?;
    let client = client_for(&url)?;
    let origin = (!is_loopback(&url)).then(|| url.origin().ascii_serialization());
    let mut request = client.post(url).headers(headers(&post)?);
    request = request.header(header::CONTENT_TYPE, CONTENT_TYPE).body(post.body);
    let sent = timeout(timing.first_byte, request.send()).await;
    let sent = sent.map_err(|_| Fault::TimedOut(timing.first_byte))?;
    let response = sent.map_err(|err| match network(&err) {
        // Only a connection that was kept open can have died while nobody used it.
        Fault::Unreachable(why) if is_lost(&err) && has_answered(&origin) => Fault::Lost(why),
        fault => fault,
    })?;
    if let Some(origin) = origin {
        ANSWERED.lock().unwrap_or_else(PoisonError::into_inner).insert(origin);
    }
    accept(response, timing).await
}

/// The servers that have answered, except those on this machine: connections to them are kept open. As many as the user
/// has providers.
static ANSWERED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Posts a JSON document to any server, and ignores the content of its answer.
///
/// # Errors
/// Says what happened, without keys in the URL.
pub async fn post_json(url: &str, body: Vec<u8>) -> Result<(), String> {
    let request = Post { url, key: None, headers: &[], own: &[], body };
    let answer = post(request, Timing::default()).await;
    answer.map(drop).map_err(|fault| fault.explain("The server", url))
}

fn has_answered(origin: &Option<String>) -> bool {
    let answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    origin.as_ref().is_some_and(|origin| answered.contains(origin))
}

/// Returns whether a connection ended after the request was sent on it and before the first byte of the answer.
fn is_lost(err: &reqwest::Error) -> bool {
    err.is_request() && !err.is_connect() && !err.is_timeout()
}

/// A small document.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) body: Vec<u8>,
    /// The organisation that the key belongs to, if the provider names it in a header.
    pub(crate) organisation: Option<String>,
}

/// The largest document.
const MAX_DOCUMENT: usize = 16 * 1024 * 1024;

/// Gets a small document within `limit`.
pub(crate) async fn get(
    url: &str,
    key: Option<(&ApiKey, KeyHeader)>,
    headers_given: &[(String, String)],
    limit: Duration,
) -> Result<Document, Fault> {
    let post = Post { url, key, headers: headers_given, own: &[], body: Vec::new() };
    let url = parse_url(url)?;
    let request = client_for(&url)?.get(url).headers(headers(&post)?);
    let work = async {
        let response = request.send().await.map_err(|err| network(&err))?;
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(printable);
        let organisation =
            ["openai-organization", "anthropic-organization-id"].into_iter().find_map(header);
        let timing = Timing { first_byte: limit, idle: limit, ..Timing::default() };
        let body = accept(response, timing).await?.read_all(limit).await?;
        Ok(Document { body, organisation })
    };
    timeout(limit, work).await.map_err(|_| Fault::TimedOut(limit))?
}

/// The body of a successful answer.
pub(crate) struct Body {
    response: Response,
    idle: Duration,
    read: usize,
    /// Whether the content type is an event stream.
    pub(crate) is_stream: bool,
}

impl Body {
    /// Returns the next bytes, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<bytes::Bytes>, Fault> {
        let next = timeout(self.idle, self.response.chunk()).await;
        match next.map_err(|_| Fault::TimedOut(self.idle))? {
            Ok(Some(chunk)) => {
                self.read += chunk.len();
                if self.read > MAX_BODY {
                    return Err(Fault::InvalidAnswer(format!("more than {MAX_BODY} bytes")));
                }
                Ok(Some(chunk))
            }
            Ok(None) => Ok(None),
            Err(err) if err.is_decode() => Err(Fault::CutOff),
            Err(err) => Err(network(&err)),
        }
    }
}

impl Body {
    /// Reads a small document within `limit`.
    pub(crate) async fn read_all(&mut self, limit: Duration) -> Result<Vec<u8>, Fault> {
        let read = async {
            let mut document = Vec::new();
            while let Some(chunk) = self.next().await? {
                document.extend_from_slice(&chunk);
                if document.len() > MAX_DOCUMENT {
                    return Err(Fault::InvalidAnswer("the document is too large".to_owned()));
                }
            }
            Ok(document)
        };
        timeout(limit, read).await.map_err(|_| Fault::TimedOut(limit))?
    }
}

/// Separates answers from errors, and reads the body of an error.
async fn accept(response: Response, timing: Timing) -> Result<Body, Fault> {
    let status = response.status();
    let wait = retry_after(response.headers(), SystemTime::now());
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let streams = ["text/event-stream", "application/vnd.amazon.eventstream"];
    let is_stream = kind.is_some_and(|kind| streams.iter().any(|stream| kind.starts_with(stream)));
    let is_page = kind.is_some_and(|kind| kind.starts_with("text/html"));
    if status.is_redirection() {
        let to = response.headers().get("location").and_then(|value| value.to_str().ok());
        let host =
            to.and_then(|to| Url::parse(to).ok()).and_then(|url| url.host_str().map(str::to_owned));
        return Err(Fault::Rejected(format!(
            "the redirect to {} was not followed. Check the base URL",
            host.map_or_else(|| "another host".to_owned(), |host| printable(&host))
        )));
    }
    let mut body = Body { response, idle: timing.idle, read: 0, is_stream };
    if status == StatusCode::OK && !is_page {
        return Ok(body);
    }
    let mut text = Vec::new();
    while text.len() < MAX_ERROR_BODY {
        match body.next().await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    text.truncate(MAX_ERROR_BODY);
    let text = String::from_utf8_lossy(&text);
    if status.is_success() {
        return Err(Fault::InvalidAnswer(
            "received a web page instead of an answer. Check the base URL and the proxy".to_owned(),
        ));
    }
    Err(Fault::of_status(status.as_u16(), wait, &text))
}

fn headers(post: &Post<'_>) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    for (name, value) in post.headers.iter().chain(post.own) {
        let bad = || Fault::Rejected(format!("the header `{}` is invalid", printable(name)));
        let name: HeaderName = name.parse().map_err(|_| bad())?;
        let mut value: HeaderValue = value.parse().map_err(|_| bad())?;
        // A header of the user may contain a key.
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    if let Some((key, place)) = post.key {
        let bad = |_| Fault::Auth("the key has invalid characters".to_owned());
        let (name, text) = match place {
            KeyHeader::Bearer => (AUTHORIZATION, format!("Bearer {}", key.reveal())),
            KeyHeader::Named(name) => (HeaderName::from_static(name), key.reveal().to_owned()),
        };
        let mut value = HeaderValue::from_str(&text).map_err(bad)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn parse_url(url: &str) -> Result<Url, Fault> {
    let problem = match Url::parse(url) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => return Ok(url),
        Err(err) if url.contains("://") => format!("the base URL is invalid: {err}"),
        Ok(_) | Err(_) => "the base URL must start with http:// or https://".to_owned(),
    };
    Err(Fault::Rejected(problem))
}

/// Returns the client for a URL: one for the network, one for this machine. Each is created when first needed. The one for
/// the network keeps its connections open between turns; local servers close theirs after each answer, often unnoticed.
fn client_for(url: &Url) -> Result<&'static Client, Fault> {
    static NETWORK: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOOPBACK: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = if url.scheme() == "http" && is_loopback(url) {
        // Needs no proxy and no certificates.
        let builder = || Client::builder().no_proxy().pool_max_idle_per_host(0);
        LOOPBACK.get_or_init(|| make_client(builder(), false))
    } else {
        NETWORK.get_or_init(|| make_client(Client::builder(), true))
    };
    made.as_ref().map_err(|why| Fault::Unreachable(why.clone()))
}

fn make_client(builder: reqwest::ClientBuilder, has_tls: bool) -> Result<Client, String> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = if has_tls {
        // Fails if a provider is already installed; any provider works.
        drop(rustls::crypto::CryptoProvider::install_default((*provider).clone()));
        builder
    } else {
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|err| err.to_string())?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder.tls_backend_preconfigured(config)
    };
    builder
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(Duration::from_secs(300))
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .redirect(redirect::Policy::custom(follow))
        .user_agent(concat!("purlin/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|err| chain(&err))
}

/// Follows redirects only within the same origin: the key must not be sent elsewhere.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let origin = |url: &Url| {
        (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default())
    };
    let is_same =
        attempt.previous().last().is_some_and(|last| origin(last) == origin(attempt.url()));
    if is_same && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

fn network(err: &reqwest::Error) -> Fault {
    if err.is_timeout() {
        return Fault::Unreachable(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()));
    }
    if err.is_body() || err.is_decode() {
        return Fault::CutOff;
    }
    let message = chain(err);
    if message.contains("InvalidContentType") {
        return Fault::Unreachable(
            "the server does not use TLS. Try http:// instead of https://".to_owned(),
        );
    }
    Fault::Unreachable(printable(&message))
}

/// Returns the causes of an error in one line, innermost last. Leaves out the URL, which may contain secrets, and the
/// outer HTTP error, which only says that there is a cause.
fn chain(err: &reqwest::Error) -> String {
    let mut message: Vec<String> = Vec::new();
    let mut cause = err.source();
    while let Some(err) = cause {
        let text = err.to_string();
        let is_new = !message.last().is_some_and(|last| last.contains(&text));
        if is_new && !text.starts_with("client error (") {
            message.push(text);
        }
        cause = err.source();
    }
    if message.is_empty() { "the request could not be sent".to_owned() } else { message.join(": ") }
}

/// Reads how long the provider wants us to wait.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let after = text("retry-after")?;
    match after.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => Some(parse_http_date(after)?.duration_since(now).unwrap_or_default()),
    }
}

/// Parses a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn parse_http_date(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut message = text.split_once(", ")?.1.split([' ', ':']);
    let day: u64 = message.next()?.parse().ok()?;
    let month = message.next()?;
    let month = MONTHS.iter().position(|known| *known == month)? as u64 + 1;
    let year: u64 = message.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut number = || message.next()?.parse::<u64>().ok();
    let (hours, minutes, seconds) = (number()?, number()?, number()?);
    // Days since 1970. Years start in March here, so that the leap day is the last day of a year.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leaps = year / 4 - year / 100 + year / 400;
    let days = (365 * year + leaps + (153 * month + 2) / 5 + day).checked_sub(719_469)?;
    let seconds = days * 86_400 + hours * 3_600 + minutes * 60 + seconds;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_every_form() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let wait = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            retry_after(&headers, now)
        };
        assert_eq!(wait("retry-after", "2"), Some(Duration::from_secs(2)));
        assert_eq!(wait("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(
            wait("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"),
            Some(Duration::from_secs(10))
        );
        assert_eq!(wait("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("retry-after", "soon"), None);
        assert_eq!(wait("retry-after", "-5"), None);
        assert_eq!(wait("retry-after", "1e300"), None);
    }

    #[test]
    fn base_url_without_a_scheme_is_rejected() {
        for url in ["127.0.0.1:8080/v1", "localhost:8080/v1", "host/v1", "ftp://host/v1"] {
            let Err(Fault::Rejected(problem)) = parse_url(url) else { panic!("{url}") };
            assert!(problem.contains("must start with"), "{url}: {problem}");
        }
        assert!(parse_url("HTTP://host/v1").is_ok());
    }
}
