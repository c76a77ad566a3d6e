//! One line of the log: time, level, what it is about, and a message.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::words::{iso_8601, visible};
use serde_json::{Map, Value, json};
use tracing::Event;
use tracing::field::{Field, Visit};

/// The fields that come first, in this order: session, request, operation and duration of what the line is about.
const FIRST: [&str; 5] = ["session", "request", "call", "operation", "duration_ms"];
/// At most this many bytes of one field are written.
const MAX_FIELD: usize = 2000;

/// A line of the log.
pub(crate) struct Line {
    time: SystemTime,
    level: String,
    message: String,
    fields: Map<String, Value>,
}

impl Line {
    pub(super) fn of(event: &Event<'_>) -> Line {
        let mut line = Line {
            time: SystemTime::now(),
            level: event.metadata().level().as_str().to_lowercase(),
            message: String::new(),
            fields: Map::new(),
        };
        event.record(&mut line);
        line
    }

    /// Makes a line of the log about itself.
    pub(super) fn note(message: &str) -> Line {
        let (level, message) = ("warn".to_owned(), message.to_owned());
        Line { time: SystemTime::now(), level, message, fields: Map::new() }
    }

    /// Removes what looks like a secret.
    pub(super) fn mask(&mut self) {
        self.message = observe::mask::mask_text(&self.message);
        for value in self.fields.values_mut() {
            if let Value::String(text) = value {
                *text = observe::mask::mask_text(text);
            }
        }
    }

    /// Returns it as JSON, with the process it comes from.
    pub(super) fn json(&self) -> String {
        let millis = self.time.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_millis();
        let time = iso_8601(self.time).replace('Z', &format!(".{millis:03}Z"));
        let mut all = Map::new();
        all.insert("time".to_owned(), json!(time));
        all.insert("level".to_owned(), json!(self.level));
        all.insert("pid".to_owned(), json!(std::process::id()));
        let ordered = FIRST.iter().filter_map(|name| self.fields.get_key_value(*name));
        let rest = self.fields.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()));
        for (name, value) in ordered.chain(rest) {
            all.insert(name.clone(), value.clone());
        }
        all.insert("message".to_owned(), json!(self.message));
        Value::Object(all).to_string() + "\n"
    }

    /// Returns it for people.
    pub(super) fn text(&self, has_colours: bool) -> String {
        let mut all = self.fields.clone();
        all.insert("message".to_owned(), json!(self.message));
        text_of(&iso_8601(self.time), &self.level, &all, has_colours)
    }

    /// Returns a line of the file for people; `None` if it is none. With a session, only its lines.
    pub(crate) fn shown(json: &str, session: Option<&str>, has_colours: bool) -> Option<String> {
        let Ok(Value::Object(mut all)) = serde_json::from_str(json) else { return None };
        let of = all.get("session").and_then(Value::as_str).unwrap_or_default();
        if session.is_some_and(|session| !of.starts_with(session)) {
            return None;
        }
        let mut take =
            |name: &str| all.remove(name).and_then(|value| Some(value.as_str()?.to_owned()));
        let (time, level) = (take("time")?, take("level")?);
        Some(text_of(&time, &level, &all, has_colours))
    }
}

fn text_of(time: &str, level: &str, all: &Map<String, Value>, has_colours: bool) -> String {
    let (begin, end) = match (has_colours, level) {
        (true, "error") => ("\u{1b}[31m", "\u{1b}[0m"),
        (true, "warn") => ("\u{1b}[33m", "\u{1b}[0m"),
        (true, "debug" | "trace") => ("\u{1b}[2m", "\u{1b}[0m"),
        _ => ("", ""),
    };
    let message = all.get("message").and_then(Value::as_str).unwrap_or_default();
    let mut text = format!("{:>5} {message}", level.to_uppercase());
    let ordered = FIRST.iter().filter_map(|name| all.get_key_value(*name));
    let is_other = |name: &str| !FIRST.contains(&name) && name != "message";
    let rest = all.iter().filter(|(name, _)| is_other(name));
    for (name, value) in ordered.chain(rest) {
        match value {
            Value::String(value) if value.is_empty() => {}
            Value::String(value) => text.push_str(&format!(" {name}={value}")),
            value => text.push_str(&format!(" {name}={value}")),
        }
    }
    format!("{time} {begin}{}{end}\n", one_line(&text))
}

/// Escapes control characters and newlines, so that foreign text cannot control a terminal or forge a log line.
fn one_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = format!("{value:?}");
        text.truncate(text.floor_char_boundary(MAX_FIELD));
        match field.name() {
            "message" => self.message = text,
            name => drop(self.fields.insert(name.to_owned(), json!(text))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if !value.is_empty() {
            let short = &value[..value.floor_char_boundary(MAX_FIELD)];
            self.fields.insert(field.name().to_owned(), json!(short));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().to_owned(), json!(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> Line {
        let mut line = Line::note(message);
        line.time = UNIX_EPOCH;
        line.fields.insert("code".to_owned(), json!(-32603));
        line.fields.insert("session".to_owned(), json!("s1"));
        line
    }

    // R: O1
    #[test]
    fn foreign_text_stays_on_one_line_and_cannot_control_the_terminal() {
        let text = line("a\nb\u{1b}[2Jc").text(false);
        assert_eq!(text, "1970-01-01T00:00:00Z  WARN a\\nb\\u{1b}[2Jc session=s1 code=-32603\n");
        assert_eq!(line("a\nb").json().lines().count(), 1);
    }

    // R: O1
    #[test]
    fn secrets_are_masked_in_message_and_fields() {
        let mut secret = line("the key is sk-canary-1-and-more");
        secret.fields.insert("url".to_owned(), json!("http://u:canary@h/?token=canary"));
        secret.mask();
        let text = secret.text(false) + &secret.json();
        assert!(!text.contains("canary") && text.contains("****"), "{text}");
    }

    // R: O1
    #[test]
    fn line_of_the_file_is_shown_for_its_session_only() {
        let json = line("x").json();
        let shown = Line::shown(&json, Some("s"), false).unwrap();
        assert!(shown.starts_with("1970-01-01T00:00:00.000Z  WARN x session=s1 "), "{shown}");
        assert_eq!(Line::shown(&json, Some("s2"), false), None);
        assert_eq!(Line::shown("half a li", None, false), None);
    }
}
