//! Anthropic Messages: `POST /messages`, streamed.
//!
//! Thinking blocks are sent back unchanged, with their signatures and in order. Cache breakpoints are set after the
//! instructions, the tools and the last two user messages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use engine::ports::{ModelEvent, Request, Schema};
use engine::words::{Message, Seal, StopReason, Thinking, Thought, ToolCallId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::common::{self, AnswerPart, Events, IdGenerator, PromptPart, Target, ToolDraft};
use crate::fault::Fault;

/// The limit for an answer where the format requires one and none is known.
const DEFAULT_OUTPUT: u64 = 8_192;
/// Marks the data of a redacted thinking block. A signature is base64 and has no blank.
const REDACTED: &str = "redacted ";

pub(super) fn encode(request: &Request, target: &Target<'_>) -> serde_json::Result<Vec<u8>> {
    let max_tokens = target.max_tokens.unwrap_or(DEFAULT_OUTPUT);
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
    if let Some(temperature) = target.options.temperature {
        body["temperature"] = temperature.into();
    }
    if target.can_think {
        set_thinking(&mut body, request.thinking, target, max_tokens);
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
    common::with_tools(&body, &tools)
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Schema,
    /// Sets a cache breakpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Value>,
}

/// Sets a cache breakpoint.
fn set_cache_breakpoint(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// Enables thinking: newer models accept an effort, older ones a number of tokens.
fn set_thinking(body: &mut Value, thinking: Thinking, target: &Target<'_>, max_tokens: u64) {
    let (effort, budget) = match thinking {
        Thinking::Default => {
            if let Some(thinking) = &target.options.thinking {
                body["thinking"] = common::thinking_out(thinking);
            }
            if let Some(effort) = &target.options.reasoning_effort {
                body["output_config"] = json!({ "effort": effort });
            }
            return;
        }
        Thinking::Off => {
            body["thinking"] = json!({ "type": "disabled" });
            return;
        }
        Thinking::Low => ("low", 2_048),
        Thinking::Medium => ("medium", 8_192),
        Thinking::High => ("high", 24_000),
    };
    if takes_budget(target.name) {
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

/// Encodes the conversation. Consecutive messages of one role are merged, so tool results precede the user's text.
fn messages(request: &Request) -> Value {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut push = |role: &'static str, blocks: Vec<Value>| match messages.last_mut() {
        _ if blocks.is_empty() => {}
        Some((last, merged)) if *last == role => merged.extend(blocks),
        _ => messages.push((role, blocks)),
    };
    for message in &request.messages {
        match &**message {
            Message::User(prompt) => {
                push("user", common::prompt_parts(&prompt.blocks).iter().map(part_out).collect());
            }
            Message::Agent { thoughts, text, calls } => {
                let mut blocks: Vec<Value> = Vec::new();
                for part in common::answer_parts(thoughts, text, request) {
                    match part {
                        AnswerPart::Thought(thought) => blocks.extend(thought_out(thought)),
                        AnswerPart::Text(text) if text.trim().is_empty() => {}
                        AnswerPart::Text(text) => {
                            blocks.push(json!({ "type": "text", "text": text }))
                        }
                    }
                }
                blocks.extend(calls.iter().map(|call| {
                    json!({
                        "type": "tool_use",
                        "id": call.id.given(),
                        "name": call.name,
                        "input": common::input_object(&call.input),
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
    users.filter_map(|(_, blocks)| blocks.last_mut()).for_each(set_cache_breakpoint);
    messages
        .into_iter()
        .map(|(role, content)| json!({ "role": role, "content": content }))
        .collect()
}

fn part_out(part: &PromptPart<'_>) -> Value {
    match part {
        PromptPart::Text(text) => json!({ "type": "text", "text": text }),
        PromptPart::Image(media) => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": media.mime, "data": media.data },
        }),
        PromptPart::Pdf { data, .. } => json!({
            "type": "document",
            "source": { "type": "base64", "media_type": "application/pdf", "data": data },
        }),
        PromptPart::Audio(media) => {
            json!({ "type": "text", "text": format!("(audio, {}, omitted)", media.mime) })
        }
    }
}

/// Encodes a thought. Without a signature it is omitted, because the provider would reject it.
fn thought_out(thought: &Thought) -> Option<Value> {
    let data = &thought.seal.as_ref()?.data;
    Some(match data.strip_prefix(REDACTED) {
        Some(data) => json!({ "type": "redacted_thinking", "data": data }),
        None => json!({ "type": "thinking", "thinking": thought.text, "signature": data }),
    })
}

/// Decodes the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    open: BTreeMap<u64, OpenBlock>,
    usage: Usage,
    stop: Option<StopReason>,
}

/// A block that has started but not ended.
#[derive(Debug)]
enum OpenBlock {
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
            Err(err) => return Err(Fault::InvalidAnswer(format!("an event is not valid: {err}"))),
        };
        match &*event.kind {
            "message_start" => {
                self.update_usage(event.message.and_then(|message| message.usage), out);
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.start_block(event.index, block, out)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.continue_block(event.index, delta, out)?;
                }
            }
            "content_block_stop" => self.end_block(event.index, out),
            "message_delta" => {
                self.update_usage(event.usage, out);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.stop = Some(stop_in(&reason));
                }
            }
            "message_stop" => {
                for index in self.open.keys().copied().collect::<Vec<_>>() {
                    self.end_block(index, out);
                }
                out.push_back(ModelEvent::Stop(self.stop.unwrap_or(StopReason::EndTurn)));
            }
            "error" => {
                return Err(Fault::of_event(&serde_json::from_str(data).unwrap_or_default()));
            }
            // Pings and unknown events.
            _ => {}
        }
        Ok(())
    }

    fn start_block(
        &mut self,
        index: u64,
        block: BlockIn<'_>,
        out: &mut Events,
    ) -> Result<(), Fault> {
        if self.open.contains_key(&index) {
            return Ok(());
        }
        let open = match &*block.kind {
            "text" => {
                let text = block.text.filter(|text| !text.is_empty());
                out.extend(text.map(ModelEvent::Text));
                OpenBlock::Text
            }
            "thinking" => {
                let text = block.thinking.filter(|text| !text.is_empty());
                out.extend(text.map(ModelEvent::Thought));
                OpenBlock::Thinking { signature: String::new() }
            }
            "redacted_thinking" => OpenBlock::Redacted(block.data.unwrap_or_default()),
            "tool_use" => {
                let mut draft = ToolDraft {
                    id: block.id,
                    name: block.name.unwrap_or_default(),
                    arguments: String::new(),
                };
                // Normally empty and filled by later events; some servers send the whole input here.
                if let Some(input) = block
                    .input
                    .filter(|input| input.as_object().is_some_and(|members| !members.is_empty()))
                {
                    draft.push(&input.to_string())?;
                }
                OpenBlock::Tool(draft)
            }
            _ => return Ok(()),
        };
        self.open.insert(index, open);
        Ok(())
    }

    fn continue_block(
        &mut self,
        index: u64,
        delta: DeltaIn<'_>,
        out: &mut Events,
    ) -> Result<(), Fault> {
        out.extend(delta.text.filter(|text| !text.is_empty()).map(ModelEvent::Text));
        out.extend(delta.thinking.filter(|text| !text.is_empty()).map(ModelEvent::Thought));
        match (self.open.get_mut(&index), delta.partial_json, delta.signature) {
            (Some(OpenBlock::Tool(draft)), Some(json), _) => draft.push(&json)?,
            (Some(OpenBlock::Thinking { signature }), _, Some(chunk)) => signature.push_str(&chunk),
            _ => {}
        }
        Ok(())
    }

    fn end_block(&mut self, index: u64, out: &mut Events) {
        let seal =
            |data: String| (!data.is_empty()).then_some(Seal { data, call: None::<ToolCallId> });
        match self.open.remove(&index) {
            Some(OpenBlock::Thinking { signature }) => {
                out.push_back(ModelEvent::ThoughtEnd(seal(signature)));
            }
            Some(OpenBlock::Redacted(data)) => {
                out.push_back(ModelEvent::ThoughtEnd(seal(format!("{REDACTED}{data}"))));
            }
            Some(OpenBlock::Tool(draft)) => {
                out.push_back(ModelEvent::Tool(draft.finish(&mut IdGenerator::default())));
            }
            Some(OpenBlock::Text) | None => {}
        }
    }

    /// Updates the usage. The provider sends running totals, so a later update_usage replaces an earlier one.
    fn update_usage(&mut self, usage: Option<UsageIn>, out: &mut Events) {
        let Some(now) = usage else { return };
        let take = |merged: &mut u64, now: Option<u64>| {
            if let Some(now) = now.filter(|now| *now > 0) {
                *merged = now;
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
        // end_turn, stop_sequence, tool_use, pause_turn, and unknown reasons.
        _ => StopReason::EndTurn,
    }
}
