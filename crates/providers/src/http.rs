//! HTTP: the only socket of this crate. Sends one request, gives back a body in pieces or a fault.
//!
//! Knows no provider and no format. Retries are made by `exchange`, what a fault means is in `fault`.

use std::error::Error as _;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use tokio::time::timeout;

use crate::fault::{Fault, printable};
use crate::key::ApiKey;

/// How long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// For the first byte of an answer, connecting included.
    pub first_byte: Duration,
    /// For the next byte, comments and pings included.
    pub idle: Duration,
    /// The unit of the waits before a retry; each may be twice as long as the last.
    pub first_wait: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            first_wait: Duration::from_millis(500),
        }
    }
}

const CONNECT: Duration = Duration::from_secs(10);
/// How much of an error's body is read. Also what a bomb in it can cost.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// How much one answer may hold, unpacked. A stream of small events has no other end.
const MAX_BODY: usize = 512 * 1024 * 1024;
const MAX_REDIRECTS: usize = 3;

/// Where the key goes.
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
    /// The provider's own and the user's.
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: Vec<u8>,
}

/// Sends a request and waits for its headers.
pub(crate) async fn post(post: Post<'_>, timing: Timing) -> Result<Body, Fault> {
    let url = parse_url(post.url)?;
    let client = client_for(&url)?;
    let mut request = client.post(url).headers(headers(&post)?);
    request = request.header(CONTENT_TYPE, "application/json").body(post.body);
    let sent = timeout(timing.first_byte, request.send()).await;
    let response =
        sent.map_err(|_| Fault::Silent(timing.first_byte))?.map_err(|err| network(&err))?;
    accept(response, timing).await
}

/// Gets a small document within `limit`.
pub(crate) async fn get(
    url: &str,
    key: Option<(&ApiKey, KeyHeader)>,
    headers_given: &[(String, String)],
    limit: Duration,
) -> Result<Vec<u8>, Fault> {
    const MAX_DOCUMENT: usize = 16 * 1024 * 1024;
    let post = Post { url, key, headers: headers_given, body: Vec::new() };
    let url = parse_url(url)?;
    let request = client_for(&url)?.get(url).headers(headers(&post)?);
    let work = async {
        let response = request.send().await.map_err(|err| network(&err))?;
        let timing = Timing { first_byte: limit, idle: limit, ..Timing::default() };
        let mut body = accept(response, timing).await?;
        let mut document = Vec::new();
        while let Some(piece) = body.next().await? {
            document.extend_from_slice(&piece);
            if document.len() > MAX_DOCUMENT {
                return Err(Fault::Garbled("the document is too long".to_owned()));
            }
        }
        Ok(document)
    };
    timeout(limit, work).await.map_err(|_| Fault::Silent(limit))?
}

/// The body of an answer that went well so far.
pub(crate) struct Body {
    response: Response,
    idle: Duration,
    read: usize,
    /// Whether the server says that events follow.
    pub(crate) is_stream: bool,
}

impl Body {
    /// Returns the next bytes, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<bytes::Bytes>, Fault> {
        let next = timeout(self.idle, self.response.chunk()).await;
        match next.map_err(|_| Fault::Silent(self.idle))? {
            Ok(Some(piece)) => {
                self.read += piece.len();
                if self.read > MAX_BODY {
                    return Err(Fault::Garbled(format!("more than {MAX_BODY} bytes")));
                }
                Ok(Some(piece))
            }
            Ok(None) => Ok(None),
            Err(err) if err.is_decode() => Err(Fault::Cut),
            Err(err) => Err(network(&err)),
        }
    }
}

/// Tells answers from errors. An error's body is read as far as it is worth reading.
async fn accept(response: Response, timing: Timing) -> Result<Body, Fault> {
    let status = response.status();
    let wait = retry_after(response.headers(), SystemTime::now());
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
    let is_page = kind.is_some_and(|kind| kind.starts_with("text/html"));
    if status.is_redirection() {
        let to = response.headers().get("location").and_then(|value| value.to_str().ok());
        let host =
            to.and_then(|to| Url::parse(to).ok()).and_then(|url| url.host_str().map(str::to_owned));
        return Err(Fault::Refused(format!(
            "it sends us on to {}, which is not followed; check the base URL",
            host.map_or_else(|| "another place".to_owned(), |host| printable(&host))
        )));
    }
    let mut body = Body { response, idle: timing.idle, read: 0, is_stream };
    if status == StatusCode::OK && !is_page {
        return Ok(body);
    }
    let mut text = Vec::new();
    while text.len() < MAX_ERROR_BODY {
        match body.next().await {
            Ok(Some(piece)) => text.extend_from_slice(&piece),
            Ok(None) | Err(_) => break,
        }
    }
    text.truncate(MAX_ERROR_BODY);
    let text = String::from_utf8_lossy(&text);
    if status.is_success() {
        return Err(Fault::Garbled(
            "a web page came instead of an answer; check the base URL and the proxy".to_owned(),
        ));
    }
    Err(Fault::of_status(status.as_u16(), wait, &text))
}

fn headers(post: &Post<'_>) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    for (name, value) in post.headers {
        let bad = || Fault::Refused(format!("the header `{}` cannot be sent", printable(name)));
        let name: HeaderName = name.parse().map_err(|_| bad())?;
        let mut value: HeaderValue = value.parse().map_err(|_| bad())?;
        // A header that the user set may well hold a key.
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    if let Some((key, place)) = post.key {
        let bad = |_| Fault::Auth("the key has characters that no key has".to_owned());
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
    let words = match Url::parse(url) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => return Ok(url),
        Err(err) if url.contains("://") => format!("the base URL cannot be used: {err}"),
        Ok(_) | Err(_) => {
            "the base URL must begin with http:// or https://; put one in front".to_owned()
        }
    };
    Err(Fault::Refused(words))
}

/// Returns a base URL as it can be shown: without what may be a secret in it.
pub(crate) fn place_of(url: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    Some(url.to_string())
}

/// Returns the client for a place: one for the network, one for this machine. Made when first needed; each keeps
/// its connections open between turns.
fn client_for(url: &Url) -> Result<&'static Client, Fault> {
    static NETWORK: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOOPBACK: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = if url.scheme() == "http" && is_loopback(url) {
        // No proxy, and no certificates to read.
        LOOPBACK.get_or_init(|| make_client(Client::builder().no_proxy(), false))
    } else {
        NETWORK.get_or_init(|| make_client(Client::builder(), true))
    };
    made.as_ref().map_err(|why| Fault::Unreachable(why.clone()))
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

fn make_client(builder: reqwest::ClientBuilder, has_tls: bool) -> Result<Client, String> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = if has_tls {
        // Somebody else may have been first; any provider will do.
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
        .connect_timeout(CONNECT)
        .pool_idle_timeout(Duration::from_secs(300))
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .redirect(redirect::Policy::custom(follow))
        .user_agent(concat!("purlin/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|err| chain(&err))
}

/// Follows a redirect within the same place only: elsewhere the key would go along.
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
        return Fault::Unreachable(format!("no connection within {} s", CONNECT.as_secs()));
    }
    if err.is_body() || err.is_decode() {
        return Fault::Cut;
    }
    let words = chain(err);
    if words.contains("InvalidContentType") {
        return Fault::Unreachable(
            "there is no TLS; it may be http:// instead of https://".to_owned(),
        );
    }
    Fault::Unreachable(printable(&words))
}

/// The causes of an error in one line, innermost last. The URL stays out: it may hold anything; so does the layer of
/// HTTP, which says only that there is a cause.
fn chain(err: &reqwest::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut cause = err.source();
    while let Some(err) = cause {
        let text = err.to_string();
        let is_news = !words.last().is_some_and(|last| last.contains(&text));
        if is_news && !text.starts_with("client error (") {
            words.push(text);
        }
        cause = err.source();
    }
    if words.is_empty() { "the request could not be sent".to_owned() } else { words.join(": ") }
}

/// Reads how long the provider asks us to wait.
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

/// Reads a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn parse_http_date(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split([' ', ':']);
    let day: u64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|known| *known == month)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (hours, minutes, seconds) = (number()?, number()?, number()?);
    // Days since 1970, with the year begun in March so that the leap day is its last.
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
    fn waits_are_read_in_every_form() {
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

    // R: O1
    #[test]
    fn a_place_is_shown_without_its_secrets() {
        let place = place_of("https://me:sk-canary@host:8/v1?key=sk-canary#sk-canary").unwrap();
        assert_eq!(place, "https://host:8/v1");
        assert_eq!(place_of("host"), None);
    }

    #[test]
    fn a_base_url_without_a_scheme_says_what_to_add() {
        for url in ["127.0.0.1:8080/v1", "localhost:8080/v1", "host/v1", "ftp://host/v1"] {
            let Err(Fault::Refused(words)) = parse_url(url) else { panic!("{url}") };
            assert!(words.contains("put one in front"), "{url}: {words}");
        }
        assert!(parse_url("HTTP://host/v1").is_ok());
    }

    #[test]
    fn this_machine_is_known() {
        for url in ["http://localhost:1/", "http://127.0.0.1/", "http://[::1]:9/"] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in ["http://10.0.0.1/", "http://localhost.example.com/"] {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }
}
