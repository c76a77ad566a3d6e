//! Compares received messages with expected ones, and rewrites expectations to match.
//!
//! Knows wildcards, merges the text chunks of one message, and pairs missing messages with unexpected ones. Pure.

mod form;

use std::fmt;

use serde_json::{Map, Value};

/// Matches any value; as the name of a member it matches any further members.
const ANY: &str = "…";

/// The first difference between two messages.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    path: String,
    expected: Option<Value>,
    got: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the message" } else { &self.path };
        match (&self.expected, &self.got) {
            (Some(expected), Some(got)) => {
                write!(out, "{path} is {}, not {}", print(got), print(expected))
            }
            (Some(_), None) => write!(out, "{path} is missing"),
            (None, _) => write!(out, "{path} was not expected"),
        }
    }
}

/// Returns the first difference, or `None` if the message matches.
pub(super) fn difference(expected: &Value, got: &Value) -> Option<Difference> {
    compare(expected, got, false)
}

/// As [`difference`], but objects may have further members.
pub(super) fn open_difference(expected: &Value, got: &Value) -> Option<Difference> {
    compare(expected, got, true)
}

fn compare(expected: &Value, got: &Value, is_open: bool) -> Option<Difference> {
    if let Some(form) = form::of(expected) {
        return (!form.matches(got, is_open)).then(|| Difference::whole(expected, got));
    }
    match (expected, got) {
        (Value::String(any), _) if any == ANY => None,
        (Value::Object(expected), Value::Object(got)) => compare_objects(expected, got, is_open),
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            let pairs = expected.iter().zip(got).enumerate();
            pairs.into_iter().find_map(|(index, (expected, got))| {
                Some(compare(expected, got, is_open)?.below(&format!("[{index}]")))
            })
        }
        (expected, got) if expected == got => None,
        (expected, got) => Some(Difference::whole(expected, got)),
    }
}

fn compare_objects(
    expected: &Map<String, Value>,
    got: &Map<String, Value>,
    is_open: bool,
) -> Option<Difference> {
    let one_sided = |key: &str, expected: Option<&Value>, got: Option<&Value>| Difference {
        path: key.to_owned(),
        expected: expected.cloned(),
        got: got.cloned(),
    };
    for (key, value) in expected.iter().filter(|(key, _)| *key != ANY) {
        if key == form::SHOWS {
            let shown = value.as_str().unwrap_or_default();
            if !Value::Object(got.clone()).to_string().contains(shown) {
                return Some(one_sided(key, Some(value), None));
            }
            continue;
        }
        if form::is_absent(value) {
            match got.get(key).filter(|got| !got.is_null()) {
                Some(got) => return Some(one_sided(key, None, Some(got))),
                None => continue,
            }
        }
        let Some(got) = got.get(key) else { return Some(one_sided(key, Some(value), None)) };
        if let Some(difference) = compare(value, got, is_open) {
            return Some(difference.below(key));
        }
    }
    if is_open || expected.contains_key(ANY) {
        return None;
    }
    let surplus = got.iter().find(|(key, _)| !expected.contains_key(*key));
    surplus.map(|(key, value)| one_sided(key, None, Some(value)))
}

impl Difference {
    fn whole(expected: &Value, got: &Value) -> Difference {
        Difference { path: String::new(), expected: Some(expected.clone()), got: Some(got.clone()) }
    }

    fn below(mut self, key: &str) -> Difference {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{key}{dot}{}", self.path);
        self
    }
}

/// Changes an expectation as little as possible so that it matches. Wildcards that match stay.
pub(super) fn rewrite(expected: &Value, got: &Value) -> Value {
    match (expected, got) {
        _ if difference(expected, got).is_none() => expected.clone(),
        (Value::Object(expected), Value::Object(got)) => {
            let is_open = expected.contains_key(ANY);
            let included = got.iter().filter(|(key, _)| !is_open || expected.contains_key(*key));
            let mut members: Map<String, Value> = included
                .map(|(key, got)| {
                    let value = expected.get(key).map_or(got.clone(), |old| rewrite(old, got));
                    (key.clone(), value)
                })
                .collect();
            if is_open {
                members.insert(ANY.to_owned(), Value::from(ANY));
            }
            Value::Object(members)
        }
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            expected.iter().zip(got).map(|(expected, got)| rewrite(expected, got)).collect()
        }
        (_, got) => got.clone(),
    }
}

/// The members to print first. The others follow by name, the wildcard last.
const FIRST: [&str; 22] = [
    "jsonrpc",
    "id",
    "method",
    "params",
    "result",
    "error",
    "sessionId",
    "update",
    "sessionUpdate",
    "messageId",
    "toolCallId",
    "type",
    "code",
    "message",
    "protocolVersion",
    "path",
    "title",
    "name",
    "kind",
    "status",
    "content",
    "text",
];

/// Prints a message in one line, its members in an order that does not depend on the agent.
pub(super) fn print(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let rank = |key: &str| match FIRST.iter().position(|first| *first == key) {
                _ if key == ANY => FIRST.len() + 1,
                Some(index) => index,
                None => FIRST.len(),
            };
            members.sort_by_key(|(key, _)| rank(key));
            let members: Vec<String> = members
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(&**key), print(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// Returns the text of an update that is a text chunk.
pub(super) fn chunk_text(message: &Value) -> Option<&str> {
    let update = message.get("params")?.get("update")?;
    let is_chunk = update.get("sessionUpdate")?.as_str()?.ends_with("_chunk");
    let content = update.get("content").filter(|_| is_chunk)?;
    content.get("text").filter(|_| content.get("type").is_some_and(|kind| kind == "text"))?.as_str()
}

/// Returns whether a chunk's text is a wildcard.
pub(super) fn is_any_text(expected: &Value) -> bool {
    chunk_text(expected) == Some(ANY)
}

/// Appends the text of a chunk to the previous one, if they are chunks of the same message.
pub(super) fn merge_chunk(into: &mut Value, next: &Value) -> bool {
    let (Some(text), Some(more)) = (chunk_text(into), chunk_text(next)) else { return false };
    let whole = format!("{text}{more}");
    let mut next = next.clone();
    set_text(&mut next, text);
    if next != *into {
        return false;
    }
    set_text(into, &whole);
    true
}

fn set_text(message: &mut Value, text: &str) {
    if let Some(old) = message.pointer_mut("/params/update/content/text") {
        *old = Value::from(text);
    }
}

/// Merges all neighbouring chunks.
pub(super) fn merge_chunks(messages: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for message in messages {
        if !merged.last_mut().is_some_and(|last| merge_chunk(last, &message)) {
            merged.push(message);
        }
    }
    merged
}

/// How an expected message was matched.
#[derive(Debug, PartialEq)]
pub(super) enum MatchResult {
    /// It was received.
    Matched,
    /// This message was received instead.
    Changed(Value),
    /// Nothing was received instead.
    Missing,
}

/// How the expected messages were matched, each with the unexpected messages before it.
#[derive(Debug, PartialEq)]
pub(super) struct Alignment {
    pub(super) slots: Vec<(Vec<Value>, MatchResult)>,
    /// The unexpected messages after all expected ones.
    pub(super) rest: Vec<Value>,
}

/// Pairs received messages with expectations.
pub(super) fn align(expected: &[&Value], got: Vec<Value>) -> Alignment {
    let mut slots: Vec<(Vec<Value>, MatchResult)> = Vec::new();
    let mut got = std::collections::VecDeque::from(got);
    let mut unmatched = 0;
    for expected in expected {
        let Some(at) = got.iter().position(|got| difference(expected, got).is_none()) else {
            slots.push((Vec::new(), MatchResult::Missing));
            unmatched += 1;
            continue;
        };
        let skipped = pair_up(&mut slots, unmatched, got.drain(..at).collect());
        got.pop_front();
        slots.push((skipped, MatchResult::Matched));
        unmatched = 0;
    }
    let rest = pair_up(&mut slots, unmatched, got.into());
    Alignment { slots, rest }
}

/// Pairs the last `unmatched` slots with received messages, and returns the remaining messages.
fn pair_up(
    slots: &mut [(Vec<Value>, MatchResult)],
    unmatched: usize,
    got: Vec<Value>,
) -> Vec<Value> {
    let mut got = got.into_iter();
    let start = slots.len() - unmatched;
    for ((_, result), got) in slots[start..].iter_mut().zip(got.by_ref()) {
        *result = MatchResult::Changed(got);
    }
    got.collect()
}

#[cfg(test)]
mod tests;
