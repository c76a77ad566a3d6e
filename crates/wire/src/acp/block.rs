//! Content blocks of the container dialect, `{type, content, metadata}`, and the few that differ in the message reference.

use serde_json::{Map, Value, json};

use super::members::{META, insert_meta, rename, take_object};
use super::{fault, file_uri};
use crate::code::RpcError;

type Members = Map<String, Value>;

/// The members that carry the payload of a block in v1. A block with one of them is a v1 block.
const PAYLOADS: [&str; 4] = ["text", "data", "uri", "resource"];
/// The members that v1 has besides the payload, by type of block. In `metadata` they have the same names.
const OF_TEXT: &[&str] = &["annotations"];
const OF_IMAGE: &[&str] = &["annotations", "uri"];
const OF_AUDIO: &[&str] = &["annotations", "mimeType"];
const OF_LINK: &[&str] = &["annotations", "mimeType", "name", "title", "description", "size"];

/// Rewrites a block of this dialect or of the message reference to v1. Unknown blocks stay unchanged.
pub(super) fn to_v1(block: &mut Value) {
    let Value::Object(members) = block else { return };
    let Some(kind) = members.get("type").and_then(Value::as_str).map(str::to_owned) else { return };
    if PAYLOADS.iter().any(|payload| members.contains_key(*payload)) {
        fix_v1_block(&kind, members);
        return;
    }
    if !["text", "image", "diff", "file", "thought", "thinking"].contains(&kind.as_str()) {
        return;
    }
    let metadata = match members.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    let content = match members.remove("content") {
        Some(Value::String(content)) => content,
        // Typed reading reports what is wrong with it.
        Some(other) => {
            members.insert("type".to_owned(), json!("text"));
            members.insert("text".to_owned(), other);
            return;
        }
        None if ["text", "image"].contains(&kind.as_str()) => return,
        None => return drop(members.insert("type".to_owned(), json!("text"))),
    };
    members.remove("type");
    let others = std::mem::take(members);
    *block = match kind.as_str() {
        "image" => image(content, metadata),
        "file" => file(content, metadata),
        "text" => with_metadata(json!({ "type": "text", "text": content }), OF_TEXT, metadata),
        other => {
            let kind = if other == "diff" { "diff" } else { "thought" };
            marked(
                with_metadata(json!({ "type": "text", "text": content }), OF_TEXT, metadata),
                kind,
            )
        }
    };
    if let Value::Object(members) = block {
        others.into_iter().for_each(|(key, value)| insert_meta(members, &key, value));
    }
}

/// Rejects a block of this dialect that would lose data when rewritten to v1.
pub(super) fn check(index: usize, block: &Value) -> Result<(), RpcError> {
    let reject = |member: &str, problem: &str| {
        let path = format!("content[{index}].{member}");
        let details = format!("'{path}' {problem}");
        Err(fault::at(&path, details))
    };
    let metadata = block.get("metadata").filter(|metadata| !metadata.is_null());
    if metadata.is_some_and(|metadata| !metadata.is_object()) {
        return reject("metadata", "must be an object");
    }
    if block["type"] != "file" {
        return Ok(());
    }
    for key in ["uri", "path"] {
        if metadata.and_then(|data| data.get(key)).is_some_and(|value| !value.is_string()) {
            return reject(&format!("metadata.{key}"), "must be a string");
        }
    }
    let has = |key: &&str| metadata.is_some_and(|data| data.get(*key).is_some());
    if !["uri", "path", "encoding"].iter().any(has) && block["content"] == "" {
        return reject("content", "must be the path of a file");
    }
    Ok(())
}

/// Fixes a block that has v1's payload but another type, or lacks a name or a MIME type.
fn fix_v1_block(kind: &str, members: &mut Members) {
    let is_link = members.contains_key("uri") && !members.contains_key("resource");
    match kind {
        "resource" if is_link => drop(members.insert("type".to_owned(), json!("resource_link"))),
        "thinking" | "thought" => drop(members.insert("type".to_owned(), json!("text"))),
        "image" if !members.contains_key("mimeType") => {
            if let Some(data) = members.get("data").and_then(Value::as_str) {
                let mime = json!(guess_mime(data));
                members.insert("mimeType".to_owned(), mime);
            }
        }
        _ => {}
    }
    if is_link
        && kind.starts_with("resource")
        && !members.contains_key("name")
        && let Some(uri) = members.get("uri").and_then(Value::as_str)
    {
        let name = json!(file_uri::last_name(uri));
        members.insert("name".to_owned(), name);
    }
}

fn image(content: String, mut metadata: Members) -> Value {
    let given = metadata.remove("mimeType").and_then(|mime| mime.as_str().map(str::to_owned));
    let address = content.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (mime, data) = match address {
        Some((mime, data)) => (mime.to_owned(), data.to_owned()),
        None => (given.unwrap_or_else(|| guess_mime(&content).to_owned()), content),
    };
    with_metadata(json!({ "type": "image", "data": data, "mimeType": mime }), OF_IMAGE, metadata)
}

/// Guesses the type of an image from its first bytes in base64.
fn guess_mime(data: &str) -> &'static str {
    let known = [("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];
    let found = known.iter().find(|(start, _)| data.starts_with(start));
    found.map_or("image/png", |(_, mime)| mime)
}

/// A file: if `metadata` has a URI or a path, `content` is the file's content; otherwise `content` is its path.
fn file(content: String, mut metadata: Members) -> Value {
    let is_base64 = metadata.get("encoding").is_some_and(|encoding| encoding == "base64");
    if is_base64 {
        metadata.remove("encoding");
    }
    let uri = match (metadata.remove("uri"), metadata.remove("path")) {
        (Some(Value::String(uri)), _) => Some(uri),
        (_, Some(Value::String(path))) if path.starts_with('/') => Some(file_uri::encode(&path)),
        (_, Some(Value::String(path))) => Some(path),
        _ => None,
    };
    match uri {
        Some(uri) => {
            let payload = if is_base64 { "blob" } else { "text" };
            let mut resource = json!({ "uri": uri, payload: content });
            if let Some(mime) = metadata.remove("mimeType") {
                resource["mimeType"] = mime;
            }
            with_metadata(json!({ "type": "resource", "resource": resource }), OF_TEXT, metadata)
        }
        None if is_base64 => {
            with_metadata(json!({ "type": "audio", "data": content }), OF_AUDIO, metadata)
        }
        None => with_metadata(link(&content), OF_LINK, metadata),
    }
}

/// Puts the known members next to the payload, and all others into `_meta`.
fn with_metadata(mut block: Value, known: &[&str], metadata: Members) -> Value {
    let mut meta = Map::new();
    for (key, value) in metadata {
        if known.contains(&key.as_str()) {
            block[key] = value;
        } else {
            meta.insert(key, value);
        }
    }
    if !meta.is_empty() {
        block["_meta"] = Value::Object(meta);
    }
    block
}

/// Records in `_meta` which type a text block had.
fn marked(mut block: Value, kind: &str) -> Value {
    if let Value::Object(members) = &mut block {
        insert_meta(members, "type", json!(kind));
    }
    block
}

/// Rewrites a block of v1 to this dialect.
pub(super) fn from_v1(block: Value) -> Value {
    let Value::Object(mut members) = block else { return block };
    let kind = members.remove("type").unwrap_or_default();
    let mut metadata = match members.remove("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    let mut others = take_object(&mut metadata, META);
    let marked = others.remove("type");
    let (kind, content) = match kind.as_str() {
        Some("text") => (marked.unwrap_or_else(|| json!("text")), members.remove("text")),
        Some("image") => (json!("image"), members.remove("data")),
        Some("resource_link") => (json!("file"), members.remove("uri")),
        Some("audio") => {
            metadata.insert("encoding".to_owned(), json!("base64"));
            (json!("file"), members.remove("data"))
        }
        Some("resource") => {
            let Some(Value::Object(mut resource)) = members.remove("resource") else {
                return json!({ "type": "text", "content": "" });
            };
            if resource.contains_key("blob") {
                metadata.insert("encoding".to_owned(), json!("base64"));
                rename(&mut resource, "blob", "text");
            }
            let content = resource.remove("text");
            metadata.extend(resource);
            (json!("file"), content)
        }
        _ => (json!("text"), members.remove("text")),
    };
    metadata.extend(members);
    let content = content.unwrap_or_else(|| json!(""));
    let mut out = json!({ "type": kind, "content": content });
    for (key, value) in others {
        if ["content", "metadata"].contains(&key.as_str()) {
            continue;
        }
        out[key] = value;
    }
    if !metadata.is_empty() {
        out["metadata"] = Value::Object(metadata);
    }
    out
}

/// Returns a link to a path or a URI. A relative path stays relative: only the session knows its working directory.
pub(super) fn link(path: &str) -> Value {
    let uri = if path.starts_with('/') { file_uri::encode(path) } else { path.to_owned() };
    json!({ "type": "resource_link", "uri": uri, "name": file_uri::last_name(path) })
}
