//! Replaces values that differ between runs by stable names, and back.
//!
//! Session ids, ids of the agent's calls, message ids and the working directory in both directions; times, references and
//! the agent's version only in received messages.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

/// A session id of at least this length is unlikely to occur by chance, so it is also replaced inside longer strings.
const UNIQUE_LENGTH: usize = 16;

/// The values that have a name so far. The first of each list is number 1.
#[derive(Debug)]
pub(super) struct Names {
    directory: String,
    sessions: Vec<Value>,
    calls: Vec<Value>,
    messages: Vec<Value>,
    /// Values named by `let` lines.
    lets: HashMap<String, Value>,
}

impl Names {
    pub(super) fn new(directory: &Path) -> Names {
        Names {
            directory: directory.to_string_lossy().into_owned(),
            sessions: Vec::new(),
            calls: Vec::new(),
            messages: Vec::new(),
            lets: HashMap::new(),
        }
    }

    /// Names a value; `"$NAME"` stands for it.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.lets.insert(format!("${name}"), value);
    }

    /// Replaces the names of `let` lines in an expectation.
    pub(super) fn with_lets(&self, expected: &Value) -> Value {
        match expected {
            Value::String(name) => self.lets.get(name).unwrap_or(expected).clone(),
            Value::Array(items) => items.iter().map(|item| self.with_lets(item)).collect(),
            Value::Object(members) => {
                let members =
                    members.iter().map(|(key, value)| (key.clone(), self.with_lets(value)));
                Value::Object(members.collect())
            }
            other => other.clone(),
        }
    }

    /// Replaces names in a line that need not be JSON: `"s1"` and the working directory.
    pub(super) fn in_raw_line(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(text) = str::from_utf8(bytes) else { return bytes.to_owned() };
        let mut text = text.replace("\"/w\"", &Value::from(&*self.directory).to_string());
        for (index, session) in self.sessions.iter().enumerate() {
            text = text.replace(&format!("\"s{}\"", index + 1), &session.to_string());
        }
        repeated(&text).into_bytes()
    }

    /// Returns the id of a call of the agent that has this name.
    pub(super) fn call(&self, name: &str) -> Option<&Value> {
        let number: usize = name.strip_prefix('a')?.parse().ok()?;
        self.calls.get(number.checked_sub(1)?)
    }

    /// Replaces the names in a message of the client by the with_values values.
    pub(super) fn with_values(&self, message: &Value) -> Value {
        let mut message = message.clone();
        let is_reply = message.get("method").is_none();
        if let Some(id) = message.get_mut("id").filter(|_| is_reply) {
            replace(id, "a", &self.calls);
        }
        self.replace_names(None, &mut message);
        message
    }

    /// Returns whether a message of the client uses the next name, whose value the agent has not sent yet.
    pub(super) fn is_early(&self, message: &Value) -> bool {
        let is_next = |value: Option<&Value>, letter: &str, values: &[Value]| {
            let name = format!("{letter}{}", values.len() + 1);
            value.is_some_and(|value| *value == name)
        };
        let is_reply = message.get("method").is_none();
        (is_reply && is_next(message.get("id"), "a", &self.calls))
            || is_next(message.pointer("/params/sessionId"), "s", &self.sessions)
    }

    fn replace_names(&self, key: Option<&str>, value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.iter_mut().for_each(|(key, value)| self.replace_names(Some(key), value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_names(key, item)),
            Value::String(text) => match key {
                Some("sessionId") => replace(value, "s", &self.sessions),
                Some("requestId") => replace(value, "a", &self.calls),
                Some("messageId") => replace(value, "m", &self.messages),
                _ => match self.lets.get(text.as_str()) {
                    Some(named) => *value = named.clone(),
                    None => *text = repeated(&self.real_path(text)),
                },
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Replaces `/w` at the start of a string or a `file://` URI by the directory of the values.
    pub(super) fn real_path(&self, text: &str) -> String {
        let (scheme, path) = match text.strip_prefix("file://") {
            Some(path) => ("file://", path),
            None => ("", text),
        };
        match path.strip_prefix("/w") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                format!("{scheme}{}{rest}", self.directory)
            }
            _ => text.to_owned(),
        }
    }

    /// Replaces the values in a message of the agent by their names.
    pub(super) fn with_names(&mut self, mut message: Value) -> Value {
        let Value::Object(members) = &mut message else { return message };
        match members.get("jsonrpc") {
            Some(version) if version == "2.0" => {
                members.remove("jsonrpc");
            }
            Some(_) => {}
            // Transcripts leave the member out, so a message without it must look different.
            None => {
                members.insert("jsonrpc".to_owned(), Value::Null);
            }
        }
        if members.contains_key("method")
            && let Some(id) = members.get_mut("id")
        {
            self.calls.push(id.take());
            *id = Value::from(format!("a{}", self.calls.len()));
        }
        let given = members.get("result").and_then(|result| result.get("sessionId"));
        if let Some(session) = given.filter(|session| session.is_string())
            && !self.sessions.contains(session)
        {
            self.sessions.push(session.clone());
        }
        set(&mut message, "/error/data/reference", "R");
        set(&mut message, "/result/agentInfo/version", "V");
        self.name(None, &mut message);
        message
    }

    /// As [`Names::with_names`] for a message that was already named: gives no new names.
    pub(super) fn with_known_names(&mut self, mut message: Value) -> Value {
        if message.get("method").is_some()
            && let Some(id) = message.get_mut("id")
        {
            name_of(id, "a", &self.calls);
        }
        self.name(None, &mut message);
        message
    }

    fn name(&mut self, key: Option<&str>, value: &mut Value) {
        match (key, &mut *value) {
            (_, Value::Object(members)) => {
                members.iter_mut().for_each(|(key, value)| self.name(Some(key), value));
            }
            (_, Value::Array(items)) => items.iter_mut().for_each(|item| self.name(key, item)),
            (Some("requestId"), _) => name_of(value, "a", &self.calls),
            (Some("sessionId"), _) => name_of(value, "s", &self.sessions),
            (Some("messageId"), Value::String(_)) => {
                if !self.messages.contains(value) {
                    self.messages.push(value.clone());
                }
                name_of(value, "m", &self.messages);
            }
            (Some("updatedAt"), Value::String(time)) => *time = "T".to_owned(),
            (Some("createdAt" | "lastActiveAt"), Value::Number(_)) => *value = Value::from("T"),
            (_, Value::String(text)) => self.name_in_text(text),
            (_, Value::Null | Value::Bool(_) | Value::Number(_)) => {}
        }
    }

    fn name_in_text(&self, text: &mut String) {
        if text.contains(&self.directory) {
            *text = text.replace(&self.directory, "/w");
        }
        for (index, session) in self.sessions.iter().enumerate() {
            let unique = session.as_str().filter(|id| id.len() >= UNIQUE_LENGTH);
            if let Some(id) = unique.filter(|id| text.contains(id)) {
                *text = text.replace(id, &format!("s{}", index + 1));
            }
        }
    }
}

/// Replaces `{x*N}` by N times the letter x, or any other character.
#[must_use]
pub fn repeated(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (front, back) = rest.split_at(at);
        out.push_str(front);
        match repetition(back) {
            Some((character, count, after)) => {
                out.extend(std::iter::repeat_n(character, count));
                rest = after;
            }
            None => {
                out.push('{');
                rest = &back[1..];
            }
        }
    }
    out + rest
}

/// Reads `{x*N}` at the start.
fn repetition(text: &str) -> Option<(char, usize, &str)> {
    let mut characters = text.strip_prefix('{')?.chars();
    let character = characters.next()?;
    let (count, after) = characters.as_str().strip_prefix('*')?.split_once('}')?;
    Some((character, count.parse().ok()?, after))
}

/// Replaces a name by its value, if the name is known.
fn replace(value: &mut Value, letter: &str, values: &[Value]) {
    let number = value.as_str().and_then(|name| name.strip_prefix(letter)?.parse::<usize>().ok());
    if let Some(named_value) = number.and_then(|number| values.get(number.checked_sub(1)?)) {
        *value = named_value.clone();
    }
}

/// Replaces a value by its name, if it has one.
fn name_of(value: &mut Value, letter: &str, values: &[Value]) {
    if let Some(index) = values.iter().position(|named_value| named_value == value) {
        *value = Value::from(format!("{letter}{}", index + 1));
    }
}

fn set(message: &mut Value, pointer: &str, name: &str) {
    if let Some(value) = message.pointer_mut(pointer).filter(|value| value.is_string()) {
        *value = Value::from(name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names() -> Names {
        Names::new(Path::new("/tmp/run"))
    }

    #[test]
    fn ids_are_numbered_in_order_and_replaced_both_ways() {
        let mut names = names();
        let reply =
            json!({ "jsonrpc": "2.0", "id": 1, "result": { "sessionId": "0192-long-session-id" } });
        assert_eq!(names.with_names(reply), json!({ "id": 1, "result": { "sessionId": "s1" } }));
        let call = json!({ "jsonrpc": "2.0", "id": 77, "method": "m", "params": {
            "sessionId": "0192-long-session-id", "messageId": "xyz", "text": "in 0192-long-session-id" } });
        assert_eq!(
            names.with_names(call),
            json!({ "id": "a1", "method": "m", "params": {
                "sessionId": "s1", "messageId": "m1", "text": "in s1" } })
        );
        let cancel = json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": 77 } });
        assert_eq!(names.with_names(cancel)["params"]["requestId"], "a1");

        assert_eq!(
            names.with_values(&json!({ "id": "a1", "result": {} })),
            json!({ "id": 77, "result": {} })
        );
        let prompt =
            json!({ "id": "a1", "method": "m", "params": { "sessionId": "s1", "x": "s1" } });
        assert_eq!(
            names.with_values(&prompt),
            json!({ "id": "a1", "method": "m", "params": { "sessionId": "0192-long-session-id", "x": "s1" } })
        );
        let unknown = json!({ "method": "m", "params": { "sessionId": "s9", "messageId": "m0" } });
        assert_eq!(names.with_values(&unknown), unknown);
    }

    #[test]
    fn working_directory_is_replaced() {
        let mut names = names();
        let message =
            json!({ "method": "m", "params": ["/w", "/w/a", "/was", "at /w", "file:///w/a"] });
        let with_values = names.with_values(&message);
        assert_eq!(
            with_values["params"],
            json!(["/tmp/run", "/tmp/run/a", "/was", "at /w", "file:///tmp/run/a"])
        );
        let with_names = names
            .with_names(json!({ "jsonrpc": "2.0", "params": ["/tmp/run/a", "Read /tmp/run/b"] }));
        assert_eq!(with_names, json!({ "params": ["/w/a", "Read /w/b"] }));
    }

    #[test]
    fn times_references_and_versions_are_replaced() {
        let mut names = names();
        let with_names = names.with_names(json!({
            "jsonrpc": "2.0", "id": 1,
            "error": { "data": { "reference": "abc" } },
            "result": { "agentInfo": { "name": "x", "version": "1.2" }, "updatedAt": "2026", "version": "1" },
        }));
        assert_eq!(
            with_names,
            json!({
                "id": 1,
                "error": { "data": { "reference": "R" } },
                "result": { "agentInfo": { "name": "x", "version": "V" }, "updatedAt": "T", "version": "1" },
            })
        );
    }

    #[test]
    fn missing_jsonrpc_member_is_visible() {
        assert_eq!(names().with_names(json!({ "id": 1 })), json!({ "id": 1, "jsonrpc": null }));
    }
}
