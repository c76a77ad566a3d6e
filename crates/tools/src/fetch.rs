//! `fetch`: downloads a page or document from the web, as text.
//!
//! The host is resolved once, after permission was given, and only those addresses are connected to: a look-up tells others what is
//! about to be fetched. Addresses of this machine and of private networks need their own rule. A redirect to another host is not followed: the model may request it, and the user is
//! asked again.

mod address;
pub(crate) mod html;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::permission::{Access, Decision, PermissionKey};
use engine::ports::{Intent, Output, ToolCx, ToolError, Wait};
use engine::words::pattern::literal;
use engine::words::{ToolCall, ToolKind, ToolStatus, code_block, one_line};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, Url, redirect};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::error::Error;
use crate::files::on_a_thread;
use crate::tool::{TypedTool, number, shown};

/// The most bytes of a document that are read, after decompression.
const MAX_BODY: usize = 5 * 1024 * 1024;
/// The most bytes of text for the model.
const MAX_TEXT: usize = 128 * 1024;
/// The most redirects on the same host.
const MAX_REDIRECTS: usize = 5;
const SECONDS: u32 = 30;
const MAX_SECONDS: u32 = 120;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(alias = "uri", alias = "address")]
    url: String,
    #[serde(default)]
    format: Format,
    #[serde(default, deserialize_with = "number")]
    timeout: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Converted to Markdown.
    #[default]
    #[serde(alias = "text")]
    Markdown,
    /// Unchanged.
    Html,
}

/// The tool.
pub(crate) struct Fetch;

pub(crate) struct Plan {
    url: Url,
    format: Format,
    time: Duration,
}

impl TypedTool for Fetch {
    const NAME: &'static str = "fetch";
    const KIND: ToolKind = ToolKind::Fetch;
    const DESCRIPTION: &'static str = "
Downloads a document from the web (HTTP GET) and returns its text; pages are converted to Markdown. Reads at most 5 MiB and returns
at most 128 KiB. Reports a redirect to another host instead of following it.";
    const ALIASES: &'static [&'static str] =
        &["webfetch", "fetchurl", "curl", "wget", "openurl", "httpget"];

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "url": { "type": "string", "description": "The URL, with http:// or https://" },
            "format": { "type": "string", "enum": ["markdown", "html"], "description": "Format of pages; default markdown" },
            "timeout": { "type": "integer", "description": "Time limit in seconds; default 30, at most 120" },
        });
        (fields, &["url"])
    }

    async fn plan(&self, _: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let url = parse(&input.url)?;
        let mut access = vec![Access {
            always: Some(format!("{}/*", literal(&url.origin().ascii_serialization()))),
            ..Access::ask(PermissionKey::Fetch, url.as_str())
        }];
        access.extend(literal_address(&url).and_then(|address| private_access(&url, address)));
        let intent = Intent { title: format!("Fetch {url}"), access, ..Intent::default() };
        let seconds = input.timeout.unwrap_or(SECONDS).clamp(1, MAX_SECONDS);
        let time = Duration::from_secs(seconds.into());
        Ok((intent, Plan { url, format: input.format, time }))
    }

    fn wait(&self, plan: &Plan) -> Option<Wait> {
        Some(Wait::new(one_line(host(&plan.url)), plan.time))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        let seconds = plan.time.as_secs();
        let late = || ToolError::Model(format!("{} did not answer within {seconds} s", plan.url));
        let addresses = cx.or_cancelled(timeout(plan.time, resolve(&plan.url))).await?;
        let addresses = addresses.map_err(|_| late())??;
        require_private(cx, &plan.url, &addresses).await?;
        let text = cx.or_cancelled(timeout(plan.time, get(&plan, &addresses))).await?;
        let text = text.map_err(|_| late())??;
        let mut output = shown(code_block(&text));
        output.text = text;
        Ok(output)
    }
}

fn parse(text: &str) -> Result<Url, ToolError> {
    let refuse = |why: &str| Err(ToolError::Model(format!("`{text}` cannot be fetched: {why}")));
    match Url::parse(text) {
        Err(err) => refuse(&err.to_string()),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            refuse("only http and https are supported")
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            refuse("it must not contain a user or password")
        }
        Ok(url) if url.host_str().is_none() => refuse("it has no host"),
        Ok(url) => Ok(url),
    }
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or("").trim_matches(['[', ']'])
}

/// Returns the address of a URL that has one instead of a name.
fn literal_address(url: &Url) -> Option<IpAddr> {
    host(url).parse().ok()
}

/// Returns what an address needs if it is not public.
fn private_access(url: &Url, address: IpAddr) -> Option<Access> {
    let subject = format!("{} ({address})", url.host_str().unwrap_or(""));
    let access = Access::ask(PermissionKey::FetchPrivate, subject);
    address::is_private(address).then_some(Access { default: Decision::Reject, ..access })
}

/// Asks for permission if a name leads to this machine or a private network. An address in the URL was decided on before.
async fn require_private(
    cx: &ToolCx<'_>,
    url: &Url,
    addresses: &[SocketAddr],
) -> Result<(), ToolError> {
    let private = addresses.iter().find_map(|address| private_access(url, address.ip()));
    let Some(access) = private.filter(|_| literal_address(url).is_none()) else { return Ok(()) };
    let call = ToolCall {
        id: cx.id.clone(),
        name: Fetch::NAME.to_owned(),
        title: one_line(&format!("Fetch {url}")),
        kind: Fetch::KIND,
        status: ToolStatus::InProgress,
        content: Vec::new(),
        locations: Vec::new(),
        raw_input: json!({ "url": url.as_str() }),
    };
    cx.turn.require(call, &[access]).await
}

/// Resolves a host. Only these addresses are connected to.
async fn resolve(url: &Url) -> Result<Vec<SocketAddr>, Error> {
    let port = url.port_or_known_default().unwrap_or(80);
    if let Some(address) = literal_address(url) {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host(url).to_owned();
    on_a_thread(move || {
        let found = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
        let found: Vec<SocketAddr> =
            found.map_err(|source| Error::Io { name: host, source })?.collect();
        Ok(found)
    })
    .await
}

async fn get(plan: &Plan, addresses: &[SocketAddr]) -> Result<String, ToolError> {
    let client = client(plan, addresses)?;
    let mut url = plan.url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let request = client.get(url.clone()).header(ACCEPT, "text/*, application/json, */*;q=0.5");
        let response = request.send().await.map_err(|err| failed(&url, &err))?;
        let Some(to) = redirect_of(&response) else {
            return read(plan, &url, response).await;
        };
        let to = url.join(&to).map_err(|err| failed_with(&url, &err.to_string()))?;
        let is_same = to.host_str() == url.host_str()
            && to.port_or_known_default() == url.port_or_known_default()
            && (to.scheme() == url.scheme() || to.scheme() == "https");
        if !is_same {
            let why = format!(
                "{url} redirects to {to}, on another host or port. Fetch that if it is what you want"
            );
            return Err(ToolError::Model(why));
        }
        url = to;
    }
    Err(failed_with(&url, "too many redirects"))
}

fn redirect_of(response: &Response) -> Option<String> {
    let to = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    to.to_str().ok().map(str::to_owned)
}

fn client(plan: &Plan, addresses: &[SocketAddr]) -> Result<Client, ToolError> {
    // It may be installed already; any provider is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut builder = Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .user_agent(concat!("purlin/", env!("CARGO_PKG_VERSION")));
    if let Some(host) = plan.url.host_str() {
        builder = builder.resolve_to_addrs(host, addresses);
    }
    if addresses.iter().all(|at| address::is_private(at.ip())) {
        // A proxy would resolve the host itself.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|err| failed(&plan.url, &err))
}

async fn read(plan: &Plan, url: &Url, mut response: Response) -> Result<String, ToolError> {
    let status = response.status();
    if !status.is_success() {
        return Err(failed_with(url, &format!("the server answered {status}")));
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or("text/plain").to_lowercase();
    if !is_text(&kind) {
        return Err(failed_with(url, &format!("it is {kind}, not text")));
    }
    let mut bytes = Vec::new();
    let mut was_cut = false;
    while let Some(chunk) = response.chunk().await.map_err(|err| failed(url, &err))? {
        let room = MAX_BODY - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            was_cut = true;
            break;
        }
    }
    let text = decode(&kind, &bytes);
    let is_page = kind.contains("html") && plan.format == Format::Markdown;
    let mut text = if is_page { html::to_markdown(&text, url) } else { text };
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        was_cut = true;
    }
    if was_cut {
        text.push_str("\n(cut here)");
    }
    Ok(text)
}

fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || ["json", "xml", "javascript", "yaml", "toml", "x-sh"]
            .iter()
            .any(|word| kind.contains(word))
}

fn decode(kind: &str, bytes: &[u8]) -> String {
    let label = kind.split(';').find_map(|part| part.trim().strip_prefix("charset="));
    let encoding = label
        .and_then(|label| encoding_rs::Encoding::for_label(label.trim_matches('"').as_bytes()))
        .unwrap_or(encoding_rs::UTF_8);
    encoding.decode(bytes).0.into_owned()
}

fn failed(url: &Url, err: &reqwest::Error) -> ToolError {
    let mut why = err.to_string();
    let mut source = std::error::Error::source(err);
    while let Some(err) = source {
        why = err.to_string();
        source = err.source();
    }
    failed_with(url, &why)
}

fn failed_with(url: &Url, why: &str) -> ToolError {
    ToolError::Model(format!("{url} cannot be fetched: {why}"))
}

#[cfg(test)]
mod tests;
