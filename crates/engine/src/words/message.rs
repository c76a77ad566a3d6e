//! Messages between the user and the model, and the blocks they are made of.

use std::sync::Arc;

use serde_json::Value;

use super::ids::{ModelId, ToolCallId};

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
