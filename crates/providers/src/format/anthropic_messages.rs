//! Anthropic Messages: `POST /messages`, streamed.
//!
//! Thinking blocks go back with their signatures, unchanged and in their order; the cache is marked at the
//! instructions, the tools and the last two messages of the user.

use std::borrow::Cow;
use std::collections::BTreeMap;

use engine::ports::{ModelEvent, Request, Schema};
use engine::words::{Message, Seal, StopReason, Thinking, Thought, ToolCallId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Events, IdMaker, Part, Said, Target, ToolDraft};
use crate::fault::Fault;

/// Answers are asked for up to this length, even where the model could do more.
const MOST_OUTPUT: u64 = 32_000;
const OUTPUT_WHERE_UNKNOWN: u64 = 8_192;
/// Stands before sealed data of a block that shows nothing. A signature is base64 and has no blank.
const REDACTED: &str = "redacted ";

pub(super) fn encode(request: &Request, target: &Target<'_>) -> serde_json::Result<Vec<u8>> {
    let max_tokens = target.max_output.map_or(OUTPUT_WHERE_UNKNOWN, |most| most.min(MOST_OUTPUT));
    let mut body = json!({
        "model": target.name,
        "max_tokens": max_tokens,
        "stream": true,
        "messages": messages(request),
    });
    if !request.instructions.is_empty() {
        body["system"] = json!([{
            "type": "text",
            "text": &*request.instructions,
            "cache_control": { "type": "ephemeral" },
        }]);
    }
    if target.can_think {
        think(&mut body, request.thinking, target.name, max_tokens);
    }
    let tools = request.tools.iter();
    let mut tools: Vec<Tool<'_>> = tools
        .map(|tool| Tool {
            name: &tool.name,
            description: &tool.description,
            input_schema: &tool.schema,
            cache_control: None,
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        last.cache_control = Some(json!({ "type": "ephemeral" }));
    }
    super::with_tools(&body, &tools)
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Schema,
    /// Marks the end of what should be cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Value>,
}

/// Marks the end of what should be cached.
fn mark(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// Asks for thinking: the newer models take an effort, the older ones a number of tokens.
fn think(body: &mut Value, thinking: Thinking, model: &str, max_tokens: u64) {
    let (effort, budget) = match thinking {
        Thinking::Default => return,
        Thinking::Off => {
            body["thinking"] = json!({ "type": "disabled" });
            return;
        }
        Thinking::Low => ("low", 2_048),
        Thinking::Medium => ("medium", 8_192),
        Thinking::High => ("high", 24_000),
    };
    if takes_budget(model) {
        let budget = std::cmp::min(budget, max_tokens.saturating_sub(1_024)).max(1_024);
        body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
    } else {
        body["thinking"] = json!({ "type": "adaptive" });
        body["output_config"] = json!({ "effort": effort });
    }
}

fn takes_budget(model: &str) -> bool {
    const OLD: [&str; 10] = [
        "claude-3",
        "opus-4-0",
        "opus-4-1",
        "opus-4-2",
        "opus-4-5",
        "sonnet-4-0",
        "sonnet-4-2",
        "sonnet-4-5",
        "haiku-4-5",
        "claude-4",
    ];
    OLD.iter().any(|old| model.contains(old))
}

/// Writes the conversation. Neighbours of one role are one message: results stand first in the user's.
fn messages(request: &Request) -> Value {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut push = |role: &'static str, blocks: Vec<Value>| match messages.last_mut() {
        _ if blocks.is_empty() => {}
        Some((last, held)) if *last == role => held.extend(blocks),
        _ => messages.push((role, blocks)),
    };
    for message in &request.messages {
        match &**message {
            Message::User(prompt) => {
                push("user", super::parts(&prompt.blocks).iter().map(part_out).collect());
            }
            Message::Agent { thoughts, text, calls } => {
                let mut blocks: Vec<Value> = Vec::new();
                for said in super::in_order(thoughts, text, request) {
                    match said {
                        Said::Thought(thought) => blocks.extend(thought_out(thought)),
                        Said::Text(text) if text.trim().is_empty() => {}
                        Said::Text(text) => blocks.push(json!({ "type": "text", "text": text })),
                    }
                }
                blocks.extend(calls.iter().map(|call| {
                    json!({
                        "type": "tool_use",
                        "id": call.id.given(),
                        "name": call.name,
                        "input": super::input_object(&call.input),
                    })
                }));
                push("assistant", blocks);
            }
            Message::ToolResult { id, text, failed } => {
                let mut block = json!({
                    "type": "tool_result",
                    "tool_use_id": id.given(),
                    "content": text,
                });
                if *failed {
                    block["is_error"] = true.into();
                }
                push("user", vec![block]);
            }
        }
    }
    let users = messages.iter_mut().rev().filter(|(role, _)| *role == "user").take(2);
    users.filter_map(|(_, blocks)| blocks.last_mut()).for_each(mark);
    messages
        .into_iter()
        .map(|(role, content)| json!({ "role": role, "content": content }))
        .collect()
}

fn part_out(part: &Part<'_>) -> Value {
    match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Image(media) => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": media.mime, "data": media.data },
        }),
        Part::Pdf { data, .. } => json!({
            "type": "document",
            "source": { "type": "base64", "media_type": "application/pdf", "data": data },
        }),
        Part::Audio(media) => {
            json!({ "type": "text", "text": format!("(sound, {}, left out)", media.mime) })
        }
    }
}

/// A thought without a seal cannot go back: the provider would refuse it.
fn thought_out(thought: &Thought) -> Option<Value> {
    let data = &thought.seal.as_ref()?.data;
    Some(match data.strip_prefix(REDACTED) {
        Some(data) => json!({ "type": "redacted_thinking", "data": data }),
        None => json!({ "type": "thinking", "thinking": thought.text, "signature": data }),
    })
}

/// Reads the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    open: BTreeMap<u64, Open>,
    usage: Usage,
    stop: Option<StopReason>,
}

/// A block that has begun and not ended.
#[derive(Debug)]
enum Open {
    Text,
    Thinking { signature: String },
    Redacted(String),
    Tool(ToolDraft),
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    content_block: Option<BlockIn<'a>>,
    #[serde(borrow)]
    delta: Option<DeltaIn<'a>>,
    message: Option<MessageIn>,
    usage: Option<UsageIn>,
}

#[derive(Deserialize)]
struct BlockIn<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    text: Option<String>,
    thinking: Option<String>,
    data: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
}

#[derive(Deserialize)]
struct DeltaIn<'a> {
    text: Option<String>,
    thinking: Option<String>,
    #[serde(borrow)]
    signature: Option<Cow<'a, str>>,
    #[serde(borrow)]
    partial_json: Option<Cow<'a, str>>,
    #[serde(borrow)]
    stop_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct MessageIn {
    usage: Option<UsageIn>,
}

#[derive(Deserialize)]
struct UsageIn {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Decoder {
    pub(super) fn decode(&mut self, data: &str, out: &mut Events) -> Result<(), Fault> {
        let event: Event<'_> = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(err) => return Err(Fault::Garbled(format!("an event is no JSON we know: {err}"))),
        };
        match &*event.kind {
            "message_start" => {
                self.count(event.message.and_then(|message| message.usage), out);
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.begin(event.index, block, out)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.go_on(event.index, delta, out)?;
                }
            }
            "content_block_stop" => self.end(event.index, out),
            "message_delta" => {
                self.count(event.usage, out);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.stop = Some(stop_in(&reason));
                }
            }
            "message_stop" => {
                for index in self.open.keys().copied().collect::<Vec<_>>() {
                    self.end(index, out);
                }
                out.push_back(ModelEvent::Stop(self.stop.unwrap_or(StopReason::EndTurn)));
            }
            "error" => {
                return Err(Fault::of_event(&serde_json::from_str(data).unwrap_or_default()));
            }
            // Pings, and whatever comes new.
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, index: u64, block: BlockIn<'_>, out: &mut Events) -> Result<(), Fault> {
        if self.open.contains_key(&index) {
            return Ok(());
        }
        let open = match &*block.kind {
            "text" => {
                let text = block.text.filter(|text| !text.is_empty());
                out.extend(text.map(ModelEvent::Text));
                Open::Text
            }
            "thinking" => {
                let text = block.thinking.filter(|text| !text.is_empty());
                out.extend(text.map(ModelEvent::Thought));
                Open::Thinking { signature: String::new() }
            }
            "redacted_thinking" => Open::Redacted(block.data.unwrap_or_default()),
            "tool_use" => {
                let mut draft = ToolDraft {
                    id: block.id,
                    name: block.name.unwrap_or_default(),
                    arguments: String::new(),
                };
                // Empty here, and filled by what follows; some servers send all of it at once.
                if let Some(input) = block
                    .input
                    .filter(|input| input.as_object().is_some_and(|members| !members.is_empty()))
                {
                    draft.push(&input.to_string())?;
                }
                Open::Tool(draft)
            }
            _ => return Ok(()),
        };
        self.open.insert(index, open);
        Ok(())
    }

    fn go_on(&mut self, index: u64, delta: DeltaIn<'_>, out: &mut Events) -> Result<(), Fault> {
        out.extend(delta.text.filter(|text| !text.is_empty()).map(ModelEvent::Text));
        out.extend(delta.thinking.filter(|text| !text.is_empty()).map(ModelEvent::Thought));
        match (self.open.get_mut(&index), delta.partial_json, delta.signature) {
            (Some(Open::Tool(draft)), Some(json), _) => draft.push(&json)?,
            (Some(Open::Thinking { signature }), _, Some(piece)) => signature.push_str(&piece),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, index: u64, out: &mut Events) {
        let seal =
            |data: String| (!data.is_empty()).then_some(Seal { data, call: None::<ToolCallId> });
        match self.open.remove(&index) {
            Some(Open::Thinking { signature }) => {
                out.push_back(ModelEvent::ThoughtEnd(seal(signature)));
            }
            Some(Open::Redacted(data)) => {
                out.push_back(ModelEvent::ThoughtEnd(seal(format!("{REDACTED}{data}"))));
            }
            Some(Open::Tool(draft)) => {
                out.push_back(ModelEvent::Tool(draft.finish(&mut IdMaker::default())));
            }
            Some(Open::Text) | None => {}
        }
    }

    /// Takes over what is counted; a later count replaces an earlier one, as the provider counts up.
    fn count(&mut self, usage: Option<UsageIn>, out: &mut Events) {
        let Some(now) = usage else { return };
        let take = |held: &mut u64, now: Option<u64>| {
            if let Some(now) = now.filter(|now| *now > 0) {
                *held = now;
            }
        };
        take(&mut self.usage.input, now.input_tokens);
        take(&mut self.usage.output, now.output_tokens);
        take(&mut self.usage.cache_read, now.cache_read_input_tokens);
        take(&mut self.usage.cache_write, now.cache_creation_input_tokens);
        out.push_back(ModelEvent::Usage(self.usage));
    }
}

fn stop_in(reason: &str) -> StopReason {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        // end_turn, stop_sequence, tool_use, pause_turn, and whatever comes new.
        _ => StopReason::EndTurn,
    }
}
