//! Messages between the user and the model, and the blocks they are made of.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{ModelId, ToolCallId};
use super::slash_command::SlashCommand;

/// What the user sends.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Prompt {
    /// The parts, in order.
    pub blocks: Vec<Block>,
    /// The `_meta` of each part, as the client sent it; empty if no part has any. Stored and replayed with the part; no
    /// model sees it.
    pub block_meta: Vec<Option<Value>>,
}

impl From<Vec<Block>> for Prompt {
    fn from(blocks: Vec<Block>) -> Prompt {
        Prompt { blocks, block_meta: Vec::new() }
    }
}

/// Ends the instructions before the first prompt of a conversation.
pub(crate) const OPENING_END: &str = "\n\n# Request\n";

impl Prompt {
    /// Returns the text of the prompt, without images and other parts, and without the instructions before it.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(Block::as_text);
        let texts: Vec<&str> = texts.skip_while(|text| text.ends_with(OPENING_END)).collect();
        texts.join("\n")
    }

    /// Splits the prompt into the name of a slash command and its arguments, if its first part starts with `/`.
    #[must_use]
    pub fn slash_command(&self) -> Option<(&str, &str)> {
        SlashCommand::split(self.blocks.first()?.as_text()?)
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

/// The maximum length of a title, in characters.
const TITLE: usize = 60;

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Block {
    /// Plain text or Markdown.
    Text(String),
    /// A picture.
    Image(Media),
    /// Sound.
    Audio(Media),
    /// A link to a resource.
    Link {
        /// Its address.
        uri: String,
        /// Its name for the user.
        name: String,
    },
    /// The content of a resource.
    Resource {
        /// Its address.
        uri: String,
        /// Its media type, if known.
        mime: Option<String>,
        /// Its content.
        contents: Contents,
    },
}

impl Block {
    /// Returns the approximate size, in bytes.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Media {
    /// The bytes in base64.
    pub data: String,
    /// The media type.
    pub mime: String,
}

/// The contents of an embedded resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Contents {
    /// Text.
    Text(String),
    /// Bytes in base64.
    Blob(String),
}

/// Returns how many bytes a base64 string stands for.
#[must_use]
pub fn decoded_length(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// One entry of the history, as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// A message of the user.
    User(Prompt),
    /// An answer of the model.
    Agent {
        /// Its thoughts that must be sent back to the model.
        thoughts: Vec<Thought>,
        /// Its text.
        text: String,
        /// Its tool calls.
        calls: Vec<ToolRequest>,
    },
    /// The result of a tool call.
    ToolResult {
        /// Which call.
        id: ToolCallId,
        /// The result.
        text: String,
        /// Whether the call failed.
        failed: bool,
    },
}

impl Message {
    /// Returns the approximate size, in bytes.
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

/// A thought of a model. Only the model that wrote it can read its seal, so only that model gets it back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thought {
    /// Which model.
    pub by: ModelId,
    /// Its text; empty if the model does not show it.
    pub text: String,
    /// The signature or the encrypted thought. Opaque to us.
    pub seal: Option<Seal>,
    /// Its position: how many bytes of the message's text came before it.
    pub at: usize,
}

impl Thought {
    fn size(&self) -> usize {
        self.text.len() + self.seal.as_ref().map_or(0, |seal| seal.data.len())
    }
}

/// Data that must be sent back to the model unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The data.
    pub data: String,
    /// The tool call it belongs to, if it does not belong to the thought itself.
    pub call: Option<ToolCallId>,
}

/// A tool call, as the model requested it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRequest {
    /// The call's id.
    pub id: ToolCallId,
    /// The tool's name.
    pub name: String,
    /// Its input, unchecked; a string if it was not valid JSON. Shared, because it may contain a whole file.
    pub input: Arc<Value>,
}

impl ToolRequest {
    /// Returns the approximate size of the input, in bytes.
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
