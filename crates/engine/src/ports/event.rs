//! Events: everything a session shows. `serve` turns each into one update of the protocol.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::settings::Settings;
use crate::words::{
    Block, MessageId, ModeId, PlanEntry, SlashCommand, ToolCall, ToolCallId, ToolUpdate,
};

/// Something that happened in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A part of a message of the user, in a replay.
    User {
        /// The message it belongs to.
        message: MessageId,
        /// The part.
        block: Block,
        /// Its `_meta`, as the client sent it.
        meta: Option<Value>,
    },
    /// Text of the agent.
    Text {
        /// The message it belongs to.
        message: MessageId,
        /// The next chunk.
        text: String,
    },
    /// A thought of the agent.
    Thought {
        /// The message it belongs to.
        message: MessageId,
        /// The next chunk.
        text: String,
    },
    /// Content of the agent that is not text.
    Block {
        /// The message it belongs to.
        message: MessageId,
        /// The content.
        block: Block,
    },
    /// A tool is about to be used.
    ToolCall(Box<ToolCall>),
    /// A tool call has changed.
    ToolUpdate(ToolCallId, Box<ToolUpdate>),
    /// The whole plan.
    Plan(Vec<PlanEntry>),
    /// The available slash commands.
    Commands(Vec<SlashCommand>),
    /// The mode changed.
    Mode(ModeId),
    /// Mode or model changed: all current settings. Only the engine sends it, so no recording has it.
    #[serde(skip)]
    Settings(Settings),
    /// The session's title or time changed.
    Info {
        /// Its title.
        title: Option<String>,
        /// When it was last used, as ISO 8601.
        updated_at: Option<String>,
    },
    /// How full the context is.
    Usage {
        /// Tokens in use.
        used: u64,
        /// The size of the context window, in tokens.
        size: u64,
        /// What the session has cost, in US dollars.
        cost: Option<f64>,
    },
    /// Something the user should know, outside the conversation.
    Notice {
        /// Its severity.
        severity: Severity,
        /// Its title, one line.
        title: String,
        /// Its description.
        description: Option<String>,
    },
    /// The conversation is being compacted.
    Compaction {
        /// Which compaction.
        id: String,
        /// Its status.
        status: CompactionStatus,
        /// Why it failed.
        error: Option<String>,
    },
    /// A part of the summary that replaces the older history.
    CompactionSummary {
        /// Which compaction.
        id: String,
        /// The next chunk.
        text: String,
    },
}

/// The severity of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Severity {
    /// Information.
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// The status of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompactionStatus {
    /// In progress.
    InProgress,
    /// Done.
    Completed,
    /// Failed; the history is unchanged.
    Failed,
    /// Cancelled; the history is unchanged.
    Cancelled,
}

/// Where an event is in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Not in the journal: it is only shown.
    Unrecorded,
    /// In a record that also has the event that is shown next: chunks of text are stored together.
    Part,
    /// In the record of this number, with which it is complete.
    Record(u64),
}

/// Shows an event for which room was reserved, and takes its place in the journal. Never waits; the journal calls it on
/// whatever thread wrote the event.
pub type DisplayPermit = Box<dyn FnOnce(Event, Place) + Send>;
