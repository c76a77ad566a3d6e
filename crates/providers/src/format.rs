//! The four wire formats, and what they share. Pure: a request in, JSON out; an event's data in, events out.
//!
//! Each format is one file with `encode` and a `Decoder`. What an HTTP status means is in `fault`.

pub(crate) mod anthropic_messages;
pub(crate) mod gemini;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;

use std::collections::VecDeque;

use engine::ports::{ModelEvent, Request, Schema, ToolSpec};
use engine::words::{Block, Contents, Media, Message, Thought, ToolCallId, ToolRequest};
use serde::Serialize;
use serde_json::Value;

use crate::fault::Fault;

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `POST /messages`, as Anthropic has it.
    AnthropicMessages,
    /// `POST /responses`, as OpenAI has it.
    OpenAiResponses,
    /// `POST /chat/completions`, as OpenAI had it and most others do.
    OpenAiChat,
    /// `POST /models/…:streamGenerateContent`, as Google has it.
    Gemini,
}

/// What a request needs to know of the model, besides the conversation.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    /// The model's name at its provider.
    pub(crate) name: &'a str,
    /// The longest answer, where it is known.
    pub(crate) max_output: Option<u64>,
    /// Whether it can be told how much to think.
    pub(crate) can_think: bool,
    /// Whether the server is OpenRouter, which has keys of its own in the chat format.
    pub(crate) is_openrouter: bool,
}

impl Format {
    /// Returns the path behind the base URL.
    pub(crate) fn path(self, model: &str) -> String {
        match self {
            Format::AnthropicMessages => "/messages".to_owned(),
            Format::OpenAiResponses => "/responses".to_owned(),
            Format::OpenAiChat => "/chat/completions".to_owned(),
            Format::Gemini => format!("/models/{model}:streamGenerateContent?alt=sse"),
        }
    }

    /// Writes the body of a request.
    pub(crate) fn encode(
        self,
        request: &Request,
        target: &Target<'_>,
    ) -> serde_json::Result<Vec<u8>> {
        match self {
            Format::AnthropicMessages => anthropic_messages::encode(request, target),
            Format::OpenAiResponses => openai_responses::encode(request, target),
            Format::OpenAiChat => openai_chat::encode(request, target),
            Format::Gemini => gemini::encode(request, target),
        }
    }

    /// Makes the decoder for the answer to a request.
    pub(crate) fn decoder(self, request: &Request) -> Decoder {
        // Ids that we have to make up must differ from all earlier ones of the conversation.
        let ids = IdMaker { turn: request.messages.len(), made: 0 };
        match self {
            Format::AnthropicMessages => Decoder::AnthropicMessages(Default::default()),
            Format::OpenAiResponses => Decoder::OpenAiResponses(Default::default()),
            Format::OpenAiChat => Decoder::OpenAiChat(openai_chat::Decoder::new(ids)),
            Format::Gemini => Decoder::Gemini(gemini::Decoder::new(ids)),
        }
    }
}

/// Writes a body and the tools behind it, which are written as they are: copied into a value first, they would be most of
/// what a request costs.
fn with_tools(body: &Value, tools: &[impl Serialize]) -> serde_json::Result<Vec<u8>> {
    let mut out = serde_json::to_vec(body)?;
    if !tools.is_empty() && out.pop() == Some(b'}') {
        out.extend_from_slice(b",\"tools\":");
        serde_json::to_writer(&mut out, tools)?;
        out.push(b'}');
    }
    Ok(out)
}

/// A tool as most formats have it.
#[derive(Serialize)]
struct Declared<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Schema,
}

impl<'a> From<&'a ToolSpec> for Declared<'a> {
    fn from(tool: &'a ToolSpec) -> Declared<'a> {
        Declared { name: &tool.name, description: &tool.description, parameters: &tool.schema }
    }
}

/// Where decoded events go.
pub(crate) type Events = VecDeque<ModelEvent>;

/// Turns the events of one answer into the engine's.
#[derive(Debug)]
pub(crate) enum Decoder {
    AnthropicMessages(anthropic_messages::Decoder),
    OpenAiResponses(openai_responses::Decoder),
    OpenAiChat(openai_chat::Decoder),
    Gemini(gemini::Decoder),
}

impl Decoder {
    /// Takes the data of one event. What it does not know it ignores.
    pub(crate) fn decode(&mut self, data: &str, out: &mut Events) -> Result<(), Fault> {
        match self {
            Decoder::AnthropicMessages(decoder) => decoder.decode(data, out),
            Decoder::OpenAiResponses(decoder) => decoder.decode(data, out),
            Decoder::OpenAiChat(decoder) => decoder.decode(data, out),
            Decoder::Gemini(decoder) => decoder.decode(data, out),
        }
    }

    /// Takes the end of the stream: an answer that has not said why it stopped was cut off.
    pub(crate) fn finish(&mut self, out: &mut Events) -> Result<(), Fault> {
        match self {
            Decoder::AnthropicMessages(_) | Decoder::OpenAiResponses(_) => Err(Fault::Cut),
            Decoder::OpenAiChat(decoder) => decoder.finish(out),
            Decoder::Gemini(decoder) => decoder.finish(out),
        }
    }
}

/// The most that the arguments of one tool call may hold.
const MAX_ARGUMENTS: usize = 8 * 1024 * 1024;

/// A tool call whose arguments come in pieces.
#[derive(Debug, Default)]
pub(crate) struct ToolDraft {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl ToolDraft {
    pub(crate) fn push(&mut self, piece: &str) -> Result<(), Fault> {
        if self.arguments.len() + piece.len() > MAX_ARGUMENTS {
            return Err(Fault::Garbled(format!(
                "the arguments of `{}` are longer than {MAX_ARGUMENTS} bytes",
                self.name
            )));
        }
        self.arguments.push_str(piece);
        Ok(())
    }

    /// Ends the call. Arguments are read only now, when they are whole; what is no JSON stays text for the tool
    /// to refuse, so that the model is told.
    pub(crate) fn finish(self, ids: &mut IdMaker) -> ToolRequest {
        let arguments = self.arguments.trim();
        let input = if arguments.is_empty() {
            Value::Object(serde_json::Map::new())
        } else {
            serde_json::from_str(arguments)
                .unwrap_or_else(|_| Value::String(self.arguments.clone()))
        };
        let id = self.id.filter(|id| !id.is_empty()).unwrap_or_else(|| ids.next());
        ToolRequest { id: ToolCallId::new(id), name: self.name, input: input.into() }
    }
}

/// Makes ids for servers that send none.
#[derive(Debug, Default)]
pub(crate) struct IdMaker {
    turn: usize,
    made: usize,
}

impl IdMaker {
    pub(crate) fn next(&mut self) -> String {
        self.made += 1;
        format!("call_{}_{}", self.turn, self.made)
    }
}

/// Tool input as the object that every format demands.
pub(crate) fn input_object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        other => serde_json::json!({ "invalid": other }),
    }
}

/// A part of a prompt, as far as models differ in taking it.
pub(crate) enum Part<'a> {
    Text(String),
    Image(&'a Media),
    Pdf { name: &'a str, data: &'a str },
    Audio(&'a Media),
}

/// Reads the blocks of a prompt as parts. Empty text is left out: some providers refuse it.
pub(crate) fn parts(blocks: &[Block]) -> Vec<Part<'_>> {
    let parts = blocks.iter().map(|block| match block {
        Block::Text(text) => Part::Text(text.clone()),
        Block::Image(media) => Part::Image(media),
        Block::Audio(media) => Part::Audio(media),
        Block::Link { uri, name } => Part::Text(format!("[{name}]({uri})")),
        Block::Resource { uri, contents: Contents::Text(text), .. } => {
            Part::Text(format!("<resource uri=\"{uri}\">\n{text}\n</resource>"))
        }
        Block::Resource { uri, mime, contents: Contents::Blob(data) } => match mime.as_deref() {
            Some("application/pdf") => Part::Pdf { name: uri, data },
            mime => Part::Text(format!(
                "<resource uri=\"{uri}\">{} bytes of {}</resource>",
                data.len() / 4 * 3,
                mime.unwrap_or("unknown data")
            )),
        },
    });
    parts.filter(|part| !matches!(part, Part::Text(text) if text.trim().is_empty())).collect()
}

/// A piece of what a model said, in its order.
pub(crate) enum Said<'a> {
    Thought(&'a Thought),
    Text(&'a str),
}

/// Puts the thoughts that `model` may have back between the pieces of its text, where they stood.
pub(crate) fn in_order<'a>(
    thoughts: &'a [Thought],
    text: &'a str,
    request: &Request,
) -> Vec<Said<'a>> {
    let mut said = Vec::new();
    let mut from = 0;
    for thought in thoughts.iter().filter(|thought| thought.by == request.model) {
        let at = if text.is_char_boundary(thought.at) { thought.at.max(from) } else { from };
        if at > from {
            said.push(Said::Text(&text[from..at]));
        }
        said.push(Said::Thought(thought));
        from = at;
    }
    if from < text.len() {
        said.push(Said::Text(&text[from..]));
    }
    said
}

/// Returns the name of the tool that a result belongs to.
pub(crate) fn tool_name<'a>(request: &'a Request, id: &ToolCallId) -> &'a str {
    let calls = request.messages.iter().rev().filter_map(|message| match &**message {
        Message::Agent { calls, .. } => Some(calls),
        Message::User(_) | Message::ToolResult { .. } => None,
    });
    calls.flatten().find(|call| call.id == *id).map_or("unknown", |call| &call.name)
}

#[cfg(test)]
pub(crate) mod tests;
