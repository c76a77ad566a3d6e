//! Handles a server's requests and notifications: elicitation, roots, progress, changed lists.
//!
//! None of them can change a permission. Sampling is not supported: a server cannot use the user's model.

use std::path::Path;

use engine::ports::{Form, FormAnswer, Page};
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability,
    Implementation, ProtocolVersion, RootsCapabilities, UrlElicitationCapability,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wire::{Code, RpcError};

use crate::clean::{clean, clean_line};
use crate::connection::method_not_supported;
use crate::server::Server;

/// Returns the parameters of `initialize`: our name and capabilities.
pub(crate) fn client_info(server: &Server) -> ClientConfig {
    let mut capabilities = ClientCapabilities::default();
    if !server.roots.is_empty() {
        capabilities.roots = Some(RootsCapabilities::default());
    }
    if let Some(editor) = server.editor() {
        let offers = editor.offers();
        let mut elicitation = ElicitationCapability::new();
        if offers.form {
            elicitation = elicitation.with_form(FormElicitationCapability::default());
        }
        if offers.page {
            elicitation = elicitation.with_url(UrlElicitationCapability::default());
        }
        capabilities.elicitation = (offers.form || offers.page).then_some(elicitation);
    }
    let name = Implementation::new("purlin", env!("CARGO_PKG_VERSION"));
    ClientConfig::new(capabilities, name).with_protocol_version(ProtocolVersion::V_2025_11_25)
}

/// Handles a request from a server.
pub(crate) async fn handle_request(
    server: &Server,
    method: &str,
    params: &str,
    cancel: &CancellationToken,
) -> Result<Value, RpcError> {
    match method {
        "ping" => Ok(json!({})),
        "roots/list" => {
            Ok(json!({ "roots": server.roots.iter().map(|path| root(path)).collect::<Vec<_>>() }))
        }
        "elicitation/create" => {
            let request: Elicitation = serde_json::from_str(params)
                .map_err(|_| RpcError::new(Code::INVALID_PARAMS, "Invalid elicitation request"))?;
            Ok(elicit(server, request, cancel).await)
        }
        _ => Err(method_not_supported()),
    }
}

fn root(path: &Path) -> Value {
    let uri = wire::acp::file_uri::encode(&path.to_string_lossy());
    match path.file_name() {
        Some(name) => json!({ "uri": uri, "name": name.to_string_lossy() }),
        None => json!({ "uri": uri }),
    }
}

/// The parameters of `elicitation/create`: a form, or a URL to open.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Elicitation {
    message: String,
    requested_schema: Option<Value>,
    url: Option<String>,
    elicitation_id: Option<String>,
}

async fn elicit(server: &Server, request: Elicitation, cancel: &CancellationToken) -> Value {
    let (decline, cancelled) = (json!({ "action": "decline" }), json!({ "action": "cancel" }));
    let Some(editor) = server.editor() else {
        return decline;
    };
    // One at a time: a second request is cancelled at once.
    let Ok(_permit) = server.elicitations.try_acquire() else {
        return cancelled;
    };
    let page = match (request.url, request.elicitation_id) {
        (Some(url), Some(id)) if url.starts_with("https://") || url.starts_with("http://") => {
            Some(Page { id, url: clean_line(&url, 2000) })
        }
        (Some(_), _) => return decline,
        (None, _) => None,
    };
    let message =
        format!("The MCP server `{}` asks: {}", server.name(), clean(&request.message, 2000));
    let is_page = page.is_some();
    let fields = request.requested_schema.filter(|_| !is_page);
    let form = Form { message, call: None, page, fields };
    let answer = tokio::select! {
        answer = editor.elicit(form) => answer,
        () = cancel.cancelled() => return cancelled,
    };
    match answer {
        Ok(FormAnswer::Fields(fields)) => json!({ "action": "accept", "content": fields }),
        Ok(FormAnswer::Text(_)) if is_page => json!({ "action": "accept" }),
        Ok(FormAnswer::Text(_) | FormAnswer::Declined) => decline,
        Ok(FormAnswer::Cancelled) | Err(_) => cancelled,
    }
}

/// The parameters of `notifications/progress`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    progress_token: u64,
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

/// Handles a notification from a server. Invalid ones are ignored.
pub(crate) fn handle_notification(server: &Server, method: &str, params: &str) {
    match method {
        "notifications/progress" => {
            if let Ok(progress) = serde_json::from_str::<Progress>(params) {
                server.forward_progress(progress.progress_token, || progress_text(&progress));
            }
        }
        "notifications/tools/list_changed"
        | "notifications/prompts/list_changed"
        | "notifications/resources/list_changed" => server.relist.notify_one(),
        "notifications/message" => {
            let data = serde_json::from_str(params).map(|mut params: Value| params["data"].take());
            let text = match data {
                Ok(Value::String(text)) => text,
                Ok(other) => other.to_string(),
                Err(_) => return,
            };
            server.log(format!("{}\n", clean_line(&text, 1000)).as_bytes());
        }
        _ => tracing::debug!(server = server.name(), "ignored an unknown notification"),
    }
}

fn progress_text(progress: &Progress) -> String {
    let text = match progress.total {
        Some(total) if total > 0.0 => format!("{:.0} %", progress.progress / total * 100.0),
        _ => format!("{}", progress.progress),
    };
    match &progress.message {
        Some(message) => format!("{text} · {}", clean_line(message, 200)),
        None => text,
    }
}
