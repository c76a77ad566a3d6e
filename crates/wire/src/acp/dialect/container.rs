//! The dialect of an agent in a container: dotted version, flat capabilities, sessions with a URI, updates with a status.
//!
//! Its updates consist of blocks only. Everything else of a v1 update is in the blocks' `metadata`, so that it survives
//! the way back to v1. Updates that blocks cannot express are not sent. The table is in docs/internals/dialects.md.

use serde_json::{Map, Value, json};

use super::common::{Payload, SessionFacts, known_v1_params, notice_text, reject_two_prompts};
use super::diff;
use crate::acp::members::{
    META, insert_meta, put_meta, put_unknown_in_meta, rename, take_meta, take_object,
};
use crate::acp::{block, fault, file_uri, tolerate};
use crate::code::{Code, RpcError};

type Members = Map<String, Value>;

/// Field names in errors: v1's and this dialect's.
pub(super) const FIELD_NAMES: &[(&str, &str)] = &[("prompt", "content"), ("cwd", "workspaceUri")];
/// Wording of errors: v1's and this dialect's.
pub(super) const WORDING: &[(&str, &str)] = &[
    (
        "`text`, `image`, `audio`, `resource_link`, `resource`",
        "`text`, `image`, `diff`, `file`, `thought`",
    ),
    ("].text", "].content"),
    ("].data", "].content"),
    ("].resource.uri", "].metadata.uri"),
    ("].uri", "].metadata.uri"),
    ("session/new lists the modes", "expected `conversation` or `development`"),
    ("session/new lists the models", "the prompt `/model` lists them"),
    ("expected a whole number from 0 to 65535", "expected a string such as `0.3.1`"),
    ("must be an absolute path", "must be a file:// URI with an absolute path"),
];

/// The capabilities of a client in `initialize`.
const CAPABILITIES: [&str; 3] = ["editWorkspace", "filesRead", "filesWrite"];

/// Members of v1's answer that this dialect does not have.
const LEFT_OUT: [&str; 3] = ["modes", "models", "configOptions"];

/// The name of a mode: this dialect has two, and only `development` allows changes.
pub(super) fn mode_out(may_change: bool) -> &'static str {
    if may_change { "development" } else { "conversation" }
}

pub(super) fn to_v1(method: &str, part: Payload, members: &mut Members) -> Result<(), RpcError> {
    match (method, part) {
        ("initialize", Payload::Params) => tolerate::initialize_in(members)?,
        ("initialize", Payload::Result) => {
            if let Some(Value::Object(offers)) = members.get_mut("agentCapabilities") {
                offers.remove("sessionPersistence");
                offers.remove("streamingUpdates");
                let own = CAPABILITIES.iter().chain(&["githubIntegration"]);
                let flat: Members =
                    own.filter_map(|key| Some(((*key).to_owned(), offers.remove(*key)?))).collect();
                if !flat.is_empty() {
                    insert_meta(members, "agentCapabilities", Value::Object(flat));
                }
            }
            if members.get("protocolVersion").is_some_and(Value::is_string) {
                put_meta(members, "protocolVersion");
                members.insert("protocolVersion".to_owned(), json!(1));
            }
        }
        ("authenticate", Payload::Params) => rename(members, "method", "methodId"),
        ("session/new", Payload::Params) => new_session_in(members)?,
        ("session/new", Payload::Result) => put_unknown_in_meta(members, &["sessionId"]),
        ("session/load" | "session/resume" | "session/fork", Payload::Params) => {
            tolerate::reopen_in(members)?;
        }
        ("session/prompt", Payload::Params) => {
            reject_two_prompts(members)?;
            let blocks = members.get("content").and_then(Value::as_array);
            let mut numbered = blocks.into_iter().flatten().enumerate();
            numbered.try_for_each(|(index, block)| block::check(index, block))?;
            tolerate::prompt_in(members)?;
        }
        ("session/update", Payload::Params) => update_to_v1(members)?,
        _ => {}
    }
    if let (Some(known), Payload::Params) = (known_v1_params(method), part) {
        put_unknown_in_meta(members, known);
    }
    Ok(())
}

pub(super) fn from_v1(method: &str, part: Payload, members: &mut Members) -> bool {
    match (method, part) {
        ("initialize", Payload::Params) => initialize_out(members),
        ("initialize", Payload::Result) => initialized_out(members),
        ("session/new", Payload::Params) => {
            if let Some(Value::String(cwd)) = members.remove("cwd") {
                members.insert("workspaceUri".to_owned(), json!(file_uri::encode(&cwd)));
            }
            if members.get("mcpServers").is_some_and(|servers| *servers == json!([])) {
                members.remove("mcpServers");
            }
        }
        ("session/new" | "session/load" | "session/resume" | "session/fork", Payload::Result) => {
            LEFT_OUT.iter().for_each(|key| drop(members.remove(*key)));
        }
        ("session/prompt", Payload::Params) => {
            if let Some(Value::Array(blocks)) = members.get_mut("prompt") {
                blocks.iter_mut().for_each(|block| *block = block::from_v1(block.take()));
            }
            rename(members, "prompt", "content");
        }
        ("session/update", Payload::Params) => return update_from_v1(members),
        _ => {}
    }
    if known_v1_params(method).is_some() || part == Payload::Result {
        take_meta(members);
    }
    true
}

fn initialize_out(members: &mut Members) {
    let own = members.get("_meta").and_then(|meta| meta.get(META));
    if own.is_some_and(|own| own.get("protocolVersion").is_some()) {
        members.remove("protocolVersion");
    }
    let Some(Value::Object(offers)) = members.get_mut("clientCapabilities") else { return };
    if let Some(Value::Object(fs)) = offers.remove("fs") {
        let flag = |key: &str| fs.get(key).cloned().unwrap_or(json!(false));
        offers.insert("filesRead".to_owned(), flag("readTextFile"));
        offers.insert("filesWrite".to_owned(), flag("writeTextFile"));
    }
}

/// Returns the version as the client wrote it, and adds the flat capabilities to v1's.
fn initialized_out(members: &mut Members) {
    let own = members.get("_meta").and_then(|meta| meta.get(META)).cloned();
    let own = own.as_ref().and_then(Value::as_object);
    if own.is_some_and(|own| own.contains_key("protocolVersion")) {
        members.remove("protocolVersion");
    }
    take_meta(members);
    let flat = members.remove("agentCapabilities").unwrap_or_default();
    let Value::Object(mut offers) = flat else { return };
    let persists = offers.get("loadSession").cloned().unwrap_or(json!(false));
    offers.insert("sessionPersistence".to_owned(), persists);
    offers.insert("streamingUpdates".to_owned(), json!(true));
    if let Some(Value::Object(given)) = own.and_then(|own| own.get("agentCapabilities")) {
        offers.extend(given.clone());
    }
    members.insert("agentCapabilities".to_owned(), Value::Object(offers));
}

fn new_session_in(members: &mut Members) -> Result<(), RpcError> {
    tolerate::new_session_in(members)?;
    // Neither `cwd` nor `workspaceUri` is required. The session resolves `.` when it is opened.
    members.entry("cwd").or_insert_with(|| json!("."));
    let own = members.get("_meta").and_then(|meta| meta.get(META));
    let mode = own.and_then(|own| own.get("mode")).and_then(Value::as_str);
    if mode.is_some_and(|mode| !["conversation", "development"].contains(&mode)) {
        let details = "'mode' has an unknown value: expected `conversation` or `development`";
        return Err(fault::at("mode", details.to_owned()));
    }
    Ok(())
}

/// Describes a session.
pub(super) fn session_out(session: SessionFacts<'_>) -> Value {
    let mut state = Map::new();
    if let Some(branch) = session.branch {
        state.insert("currentBranch".to_owned(), json!(branch));
    }
    if let Some(modified) = session.modified {
        state.insert("modifiedFiles".to_owned(), modified);
    }
    let mut out = json!({
        "sessionId": session.id,
        "workspaceUri": file_uri::encode(session.directory),
        "mode": mode_out(session.may_change),
        "state": if session.has_failed { "error" } else { "active" },
        "createdAt": session.created_ms,
        "lastActiveAt": session.now_ms,
        "workspaceState": state,
    });
    if let Some(history) = session.history {
        out["messageHistory"] = history;
    }
    out
}

/// Makes the parameters of an update.
pub(super) fn status(session: &str, status: &str, content: Vec<Value>) -> Value {
    json!({ "sessionId": session, "content": content, "status": status })
}

pub(super) fn turn_ends(session: &str, failure: Option<&RpcError>) -> Value {
    let Some(error) = failure else {
        return status(session, "completed", Vec::new());
    };
    let details = error.data.as_ref().and_then(|data| data["details"].as_str());
    let text = details.unwrap_or(&error.message);
    let block = json!({ "type": "text", "content": text, "metadata": { "code": error.code.0 } });
    status(session, "error", vec![block])
}

/// Rewrites an update to blocks; false if blocks cannot express it.
fn update_from_v1(members: &mut Members) -> bool {
    let Some(Value::Object(update)) = members.remove("update") else { return false };
    let kind = update.get("sessionUpdate").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut status = "working";
    let blocks = match kind.as_str() {
        "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk" => {
            if kind == "agent_thought_chunk" {
                status = "thinking";
            }
            vec![chunk_out(&kind, update)]
        }
        "tool_call" | "tool_call_update" => tool_call_out(update),
        "plan" => vec![text_with_metadata(plan_text(&update), update)],
        "notice" => vec![text_with_metadata(notice_text(&update), update)],
        _ => return false,
    };
    members.insert("content".to_owned(), Value::Array(blocks));
    members.insert("status".to_owned(), json!(status));
    true
}

/// A text block with the update in its metadata.
fn text_with_metadata(text: String, update: Members) -> Value {
    json!({ "type": "text", "content": text, "metadata": update })
}

fn chunk_out(kind: &str, mut update: Members) -> Value {
    let mut block = block::from_v1(update.remove("content").unwrap_or_default());
    let is_plain_thought = kind == "agent_thought_chunk" && block["type"] == "text";
    if is_plain_thought {
        block["type"] = json!("thought");
    }
    // When read back, a thought belongs to the agent unless its metadata says otherwise.
    let is_plain_message = kind == "agent_message_chunk" && block["type"] != "thought";
    if is_plain_thought || is_plain_message {
        update.remove("sessionUpdate");
    }
    if !update.is_empty() {
        let mut metadata = match block["metadata"].take() {
            Value::Object(metadata) => metadata,
            _ => Map::new(),
        };
        metadata.extend(update);
        block["metadata"] = Value::Object(metadata);
    } else if block["metadata"].is_null()
        && let Value::Object(members) = &mut block
    {
        members.remove("metadata");
    }
    block
}

/// A line with the title or status of the tool call, followed by its content.
fn tool_call_out(mut update: Members) -> Vec<Value> {
    let content = match update.remove("content") {
        Some(Value::Array(content)) => Some(content),
        _ => None,
    };
    if let Some(content) = &content {
        update.insert("blocks".to_owned(), json!(content.len()));
    }
    let line = ["title", "status", "toolCallId"]
        .iter()
        .find_map(|key| update.get(*key).and_then(Value::as_str))
        .unwrap_or_default()
        .to_owned();
    let mut blocks = vec![text_with_metadata(line, update)];
    blocks.extend(content.unwrap_or_default().into_iter().map(tool_content_out));
    blocks
}

fn tool_content_out(mut content: Value) -> Value {
    match content["type"].as_str() {
        Some("content") => block::from_v1(content["content"].take()),
        Some("diff") => {
            let text = |key: &str| content[key].as_str();
            let shown = diff::unified(
                text("path").unwrap_or_default(),
                text("oldText"),
                text("newText").unwrap_or_default(),
            );
            if let Value::Object(members) = &mut content {
                members.remove("type");
            }
            json!({ "type": "diff", "content": shown, "metadata": content })
        }
        _ => {
            let shown = content["terminalId"].as_str().unwrap_or_default().to_owned();
            json!({ "type": "text", "content": shown, "metadata": content })
        }
    }
}

fn tool_content_in(mut block: Value) -> Value {
    match block["type"].as_str() {
        // A text block that was only marked as a diff has no such member.
        Some("diff") if block["metadata"]["newText"].is_string() => {
            let mut diff = block["metadata"].take();
            diff["type"] = json!("diff");
            diff
        }
        _ if block["metadata"]["type"] == "terminal" => block["metadata"].take(),
        _ => {
            block::to_v1(&mut block);
            json!({ "type": "content", "content": block })
        }
    }
}

/// The plan as a readable list.
fn plan_text(update: &Members) -> String {
    let entries = update.get("entries").and_then(Value::as_array);
    let lines = entries.into_iter().flatten().map(|entry| {
        let mark = match entry["status"].as_str() {
            Some("completed") => 'x',
            Some("in_progress") => '~',
            _ => ' ',
        };
        format!("- [{mark}] {}", entry["content"].as_str().unwrap_or_default())
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads an update that [`update_from_v1`] wrote.
fn update_to_v1(members: &mut Members) -> Result<(), RpcError> {
    let not_blocks = || fault::at("content", "'content' must be a list of blocks".to_owned());
    let Some(Value::Array(blocks)) = members.remove("content") else {
        return Err(not_blocks());
    };
    members.remove("status");
    let mut blocks = blocks.into_iter();
    let Some(Value::Object(mut first)) = blocks.next() else {
        let details = "v1 has no update that contains only a status".to_owned();
        return Err(RpcError::of(Code::INVALID_PARAMS).details(details));
    };
    let mut metadata = take_object(&mut first, "metadata");
    let kind = metadata.get("sessionUpdate").and_then(Value::as_str).map(str::to_owned);
    let update = match kind.as_deref() {
        Some("plan" | "notice") => metadata,
        Some("tool_call" | "tool_call_update") => {
            if metadata.remove("blocks").is_some() {
                let content = blocks.map(tool_content_in).collect();
                metadata.insert("content".to_owned(), Value::Array(content));
            }
            metadata
        }
        kind => {
            let is_thought = first.get("type").is_some_and(|kind| kind == "thought");
            let default_kind =
                if is_thought { "agent_thought_chunk" } else { "agent_message_chunk" };
            let has_no_kind = kind.is_none();
            let mut update = Map::new();
            update.insert("sessionUpdate".to_owned(), json!(kind.unwrap_or(default_kind)));
            metadata.remove("sessionUpdate");
            for key in ["messageId", "_meta"] {
                if let Some(value) = metadata.remove(key) {
                    update.insert(key.to_owned(), value);
                }
            }
            if is_thought && has_no_kind {
                first.insert("type".to_owned(), json!("text"));
            }
            if !metadata.is_empty() {
                first.insert("metadata".to_owned(), Value::Object(metadata));
            }
            let mut block = Value::Object(first);
            block::to_v1(&mut block);
            update.insert("content".to_owned(), block);
            update
        }
    };
    members.insert("update".to_owned(), Value::Object(update));
    Ok(())
}
