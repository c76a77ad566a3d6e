//! What the dialects share.

use serde_json::{Map, Value};

use crate::acp::fault;
use crate::code::RpcError;

/// Which payload of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// The parameters of a call or a note.
    Params,
    /// The result of a call.
    Result,
}

/// Facts about a session that has been opened.
#[derive(Debug)]
pub struct SessionFacts<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its working directory.
    pub directory: &'a str,
    /// Whether its mode allows changes.
    pub may_change: bool,
    /// Whether its last turn failed.
    pub has_failed: bool,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// The current time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The git branch of its working directory.
    pub branch: Option<String>,
    /// The messages so far, as lists of blocks, if known.
    pub history: Option<Value>,
    /// The files that it changed, if known.
    pub modified: Option<Value>,
}

/// Rejects a prompt that is given both as `prompt` and as `content` with different values.
pub(super) fn reject_two_prompts(members: &mut Map<String, Value>) -> Result<(), RpcError> {
    if members.contains_key("prompt")
        && let Some(content) = members.remove("content")
        && members.get("prompt") != Some(&content)
    {
        let details = "'content' and `prompt` are both given and differ. Send one of them.";
        return Err(fault::at("content", details.to_owned()));
    }
    Ok(())
}

/// The members that v1 has in the parameters of each method; `None` for methods that are not rewritten.
pub(super) fn known_v1_params(method: &str) -> Option<&'static [&'static str]> {
    Some(match method {
        "initialize" => &["protocolVersion", "clientCapabilities", "clientInfo"],
        "authenticate" => &["methodId", "credentials"],
        "session/new" => &["cwd", "mcpServers", "additionalDirectories"],
        "session/prompt" => &["sessionId", "prompt", "messageId"],
        _ => return None,
    })
}

/// Returns the title and the description of a notice as one string.
pub(super) fn notice_text(notice: &Map<String, Value>) -> String {
    let text = |key: &str| notice.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("description") {
        "" => text("title").to_owned(),
        description => format!("{}\n\n{description}", text("title")),
    }
}
