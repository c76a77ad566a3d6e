//! The vocabulary: ids, messages, blocks, tool calls, usage. Plain values that derive no wire format.

pub mod agents;
pub mod bill;
pub(crate) mod history;
pub mod modes;
pub mod nearest;
pub mod pattern;
pub mod pictures;
pub mod stamp;
pub mod visible;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::ports::ExitStatus;

/// Makes a newtype for an id, so that no two kinds of id can be mixed up.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Makes the id from its text.
            pub fn new(text: impl Into<Arc<str>>) -> $name {
                $name(text.into())
            }

            /// Returns the id's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the id's text without copying it.
            #[must_use]
            pub fn to_shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A conversation, as the client names it.
    SessionId
);
id!(
    /// One use of a tool inside a turn, as the model names it.
    ToolCallId
);
impl ToolCallId {
    /// Stands between what the provider calls it and our number. No provider's own ids have it.
    const MARK: char = '·';

    /// Makes the id of another call that the provider gave the same one.
    #[must_use]
    pub fn again(&self, number: usize) -> ToolCallId {
        ToolCallId::new(format!("{self}{}{number}", Self::MARK))
    }

    /// Returns what the provider calls it.
    #[must_use]
    pub fn given(&self) -> &str {
        self.0.split(Self::MARK).next().unwrap_or_default()
    }
}

id!(
    /// One message of the agent: its chunks belong together.
    MessageId
);
id!(
    /// A model, as `provider/model`.
    ModelId
);
id!(
    /// A way of working, such as `build` or `plan`.
    ModeId
);
id!(
    /// A terminal that the client runs for us.
    TerminalId
);

id!(
    /// What a file held, by its hash.
    ContentId
);

/// What the user sends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Prompt {
    /// The parts, in order.
    pub blocks: Vec<Block>,
    /// What the client said of each part beyond our words, as it came; empty if it said no more of any. Kept, and
    /// shown again with the part; no model sees it.
    pub asides: Vec<Option<Value>>,
}

impl From<Vec<Block>> for Prompt {
    fn from(blocks: Vec<Block>) -> Prompt {
        Prompt { blocks, asides: Vec::new() }
    }
}

impl Prompt {
    /// Returns the text of the prompt, without images and the like.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.blocks.iter().filter_map(Block::as_text).collect();
        texts.join("\n")
    }

    /// Returns the first line of the prompt, cut to the length of a title.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        let text = self.text();
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        let mut title: String =
            line.chars().filter(|character| !character.is_control()).take(TITLE).collect();
        if line.chars().nth(TITLE).is_some() {
            title.truncate(title.trim_end().len());
            title.push('…');
        }
        Some(title)
    }
}

/// How long a title may be that we make ourselves, in characters.
const TITLE: usize = 60;

/// One part of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Plain text or Markdown.
    Text(String),
    /// A picture.
    Image(Media),
    /// Sound.
    Audio(Media),
    /// A pointer to something that can be read.
    Link {
        /// Where it is.
        uri: String,
        /// What people call it.
        name: String,
    },
    /// Something that was read already.
    Resource {
        /// Where it came from.
        uri: String,
        /// Its media type, where known.
        mime: Option<String>,
        /// What it holds.
        contents: Contents,
    },
}

impl Block {
    /// Returns about how many bytes the block takes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Block::Text(text) => text.len(),
            Block::Image(media) | Block::Audio(media) => media.data.len(),
            Block::Link { uri, name } => uri.len() + name.len(),
            Block::Resource { uri, contents: Contents::Text(text), .. }
            | Block::Resource { uri, contents: Contents::Blob(text), .. } => uri.len() + text.len(),
        }
    }

    /// Returns the text of a text block.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Block::Text(text) => Some(text),
            Block::Image(_) | Block::Audio(_) | Block::Link { .. } | Block::Resource { .. } => None,
        }
    }
}

/// The data of a picture or a sound.
#[derive(Debug, Clone, PartialEq)]
pub struct Media {
    /// The bytes in base64, as they came.
    pub data: String,
    /// The media type.
    pub mime: String,
}

/// The contents of an embedded resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Contents {
    /// Text.
    Text(String),
    /// Bytes in base64.
    Blob(String),
}

/// One entry of the history, as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// What the user said.
    User(Prompt),
    /// What the model said, and what it asked for.
    Agent {
        /// What it thought on the way, as far as the model wants it back.
        thoughts: Vec<Thought>,
        /// Its words.
        text: String,
        /// The tools it asked for.
        calls: Vec<ToolRequest>,
    },
    /// What came of a tool.
    ToolResult {
        /// Which call.
        id: ToolCallId,
        /// What the model is told.
        text: String,
        /// Whether it went wrong.
        failed: bool,
    },
}

impl Message {
    /// Returns about how many bytes the message takes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Message::User(prompt) => prompt.blocks.iter().map(Block::size).sum(),
            Message::Agent { thoughts, text, calls } => {
                let thoughts: usize = thoughts.iter().map(Thought::size).sum();
                let calls: usize =
                    calls.iter().map(|call| call.name.len() + call.input_size()).sum();
                text.len() + thoughts + calls
            }
            Message::ToolResult { text, .. } => text.len(),
        }
    }
}

/// A piece of a model's thinking. Only the model that thought it can read its seal, so only that one gets it back.
#[derive(Debug, Clone, PartialEq)]
pub struct Thought {
    /// Who thought it.
    pub by: ModelId,
    /// The words; may be empty where the model shows none.
    pub text: String,
    /// What the model signed or encrypted it with. Not for reading.
    pub seal: Option<Seal>,
    /// Where it stood: how many bytes of the message's text came before it.
    pub at: usize,
}

impl Thought {
    fn size(&self) -> usize {
        self.text.len() + self.seal.as_ref().map_or(0, |seal| seal.data.len())
    }
}

/// Data that a model wants back unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The data.
    pub data: String,
    /// The tool call it belongs to, where it does not belong to the thought itself.
    pub call: Option<ToolCallId>,
}

/// A tool that the model asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRequest {
    /// The call's id.
    pub id: ToolCallId,
    /// The tool's name.
    pub name: String,
    /// Its input, not yet checked. Text stands for input that was not JSON. Shared, as a whole file may be in it.
    pub input: Arc<Value>,
}

impl ToolRequest {
    /// Returns about how many bytes the input takes.
    #[must_use]
    pub fn input_size(&self) -> usize {
        size_of(&self.input)
    }
}

fn size_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size_of(item) + 1).sum(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| key.len() + size_of(value) + 4).sum()
        }
    }
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model had nothing more to do.
    EndTurn,
    /// The model's answer was cut at its limit.
    MaxTokens,
    /// The turn had asked the model as often as it may.
    MaxTurnRequests,
    /// The model declined.
    Refusal,
    /// The user stopped it.
    Cancelled,
}

impl StopReason {
    /// Returns the word that the protocol has for it.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            StopReason::EndTurn => "end_turn",
            StopReason::MaxTokens => "max_tokens",
            StopReason::MaxTurnRequests => "max_turn_requests",
            StopReason::Refusal => "refusal",
            StopReason::Cancelled => "cancelled",
        }
    }
}

/// Tokens of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens the model read anew.
    pub input: u64,
    /// Tokens the model wrote, thinking included.
    pub output: u64,
    /// Tokens the model read from its cache.
    pub cache_read: u64,
    /// Tokens the model read and put into its cache.
    pub cache_write: u64,
}

impl Usage {
    /// Adds another answer's.
    pub fn add(&mut self, other: &Usage) {
        for (sum, more) in [
            (&mut self.input, other.input),
            (&mut self.output, other.output),
            (&mut self.cache_read, other.cache_read),
            (&mut self.cache_write, other.cache_write),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// Returns how many tokens of the context are in use after the answer.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.input, self.output, self.cache_read, self.cache_write]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// What a model costs, in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    /// Read anew.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Put into the cache.
    pub cache_write: f64,
}

impl Price {
    /// Returns what an answer cost, in US dollars.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> f64 {
        let dollars = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        dollars(usage.input, self.input)
            + dollars(usage.output, self.output)
            + dollars(usage.cache_read, self.cache_read)
            + dollars(usage.cache_write, self.cache_write)
    }
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    /// As the model is used to.
    #[default]
    Default,
    /// Not at all, or as little as it can.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// A lot.
    High,
}

impl Thinking {
    /// Every level: its id and what people call it.
    pub const ALL: [(Thinking, &'static str, &'static str); 5] = [
        (Thinking::Default, "default", "Default"),
        (Thinking::Off, "off", "Off"),
        (Thinking::Low, "low", "Low"),
        (Thinking::Medium, "medium", "Medium"),
        (Thinking::High, "high", "High"),
    ];

    /// Finds a level by its id.
    #[must_use]
    pub fn find(id: &str) -> Option<Thinking> {
        Thinking::ALL.iter().find(|(_, known, _)| *known == id).map(|(level, _, _)| *level)
    }

    /// Returns the level's id.
    #[must_use]
    pub fn id(self) -> &'static str {
        Thinking::ALL.iter().find(|(level, _, _)| *level == self).map_or("default", |row| row.1)
    }
}

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
