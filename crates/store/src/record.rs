//! Records: the disk's own words for everything that is kept, apart from the engine's, so that either can change.
//!
//! A record is JSON with a version and a checksum. A variant never changes its meaning; a new meaning is a new variant,
//! and a change that older programs must not guess at raises [`VERSION`]. What cannot be understood is kept as it is.

#![expect(missing_docs, reason = "fields and variants mirror engine::words, which describes them")]

mod convert;

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use convert::{
    blocks_out, cut_out, event_in, event_out, record_in, stop_out, thought_out, tool_request_out,
};

/// The version of the records that this program writes.
pub const VERSION: u32 = 1;

/// One thing that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A process took the session.
    Own { pid: u32, host: String },
    /// The user sent this.
    Prompt {
        message: Name,
        kind: PromptKind,
        blocks: Vec<Block>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        asides: Vec<Option<Value>>,
    },
    /// The agent said this.
    Text { message: Name, text: String },
    /// The agent thought this.
    Thought { message: Name, text: String },
    /// The agent showed this.
    Shown { message: Name, block: Block },
    /// A tool call was shown.
    ToolCall(Box<ToolCall>),
    /// A tool call went on.
    ToolUpdate {
        id: Name,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<ToolStatus>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Vec<ToolContent>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw_output: Option<Value>,
        /// What a running command said since the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    /// The whole plan.
    Plan(Vec<PlanEntry>),
    /// Mode, model and how much it thinks.
    Settings {
        mode: Name,
        model: Name,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<Name>,
    },
    /// How full the context is.
    Usage { used: u64, size: u64, cost: Option<f64> },
    /// The context is being shortened.
    Compaction { id: String, status: CompactionStatus, error: Option<String> },
    /// A piece of the summary.
    CompactionSummary { id: String, text: String },
    /// What the model thought in its answer, with what it was sealed with.
    Thoughts(Vec<Thought>),
    /// The model's answer ended and asks for these tools.
    Answer(Vec<ToolRequest>),
    /// The same, with long texts of the inputs kept apart.
    AnswerApart { calls: Vec<ToolRequest>, texts: Vec<Apart> },
    /// A tool is about to run.
    ToolIntent(ToolRequest),
    /// What the model was told of a call.
    ToolResult { id: Name, text: String, failed: bool },
    /// A file is about to change: what it holds and will hold, by their hashes; `None` for no file.
    Change { path: String, before: Option<Name>, after: Option<Name> },
    /// The turn of this message was taken back, and all behind it.
    TakenBack { first: Name },
    /// The turns that were taken back are there again, up to the one of this message.
    BroughtBack { last: Name },
    /// The model was told this in the middle of a turn, by the program.
    Told { text: String },
    /// A model answered, and used this.
    Spent {
        model: Name,
        input: u64,
        output: u64,
        cache_read: u64,
        cache_write: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dollars: Option<f64>,
    },
    /// To the model, a summary stands for all before a place; each result behind it keeps `cap` bytes.
    Compacted {
        summary: String,
        from: Cut,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap: Option<usize>,
    },
    /// The turn ended: why, or nothing after a failure.
    TurnEnd { stop: Option<StopReason> },
    /// A crash ended the turn; written by the process that found it.
    Interrupted {},
}

/// A text that many records share, such as an id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(pub Arc<str>);

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        Ok(Name(String::deserialize(deserializer)?.into()))
    }
}

/// A place in the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    Turn(Name),
    Call(Name),
    End,
}

/// Whom a prompt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptKind {
    Message,
    Command,
    Continue,
    Steering,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    Text(String),
    Image { data: String, mime: String },
    Audio { data: String, mime: String },
    Link { uri: String, name: String },
    TextResource { uri: String, mime: Option<String>, text: String },
    BlobResource { uri: String, mime: Option<String>, blob: String },
}

/// A tool call as it was first shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: Name,
    pub name: String,
    pub title: String,
    pub kind: ToolKind,
    pub status: ToolStatus,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ToolContent>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    pub raw_input: Value,
}

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    Other,
}

/// How far a tool call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// Something a tool call shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolContent {
    Block(Block),
    Diff { path: String, old: Option<String>, new: String },
    Terminal(Name),
    Live { cwd: String },
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEntry {
    pub content: String,
    pub priority: Priority,
    pub status: PlanStatus,
}

/// How much a step matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    High,
    Medium,
    Low,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// How far a compaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStatus {
    InProgress,
    Completed,
    Failed,
    Cancelled,
}

/// A piece of a model's thinking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thought {
    pub by: Name,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
    pub at: usize,
}

/// Data that a model wants back unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    pub data: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Name>,
}

/// A tool that the model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRequest {
    pub id: Name,
    pub name: String,
    #[serde(with = "shared")]
    pub input: Arc<Value>,
}

/// A field of a call's input whose text is kept apart, by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apart {
    pub call: usize,
    pub field: String,
    pub text: Name,
}

/// The input of a call, which may be long and is not copied to be kept.
mod shared {
    use super::{Arc, Deserialize, Deserializer, Serialize, Serializer, Value};

    pub(super) fn serialize<S: Serializer>(value: &Arc<Value>, to: S) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Value>, D::Error> {
        Value::deserialize(from).map(Arc::new)
    }
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
}

/// A record as the disk has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The version of the program's records that wrote it.
    pub version: u32,
    /// Of the version and the body.
    pub checksum: u32,
    /// JSON.
    pub body: Vec<u8>,
}

/// What became of reading a record.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    /// Understood.
    Record(Record),
    /// Whole, but of a version or kind that this program does not know. It stays where it is.
    Opaque,
    /// Damaged.
    Damaged,
}

impl Record {
    /// Writes the record.
    ///
    /// # Errors
    /// Fails for what JSON cannot say, which none of our values is.
    pub fn encode(&self) -> Result<Encoded, serde_json::Error> {
        let body = serde_json::to_vec(self)?;
        Ok(Encoded { version: VERSION, checksum: checksum(VERSION, &body), body })
    }

    /// Tells whether the record must be taken also when the session is full: what ends something that was begun.
    #[must_use]
    pub fn ends_something(&self) -> bool {
        matches!(
            self,
            Record::Own { .. }
                | Record::ToolResult { .. }
                | Record::TurnEnd { .. }
                | Record::Interrupted {}
        )
    }
}

impl Encoded {
    /// Reads the record.
    #[must_use]
    pub fn decode(&self) -> Decoded {
        if checksum(self.version, &self.body) != self.checksum {
            return Decoded::Damaged;
        }
        if self.version > VERSION {
            return Decoded::Opaque;
        }
        serde_json::from_slice(&self.body).map_or(Decoded::Opaque, Decoded::Record)
    }
}

fn checksum(version: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&version.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
