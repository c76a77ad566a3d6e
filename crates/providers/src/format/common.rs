//! What the formats share: the parts of prompts and answers, tool calls that arrive in chunks, generated ids.

use std::collections::VecDeque;

use engine::ports::{ModelEvent, Request, Schema, ToolSpec};
use engine::words::{
    Block, Contents, Media, Message, ModelOptions, Thought, ToolCallId, ToolRequest, decoded_length,
};
use serde::Serialize;
use serde_json::Value;

use crate::fault::Fault;
use crate::images::PDF;

/// The facts about a model that a request depends on.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    /// The provider's name for the model.
    pub(crate) name: &'a str,
    /// The longest answer to ask for, in tokens. `None`: the server rejected the limit, so none is sent.
    pub(crate) max_tokens: Option<u64>,
    /// Whether the chat format's limit is called `max_completion_tokens`, as OpenAI's newer models demand.
    pub(crate) counts_reasoning: bool,
    /// Whether the amount of thinking can be set.
    pub(crate) can_think: bool,
    /// Whether the server reports its progress when it reads a prompt, if asked.
    pub(crate) has_progress: bool,
    /// What the user's config sends with every request.
    pub(crate) options: &'a ModelOptions,
    /// Whether the server is OpenRouter, which has additional members in the chat format.
    pub(crate) is_openrouter: bool,
}

#[cfg(test)]
impl<'a> Target<'a> {
    pub(crate) fn for_tests(name: &'a str, options: &'a ModelOptions) -> Target<'a> {
        Target {
            name,
            max_tokens: Some(32_000),
            counts_reasoning: false,
            can_think: true,
            has_progress: false,
            options,
            is_openrouter: false,
        }
    }
}

/// Serialises a body and appends the tools. The tools are serialised directly, because copying them into a `Value` first
/// would be most of the cost of a request.
pub(crate) fn with_tools(body: &Value, tools: &[impl Serialize]) -> serde_json::Result<Vec<u8>> {
    let mut out = serde_json::to_vec(body)?;
    if !tools.is_empty() && out.pop() == Some(b'}') {
        out.extend_from_slice(b",\"tools\":");
        serde_json::to_writer(&mut out, tools)?;
        out.push(b'}');
    }
    Ok(out)
}

/// A tool in the form of most formats.
#[derive(Serialize)]
pub(crate) struct FunctionSpec<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Schema,
}

impl<'a> From<&'a ToolSpec> for FunctionSpec<'a> {
    fn from(tool: &'a ToolSpec) -> FunctionSpec<'a> {
        FunctionSpec { name: &tool.name, description: &tool.description, parameters: &tool.schema }
    }
}

/// Decoded events.
pub(crate) type Events = VecDeque<ModelEvent>;

/// The longest arguments of a tool call, in bytes.
const MAX_ARGUMENTS: usize = 8 * 1024 * 1024;

/// A tool call whose arguments arrive in chunks.
#[derive(Debug, Default)]
pub(crate) struct ToolDraft {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl ToolDraft {
    pub(crate) fn push(&mut self, chunk: &str) -> Result<(), Fault> {
        if self.arguments.len() + chunk.len() > MAX_ARGUMENTS {
            return Err(Fault::InvalidAnswer(format!(
                "the arguments of `{}` exceed the limit of {MAX_ARGUMENTS} bytes",
                self.name
            )));
        }
        self.arguments.push_str(chunk);
        Ok(())
    }

    /// Finishes the call and parses its arguments. Invalid JSON is passed on as a string: the tool rejects it, and the model
    /// learns why.
    pub(crate) fn finish(self, ids: &mut IdGenerator) -> ToolRequest {
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

/// Generates ids for servers that send none.
#[derive(Debug, Default)]
pub(crate) struct IdGenerator {
    turn: usize,
    count: usize,
}

impl IdGenerator {
    /// `turn` is a number that no earlier request of the conversation had.
    pub(crate) fn new(turn: usize) -> IdGenerator {
        IdGenerator { turn, count: 0 }
    }

    pub(crate) fn next(&mut self) -> String {
        self.count += 1;
        format!("call_{}_{}", self.turn, self.count)
    }
}

/// Returns tool input as an object, which every format requires.
pub(crate) fn input_object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        other => serde_json::json!({ "invalid": other }),
    }
}

/// Converts Anthropic's setting for thinking from OpenCode's form, which says `budgetTokens`.
pub(crate) fn thinking_out(given: &Value) -> Value {
    let mut thinking = given.clone();
    if let Some(budget) =
        thinking.as_object_mut().and_then(|members| members.remove("budgetTokens"))
    {
        thinking["budget_tokens"] = budget;
    }
    thinking
}

/// A part of a prompt, by how it is encoded.
pub(crate) enum PromptPart<'a> {
    Text(String),
    Image(&'a Media),
    Pdf { name: &'a str, data: &'a str },
    Audio(&'a Media),
}

/// Converts the blocks of a prompt to parts. Empty text is omitted, because some providers reject it.
pub(crate) fn prompt_parts(blocks: &[Block]) -> Vec<PromptPart<'_>> {
    let prompt_parts = blocks.iter().map(|block| match block {
        Block::Text(text) => PromptPart::Text(text.clone()),
        Block::Image(media) => PromptPart::Image(media),
        Block::Audio(media) => PromptPart::Audio(media),
        Block::Link { uri, name } => PromptPart::Text(format!("[{name}]({uri})")),
        Block::Resource { uri, contents: Contents::Text(text), .. } => {
            PromptPart::Text(format!("<resource uri=\"{uri}\">\n{text}\n</resource>"))
        }
        Block::Resource { uri, mime, contents: Contents::Blob(data) } => match mime.as_deref() {
            Some(PDF) => PromptPart::Pdf { name: uri, data },
            mime => PromptPart::Text(format!(
                "<resource uri=\"{uri}\">{} bytes of {}</resource>",
                decoded_length(data),
                mime.unwrap_or("unknown data")
            )),
        },
    });
    prompt_parts
        .filter(|part| !matches!(part, PromptPart::Text(text) if text.trim().is_empty()))
        .collect()
}

/// A part of a model's answer.
pub(crate) enum AnswerPart<'a> {
    Thought(&'a Thought),
    Text(&'a str),
}

/// Returns the text and the thoughts of an answer in their original order. Thoughts of other models and thoughts without a
/// seal are omitted: no format accepts them, and they would split the text.
pub(crate) fn answer_parts<'a>(
    thoughts: &'a [Thought],
    text: &'a str,
    request: &Request,
) -> Vec<AnswerPart<'a>> {
    let mut parts = Vec::new();
    let mut from = 0;
    let is_sent = |thought: &&Thought| thought.by == request.model && thought.seal.is_some();
    for thought in thoughts.iter().filter(is_sent) {
        let at = if text.is_char_boundary(thought.at) { thought.at.max(from) } else { from };
        if at > from {
            parts.push(AnswerPart::Text(&text[from..at]));
        }
        parts.push(AnswerPart::Thought(thought));
        from = at;
    }
    if from < text.len() {
        parts.push(AnswerPart::Text(&text[from..]));
    }
    parts
}

/// Returns the name of the tool that a result belongs to.
pub(crate) fn tool_name<'a>(request: &'a Request, id: &ToolCallId) -> &'a str {
    let calls = request.messages.iter().rev().filter_map(|message| match &**message {
        Message::Agent { calls, .. } => Some(calls),
        Message::User(_) | Message::ToolResult { .. } => None,
    });
    calls.flatten().find(|call| call.id == *id).map_or("unknown", |call| &call.name)
}
