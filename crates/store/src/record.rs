//! Records: the format on disk. It is independent of the engine's types, so that both can change.
//!
//! A record is JSON with a version and a checksum. A variant never changes its meaning; a new meaning gets a new variant, and
//! a change that older programs could misread increments [`VERSION`]. Unknown records are left unchanged.

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

/// One record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A process took the session.
    Own { pid: u32, host: String },
    /// A prompt of the user.
    Prompt {
        message: Name,
        kind: PromptKind,
        blocks: Vec<Block>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        asides: Vec<Option<Value>>,
    },
    /// Text of the agent.
    Text { message: Name, text: String },
    /// A thought of the agent.
    Thought { message: Name, text: String },
    /// A block that the agent showed.
    Shown { message: Name, block: Block },
    /// A tool call was shown.
    ToolCall(Box<ToolCall>),
    /// A tool call made progress.
    ToolUpdate {
        id: Name,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<ToolStatus>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Vec<ToolContent>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw_output: Option<Value>,
        /// Output of a running command since the previous update.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[serde(rename = "said")]
        live_output: Option<String>,
    },
    /// The whole plan.
    Plan(Vec<PlanEntry>),
    /// Mode, model and thinking level.
    Settings {
        mode: Name,
        model: Name,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<Name>,
    },
    /// How full the context is.
    Usage { used: u64, size: u64, cost: Option<f64> },
    /// The context is being compacted.
    Compaction { id: String, status: CompactionStatus, error: Option<String> },
    /// A chunk of the summary.
    CompactionSummary { id: String, text: String },
    /// The thoughts of the model in its answer, with their signatures.
    Thoughts(Vec<Thought>),
    /// The model's answer ended with these tool calls.
    Answer(Vec<ToolRequest>),
    /// The same, with large values of the inputs stored separately.
    #[serde(rename = "answer_apart")]
    AnswerLargeValues {
        calls: Vec<ToolRequest>,
        #[serde(rename = "texts")]
        values: Vec<LargeValue>,
    },
    /// A tool is about to run.
    ToolIntent(ToolRequest),
    /// The result of a call, for the model.
    ToolResult { id: Name, text: String, failed: bool },
    /// A file is about to change: the hashes of its content before and after; `None` for no file.
    Change { path: String, before: Option<Name>, after: Option<Name> },
    /// The turn of this message and all later turns were undone.
    #[serde(rename = "taken_back")]
    Undone { first: Name },
    /// Undone turns were redone, up to the turn of this message.
    #[serde(rename = "brought_back")]
    Redone { last: Name },
    /// A message of the program to the model in the middle of a turn.
    // Stored journals have the name `told`.
    #[serde(rename = "told")]
    Note { text: String },
    /// The token usage of an answer.
    #[serde(rename = "spent")]
    ModelUsage {
        model: Name,
        input: u64,
        output: u64,
        cache_read: u64,
        cache_write: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dollars: Option<f64>,
    },
    /// For the model, a summary replaces everything before a position; later tool results are cut to `cap` bytes.
    Compacted {
        summary: String,
        from: Cut,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap: Option<usize>,
    },
    /// The turn ended, with its stop reason, or without one after a failure.
    TurnEnd { stop: Option<StopReason> },
    /// A crash ended the turn. Written by the process that detected it.
    Interrupted {},
}

/// A string that many records share, such as an id.
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

/// A position in the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    Turn(Name),
    Call(Name),
    End,
}

/// What a prompt is for.
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

/// The status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// Content of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolContent {
    Block(Block),
    Diff { path: String, old: Option<String>, new: String },
    Terminal(Name),
    Live { cwd: String },
}

/// A position in a file.
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

/// The priority of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    High,
    Medium,
    Low,
}

/// The status of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// The status of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStatus {
    InProgress,
    Completed,
    Failed,
    Cancelled,
}

/// A thought of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thought {
    pub by: Name,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
    pub at: usize,
}

/// Data that must be sent back to the model unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    pub data: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Name>,
}

/// A tool call that the model requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRequest {
    pub id: Name,
    pub name: String,
    #[serde(with = "shared")]
    pub input: Arc<Value>,
}

/// A field of a call's input whose value is stored separately, under its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeValue {
    pub call: usize,
    pub field: String,
    pub text: Name,
}

/// Serialises the input of a call without copying it.
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

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The version of the format.
    pub version: u32,
    /// The checksum of the version and the body.
    pub checksum: u32,
    /// The record as JSON.
    pub body: Vec<u8>,
}

/// The result of decoding a record.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    /// A valid record.
    Record(Record),
    /// Undamaged, but of an unknown version or kind. It stays stored.
    Opaque,
    /// Damaged.
    Damaged,
}

impl Record {
    /// Encodes the record.
    ///
    /// # Errors
    /// Fails if a value cannot be written as JSON, which does not happen.
    pub fn encode(&self) -> Result<Encoded, serde_json::Error> {
        let body = serde_json::to_vec(self)?;
        Ok(Encoded { version: VERSION, checksum: checksum(VERSION, &body), body })
    }

    /// Returns whether the record is accepted even if the session is full, because it ends an operation.
    #[must_use]
    pub fn ends_operation(&self) -> bool {
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
    /// Makes a record with the right checksum, whatever is in it.
    #[cfg(test)]
    pub(crate) fn checked(version: u32, body: Vec<u8>) -> Encoded {
        Encoded { version, checksum: checksum(version, &body), body }
    }

    /// Decodes the record.
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
