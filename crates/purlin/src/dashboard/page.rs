//! Serves the dashboard's page to browsers of this machine, and to nobody else.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::SharedBoard;
use super::collect::{lock, now};

/// How many connections are served at once. More wait.
const CONNECTIONS: usize = 32;

/// Decides who may ask.
pub(super) struct Door {
    /// The names that a browser may use for us. Another name means that a page of somebody else asks.
    hosts: [String; 2],
    token: String,
}

impl Door {
    pub(super) fn new(port: u16, token: String) -> Door {
        Door { hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")], token }
    }

    /// Tells whether a request comes from our own page, or from somebody who has the token.
    fn admits(&self, headers: &HeaderMap, query: &str) -> bool {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).unwrap_or_default();
        let is_ours = |name: &str| self.hosts.iter().any(|host| host == name);
        let origin = text(header::ORIGIN);
        let is_foreign = text(HeaderName::from_static("sec-fetch-site"))
            .is_some_and(|site| matches!(site, "cross-site" | "same-site"));
        let bearer = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let given = bearer.or_else(|| parameter(query, "token")).unwrap_or_default();
        is_ours(host)
            && origin.is_none_or(|origin| origin.strip_prefix("http://").is_some_and(is_ours))
            && !is_foreign
            && is_same(given, &self.token)
    }
}

/// Compares in a time that does not depend on where the two differ.
fn is_same(given: &str, token: &str) -> bool {
    let differences = given.bytes().zip(token.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differences == 0
}

/// Returns the value of a parameter, as it is written.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns 128 random bits.
pub(super) fn random_hex() -> String {
    // The keys of a state come from the system's random numbers.
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// Serves connections until it is dropped.
pub(super) async fn accept(listener: TcpListener, door: Door, board: SharedBoard) {
    let door = Arc::new(door);
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (door, board) = (Arc::clone(&door), board.clone());
        connections.spawn(async move {
            let answer = hyper::service::service_fn(|request: Request<Incoming>| {
                let response = respond(&door, &board, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            // With a timer, a connection that sends no request is closed.
            let served = hyper::server::conn::http1::Builder::new()
                .timer(hyper_util::rt::TokioTimer::new())
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            if let Err(err) = served {
                tracing::debug!("a connection ended: {err}");
            }
            drop(permit);
        });
    }
}

fn respond<B>(door: &Door, board: &SharedBoard, request: &Request<B>) -> Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default();
    if !door.admits(request.headers(), query) {
        return answer(
            StatusCode::FORBIDDEN,
            "text/plain",
            "The token is missing or wrong.\n",
            None,
        );
    }
    if request.method() != Method::GET {
        return answer(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "Only GET.\n", None);
    }
    match request.uri().path() {
        "/" => {
            let nonce = random_hex();
            answer(
                StatusCode::OK,
                "text/html; charset=utf-8",
                &observe::dashboard_page(&nonce),
                Some(&nonce),
            )
        }
        "/state" => {
            let state = lock(board).state(now()).to_string();
            answer(StatusCode::OK, "application/json", &state, None)
        }
        "/session" => {
            let id = decoded(parameter(query, "id").unwrap_or_default());
            let after = parameter(query, "after").and_then(|after| after.parse().ok());
            let rows = lock(board).rows(&id, after.unwrap_or(0)).to_string();
            answer(StatusCode::OK, "application/json", &rows, None)
        }
        "/metrics" => {
            let metrics = lock(board).metrics();
            answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", &metrics, None)
        }
        _ => answer(StatusCode::NOT_FOUND, "text/plain", "Not found.\n", None),
    }
}

/// Reads percent signs.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes an answer that a browser neither stores, nor shows inside another page, nor runs anything foreign of.
fn answer(
    status: StatusCode,
    kind: &str,
    body: &str,
    nonce: Option<&str>,
) -> Response<Full<Bytes>> {
    let policy = match nonce {
        Some(nonce) => format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        None => "default-src 'none'; frame-ancestors 'none'".to_owned(),
    };
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, &*policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(path: &str, headers: &[(&str, &str)]) -> StatusCode {
        let door = Door::new(7, "secret".to_owned());
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        respond(&door, &SharedBoard::default(), &request.body(()).unwrap()).status()
    }

    // R: O3
    #[test]
    fn only_our_own_page_and_who_has_the_token_may_ask() {
        let host = ("host", "127.0.0.1:7");
        let token = ("authorization", "Bearer secret");
        let ours =
            [host, token, ("origin", "http://127.0.0.1:7"), ("sec-fetch-site", "same-origin")];
        for path in ["/", "/state", "/session?id=s&after=0", "/metrics"] {
            assert_eq!(status(path, &ours), StatusCode::OK, "{path}");
            assert_eq!(status(path, &[host]), StatusCode::FORBIDDEN, "no token: {path}");
            for wrong in [
                ("authorization", "Bearer secreT"),
                ("authorization", "Bearer "),
                ("authorization", "Bearer secret2"),
            ] {
                assert_eq!(status(path, &[host, wrong]), StatusCode::FORBIDDEN);
            }
            for (name, value) in [
                ("host", "evil.example:7"),
                ("host", "127.0.0.1:8"),
                ("origin", "http://evil.example"),
                ("origin", "null"),
                ("sec-fetch-site", "cross-site"),
            ] {
                let mut headers = vec![host, token];
                headers.retain(|(known, _)| *known != name);
                headers.push((name, value));
                assert_eq!(status(path, &headers), StatusCode::FORBIDDEN, "{name}: {value}");
            }
        }
        assert_eq!(status("/?token=secret", &[host]), StatusCode::OK);
        assert_eq!(status("/nothing", &ours), StatusCode::NOT_FOUND);
    }

    // R: O3
    #[test]
    fn page_runs_only_its_own_script() {
        let door = Door::new(7, "secret".to_owned());
        let request = Request::builder().uri("/?token=secret").header("host", "localhost:7");
        let response = respond(&door, &SharedBoard::default(), &request.body(()).unwrap());
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(response.headers()["cache-control"], "no-store");
    }

    #[test]
    fn ids_in_addresses_are_decoded() {
        assert_eq!(decoded("a%2Fb%20c%"), "a/b c%");
        assert_eq!(decoded("%zz"), "%zz");
    }
}
