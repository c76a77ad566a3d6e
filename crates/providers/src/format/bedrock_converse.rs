//! Amazon Bedrock Converse: `POST /model/…/converse-stream`, in Amazon's event stream.
//!
//! `event_stream` reads the frames and `sigv4` signs the request; here is what is inside. Cache points are set for Claude
//! only, because other models reject them.

use std::collections::BTreeMap;

use engine::ports::{ModelEvent, Request, Schema};
use engine::words::{Media, Message, Seal, StopReason, Thinking, Thought, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::common::{self, AnswerPart, Events, IdGenerator, PromptPart, Target, ToolDraft};
use crate::fault::Fault;

/// Marks the data of redacted reasoning. A signature is base64 and has no blank.
const REDACTED: &str = "redacted ";

pub(super) fn encode(request: &Request, target: &Target<'_>) -> serde_json::Result<Vec<u8>> {
    let has_cache = target.name.contains("anthropic.claude");
    let mut body = json!({ "messages": messages(request, has_cache) });
    if !request.instructions.is_empty() {
        let mut system = vec![json!({ "text": &*request.instructions })];
        system.extend(has_cache.then(cache_point));
        body["system"] = system.into();
    }
    if let Some(max_tokens) = target.max_tokens {
        body["inferenceConfig"]["maxTokens"] = max_tokens.into();
    }
    if let Some(temperature) = target.options.temperature {
        body["inferenceConfig"]["temperature"] = temperature.into();
    }
    if let Some(thinking) = thinking(request.thinking, target) {
        body["additionalModelRequestFields"]["thinking"] = thinking;
    }
    let mut out = serde_json::to_vec(&body)?;
    // Appended as text: copying the schemas into a `Value` would be most of the cost of a request.
    if !request.tools.is_empty() && out.pop() == Some(b'}') {
        let tools = request.tools.iter().map(|tool| Tool {
            tool_spec: ToolSpec {
                name: &tool.name,
                description: &tool.description,
                input_schema: InputSchema { json: &tool.schema },
            },
        });
        out.extend_from_slice(b",\"toolConfig\":{\"tools\":");
        serde_json::to_writer(&mut out, &tools.collect::<Vec<_>>())?;
        out.extend_from_slice(b"}}");
    }
    Ok(out)
}

/// Returns the setting for thinking, which Bedrock passes on to Claude.
fn thinking(level: Thinking, target: &Target<'_>) -> Option<Value> {
    let budget = match level {
        _ if !target.can_think => return None,
        Thinking::Default => return target.options.thinking.as_ref().map(common::thinking_out),
        Thinking::Off => return Some(json!({ "type": "disabled" })),
        Thinking::Low => 2_048,
        Thinking::Medium => 8_192,
        Thinking::High => 24_000,
    };
    let most = target.max_tokens.unwrap_or(u64::MAX).saturating_sub(1_024);
    Some(json!({ "type": "enabled", "budget_tokens": std::cmp::min(budget, most).max(1_024) }))
}

fn cache_point() -> Value {
    json!({ "cachePoint": { "type": "default" } })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    tool_spec: ToolSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolSpec<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: InputSchema<'a>,
}

#[derive(Serialize)]
struct InputSchema<'a> {
    json: &'a Schema,
}

/// Encodes the conversation. Consecutive messages of one role are merged, as the format demands.
fn messages(request: &Request, has_cache: bool) -> Value {
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
                        AnswerPart::Text(text) => blocks.push(json!({ "text": text })),
                    }
                }
                blocks.extend(calls.iter().map(|call| {
                    let input = common::input_object(&call.input);
                    json!({ "toolUse": { "toolUseId": call.id.given(), "name": call.name, "input": input } })
                }));
                push("assistant", blocks);
            }
            Message::ToolResult { id, text, failed } => {
                let status = if *failed { "error" } else { "success" };
                // An empty text is rejected.
                let text = if text.is_empty() { "(no output)" } else { text };
                push(
                    "user",
                    vec![json!({ "toolResult": {
                        "toolUseId": id.given(),
                        "content": [{ "text": text }],
                        "status": status,
                    } })],
                );
            }
        }
    }
    if has_cache {
        let users = messages.iter_mut().rev().filter(|(role, _)| *role == "user").take(2);
        users.for_each(|(_, blocks)| blocks.push(cache_point()));
    }
    messages
        .into_iter()
        .map(|(role, content)| json!({ "role": role, "content": content }))
        .collect()
}

fn part_out(part: &PromptPart<'_>) -> Value {
    let kind = |media: &Media| match media.mime.rsplit('/').next() {
        Some("jpg") | None => "jpeg".to_owned(),
        Some(kind) => kind.to_owned(),
    };
    match part {
        PromptPart::Text(text) => json!({ "text": text }),
        PromptPart::Image(media) => {
            json!({ "image": { "format": kind(media), "source": { "bytes": media.data } } })
        }
        // Names may have few characters, and the model need not know it.
        PromptPart::Pdf { data, .. } => {
            json!({ "document": { "format": "pdf", "name": "document", "source": { "bytes": data } } })
        }
        PromptPart::Audio(media) => json!({ "text": format!("(audio, {}, omitted)", media.mime) }),
    }
}

/// Encodes a thought. Without a signature it is omitted, because the provider would reject it.
fn thought_out(thought: &Thought) -> Option<Value> {
    let data = &thought.seal.as_ref()?.data;
    Some(match data.strip_prefix(REDACTED) {
        Some(data) => json!({ "reasoningContent": { "redactedContent": data } }),
        None => json!({ "reasoningContent": {
            "reasoningText": { "text": thought.text, "signature": data },
        } }),
    })
}

/// Decodes the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    ids: IdGenerator,
    /// Calls whose arguments are still arriving, by their index in the answer.
    drafts: BTreeMap<u64, ToolDraft>,
    /// The signature of the thought that is being read.
    signature: Option<String>,
    stop: Option<StopReason>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    content_block_start: Option<Start>,
    content_block_delta: Option<DeltaEvent>,
    content_block_stop: Option<Stop>,
    message_stop: Option<End>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    #[serde(default)]
    content_block_index: u64,
    start: Option<StartContent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartContent {
    tool_use: Option<ToolStart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolStart {
    tool_use_id: Option<String>,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeltaEvent {
    #[serde(default)]
    content_block_index: u64,
    delta: Option<Delta>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delta {
    text: Option<String>,
    tool_use: Option<ToolDelta>,
    reasoning_content: Option<Reasoning>,
}

#[derive(Deserialize)]
struct ToolDelta {
    #[serde(default)]
    input: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reasoning {
    text: Option<String>,
    signature: Option<String>,
    redacted_content: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stop {
    #[serde(default)]
    content_block_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct End {
    #[serde(default)]
    stop_reason: String,
}

#[derive(Deserialize)]
struct Metadata {
    usage: Option<UsageIn>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct UsageIn {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_input_tokens: u64,
    cache_write_input_tokens: u64,
}

impl Decoder {
    pub(super) fn new(ids: IdGenerator) -> Decoder {
        Decoder { ids, ..Decoder::default() }
    }

    pub(super) fn decode(&mut self, data: &str, out: &mut Events) -> Result<(), Fault> {
        let event: Event = serde_json::from_str(data)
            .map_err(|err| Fault::InvalidAnswer(format!("an event is not valid: {err}")))?;
        if let Some(start) = event.content_block_start
            && let Some(tool) = start.start.and_then(|start| start.tool_use)
        {
            let draft =
                ToolDraft { id: tool.tool_use_id, name: tool.name, arguments: String::new() };
            self.drafts.entry(start.content_block_index).or_insert(draft);
        }
        if let Some(event) = event.content_block_delta
            && let Some(delta) = event.delta
        {
            self.decode_delta(event.content_block_index, delta, out)?;
        }
        if let Some(stop) = event.content_block_stop {
            self.end_block(stop.content_block_index, out);
        }
        if let Some(end) = event.message_stop {
            self.stop = Some(stop_in(&end.stop_reason)?);
        }
        if let Some(usage) = event.metadata.and_then(|metadata| metadata.usage) {
            out.push_back(ModelEvent::Usage(Usage {
                input: usage.input_tokens,
                output: usage.output_tokens,
                cache_read: usage.cache_read_input_tokens,
                cache_write: usage.cache_write_input_tokens,
            }));
        }
        Ok(())
    }

    fn decode_delta(&mut self, index: u64, delta: Delta, out: &mut Events) -> Result<(), Fault> {
        out.extend(delta.text.filter(|text| !text.is_empty()).map(ModelEvent::Text));
        if let (Some(tool), Some(draft)) = (delta.tool_use, self.drafts.get_mut(&index)) {
            draft.push(&tool.input)?;
        }
        if let Some(reasoning) = delta.reasoning_content {
            let signature = self.signature.get_or_insert_default();
            if let Some(data) = reasoning.redacted_content {
                *signature = format!("{REDACTED}{data}");
            }
            if let Some(chunk) = reasoning.signature {
                signature.push_str(&chunk);
            }
            out.extend(reasoning.text.filter(|text| !text.is_empty()).map(ModelEvent::Thought));
        }
        Ok(())
    }

    fn end_block(&mut self, index: u64, out: &mut Events) {
        if let Some(data) = self.signature.take() {
            let seal = (!data.is_empty()).then_some(Seal { data, call: None });
            out.push_back(ModelEvent::ThoughtEnd(seal));
        }
        if let Some(draft) = self.drafts.remove(&index) {
            out.push_back(ModelEvent::Tool(draft.finish(&mut self.ids)));
        }
    }

    /// Handles the end of the stream: the usage comes after the stop reason, so the answer ends with the stream.
    pub(super) fn finish(&mut self, out: &mut Events) -> Result<(), Fault> {
        let Some(stop) = self.stop.take() else {
            return Err(Fault::CutOff);
        };
        for index in self.drafts.keys().copied().collect::<Vec<_>>() {
            self.end_block(index, out);
        }
        out.push_back(ModelEvent::Stop(stop));
        Ok(())
    }
}

fn stop_in(reason: &str) -> Result<StopReason, Fault> {
    Ok(match reason {
        "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
        "guardrail_intervened" | "content_filtered" => StopReason::Refusal,
        "malformed_model_output" | "malformed_tool_use" => {
            return Err(Fault::ServerError(format!(
                "the model made an invalid function call ({reason})"
            )));
        }
        // end_turn, tool_use, stop_sequence, and unknown reasons.
        _ => StopReason::EndTurn,
    })
}
