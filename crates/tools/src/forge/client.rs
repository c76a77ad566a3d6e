//! Requests to a forge: one host, a token, pages, rate limits and ETags.
//!
//! The token is sent to the forge's own origin and to nobody else. What failed for want of permission or by a limit was not done, so
//! it may be sent again; a change whose answer was lost is never sent again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::words::Secret;
use reqwest::header::{ACCEPT, AUTHORIZATION, ETAG, HeaderMap, IF_NONE_MATCH, LINK, LOCATION};
use reqwest::{Method, Response, StatusCode, Url, redirect};
use serde_json::Value;

use super::Request;

/// The time for one request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait for a rate limit; a longer one is reported.
const LONGEST_WAIT: u64 = 60;
/// How often a request is sent again.
const RETRIES: u32 = 2;
/// The most bytes of an answer.
const MAX_BODY: usize = 8 * 1024 * 1024;
/// The most pages of a list.
const MAX_PAGES: usize = 100;
/// How many answers are remembered with their ETags.
const MAX_CACHED: usize = 32;
/// Longer answers are not remembered.
const MAX_CACHED_BODY: usize = 256 * 1024;

/// A client of one forge.
pub(super) struct Client {
    http: Result<reqwest::Client, String>,
    base: Result<Url, String>,
    token: Secret,
    timeout: Duration,
    /// Answers with their ETags, the oldest first. Never locked across an await.
    cache: Mutex<Vec<Cached>>,
}

#[derive(Clone)]
struct Cached {
    url: Url,
    accept: &'static str,
    etag: String,
    answer: Answer,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    next: Option<Url>,
}

/// The formats of answers.
pub(super) const JSON: &str = "application/vnd.github+json";
pub(super) const DIFF: &str = "application/vnd.github.diff";

impl Client {
    pub(super) fn new(base: &str, token: Secret) -> Client {
        Client::with_timeout(base, token, TIMEOUT)
    }

    /// Makes a client that waits this long for each answer.
    pub(super) fn with_timeout(base: &str, token: Secret, timeout: Duration) -> Client {
        // It may be installed already; any provider is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .timeout(timeout)
            .user_agent(concat!("purlin/", env!("CARGO_PKG_VERSION")))
            .build();
        let base = Url::parse(&format!("{}/", base.trim_end_matches('/')));
        Client {
            http: http.map_err(|err| reason(&err)),
            base: base.map_err(|err| format!("the address of the API is invalid: {err}")),
            token,
            timeout,
            cache: Mutex::default(),
        }
    }

    fn url(&self, path: &str) -> Result<Url, String> {
        let base = self.base.as_ref().map_err(Clone::clone)?;
        base.join(path.trim_start_matches('/')).map_err(|err| err.to_string())
    }

    /// Reads a JSON value.
    pub(super) async fn json(&self, path: &str) -> Result<Value, String> {
        let answer = self.get(self.url(path)?, JSON).await?;
        parse(&answer.body)
    }

    /// Reads a text.
    pub(super) async fn text(&self, path: &str, accept: &'static str) -> Result<String, String> {
        let answer = self.get(self.url(path)?, accept).await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Reads a list page by page, up to `most` of what `keep` accepts. Also tells whether there may be more.
    pub(super) async fn list(
        &self,
        path: &str,
        most: usize,
        keep: impl Fn(&Value) -> bool + Send,
    ) -> Result<(Vec<Value>, bool), String> {
        let (mut next, mut all) = (Some(self.url(path)?), Vec::new());
        let mut pages = 0;
        while let Some(url) = next {
            pages += 1;
            if pages > MAX_PAGES {
                return Ok((all, true));
            }
            let answer = self.get(url, JSON).await?;
            let Value::Array(page) = parse(&answer.body)? else {
                return Err("the answer is not a list".to_owned());
            };
            let is_empty = page.is_empty();
            all.extend(page.into_iter().filter(|item| keep(item)));
            next = answer.next.filter(|_| !is_empty);
            if all.len() > most || all.len() == most && next.is_some() {
                all.truncate(most);
                return Ok((all, true));
            }
        }
        Ok((all, false))
    }

    async fn get(&self, url: Url, accept: &'static str) -> Result<Answer, String> {
        let is_same = |cached: &&Cached| cached.url == url && cached.accept == accept;
        let cached = {
            let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.iter().find(is_same).cloned()
        };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().map_err(|_| "invalid header")?);
        if let Some(etag) = cached.as_ref().and_then(|cached| cached.etag.parse().ok()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        let response = self.try_often(Method::GET, &url, &headers, None).await?;
        if let (StatusCode::NOT_MODIFIED, Some(cached)) = (response.status(), cached) {
            return Ok(cached.answer);
        }
        let response = self.follow(response, &url).await?;
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.map(str::to_owned);
        let next = next_page(response.headers()).filter(|next| next.origin() == url.origin());
        let answer = Answer { body: body_of(response).await?, next };
        if let Some(etag) = etag.filter(|_| answer.body.len() <= MAX_CACHED_BODY) {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.retain(|cached| cached.url != url || cached.accept != accept);
            if cache.len() >= MAX_CACHED {
                cache.remove(0);
            }
            cache.push(Cached { url, accept, etag, answer: answer.clone() });
        }
        Ok(answer)
    }

    /// Follows one redirect, as logs have it. Another host does not get the token.
    async fn follow(&self, response: Response, url: &Url) -> Result<Response, String> {
        if !response.status().is_redirection() {
            return Ok(response);
        }
        let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        let to = to.and_then(|to| url.join(to).ok()).ok_or("it redirects to nowhere")?;
        if to.origin() == url.origin() {
            return self.try_often(Method::GET, &to, &HeaderMap::new(), None).await;
        }
        let http = self.http.as_ref().map_err(Clone::clone)?;
        let response = http.get(to).send().await.map_err(|err| reason(&err))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(format!("the server it redirects to answered {status}")),
        }
    }

    /// Sends a change.
    pub(super) async fn send(&self, request: &Request) -> Result<Value, String> {
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|_| "invalid method")?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, JSON.parse().map_err(|_| "invalid header")?);
        let url = self.url(&request.path)?;
        let response = self.try_often(method, &url, &headers, Some(&request.body)).await?;
        if response.status().is_redirection() {
            return Err(
                "the repository has moved; nothing was changed. Change the remote's address"
                    .to_owned(),
            );
        }
        let body = body_of(response).await.map_err(|why| format!("{why}{}", doubt(false)))?;
        if body.is_empty() { Ok(Value::Null) } else { parse(&body) }
    }

    /// Sends a request until it is answered, within limits: waits for rate limits, and repeats reads that fail.
    async fn try_often(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        body: Option<&Value>,
    ) -> Result<Response, String> {
        let http = self.http.as_ref().map_err(Clone::clone)?;
        let mut tries = 0;
        loop {
            let mut request = http
                .request(method.clone(), url.clone())
                .headers(headers.clone())
                .header(AUTHORIZATION, format!("Bearer {}", self.token.reveal()))
                .header("X-GitHub-Api-Version", "2022-11-28");
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body.to_string());
            }
            let is_read = method == Method::GET;
            let may_repeat = tries < RETRIES;
            tries += 1;
            let pause = Duration::from_millis(250 << tries);
            let response = match request.send().await {
                Ok(response) => response,
                // Nothing was sent on a connection that was not made.
                Err(err) if may_repeat && (is_read && !err.is_timeout() || err.is_connect()) => {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                Err(err) if err.is_timeout() => {
                    let seconds = self.timeout.as_secs_f32().ceil();
                    return Err(format!("no answer within {seconds} s{}", doubt(is_read)));
                }
                Err(err) => return Err(format!("{}{}", reason(&err), doubt(is_read))),
            };
            let status = response.status();
            if let Some(seconds) = limit_of(status, response.headers()) {
                if !may_repeat || seconds > LONGEST_WAIT {
                    return Err(format!("rate limit reached; try again in {seconds} s"));
                }
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            } else if status.is_server_error() && is_read && may_repeat {
                tokio::time::sleep(pause).await;
            } else if status.is_client_error() || status.is_server_error() {
                return Err(explain(status, response, is_read).await);
            } else {
                return Ok(response);
            }
        }
    }
}

fn doubt(is_read: bool) -> &'static str {
    if is_read { "" } else { ". The change may have been made: look before you send it again" }
}

/// Returns how many seconds a limit asks to wait; `None` if the answer is about something else.
fn limit_of(status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    if !matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS) {
        return None;
    }
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    if let Some(seconds) = number("retry-after") {
        return Some(seconds);
    }
    if number("x-ratelimit-remaining") == Some(0) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        return Some(number("x-ratelimit-reset").map_or(60, |at| at.saturating_sub(now)));
    }
    (status == StatusCode::TOO_MANY_REQUESTS).then_some(60)
}

/// Says what an error means and what can be done about it.
async fn explain(status: StatusCode, response: Response, is_read: bool) -> String {
    let body = body_of(response).await.unwrap_or_default();
    let body = parse(&body).unwrap_or_default();
    let mut said = body["message"].as_str().unwrap_or_default().to_owned();
    for error in body["errors"].as_array().into_iter().flatten() {
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let words = match error["message"].as_str().or(error.as_str()) {
            Some(message) => message.to_owned(),
            None => format!("{} {}", text("field"), text("code")),
        };
        said.push_str(&format!("; {words}"));
    }
    let what = match status {
        StatusCode::UNAUTHORIZED => {
            "the token was rejected. The user can run `purlin auth login github`".to_owned()
        }
        StatusCode::FORBIDDEN => "the token has no permission for this".to_owned(),
        StatusCode::NOT_FOUND => "not found, or the token has no access to it".to_owned(),
        StatusCode::UNPROCESSABLE_ENTITY => "rejected as invalid".to_owned(),
        status if status.is_server_error() => {
            format!("the server failed ({}){}", status.as_u16(), doubt(is_read))
        }
        status => format!("the server answered {status}"),
    };
    if said.is_empty() { what } else { format!("{what}: {said}") }
}

/// Returns the address of the next page.
fn next_page(headers: &HeaderMap) -> Option<Url> {
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    let url = next.trim().strip_prefix('<')?.split('>').next()?;
    Url::parse(url).ok()
}

async fn body_of(mut response: Response) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|err| reason(&err))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_BODY {
            return Err("the answer is too long".to_owned());
        }
    }
    Ok(bytes)
}

fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|_| "the answer is not JSON".to_owned())
}

/// Returns the cause of an error.
fn reason(err: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = err;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
