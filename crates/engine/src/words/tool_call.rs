//! Tool calls as the client sees them, and the plan of a turn.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{TerminalId, ToolCallId};
use super::message::Block;

/// The kind of a tool, for icons and permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToolKind {
    /// Reads files.
    Read,
    /// Changes files.
    Edit,
    /// Removes files.
    Delete,
    /// Moves files.
    Move,
    /// Searches.
    Search,
    /// Runs programs.
    Execute,
    /// Changes nothing outside the conversation.
    Think,
    /// Fetches from the network.
    Fetch,
    /// Changes the mode.
    SwitchMode,
    /// Anything else.
    Other,
}

impl ToolKind {
    /// Tells whether such a tool can change anything outside the conversation.
    #[must_use]
    pub fn changes_things(self) -> bool {
        match self {
            ToolKind::Read | ToolKind::Search | ToolKind::Think | ToolKind::SwitchMode => false,
            ToolKind::Edit
            | ToolKind::Delete
            | ToolKind::Move
            | ToolKind::Execute
            | ToolKind::Fetch
            | ToolKind::Other => true,
        }
    }
}

/// The status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolStatus {
    /// Not running yet.
    Pending,
    /// Running.
    InProgress,
    /// Done.
    Completed,
    /// Failed, rejected or cancelled.
    Failed,
}

/// A tool call as it is first shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call.
    pub id: ToolCallId,
    /// The tool's name.
    pub name: String,
    /// What it will do, in one line with the file or the command.
    pub title: String,
    /// Its kind.
    pub kind: ToolKind,
    /// Its status.
    pub status: ToolStatus,
    /// What it will change.
    pub content: Vec<ToolContent>,
    /// Which files it touches.
    pub locations: Vec<Location>,
    /// The input as the model gave it.
    pub raw_input: Value,
}

/// An update of a tool call; fields that are `None` stay unchanged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolUpdate {
    /// The new status.
    pub status: Option<ToolStatus>,
    /// The new content, which replaces the old.
    pub content: Option<Vec<ToolContent>>,
    /// The result for programs.
    pub raw_output: Option<Value>,
    /// Live output of a command, for clients that show it.
    pub live: Option<Live>,
}

/// Live output of a running command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Live {
    /// More output.
    Output(String),
    /// The end of the output so far and how long the command has run, for a client that shows no live output. Replaces what
    /// the call showed before; not stored.
    Progress(String),
    /// The command ended.
    Ended(ExitStatus),
}

/// Content of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToolContent {
    /// A block.
    Block(Block),
    /// A change of a file.
    Diff {
        /// The file.
        path: PathBuf,
        /// The old content; `None` for a new file.
        old: Option<String>,
        /// The new content.
        new: String,
    },
    /// A terminal of the client.
    Terminal(TerminalId),
    /// The live output of a command that we run; see [`Live`].
    Live {
        /// The directory that the command runs in.
        cwd: PathBuf,
    },
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The file.
    pub path: PathBuf,
    /// The line, counting from 1.
    pub line: Option<u32>,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEntry {
    /// What to do.
    pub content: String,
    /// Its priority.
    pub priority: Priority,
    /// Its status.
    pub status: PlanStatus,
}

/// The priority of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Priority {
    /// High.
    High,
    /// Medium.
    Medium,
    /// Low.
    Low,
}

/// The status of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanStatus {
    /// Not started.
    Pending,
    /// In progress.
    InProgress,
    /// Done.
    Completed,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExitStatus {
    /// Its exit code.
    pub code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// The kinds of failure that programs can tell apart. Their codes are assigned outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToolFailure {
    /// No tool has this name.
    ToolNotFound,
    /// The mode or a rule does not allow the call.
    ToolDisabled,
    /// The call took too long.
    TimedOut,
    /// The file does not exist.
    FileNotFound,
    /// The file may not be accessed.
    FileDenied,
    /// The file is too large.
    FileTooLarge,
    /// An MCP server answered with an error.
    McpFailed,
    /// An MCP server does not run.
    McpUnavailable,
}
