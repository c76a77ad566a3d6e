//! Events: everything a session tells the world. The bridge turns each into one update of the protocol.

use serde_json::Value;

use super::settings::Settings;
use crate::words::{
    Block, MessageId, ModeId, PlanEntry, SlashCommand, ToolCall, ToolCallId, ToolUpdate,
};

/// Something that happened in a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A part of what the user said, when a history is shown again.
    User {
        /// The message it belongs to.
        message: MessageId,
        /// The part.
        block: Block,
        /// What the client said of it beyond our words.
        aside: Option<Value>,
    },
    /// The agent speaks.
    Text {
        /// The message it belongs to.
        message: MessageId,
        /// The next piece of it.
        text: String,
    },
    /// The agent thinks aloud.
    Thought {
        /// The message it belongs to.
        message: MessageId,
        /// The next piece of it.
        text: String,
    },
    /// The agent shows something that is not text.
    Block {
        /// The message it belongs to.
        message: MessageId,
        /// What it shows.
        block: Block,
    },
    /// A tool is about to be used.
    ToolCall(Box<ToolCall>),
    /// A tool call went on.
    ToolUpdate(ToolCallId, Box<ToolUpdate>),
    /// The whole plan, as it is now.
    Plan(Vec<PlanEntry>),
    /// The slash commands there are.
    Commands(Vec<SlashCommand>),
    /// The mode changed.
    Mode(ModeId),
    /// Mode or model changed: all settings, as they are now.
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
        /// Tokens there are.
        size: u64,
        /// What the session has cost, in US dollars.
        cost: Option<f64>,
    },
    /// Something the user should know, outside the conversation.
    Notice {
        /// How bad it is.
        severity: Severity,
        /// One line.
        title: String,
        /// More.
        description: Option<String>,
    },
    /// The context is being shortened.
    Compaction {
        /// Which compaction.
        id: String,
        /// How far it is.
        status: CompactionStatus,
        /// Why it failed.
        error: Option<String>,
    },
    /// A piece of the summary that replaces the older history.
    CompactionSummary {
        /// Which compaction.
        id: String,
        /// The next piece.
        text: String,
    },
}

/// How bad a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something may not work.
    Warning,
    /// Something does not work.
    Error,
}

/// How far a compaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionStatus {
    /// Under way.
    InProgress,
    /// Done.
    Completed,
    /// Went wrong; the history is as it was.
    Failed,
    /// Was stopped; the history is as it was.
    Cancelled,
}

/// Shows an event for which room was reserved. Never waits; the journal calls it on whatever thread wrote the event.
pub type DisplayPermit = Box<dyn FnOnce(Event) + Send>;
