//! Answers one HTTP request: the checks that every request passes, and the four verbs of `/acp`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue,
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::access::User;
use super::streams::{self, HttpConnection, Reader, Refusal};
use super::{MAX_MESSAGE, Server, metrics, websocket};
use crate::serve_shared;

/// The body of an answer.
pub(super) type Body = BoxBody<Bytes, Infallible>;

const CONNECTION_ID: &str = "acp-connection-id";
const SESSION_ID: &str = "acp-session-id";
/// How long a body may take to arrive, and `initialize` to be answered.
const SLOW: Duration = Duration::from_secs(30);
/// The longest id of a session or an event in a header.
const MAX_ID: usize = 1024;

/// Answers a request. Nothing of a request that is refused is repeated or logged but its path and status.
pub(super) async fn answer(server: &Arc<Server>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let response = match route(server, request).await {
        Ok(response) => response,
        Err((status, why)) => refusal(status, why),
    };
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        server.metrics.refused.fetch_add(1, Ordering::Relaxed);
        let path: String = path.chars().filter(|char| !char.is_control()).take(64).collect();
        tracing::debug!(path, status = status.as_u16(), "refused a request");
    }
    response
}

async fn route(
    server: &Arc<Server>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    if !server.access.knows_host(request.headers(), authority.as_deref()) {
        return Err((421, "this server has another name"));
    }
    match (request.uri().path(), request.method()) {
        ("/healthz", &Method::GET) => return Ok(text(StatusCode::OK, "ok\n".to_owned())),
        ("/readyz", &Method::GET) => return Ok(ready(server)),
        ("/acp" | "/metrics", _) => {}
        _ => return Err((404, "not found")),
    }
    if !server.access.knows_origin(request.headers()) {
        return Err((403, "pages of this origin may not use the server"));
    }
    let Some(user) = server.access.user(request.headers(), SystemTime::now()) else {
        server.metrics.unauthorized.fetch_add(1, Ordering::Relaxed);
        return Ok(unauthorized());
    };
    match (request.uri().path(), request.method().clone()) {
        ("/metrics", Method::GET) => Ok(text(StatusCode::OK, metrics::print(server))),
        ("/metrics", _) => Err((405, "use GET")),
        (_, Method::POST) => post(server, &user, request).await,
        (_, Method::GET) if request.headers().contains_key(UPGRADE) => {
            upgrade(server, &user, request)
        }
        (_, Method::GET) => read(server, &user, &request).await,
        (_, Method::DELETE) => delete(server, &user, &request),
        _ => Err((405, "use GET, POST or DELETE")),
    }
}

fn ready(server: &Server) -> Response<Body> {
    match server.draining.is_cancelled() {
        true => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()),
        false => text(StatusCode::OK, "ready\n".to_owned()),
    }
}

/// Opens a WebSocket.
fn upgrade(
    server: &Arc<Server>,
    user: &User,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let headers = request.headers();
    let has = |name, value: &str| {
        let values = headers.get_all::<hyper::header::HeaderName>(name).iter();
        let mut words =
            values.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
        words.any(|word| word.trim().eq_ignore_ascii_case(value))
    };
    if !has(UPGRADE, "websocket") || !has(CONNECTION, "upgrade") {
        return Err((400, "this is not an upgrade to a WebSocket"));
    }
    if !has(SEC_WEBSOCKET_VERSION, "13") {
        return Err((426, "use version 13 of WebSocket"));
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        return Err((400, "Sec-WebSocket-Key is missing"));
    };
    let accept = derive_accept_key(key.as_bytes());
    if server.draining.is_cancelled() {
        return Err((503, "the server is stopping"));
    }
    let tenant = server.tenant(user).ok_or((503, "too many users"))?;
    let id = tenant.clock.fresh_id();
    let upgraded = hyper::upgrade::on(&mut request);
    let of = Arc::clone(server);
    server.tasks.spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let (pump, pipes) = websocket::open(upgraded).await;
        of.metrics.websockets.fetch_add(1, Ordering::Relaxed);
        of.metrics.open_websockets.fetch_add(1, Ordering::Relaxed);
        let (workspaces, cwd) = (Arc::clone(&of.workspaces), of.cwd.clone());
        let stop = of.closing.child_token();
        let served = serve_shared(pipes, tenant, workspaces, cwd, stop, (of.watch)());
        tokio::join!(served, pump.run());
        of.metrics.open_websockets.fetch_sub(1, Ordering::Relaxed);
    });
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, header(&accept));
    headers.insert(CONNECTION_ID, header(&id));
    Ok(response)
}

/// Takes a message: `initialize` opens a connection, everything else belongs to one.
async fn post(
    server: &Arc<Server>,
    user: &User,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if !kind
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    {
        return Err((415, "the body must be application/json"));
    }
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if announced
        .and_then(|length| length.parse().ok())
        .is_some_and(|length: usize| length > MAX_MESSAGE)
    {
        return Err((413, "the body is larger than 16 MiB"));
    }
    let body = match timeout(SLOW, Limited::new(body, MAX_MESSAGE).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(err)) if err.is::<http_body_util::LengthLimitError>() => {
            return Err((413, "the body is larger than 16 MiB"));
        }
        Ok(Err(_)) => return Err((400, "the body could not be read")),
        Err(_) => return Err((408, "the body took too long")),
    };
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err((501, "batches are not supported"));
    }
    if head.headers.contains_key(CONNECTION_ID) {
        let connection = find(server, user, &head.headers)?;
        connection.post(&body, id_header(&head.headers, SESSION_ID)?).await?;
        return Ok(empty(StatusCode::ACCEPTED));
    }
    if method_of(&body).as_deref() != Some("initialize") {
        return Err((400, "Acp-Connection-Id is missing"));
    }
    initialize(server, user, &body).await
}

/// Opens a connection over Streamable HTTP.
async fn initialize(
    server: &Arc<Server>,
    user: &User,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    if server.draining.is_cancelled() {
        return Err((503, "the server is stopping"));
    }
    let tenant = server.tenant(user).ok_or((503, "too many users"))?;
    let id = format!("{}-{}", tenant.clock.fresh_id(), secret());
    let stop = server.closing.child_token();
    let (connection, sorter, pipes, first) = streams::open(Arc::clone(&user.tenant), stop.clone());
    let of = Arc::clone(server);
    let (number, workspaces, cwd) =
        (id.clone(), Arc::clone(&server.workspaces), server.cwd.clone());
    let (ended, watcher) = (stop.clone(), (server.watch)());
    server.tasks.spawn(async move {
        let served = serve_shared(pipes, tenant, workspaces, cwd, stop, watcher);
        tokio::join!(served, sorter.run());
        ended.cancel();
        of.http().remove(&number);
    });
    connection.initialize(body).await?;
    let answer = match timeout(SLOW, first).await {
        Ok(Ok(answer)) => answer,
        _ => {
            connection.stop.cancel();
            return Err((504, "`initialize` was not answered"));
        }
    };
    let is_error = serde_json::from_slice::<Failed>(&answer).is_ok_and(|line| line.error.is_some());
    let mut response = full(StatusCode::OK, answer);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if is_error {
        connection.stop.cancel();
        return Ok(response);
    }
    server.metrics.http_connections.fetch_add(1, Ordering::Relaxed);
    server.http().insert(id.clone(), connection);
    response.headers_mut().insert(CONNECTION_ID, header(&id));
    Ok(response)
}

/// Reads a stream.
async fn read(
    server: &Arc<Server>,
    user: &User,
    request: &Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let headers = request.headers();
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if !accept.to_ascii_lowercase().contains("text/event-stream") {
        return Err((406, "accept text/event-stream"));
    }
    let connection = find(server, user, headers)?;
    let session = id_header(headers, SESSION_ID)?;
    let last = id_header(headers, "last-event-id")?;
    let last = last.map(|last| last.parse().map_err(|_| (400, "Last-Event-ID is not a number")));
    let reader = connection.read(session, last.transpose()?).await?;
    let events = stream::unfold(reader, |reader: Reader| async move {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(event)), reader))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(events)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Ends a connection. Its sessions continue.
fn delete(
    server: &Server,
    user: &User,
    request: &Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let connection = find(server, user, request.headers())?;
    connection.stop.cancel();
    if let Some(id) = request.headers().get(CONNECTION_ID).and_then(|id| id.to_str().ok()) {
        server.http().remove(id);
    }
    Ok(empty(StatusCode::ACCEPTED))
}

/// Finds the connection of a request. That of another tenant does not exist.
fn find(server: &Server, user: &User, headers: &HeaderMap) -> Result<Arc<HttpConnection>, Refusal> {
    let id = id_header(headers, CONNECTION_ID)?.ok_or((400, "Acp-Connection-Id is missing"))?;
    let connection = server.http().get(id).cloned();
    connection
        .filter(|connection| connection.tenant == user.tenant && !connection.stop.is_cancelled())
        .ok_or((404, "unknown connection"))
}

fn id_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(value), None) if value.len() <= MAX_ID => Ok(Some(value)),
        _ => Err((400, "a header with an id is invalid")),
    }
}

#[derive(serde::Deserialize)]
struct Named {
    #[serde(default)]
    method: Option<String>,
}

#[derive(serde::Deserialize)]
struct Failed {
    #[serde(default)]
    error: Option<serde::de::IgnoredAny>,
}

fn method_of(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Named>(body).ok()?.method
}

/// What makes the id of a connection impossible to guess, although it is no credential.
fn secret() -> String {
    let mut bytes = [0; 8];
    let random = tokio_rustls::rustls::crypto::ring::default_provider().secure_random;
    if random.fill(&mut bytes).is_err() {
        tracing::warn!("the system has no random numbers");
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn header(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn full(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = status;
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    full(status, Bytes::new())
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = full(status, text);
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn refusal(status: u16, why: &str) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    text(status, format!("{why}\n"))
}

fn unauthorized() -> Response<Body> {
    let mut response = refusal(401, "a valid token is needed: `Authorization: Bearer TOKEN`");
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}
