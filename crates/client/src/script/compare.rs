//! Compares received messages with expected ones, and rewrites expectations to match.
//!
//! Knows wildcards, merges the text chunks of one message, and pairs missing messages with unexpected ones. Pure.

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
    match (expected, got) {
        (Value::String(any), _) if any == ANY => None,
        (Value::Object(expected), Value::Object(got)) => difference_of_objects(expected, got),
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            let pairs = expected.iter().zip(got).enumerate();
            pairs.into_iter().find_map(|(index, (expected, got))| {
                Some(difference(expected, got)?.below(&format!("[{index}]")))
            })
        }
        (expected, got) if expected == got => None,
        (expected, got) => Some(Difference {
            path: String::new(),
            expected: Some(expected.clone()),
            got: Some(got.clone()),
        }),
    }
}

fn difference_of_objects(
    expected: &Map<String, Value>,
    got: &Map<String, Value>,
) -> Option<Difference> {
    let one_sided = |key: &str, expected: Option<&Value>, got: Option<&Value>| Difference {
        path: key.to_owned(),
        expected: expected.cloned(),
        got: got.cloned(),
    };
    for (key, value) in expected.iter().filter(|(key, _)| *key != ANY) {
        let Some(got) = got.get(key) else { return Some(one_sided(key, Some(value), None)) };
        if let Some(difference) = difference(value, got) {
            return Some(difference.below(key));
        }
    }
    if expected.contains_key(ANY) {
        return None;
    }
    let surplus = got.iter().find(|(key, _)| !expected.contains_key(*key));
    surplus.map(|(key, value)| one_sided(key, None, Some(value)))
}

impl Difference {
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
mod tests {
    use serde_json::json;

    use super::*;

    fn describe(expected: Value, got: Value) -> String {
        difference(&expected, &got).map_or("fits".to_owned(), |difference| difference.to_string())
    }

    #[test]
    fn wildcards_stand_for_values_and_members() {
        assert_eq!(describe(json!({ "a": "…" }), json!({ "a": [1, 2] })), "fits");
        assert_eq!(describe(json!({ "a": "…" }), json!({})), "a is missing");
        assert_eq!(describe(json!({ "a": 1, "…": "…" }), json!({ "a": 1, "b": 2 })), "fits");
        assert_eq!(describe(json!({ "a": 1, "…": "…" }), json!({ "a": 1 })), "fits");
        assert_eq!(describe(json!({ "a": 1, "…": "…" }), json!({ "b": 2 })), "a is missing");
        assert_eq!(describe(json!(["…", 2]), json!([1, 2])), "fits");
    }

    #[test]
    fn first_difference_is_named() {
        assert_eq!(
            describe(
                json!({ "a": { "b": [1, { "c": 2 }] } }),
                json!({ "a": { "b": [1, { "c": 3 }] } })
            ),
            "a.b[1].c is 3, not 2"
        );
        assert_eq!(describe(json!({}), json!({ "a": 1 })), "a was not expected");
        assert_eq!(describe(json!([1]), json!([1, 2])), "the message is [1,2], not [1]");
    }

    #[test]
    fn rewritten_line_keeps_matching_wildcards() {
        let expected = json!({ "id": "…", "result": { "a": 1, "b": 1, "…": "…" }, "old": 1 });
        let got = json!({ "id": 7, "result": { "a": 2, "b": 1, "c": 3 }, "new": 1 });
        let new = rewrite(&expected, &got);
        assert_eq!(print(&new), r#"{"id":"…","result":{"a":2,"b":1,"…":"…"},"new":1}"#);
        assert_eq!(difference(&new, &got), None);
    }

    #[test]
    fn missing_and_unexpected_messages_are_distinguished() {
        let [a, b, c, x, y] = ["a", "b", "c", "x", "y"].map(|name| json!({ "m": name }));
        let aligned = |expected: &[&Value], got: &[&Value]| {
            align(expected, got.iter().map(|value| (*value).clone()).collect())
        };
        let fits = || (Vec::new(), MatchResult::Matched);
        assert_eq!(
            aligned(&[&a, &b, &c], &[&a, &c]),
            Alignment { slots: vec![fits(), (vec![], MatchResult::Missing), fits()], rest: vec![] }
        );
        assert_eq!(
            aligned(&[&a, &b, &c], &[&a, &x, &y, &c, &x]),
            Alignment {
                slots: vec![
                    fits(),
                    (vec![], MatchResult::Changed(x.clone())),
                    (vec![y.clone()], MatchResult::Matched)
                ],
                rest: vec![x.clone()],
            }
        );
        assert_eq!(
            aligned(&[&b], &[&x, &y]),
            Alignment { slots: vec![(vec![], MatchResult::Changed(x))], rest: vec![y] }
        );
    }

    #[test]
    fn only_chunks_of_one_message_are_merged() {
        let chunk = |kind: &str, id: &str, text: &str| {
            json!({ "method": "session/update", "params": { "sessionId": "s1", "update": {
                "sessionUpdate": kind, "messageId": id, "content": { "type": "text", "text": text } } } })
        };
        let say = "agent_message_chunk";
        let merged = merge_chunks([
            chunk(say, "m1", "a"),
            chunk(say, "m1", "b"),
            chunk("agent_thought_chunk", "m1", "c"),
            chunk(say, "m1", "d"),
            chunk(say, "m2", "e"),
            json!({ "id": 1 }),
            chunk(say, "m2", "f"),
        ]);
        let texts: Vec<_> =
            merged.iter().map(|message| chunk_text(message).unwrap_or("-")).collect();
        assert_eq!(texts, ["ab", "c", "d", "e", "-", "f"]);
    }
}
