//! The message reference: v1 with other names, and fields beside v1's.
//!
//! Whatever a client of it is told holds v1's fields, too; the table is in docs/internals/dialects.md.

use serde_json::{Map, Value, json};

use super::{Part, known_params, lift, only_one_prompt, rename, stow_unknown};
use crate::acp::tolerate;
use crate::code::{Code, RpcError};

type Members = Map<String, Value>;

/// The names of fields, v1's and ours, for errors.
pub(super) const WORDS: &[(&str, &str)] = &[("prompt", "content"), ("methodId", "method")];
/// What is expected, in v1's words and ours.
pub(super) const PHRASES: &[(&str, &str)] =
    &[("`text`, `image`, `audio`, `resource_link`, `resource`", "`text`, `image`, `resource`")];

/// What an agent is able to do: v1's name, and the name it has here.
const CAPABILITIES: [(&str, &str); 3] = [
    ("promptCapabilities", "promptTypes"),
    ("loadSession", "sessionLoad"),
    ("mcpCapabilities", "mcp"),
];

pub(super) fn to_v1(method: &str, part: Part, members: &mut Members) -> Result<(), RpcError> {
    match (method, part) {
        ("initialize", Part::Params) => tolerate::initialize_in(members)?,
        ("initialize", Part::Result) => {
            if let Some(Value::Object(offers)) = members.get_mut("agentCapabilities") {
                for (v1, own) in CAPABILITIES {
                    rename(offers, own, v1);
                    offers.remove(own);
                }
            }
        }
        ("authenticate", Part::Params) => rename(members, "method", "methodId"),
        ("session/new", Part::Params) => tolerate::new_session_in(members)?,
        ("session/prompt", Part::Params) => {
            only_one_prompt(members)?;
            let blocks = members.get_mut("content").and_then(Value::as_array_mut);
            blocks.into_iter().flatten().for_each(reference_in);
            tolerate::prompt_in(members)?;
            let blocks = members.get_mut("prompt").and_then(Value::as_array_mut);
            blocks.into_iter().flatten().filter_map(Value::as_object_mut).for_each(stow_extras);
        }
        ("session/prompt", Part::Result) => turn_failed_in(members)?,
        ("authenticate" | "fs/write_text_file", Part::Result) => success_in(members)?,
        ("fs/read_text_file", Part::Params) => {
            members.remove("startLine");
            members.remove("endLine");
        }
        ("session/request_permission", Part::Params) => {
            ["tool", "description", "toolCallId"].iter().for_each(|key| drop(members.remove(*key)));
        }
        ("session/update", Part::Params) => {
            if let Some(Value::Object(update)) = members.get_mut("update") {
                update_in(update);
            }
        }
        _ => {}
    }
    if let (Some(known), Part::Params) = (known_params(method), part) {
        stow_unknown(members, known);
    }
    Ok(())
}

pub(super) fn from_v1(method: &str, part: Part, members: &mut Members) -> bool {
    match (method, part) {
        ("initialize", Part::Params) => initialize_out(members),
        ("initialize", Part::Result) => {
            if let Some(Value::Object(offers)) = members.get_mut("agentCapabilities") {
                for (v1, own) in CAPABILITIES {
                    if let Some(value) = offers.get(v1).cloned() {
                        offers.insert(own.to_owned(), value);
                    }
                }
            }
        }
        ("authenticate", Part::Params) => rename(members, "methodId", "method"),
        ("session/prompt", Part::Params) => {
            if let Some(Value::Array(blocks)) = members.get_mut("prompt") {
                blocks.iter_mut().for_each(link_out);
            }
            rename(members, "prompt", "content");
        }
        ("authenticate" | "fs/write_text_file", Part::Result) => {
            members.insert("success".to_owned(), json!(true));
        }
        ("fs/read_text_file", Part::Params) => lines_out(members),
        ("session/request_permission", Part::Params) => permission_out(members),
        ("session/update", Part::Params) => {
            if let Some(Value::Object(update)) = members.get_mut("update") {
                update_out(update);
            }
        }
        _ => {}
    }
    if known_params(method).is_some() || part == Part::Result {
        lift(members);
    }
    true
}

/// A turn that failed has the stop reason `error`, and says in `_meta` what went wrong.
pub(super) fn turn_failed(error: RpcError, meta: Option<Members>) -> Result<Value, RpcError> {
    if ![Code::INTERNAL_ERROR, Code::TIMEOUT].contains(&error.code) {
        return Err(error);
    }
    let mut meta = meta.unwrap_or_default();
    meta.insert("error".to_owned(), json!(error));
    Ok(json!({ "stopReason": "error", "_meta": meta }))
}

fn turn_failed_in(members: &mut Members) -> Result<(), RpcError> {
    if members.get("stopReason").is_none_or(|reason| reason != "error") {
        return Ok(());
    }
    let told = members.get("_meta").and_then(|meta| meta.get("error"));
    let error = told.and_then(|error| serde_json::from_value(error.clone()).ok());
    Err(error.unwrap_or_else(|| RpcError::of(Code::INTERNAL_ERROR)))
}

fn success_in(members: &mut Members) -> Result<(), RpcError> {
    match members.remove("success") {
        Some(Value::Bool(false)) => {
            Err(RpcError::new(Code::INTERNAL_ERROR, "The answer was not a success"))
        }
        _ => Ok(()),
    }
}

fn initialize_out(members: &mut Members) {
    let Some(Value::Object(offers)) = members.get_mut("clientCapabilities") else { return };
    if let Some(Value::Object(mut fs)) = offers.remove("fs") {
        rename(&mut fs, "readTextFile", "read");
        rename(&mut fs, "writeTextFile", "write");
        offers.insert("filesystem".to_owned(), Value::Object(fs));
    }
}

/// A reference to a file is a `resource` with an address.
fn link_out(block: &mut Value) {
    if block["type"] == "resource_link" {
        block["type"] = json!("resource");
    }
    block.as_object_mut().into_iter().for_each(lift_extras);
}

/// What version 1 knows of a block, and of the resource in it.
const BLOCK: [&str; 12] = [
    "type",
    "text",
    "data",
    "mimeType",
    "uri",
    "name",
    "title",
    "description",
    "size",
    "resource",
    "annotations",
    "_meta",
];
const RESOURCE: [&str; 5] = ["uri", "mimeType", "text", "blob", "_meta"];
/// Where members of the resource go that have no place in it.
const EXTRAS: &str = "resourceMembers";

/// Puts members of a block that have no place into its `_meta`, so that they come back.
fn stow_extras(block: &mut Members) {
    if let Some(Value::Object(resource)) = block.get_mut("resource") {
        let (known, extras): (Members, Members) = std::mem::take(resource)
            .into_iter()
            .partition(|(key, _)| RESOURCE.contains(&key.as_str()));
        *resource = known;
        if !extras.is_empty() {
            block.insert(EXTRAS.to_owned(), Value::Object(extras));
        }
    }
    stow_unknown(block, &BLOCK);
}

/// Takes them out again. What another dialect stowed under a name that blocks have stays where it is.
fn lift_extras(block: &mut Members) {
    let Some(Value::Object(meta)) = block.get_mut("_meta") else { return };
    let Some(Value::Object(stowed)) = meta.get_mut(super::META) else { return };
    let (kept, lifted): (Members, Members) =
        std::mem::take(stowed).into_iter().partition(|(key, _)| BLOCK.contains(&key.as_str()));
    *stowed = kept;
    if stowed.is_empty() && !lifted.is_empty() {
        meta.remove(super::META);
        if meta.is_empty() {
            block.remove("_meta");
        }
    }
    for (key, value) in lifted {
        block.entry(key).or_insert(value);
    }
    if let Some(Value::Object(extras)) = block.remove(EXTRAS)
        && let Some(Value::Object(resource)) = block.get_mut("resource")
    {
        resource.extend(extras);
    }
}

/// A `resource` without contents refers to a file: typed reading then asks for its `uri`.
fn reference_in(block: &mut Value) {
    if block["type"] == "resource" && block.get("resource").is_none() && block.get("uri").is_none()
    {
        block["type"] = json!("resource_link");
        block["name"] = json!("");
    }
}

fn link_in(block: &mut Value) {
    if block["type"] == "resource" && block.get("uri").is_some() {
        block["type"] = json!("resource_link");
    }
}

/// Beside `line` and `limit`, the first and the last line.
fn lines_out(members: &mut Members) {
    let number = |key: &str| members.get(key).and_then(Value::as_u64);
    let (line, limit) = (number("line"), number("limit"));
    if line.is_none() && limit.is_none() {
        return;
    }
    let first = line.unwrap_or(1).max(1);
    members.insert("startLine".to_owned(), json!(first));
    if let Some(limit) = limit.filter(|limit| *limit > 0) {
        members.insert("endLine".to_owned(), json!(first.saturating_add(limit - 1)));
    }
}

/// Beside `toolCall`, which call it is, the tool, and what it will do.
fn permission_out(members: &mut Members) {
    let call = members.get("toolCall").cloned().unwrap_or_default();
    let tool = ["name", "kind"].iter().find_map(|key| call.get(*key)).cloned();
    members.insert("toolCallId".to_owned(), call["toolCallId"].clone());
    members.insert("tool".to_owned(), tool.unwrap_or_else(|| json!("tool")));
    let title = call.get("title").cloned().unwrap_or_else(|| json!(""));
    members.insert("description".to_owned(), title);
}

fn update_out(update: &mut Members) {
    match update.get("sessionUpdate").and_then(Value::as_str) {
        Some("agent_thought_chunk") => {
            retype(update.get_mut("content"), "text", "thinking");
            update.get_mut("content").into_iter().for_each(link_out);
        }
        Some("agent_message_chunk" | "user_message_chunk") => {
            update.get_mut("content").into_iter().for_each(link_out);
        }
        Some("tool_call" | "tool_call_update") => {
            contents(update).for_each(unwrap_block);
        }
        Some("plan") => entries(update).for_each(|entry| {
            if let Some(content) = entry.get("content").cloned() {
                entry.insert("description".to_owned(), content);
            }
        }),
        // A client without notices reads them in the conversation.
        Some("notice") => {
            let text = notice_text(update);
            let chunk = json!({ "type": "text", "text": text });
            update.retain(|key, _| key == "_meta");
            update.insert("sessionUpdate".to_owned(), json!("agent_message_chunk"));
            update.insert("content".to_owned(), chunk);
        }
        _ => {}
    }
}

fn update_in(update: &mut Members) {
    match update.get("sessionUpdate").and_then(Value::as_str) {
        Some("agent_thought_chunk") => {
            retype(update.get_mut("content"), "thinking", "text");
            update.get_mut("content").into_iter().for_each(link_in);
        }
        Some("agent_message_chunk" | "user_message_chunk") => {
            update.get_mut("content").into_iter().for_each(link_in);
        }
        Some("tool_call" | "tool_call_update") => {
            contents(update).for_each(wrap_block);
        }
        Some("plan") => entries(update).for_each(|entry| {
            rename(entry, "description", "content");
            entry.remove("description");
        }),
        _ => {}
    }
}

/// Returns what a notice says, in one text.
pub(super) fn notice_text(notice: &Members) -> String {
    let text = |key: &str| notice.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("description") {
        "" => text("title").to_owned(),
        description => format!("{}\n\n{description}", text("title")),
    }
}

fn contents(update: &mut Members) -> impl Iterator<Item = &mut Value> {
    update.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten()
}

fn entries(update: &mut Members) -> impl Iterator<Item = &mut Members> {
    let entries = update.get_mut("entries").and_then(Value::as_array_mut);
    entries.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn retype(block: Option<&mut Value>, from: &str, to: &str) {
    if let Some(kind) = block.and_then(|block| block.get_mut("type"))
        && kind == from
    {
        *kind = json!(to);
    }
}

/// `{type: content, content: BLOCK}` is the block alone.
fn unwrap_block(content: &mut Value) {
    let is_plain = content.as_object().is_some_and(|members| members.len() == 2);
    if is_plain && content["type"] == "content" {
        *content = content["content"].take();
        link_out(content);
    }
}

fn wrap_block(content: &mut Value) {
    let is_block = ["text", "image", "audio", "resource", "resource_link"];
    if content["type"].as_str().is_some_and(|kind| is_block.contains(&kind)) {
        let mut block = content.take();
        link_in(&mut block);
        *content = json!({ "type": "content", "content": block });
    }
}
