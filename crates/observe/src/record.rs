//! One line of a trace: a message, a span, or something about the trace itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::sessions::SessionState;

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the agent.
    In,
    /// From the agent to the client.
    Out,
}

impl Direction {
    pub(crate) fn other(self) -> Direction {
        match self {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        }
    }
}

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Record {
    /// A message.
    Message(Box<MessageRecord>),
    /// Something that took time.
    Span(Box<SpanRecord>),
    /// The dialect that is used from here on.
    Dialect {
        /// Milliseconds since 1970.
        time: u64,
        /// Its name.
        dialect: String,
        /// Why it was chosen.
        why: String,
    },
    /// A gap: the trace could not keep up.
    Lost {
        /// Milliseconds since 1970.
        time: u64,
        /// How many chunks were dropped; their size is unknown.
        lost: u64,
    },
    /// The process that the records come from. The first thing that somebody who watches it gets.
    Process {
        /// Milliseconds since 1970.
        time: u64,
        /// Which process.
        process: Box<ProcessInfo>,
        /// What is known about its sessions.
        sessions: Vec<SessionState>,
    },
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MessageRecord {
    /// Milliseconds since 1970.
    pub time: u64,
    /// Its direction.
    pub direction: Direction,
    /// The length of its line in bytes.
    pub bytes: usize,
    /// How many lines it stands for: those who watch get the chunks of a message together.
    #[serde(skip_serializing_if = "is_one")]
    pub count: u64,
    /// The method; for a reply, the method of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The id of a call or a reply, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
    /// The session it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// For a reply: milliseconds since its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The message with secrets masked; `None` if it is too long or not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// The first bytes of a line that is not JSON, escaped and masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

/// Something that took time. Most kinds have only some of the members.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SpanRecord {
    /// When it began: milliseconds since 1970.
    pub time: f64,
    /// Its id, in hexadecimal.
    pub span: String,
    /// The span that it is part of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<String>,
    /// What it is about: turn, model, tool, permission, run, mcp, command, compaction, subagent, sync or client.
    pub kind: String,
    /// Which tool, model, server or command.
    pub name: String,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<String>,
    /// How long it took, in milliseconds; `None` while it is running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_ms: Option<f64>,
    /// How it ended: completed, failed, rejected or cancelled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Of a turn: the id of its call on the wire.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request: Option<Value>,
    /// Of a turn: the context of the client's own trace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// Of a turn: the working directory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cwd: Option<String>,
    /// Of a turn: the mode.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mode: Option<String>,
    /// Of a turn: why it stopped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stop: Option<String>,
    /// The tool call it belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Of a request: how long after the beginning its first byte came, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_byte_ms: Option<f64>,
    /// Input tokens that were not cached.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub tokens_in: u64,
    /// Output tokens.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub tokens_out: u64,
    /// Input tokens read from the cache.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub cache_read: u64,
    /// Input tokens written to the cache.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub cache_write: u64,
    /// In US dollars.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost: Option<f64>,
    /// The size of the context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window: Option<u64>,
    /// How many times it was sent again.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub retries: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A process that records come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its number.
    pub pid: u32,
    /// What runs: `purlin acp`, or the agent behind `purlin tap`.
    pub program: String,
    /// Its version.
    pub version: String,
    /// Where it was started.
    pub cwd: String,
    /// When: milliseconds since 1970.
    pub started: u64,
}

/// A line of a trace as it is read: all members of all kinds. The message is not parsed.
#[derive(Debug, Deserialize)]
pub(crate) struct Line<'a> {
    pub(crate) time: f64,
    #[serde(default)]
    pub(crate) direction: Option<Direction>,
    #[serde(default)]
    pub(crate) bytes: usize,
    #[serde(default)]
    count: Option<u64>,
    #[serde(default)]
    pub(crate) method: Option<String>,
    #[serde(default)]
    pub(crate) id: Option<Value>,
    #[serde(default)]
    pub(crate) session: Option<String>,
    #[serde(default)]
    pub(crate) duration_ms: Option<f64>,
    #[serde(borrow, default)]
    pub(crate) message: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) invalid: Option<String>,
    #[serde(default)]
    span: Option<String>,
    #[serde(default)]
    dialect: Option<String>,
    #[serde(default)]
    why: Option<String>,
    #[serde(default)]
    lost: Option<u64>,
    #[serde(default)]
    process: Option<Box<ProcessInfo>>,
    #[serde(default)]
    sessions: Vec<SessionState>,
}

/// What a line of a trace is.
pub(crate) enum Read<'a> {
    /// A message, not parsed.
    Message(Direction, Box<Line<'a>>),
    /// Anything else.
    Other(Record),
}

/// Reads a line of a trace; `None` if it is not one, such as an incomplete line after a crash.
pub(crate) fn read_line(text: &str) -> Option<Read<'_>> {
    let line: Line<'_> = serde_json::from_str(text).ok()?;
    if let Some(direction) = line.direction {
        return Some(Read::Message(direction, Box::new(line)));
    }
    let time = millis(line.time);
    Some(Read::Other(match line {
        Line { span: Some(_), .. } => Record::Span(serde_json::from_str(text).ok()?),
        Line { dialect: Some(dialect), why, .. } => {
            Record::Dialect { time, dialect, why: why.unwrap_or_default() }
        }
        Line { lost: Some(lost), .. } => Record::Lost { time, lost },
        Line { process: Some(process), sessions, .. } => {
            Record::Process { time, process, sessions }
        }
        _ => return None,
    }))
}

impl Record {
    /// Reads a record from a line; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Record> {
        Some(match read_line(text)? {
            Read::Other(record) => record,
            Read::Message(direction, line) => Record::Message(Box::new(MessageRecord {
                time: millis(line.time),
                direction,
                bytes: line.bytes,
                count: line.count.unwrap_or(1),
                method: line.method,
                id: line.id,
                session: line.session,
                duration_ms: line.duration_ms.map(millis),
                message: match line.message {
                    Some(message) => Some(serde_json::from_str(message.get()).ok()?),
                    None => None,
                },
                invalid: line.invalid,
            })),
        })
    }

    /// Returns its time: milliseconds since 1970.
    #[must_use]
    pub fn time(&self) -> f64 {
        match self {
            Record::Message(record) => record.time as f64,
            Record::Span(span) => span.time,
            Record::Dialect { time, .. }
            | Record::Lost { time, .. }
            | Record::Process { time, .. } => *time as f64,
        }
    }
}

/// Rounds a number of milliseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(crate) fn millis(time: f64) -> u64 {
    time.round() as u64
}
