//! Tool calls as the client sees them, and the plan of a turn.

use std::path::PathBuf;

use serde_json::Value;

use super::ids::{TerminalId, ToolCallId};
use super::message::Block;

/// What a tool does, for icons and for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolKind {
    /// Looks at files.
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
    /// Only thinks or notes.
    Think,
    /// Gets something from the network.
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

/// How far a tool call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolStatus {
    /// Asked for, not running.
    Pending,
    /// Running.
    InProgress,
    /// Done.
    Completed,
    /// Went wrong, was refused or was cancelled.
    Failed,
}

/// A tool call as it is first shown.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The call.
    pub id: ToolCallId,
    /// The tool's name.
    pub name: String,
    /// What it will do, in one line: with the file or the command.
    pub title: String,
    /// What kind of work.
    pub kind: ToolKind,
    /// How far it is.
    pub status: ToolStatus,
    /// What it will change.
    pub content: Vec<ToolContent>,
    /// Which files it touches.
    pub locations: Vec<Location>,
    /// The input as the model gave it.
    pub raw_input: Value,
}

/// A change of a tool call that was shown before; what is `None` stays as it was.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolUpdate {
    /// How far it is now.
    pub status: Option<ToolStatus>,
    /// What to show now, instead of what was shown before.
    pub content: Option<Vec<ToolContent>>,
    /// What came out, for programs.
    pub raw_output: Option<Value>,
    /// What a running command did, for clients that show it as it happens.
    pub live: Option<Live>,
}

/// What a running command did since the last update.
#[derive(Debug, Clone, PartialEq)]
pub enum Live {
    /// Said this, after all that it said before.
    Output(String),
    /// Ended.
    Ended(ExitStatus),
}

/// Something a tool call shows.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolContent {
    /// A block.
    Block(Block),
    /// A change of a file.
    Diff {
        /// The file.
        path: PathBuf,
        /// What it held; `None` for a new file.
        old: Option<String>,
        /// What it will hold.
        new: String,
    },
    /// A terminal of the client.
    Terminal(TerminalId),
    /// What a command of ours says, shown as it happens: see [`Live`].
    Live {
        /// Where the command runs.
        cwd: PathBuf,
    },
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub path: PathBuf,
    /// The line, counting from 1.
    pub line: Option<u32>,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanEntry {
    /// What to do.
    pub content: String,
    /// How much it matters.
    pub priority: Priority,
    /// How far it is.
    pub status: PlanStatus,
}

/// How much a step of a plan matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Matters most.
    High,
    /// Matters.
    Medium,
    /// Can wait.
    Low,
}

/// How far a step of a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanStatus {
    /// Not begun.
    Pending,
    /// Under way.
    InProgress,
    /// Done.
    Completed,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExitStatus {
    /// Its exit code.
    pub code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// The kinds of failure that programs can tell apart. Their codes are assigned outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolFailure {
    /// No tool has this name.
    ToolNotFound,
    /// The mode does not allow the tool.
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
