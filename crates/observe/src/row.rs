//! A message of a trace as views show it: what it is in a few words, and which ids it shares with other records.

use std::io::{self, BufRead};

use serde::Deserialize;
use serde_json::Value;

use crate::record::{Direction, Line, MessageRecord, Read, Record, read_line};

/// At most this many characters of a string are shown.
const MAX_CHARS: usize = 80;
/// Longer lines are not read: the tap writes none.
const MAX_LINE: usize = 8 * 1024 * 1024;

/// A message as a view shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Milliseconds since 1970.
    pub(crate) time: f64,
    pub(crate) direction: Direction,
    pub(crate) bytes: usize,
    pub(crate) method: Option<String>,
    /// The id of a call or a reply, as JSON.
    pub(crate) id: Option<String>,
    pub(crate) session: Option<String>,
    /// For a reply: milliseconds since its call.
    pub(crate) duration_ms: Option<f64>,
    /// The kind of an update.
    pub(crate) update: Option<String>,
    /// The tool call it is about, and its state.
    pub(crate) call: Option<String>,
    pub(crate) status: Option<String>,
    /// The title of a tool call.
    pub(crate) title: Option<String>,
    pub(crate) stop: Option<String>,
    /// The message of an error.
    pub(crate) error: Option<String>,
    pub(crate) is_reply: bool,
    /// What it is, in one line.
    pub(crate) summary: String,
}

/// The parts of a message that views show.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Peek {
    method: Option<String>,
    params: Option<Params>,
    result: Option<Value>,
    error: Option<Failure>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Failure {
    code: Value,
    message: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Params {
    update: Option<Update>,
    status: Option<Value>,
    #[serde(rename = "toolCall")]
    tool_call: Option<Update>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Update {
    #[serde(rename = "sessionUpdate")]
    kind: Option<String>,
    title: Option<Value>,
    status: Option<Value>,
    #[serde(rename = "toolCallId")]
    call: Option<String>,
}

impl Row {
    pub(crate) fn of(direction: Direction, line: &Line<'_>) -> Row {
        let peek = line.message.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let row = Row {
            bytes: line.bytes,
            method: line.method.clone(),
            id: line.id.as_ref().map(Value::to_string),
            session: line.session.clone(),
            duration_ms: line.duration_ms,
            ..Row::empty(line.time, direction)
        };
        row.with(peek, line.invalid.as_deref())
    }

    fn empty(time: f64, direction: Direction) -> Row {
        Row {
            time,
            direction,
            bytes: 0,
            method: None,
            id: None,
            session: None,
            duration_ms: None,
            update: None,
            call: None,
            status: None,
            title: None,
            stop: None,
            error: None,
            is_reply: false,
            summary: String::new(),
        }
    }

    fn with(mut self, peek: Option<Peek>, invalid: Option<&str>) -> Row {
        let Some(peek) = peek else {
            self.error = invalid.map(|bytes| format!("invalid line: {bytes}"));
            let method = self.method.as_deref().map_or_else(|| "invalid line".to_owned(), clean);
            self.summary = match invalid {
                Some(bytes) => format!("{method}: {}", clean(bytes)),
                None => format!("{method} (too long or not a message)"),
            };
            return self;
        };
        self.is_reply = peek.method.is_none();
        self.take(peek);
        self
    }

    fn take(&mut self, peek: Peek) {
        let method = self.method.as_deref().map_or_else(|| "invalid line".to_owned(), clean);
        let text = |value: &Option<Value>| value.as_ref()?.as_str().map(str::to_owned);
        if let Some(error) = peek.error {
            let words = error.message.as_str().unwrap_or_default();
            self.summary = format!("{method} failed: {} {}", error.code, clean(words));
            self.error = Some(format!("{} {words}", error.code));
            return;
        }
        if let Some(result) = peek.result {
            self.stop = result["stopReason"].as_str().map(str::to_owned);
            self.summary = match &self.stop {
                Some(reason) => format!("{method} answered: {}", clean(reason)),
                None => format!("{method} answered"),
            };
            return;
        }
        let params = peek.params.unwrap_or_default();
        let asked = params.tool_call.unwrap_or_default();
        let update = params.update.unwrap_or_default();
        self.call = update.call.or(asked.call);
        self.status = text(&update.status);
        self.title = text(&update.title).or_else(|| text(&asked.title));
        self.update = update.kind.or_else(|| text(&params.status));
        let more = self.title.as_deref().or(self.status.as_deref()).map(clean);
        self.summary = match (&self.update, more) {
            (Some(kind), Some(more)) => format!("{method} {} ({more})", clean(kind)),
            (Some(kind), None) => format!("{method} {}", clean(kind)),
            (None, Some(more)) => format!("{method} ({more})"),
            (None, None) => method,
        };
    }
}

/// Returns a message that was not read from a file as views show it.
pub(crate) fn read_row(message: &MessageRecord) -> Row {
    let peek = message.message.as_ref().and_then(|message| Peek::deserialize(message).ok());
    let row = Row {
        bytes: message.bytes,
        method: message.method.clone(),
        id: message.id.as_ref().map(Value::to_string),
        session: message.session.clone(),
        duration_ms: message.duration_ms.map(|took| took as f64),
        ..Row::empty(message.time as f64, message.direction)
    };
    row.with(peek, message.invalid.as_deref())
}

/// Returns a string in one line, without control characters and characters with a meaning in diagrams.
pub(crate) fn clean(text: &str) -> String {
    let plain =
        |letter: char| if letter.is_control() || "<>#;\"`".contains(letter) { ' ' } else { letter };
    let mut short: String = text.chars().take(MAX_CHARS).map(plain).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// A record as views get it.
pub(crate) enum Item<'a> {
    /// A message, and its content as JSON.
    Message(Box<Row>, Option<&'a str>),
    /// Anything else.
    Other(Record),
}

/// Reads a trace line by line. Returns how many lines are not part of a trace, such as an incomplete line after a crash.
pub(crate) fn each(
    mut input: impl BufRead,
    mut take: impl FnMut(Item<'_>) -> io::Result<()>,
) -> io::Result<usize> {
    let mut bad = 0;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let count = io::Read::take(&mut input, MAX_LINE as u64).read_until(b'\n', &mut bytes)?;
        if count == 0 {
            return Ok(bad);
        }
        let line = String::from_utf8_lossy(&bytes);
        if line.trim().is_empty() {
            continue;
        }
        match read_line(&line) {
            Some(Read::Message(direction, line)) => {
                let row = Box::new(Row::of(direction, &line));
                take(Item::Message(row, line.message.map(serde_json::value::RawValue::get)))?;
            }
            Some(Read::Other(record)) => take(Item::Other(record))?,
            None => bad += 1,
        }
    }
}
