//! Errors about invalid parameters that never repeat the parameters.
//!
//! serde's messages quote the invalid value, which may be a secret. These name the field and what was expected, and
//! nothing else.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_path_to_error::{Path, Segment};

use crate::code::{Code, RpcError};

/// Returns the error for parameters that are not an object.
#[must_use]
pub fn not_an_object() -> RpcError {
    at("params", "'params' must be an object".to_owned())
}

/// Returns the error for a field.
#[must_use]
pub fn at(path: &str, details: String) -> RpcError {
    RpcError::of(Code::INVALID_PARAMS).details(details).with("path", json!(path))
}

/// Reads the JSON a second time, to find the invalid field.
#[must_use]
pub fn explain<T: DeserializeOwned>(text: &str) -> RpcError {
    let mut reader = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => RpcError::of(Code::INVALID_PARAMS),
        Err(err) => {
            let path = known_part(err.path());
            describe(&path, &err.into_inner())
        }
    }
}

/// The names that a path may contain: the fields of our types. Any other name was chosen by the other side, may be
/// secret or very long, and ends the path.
const FIELDS: [&str; 69] = [
    "_meta",
    "action",
    "additionalDirectories",
    "annotations",
    "args",
    "audience",
    "auth",
    "blob",
    "clientCapabilities",
    "clientInfo",
    "command",
    "compaction",
    "configId",
    "content",
    "contextFiles",
    "credentials",
    "cwd",
    "data",
    "description",
    "elicitation",
    "env",
    "exitCode",
    "exitStatus",
    "filesystem",
    "form",
    "fs",
    "headers",
    "icons",
    "id",
    "key",
    "lastModified",
    "mcpServers",
    "metadata",
    "method",
    "methodId",
    "mimeType",
    "mode",
    "modeId",
    "modelId",
    "name",
    "notices",
    "optionId",
    "outcome",
    "output",
    "priority",
    "prompt",
    "protocolVersion",
    "readTextFile",
    "requestId",
    "resource",
    "session",
    "sessionId",
    "signal",
    "size",
    "sizes",
    "src",
    "terminal",
    "terminalId",
    "text",
    "theme",
    "title",
    "truncated",
    "type",
    "uri",
    "url",
    "value",
    "version",
    "workspaceUri",
    "writeTextFile",
];

fn known_part(path: &Path) -> String {
    let mut out = String::new();
    for segment in path {
        let name = match segment {
            Segment::Seq { index } => {
                out.push_str(&format!("[{index}]"));
                continue;
            }
            Segment::Map { key: name } | Segment::Enum { variant: name } => name,
            Segment::Unknown => break,
        };
        if !FIELDS.contains(&name.as_str()) {
            break;
        }
        out = join(&out, name);
    }
    out
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn describe(path: &str, err: &serde_json::Error) -> RpcError {
    let message = err.to_string();
    if let Some(field) = quoted_after(&message, "missing field ") {
        let full = join(path, field);
        return at(&full, format!("Missing required field '{full}'"));
    }
    if let Some(field) = quoted_after(&message, "duplicate field ") {
        let full = join(path, field);
        return at(&full, format!("'{full}' is given twice"));
    }
    let name = if path.is_empty() { "params" } else { path };
    if err.is_syntax() {
        let details = if message.starts_with("recursion limit") {
            format!("'{name}' is nested too deeply")
        } else {
            format!("'{name}' has an invalid string")
        };
        return at(name, details);
    }
    let expected = message.rsplit_once(", expected ").map(|(_, expected)| strip_position(expected));
    let problem = match message.split_once([' ', ':']).map(|(first, _)| first) {
        Some("unknown") => "has an unknown value",
        _ if message.starts_with("invalid type") => "has the wrong type",
        _ => "is not valid",
    };
    let Some(expected) = expected.map(plain).filter(|expected| is_safe(expected)) else {
        return at(name, format!("'{name}' {problem}"));
    };
    let got = got(&message).map(|got| format!(", got {got}")).unwrap_or_default();
    at(name, format!("'{name}' {problem}: expected {expected}{got}"))
}

/// Returns what serde expected in the words of JSON. The names of Rust types mean nothing to the other side.
fn plain(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        "a boolean" => "true or false",
        "path string" => "a path",
        _ if expected.starts_with("struct ") || expected.contains(" enum ") => "an object",
        other => other,
    }
}

/// Returns the type of the value that was sent, from serde's message. Never the value itself, which may be a secret.
fn got(message: &str) -> Option<&'static str> {
    const TYPES: [(&str, &str); 7] = [
        ("string", "a string"),
        ("integer", "a whole number"),
        ("floating point", "a number with a fraction"),
        ("boolean", "true or false"),
        ("sequence", "an array"),
        ("map", "an object"),
        ("null", "null"),
    ];
    let sent = message.strip_prefix("invalid type: ")?;
    TYPES.iter().find(|(name, _)| sent.starts_with(name)).map(|(_, words)| *words)
}

/// Returns whether serde's "expected" text can be repeated. It normally names our types, but a custom message could
/// contain anything.
fn is_safe(expected: &str) -> bool {
    expected.len() <= 300
        && expected.chars().all(|c| c.is_ascii_alphanumeric() || " `_/,-.".contains(c))
}

fn strip_position(message: &str) -> &str {
    message.split(" at line ").next().unwrap_or(message)
}

fn quoted_after<'a>(message: &'a str, lead: &str) -> Option<&'a str> {
    message.strip_prefix(lead)?.strip_prefix('`')?.split('`').next()
}

/// Rejects a string that contains a null character. Called only when the JSON seems to have one.
///
/// # Errors
/// -32602 with the path of the first such string.
pub fn reject_null_characters(text: &str) -> Result<(), RpcError> {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return Ok(());
    };
    match find_null_character(&value, String::new()) {
        Some(path) => {
            let path = if path.is_empty() { "params" } else { &path };
            Err(at(path, format!("'{path}' contains a null character")))
        }
        None => Ok(()),
    }
}

/// Recurses at most 128 levels, the limit of serde_json.
fn find_null_character(value: &Value, path: String) -> Option<String> {
    match value {
        Value::String(text) => text.contains('\0').then_some(path),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| find_null_character(item, format!("{path}[{index}]"))),
        Value::Object(members) => members.iter().find_map(|(key, member)| {
            if key.contains('\0') {
                return Some(path.clone());
            }
            let is_known = FIELDS.contains(&key.as_str());
            let inner = if is_known { join(&path, key) } else { path.clone() };
            find_null_character(member, inner)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::schema::PromptRequest;

    /// A key that the other side chose may be as secret and as long as a value.
    // R: W6, W7
    #[test]
    fn path_ends_before_an_unknown_name() {
        let key = "sk-key".repeat(1000);
        let deep = "[".repeat(200) + &"]".repeat(200);
        let params = |value: &str| {
            format!(r#"{{"sessionId":"s","prompt":[],"_meta":{{"a":{{"{key}":{value}}}}}}}"#)
        };
        let deep = explain::<PromptRequest>(&params(&deep));
        let null = reject_null_characters(&params(r#""\u0000""#)).unwrap_err();
        for error in [deep, null] {
            assert_eq!(error.data.as_ref().unwrap()["path"], "_meta", "{error:?}");
            assert!(!serde_json::to_string(&error).unwrap().contains("sk-key"));
        }
    }
}
