//! OpenAI Responses: `POST /responses`, streamed and not stored.
//!
//! The provider stores nothing, so reasoning arrives encrypted and is sent back unchanged, before the calls it led to.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use engine::ports::{ModelEvent, Request};
use engine::words::{Message, Seal, StopReason, Thinking, Thought, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::common::{
    self, AnswerPart, Events, FunctionSpec, IdGenerator, PromptPart, Target, ToolDraft,
};
use crate::fault::Fault;

pub(super) fn encode(request: &Request, target: &Target<'_>) -> serde_json::Result<Vec<u8>> {
    let mut body = json!({
        "model": target.name,
        "stream": true,
        "store": false,
        "input": input(request),
    });
    if !request.instructions.is_empty() {
        body["instructions"] = (*request.instructions).into();
    }
    if let Some(max_tokens) = target.max_tokens {
        body["max_output_tokens"] = max_tokens.into();
    }
    if let Some(temperature) = target.options.temperature {
        body["temperature"] = temperature.into();
    }
    if target.can_think {
        body["include"] = json!(["reasoning.encrypted_content"]);
        body["reasoning"] = json!({ "summary": "auto" });
        let effort = match request.thinking {
            Thinking::Default => target.options.reasoning_effort.as_deref(),
            // Only some models support `minimal` and `none`; all support `low`.
            Thinking::Off | Thinking::Low => Some("low"),
            Thinking::Medium => Some("medium"),
            Thinking::High => Some("high"),
        };
        if let Some(effort) = effort {
            body["reasoning"]["effort"] = effort.into();
        }
    }
    let tools = request.tools.iter();
    let tools: Vec<Tool<'_>> = tools
        .map(|tool| Tool { kind: "function", function: (&**tool).into(), strict: false })
        .collect();
    common::with_tools(&body, &tools)
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    function: FunctionSpec<'a>,
    strict: bool,
}

fn input(request: &Request) -> Value {
    let mut items: Vec<Value> = Vec::new();
    for message in &request.messages {
        match &**message {
            Message::User(prompt) => {
                let content: Vec<Value> =
                    common::prompt_parts(&prompt.blocks).iter().map(part_out).collect();
                if !content.is_empty() {
                    items.push(json!({ "type": "message", "role": "user", "content": content }));
                }
            }
            Message::Agent { thoughts, text, calls } => {
                for part in common::answer_parts(thoughts, text, request) {
                    match part {
                        AnswerPart::Thought(thought) => items.extend(thought_out(thought)),
                        AnswerPart::Text(text) => items.push(json!({
                            "type": "message",
                            "role": "assistant",
                            "content": [{ "type": "output_text", "text": text }],
                        })),
                    }
                }
                items.extend(calls.iter().map(|call| {
                    json!({
                        "type": "function_call",
                        "call_id": call.id.given(),
                        "name": call.name,
                        "arguments": common::input_object(&call.input).to_string(),
                    })
                }));
            }
            Message::ToolResult { id, text, .. } => items.push(json!({
                "type": "function_call_output",
                "call_id": id.given(),
                "output": text,
            })),
        }
    }
    items.into()
}

fn part_out(part: &PromptPart<'_>) -> Value {
    match part {
        PromptPart::Text(text) => json!({ "type": "input_text", "text": text }),
        PromptPart::Image(media) => json!({
            "type": "input_image",
            "image_url": format!("data:{};base64,{}", media.mime, media.data),
        }),
        PromptPart::Pdf { name, data } => json!({
            "type": "input_file",
            "filename": name.rsplit('/').next().unwrap_or(name),
            "file_data": format!("data:application/pdf;base64,{data}"),
        }),
        PromptPart::Audio(media) => {
            json!({ "type": "input_text", "text": format!("(audio, {}, omitted)", media.mime) })
        }
    }
}

/// The parts of a reasoning item that must be sent back.
#[derive(Serialize, Deserialize)]
struct Sealed {
    id: String,
    encrypted_content: String,
}

fn thought_out(thought: &Thought) -> Option<Value> {
    let sealed: Sealed = serde_json::from_str(&thought.seal.as_ref()?.data).ok()?;
    let summary = if thought.text.is_empty() {
        json!([])
    } else {
        json!([{ "type": "summary_text", "text": thought.text }])
    };
    Some(json!({
        "type": "reasoning",
        "id": sealed.id,
        "summary": summary,
        "encrypted_content": sealed.encrypted_content,
    }))
}

/// Decodes the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Calls whose arguments are still arriving, by their index in the answer.
    drafts: BTreeMap<u64, ToolDraft>,
    /// Items that are finished: an event may arrive twice.
    done: HashSet<String>,
    is_refusal: bool,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    output_index: u64,
    #[serde(default)]
    summary_index: u64,
    delta: Option<String>,
    item: Option<Item>,
    response: Option<Response>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    id: String,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
struct Response {
    usage: Option<UsageIn>,
    error: Option<Value>,
    incomplete_details: Option<Incomplete>,
}

#[derive(Deserialize)]
struct Incomplete {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct UsageIn {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    input_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: u64,
}

impl Decoder {
    pub(super) fn decode(&mut self, data: &str, out: &mut Events) -> Result<(), Fault> {
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_str(data)
            .map_err(|err| Fault::InvalidAnswer(format!("an event is not valid: {err}")))?;
        let delta = event.delta.filter(|delta| !delta.is_empty());
        match &*event.kind {
            "response.output_text.delta" => out.extend(delta.map(ModelEvent::Text)),
            "response.refusal.delta" => {
                self.is_refusal = true;
                out.extend(delta.map(ModelEvent::Text));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                out.extend(delta.map(ModelEvent::Thought));
            }
            "response.reasoning_summary_part.added" if event.summary_index > 0 => {
                out.push_back(ModelEvent::Thought("\n\n".to_owned()));
            }
            "response.output_item.added" => {
                if let Some(item) = event.item.filter(|item| item.kind == "function_call") {
                    let name = item.name.unwrap_or_default();
                    let draft = ToolDraft { id: item.call_id, name, arguments: String::new() };
                    self.drafts.entry(event.output_index).or_insert(draft);
                }
            }
            "response.function_call_arguments.delta" => {
                if let (Some(draft), Some(delta)) =
                    (self.drafts.get_mut(&event.output_index), delta)
                {
                    draft.push(&delta)?;
                }
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.end_item(event.output_index, item, out);
                }
            }
            "response.completed" | "response.incomplete" => self.end(event.response, out),
            "response.failed" => {
                let error = event.response.and_then(|response| response.error);
                return Err(Fault::of_event(&error.unwrap_or_default()));
            }
            "error" => {
                return Err(Fault::of_event(&serde_json::from_str(data).unwrap_or_default()));
            }
            // Progress events, and unknown events.
            _ => {}
        }
        Ok(())
    }

    fn end_item(&mut self, index: u64, item: Item, out: &mut Events) {
        match item.kind.as_str() {
            "function_call" => {
                let draft = self.drafts.remove(&index).unwrap_or_default();
                let draft = ToolDraft {
                    id: item.call_id.or(draft.id),
                    name: item.name.unwrap_or(draft.name),
                    arguments: item.arguments.unwrap_or(draft.arguments),
                };
                if self.done.insert(draft.id.clone().unwrap_or_default()) {
                    out.push_back(ModelEvent::Tool(draft.finish(&mut IdGenerator::default())));
                }
            }
            "reasoning" if self.done.insert(item.id.clone()) => {
                let seal = item.encrypted_content.and_then(|encrypted_content| {
                    let sealed = Sealed { id: item.id, encrypted_content };
                    Some(Seal { data: serde_json::to_string(&sealed).ok()?, call: None })
                });
                out.push_back(ModelEvent::ThoughtEnd(seal));
            }
            _ => {}
        }
    }

    fn end(&mut self, response: Option<Response>, out: &mut Events) {
        // Some servers leave out the end of a call.
        for (_, draft) in std::mem::take(&mut self.drafts) {
            if self.done.insert(draft.id.clone().unwrap_or_default()) {
                out.push_back(ModelEvent::Tool(draft.finish(&mut IdGenerator::default())));
            }
        }
        let (usage, incomplete) = match response {
            Some(response) => (response.usage, response.incomplete_details),
            None => (None, None),
        };
        if let Some(usage) = usage {
            let cached = usage.input_tokens_details.map_or(0, |details| details.cached_tokens);
            out.push_back(ModelEvent::Usage(Usage {
                input: usage.input_tokens.saturating_sub(cached),
                output: usage.output_tokens,
                cache_read: cached,
                cache_write: 0,
            }));
        }
        let stop = match incomplete.as_ref().map(|incomplete| incomplete.reason.as_str()) {
            Some("content_filter") => StopReason::Refusal,
            Some(_) => StopReason::MaxTokens,
            None if self.is_refusal => StopReason::Refusal,
            None => StopReason::EndTurn,
        };
        out.push_back(ModelEvent::Stop(stop));
    }
}
