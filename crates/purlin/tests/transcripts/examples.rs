//! Every JSON example of the documents that define the dialects must occur in a transcript.
//!
//! The examples, and which differences are ignored, are described in `conformance/dialect/examples/README.md`.

use client::transcript::TranscriptStep;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::play;

/// One example of a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    section: String,
    from: Side,
    /// Why no transcript has it.
    never: Option<String>,
    message: Value,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Side {
    Client,
    Agent,
}

/// Stands for any value in an example.
const ANY: &str = "…";

/// Below these members every agent has its own values: what it can do, and its names for it.
const OWN: [&str; 6] =
    ["agentCapabilities", "agentInfo", "authMethods", "models", "modes", "availableCommands"];

fn examples() -> Vec<(String, Vec<Example>)> {
    let directory = play::directory().join("dialect/examples");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let documents = files.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap())
    };
    documents.map(read).collect()
}

/// Returns every message that the transcripts send or expect, normalised for the comparison.
fn messages(side: Side) -> Vec<Value> {
    let mut messages = Vec::new();
    for name in play::names() {
        for line in play::load(&name).unwrap().transcript.lines() {
            match (&line.step, side) {
                (TranscriptStep::Send(message), Side::Client)
                | (TranscriptStep::Expect(message), Side::Agent) => {
                    messages.push(normal(message.clone(), side));
                }
                _ => {}
            }
        }
    }
    messages
}

/// Replaces ids, directories and, on the agent's side, the agent's own values by fixed ones.
fn normal(mut message: Value, side: Side) -> Value {
    if let Value::Object(members) = &mut message {
        ["jsonrpc", "id"].iter().for_each(|key| drop(members.remove(*key)));
    }
    normalise(None, &mut message, side, false);
    message
}

fn normalise(key: Option<&str>, value: &mut Value, side: Side, is_own: bool) {
    let is_own = is_own || (side == Side::Agent && key.is_some_and(|key| OWN.contains(&key)));
    match value {
        Value::Object(members) => normalise_members(members, side, is_own),
        Value::Array(items) => {
            items.iter_mut().for_each(|item| normalise(key, item, side, is_own));
        }
        Value::String(text) => match key {
            Some("sessionId" | "toolCallId" | "workspaceUri" | "cwd") => *text = "NAME".to_owned(),
            Some("path") => *text = text.rsplit('/').next().unwrap_or_default().to_owned(),
            Some("title") if side == Side::Agent => *text = ANY.to_owned(),
            // What to do next comes after the first sentence of an error; the documents leave that out.
            Some("message") if side == Side::Agent => {
                text.truncate(text.find(". ").unwrap_or(text.len()));
            }
            // The name of a choice says which rule would be saved; the documents leave that out.
            Some("name") if text.starts_with("Always ") => *text = ANY.to_owned(),
            _ if is_own => *text = ANY.to_owned(),
            _ => {}
        },
        Value::Bool(_) if is_own => *value = Value::from(ANY),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn normalise_members(members: &mut Map<String, Value>, side: Side, is_own: bool) {
    // A tool's name, output and description are the agent's own.
    let shows = members.get("sessionUpdate").is_some_and(|kind| kind == "tool_call_update");
    let asks = members.contains_key("tool") && members.contains_key("description");
    for (key, value) in members.iter_mut() {
        let is_text = (shows && key == "content")
            || (asks && ["tool", "description"].contains(&key.as_str()));
        normalise(Some(key), value, side, is_own || is_text);
        if is_text && key == "content" {
            restore_types(value);
        }
    }
    if side == Side::Agent {
        members.retain(|_, value| !value.is_null() && *value != Value::Array(Vec::new()));
    }
}

/// Only the texts of a tool's output are the agent's own; the types of the blocks are compared.
fn restore_types(content: &mut Value) {
    for block in content.as_array_mut().into_iter().flatten() {
        if block.get("newText").is_some() {
            block["type"] = Value::from("diff");
        } else if block.get("content").is_some() {
            block["type"] = Value::from("content");
        } else if block.get("text").is_some() {
            block["type"] = Value::from("text");
        }
    }
}

/// Returns whether a message matches an example. A client's message matches exactly; an agent's may have more members.
fn matches(example: &Value, said: &Value, side: Side) -> bool {
    match (example, said) {
        (Value::String(any), _) if any == ANY => true,
        (Value::Object(example), Value::Object(said)) => {
            let has_more = said.keys().any(|key| !example.contains_key(key));
            let may_have_more = side == Side::Agent || example.contains_key(ANY);
            (may_have_more || !has_more)
                && example.iter().filter(|(key, _)| *key != ANY).all(|(key, value)| {
                    said.get(key).is_some_and(|said| matches(value, said, side))
                })
        }
        (Value::Array(example), Value::Array(said)) if side == Side::Agent => {
            example.iter().all(|item| said.iter().any(|said| matches(item, said, side)))
        }
        (Value::Array(example), Value::Array(said)) => {
            let mut pairs = example.iter().zip(said);
            example.len() == said.len() && pairs.all(|(item, said)| matches(item, said, side))
        }
        (example, said) => example == said,
    }
}

/// Returns whether an example matches a message or a part of one.
fn is_within(example: &Value, said: &Value, side: Side) -> bool {
    matches(example, said, side)
        || match said {
            Value::Object(members) => members.values().any(|said| is_within(example, said, side)),
            Value::Array(items) => items.iter().any(|said| is_within(example, said, side)),
            _ => false,
        }
}

/// Returns the examples with (or without) a reason why no transcript has them, and whether a transcript has them.
fn found(with_reason: bool) -> Vec<(String, bool)> {
    let (sent, expected) = (messages(Side::Client), messages(Side::Agent));
    let mut found = Vec::new();
    for (document, examples) in examples() {
        for example in examples.into_iter().filter(|example| example.never.is_some() == with_reason)
        {
            let said = if example.from == Side::Client { &sent } else { &expected };
            let wanted = normal(example.message, example.from);
            let is_found = said.iter().any(|said| is_within(&wanted, said, example.from));
            found.push((format!("{document}, {}: {wanted}", example.section), is_found));
        }
    }
    found
}

// R: D1, D2, D3
pub(crate) fn are_covered() {
    let found = found(false);
    assert!(found.len() > 100, "only {} examples", found.len());
    let missing: Vec<_> = found.iter().filter(|(_, is_found)| !is_found).collect();
    assert!(missing.is_empty(), "in no transcript:\n{missing:#?}");
}

/// An example that a transcript has needs no reason why it has none.
pub(crate) fn excuses_are_needed() {
    let found = found(true);
    let covered: Vec<_> = found.iter().filter(|(_, is_found)| *is_found).collect();
    assert!(covered.is_empty(), "covered by a transcript, so remove `never`:\n{covered:#?}");
}
