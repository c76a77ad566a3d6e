//! The message reference: v1 with some other names and additional members.
//!
//! What we send in this dialect also has v1's members. The table is in docs/internals/dialects.md.

use serde_json::{Map, Value, json};

use super::common::{Payload, known_v1_params, notice_text, reject_two_prompts};
use crate::acp::members::{META, put_unknown_in_meta, rename, take_meta};
use crate::acp::tolerate;
use crate::code::{Code, RpcError};

type Members = Map<String, Value>;

/// Field names in errors: v1's and this dialect's.
pub(super) const FIELD_NAMES: &[(&str, &str)] = &[("prompt", "content"), ("methodId", "method")];
/// Wording of errors: v1's and this dialect's.
pub(super) const WORDING: &[(&str, &str)] =
    &[("`text`, `image`, `audio`, `resource_link`, `resource`", "`text`, `image`, `resource`")];

/// The agent's capabilities: v1's name and this dialect's.
const CAPABILITIES: [(&str, &str); 3] = [
    ("promptCapabilities", "promptTypes"),
    ("loadSession", "sessionLoad"),
    ("mcpCapabilities", "mcp"),
];

pub(super) fn to_v1(method: &str, part: Payload, members: &mut Members) -> Result<(), RpcError> {
    match (method, part) {
        ("initialize", Payload::Params) => tolerate::initialize_in(members)?,
        ("initialize", Payload::Result) => {
            if let Some(Value::Object(offers)) = members.get_mut("agentCapabilities") {
                for (v1, own) in CAPABILITIES {
                    rename(offers, own, v1);
                    offers.remove(own);
                }
            }
        }
        ("authenticate", Payload::Params) => rename(members, "method", "methodId"),
        ("session/new", Payload::Params) => tolerate::new_session_in(members)?,
        ("session/prompt", Payload::Params) => {
            reject_two_prompts(members)?;
            let blocks = members.get_mut("content").and_then(Value::as_array_mut);
            blocks.into_iter().flatten().for_each(reference_in);
            tolerate::prompt_in(members)?;
            let blocks = members.get_mut("prompt").and_then(Value::as_array_mut);
            blocks
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
                .for_each(put_extras_in_meta);
        }
        ("session/prompt", Payload::Result) => turn_failed_in(members)?,
        ("authenticate" | "fs/write_text_file", Payload::Result) => success_in(members)?,
        ("fs/read_text_file", Payload::Params) => {
            members.remove("startLine");
            members.remove("endLine");
        }
        ("session/request_permission", Payload::Params) => {
            ["tool", "description", "toolCallId"].iter().for_each(|key| drop(members.remove(*key)));
        }
        ("session/update", Payload::Params) => {
            if let Some(Value::Object(update)) = members.get_mut("update") {
                update_to_v1(update);
            }
        }
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
        ("initialize", Payload::Result) => {
            if let Some(Value::Object(offers)) = members.get_mut("agentCapabilities") {
                for (v1, own) in CAPABILITIES {
                    if let Some(value) = offers.get(v1).cloned() {
                        offers.insert(own.to_owned(), value);
                    }
                }
            }
        }
        ("authenticate", Payload::Params) => rename(members, "methodId", "method"),
        ("session/prompt", Payload::Params) => {
            if let Some(Value::Array(blocks)) = members.get_mut("prompt") {
                blocks.iter_mut().for_each(link_out);
            }
            rename(members, "prompt", "content");
        }
        ("authenticate" | "fs/write_text_file", Payload::Result) => {
            members.insert("success".to_owned(), json!(true));
        }
        ("fs/read_text_file", Payload::Params) => lines_out(members),
        ("session/request_permission", Payload::Params) => permission_out(members),
        ("session/update", Payload::Params) => {
            if let Some(Value::Object(update)) = members.get_mut("update") {
                update_from_v1(update);
            }
        }
        _ => {}
    }
    if known_v1_params(method).is_some() || part == Payload::Result {
        take_meta(members);
    }
    true
}

/// A failed turn has the stop reason `error` and the error in `_meta`.
pub(super) fn turn_failed(error: RpcError, meta: Option<Members>) -> Result<Value, RpcError> {
    let of_turn = [Code::INTERNAL_ERROR, Code::MODEL_FAILED, Code::RATE_LIMITED, Code::TIMEOUT];
    if !of_turn.contains(&error.code) {
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
    let error = members.get("_meta").and_then(|meta| meta.get("error"));
    let error = error.and_then(|error| serde_json::from_value(error.clone()).ok());
    Err(error.unwrap_or_else(|| RpcError::of(Code::INTERNAL_ERROR)))
}

fn success_in(members: &mut Members) -> Result<(), RpcError> {
    match members.remove("success") {
        Some(Value::Bool(false)) => {
            Err(RpcError::new(Code::INTERNAL_ERROR, "The client reported a failure"))
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

/// In this dialect a link to a file is a `resource` with a `uri`.
fn link_out(block: &mut Value) {
    if block["type"] == "resource_link" {
        block["type"] = json!("resource");
    }
    block.as_object_mut().into_iter().for_each(take_extras_from_meta);
}

/// The members that v1 has in a block, and in the resource inside it.
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
/// The key for members of a resource that v1 does not have.
const EXTRAS: &str = "resourceMembers";

/// Moves members of a block that v1 does not have into its `_meta`, so that they can be restored.
fn put_extras_in_meta(block: &mut Members) {
    if let Some(Value::Object(resource)) = block.get_mut("resource") {
        let (known, extras): (Members, Members) = std::mem::take(resource)
            .into_iter()
            .partition(|(key, _)| RESOURCE.contains(&key.as_str()));
        *resource = known;
        if !extras.is_empty() {
            block.insert(EXTRAS.to_owned(), Value::Object(extras));
        }
    }
    put_unknown_in_meta(block, &BLOCK);
}

/// Restores those members. A value under the name of a v1 member was put there by another dialect and stays.
fn take_extras_from_meta(block: &mut Members) {
    let Some(Value::Object(meta)) = block.get_mut("_meta") else { return };
    let Some(Value::Object(own)) = meta.get_mut(META) else { return };
    let (others, restored): (Members, Members) =
        std::mem::take(own).into_iter().partition(|(key, _)| BLOCK.contains(&key.as_str()));
    *own = others;
    if own.is_empty() && !restored.is_empty() {
        meta.remove(META);
        if meta.is_empty() {
            block.remove("_meta");
        }
    }
    for (key, value) in restored {
        block.entry(key).or_insert(value);
    }
    if let Some(Value::Object(extras)) = block.remove(EXTRAS)
        && let Some(Value::Object(resource)) = block.get_mut("resource")
    {
        resource.extend(extras);
    }
}

/// A `resource` without contents is a link: typed reading then requires its `uri`.
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

/// Adds the first and the last line to `line` and `limit`.
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

/// Adds the tool call's id, the tool and a description to `toolCall`.
fn permission_out(members: &mut Members) {
    let call = members.get("toolCall").cloned().unwrap_or_default();
    let tool = ["name", "kind"].iter().find_map(|key| call.get(*key)).cloned();
    members.insert("toolCallId".to_owned(), call["toolCallId"].clone());
    members.insert("tool".to_owned(), tool.unwrap_or_else(|| json!("tool")));
    let title = call.get("title").cloned().unwrap_or_else(|| json!(""));
    members.insert("description".to_owned(), title);
}

fn update_from_v1(update: &mut Members) {
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
        // This dialect has no notices, so they are shown as messages.
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

fn update_to_v1(update: &mut Members) {
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

/// Replaces `{type: content, content: BLOCK}` by the block.
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
