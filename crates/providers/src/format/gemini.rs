//! Gemini: `POST /models/…:streamGenerateContent`, as server-sent events.
//!
//! A signature belongs to a part, usually a function call, and is sent back with the same part.

use engine::ports::{ModelEvent, Request, Schema};
use engine::words::{Message, Seal, StopReason, Thinking, ToolCallId, ToolRequest, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::common::{self, AnswerPart, Events, IdGenerator, PromptPart, Target};
use crate::fault::Fault;

pub(super) fn encode(request: &Request, target: &Target<'_>) -> serde_json::Result<Vec<u8>> {
    let mut body = json!({ "contents": contents(request) });
    if !request.instructions.is_empty() {
        body["systemInstruction"] = json!({ "parts": [{ "text": &*request.instructions }] });
    }
    if let Some(max_tokens) = target.max_tokens {
        body["generationConfig"]["maxOutputTokens"] = max_tokens.into();
    }
    if let Some(temperature) = target.options.temperature {
        body["generationConfig"]["temperature"] = temperature.into();
    }
    if target.can_think {
        let config = &mut body["generationConfig"]["thinkingConfig"];
        *config = thinking_config(request.thinking, target.name);
        let effort = target.options.reasoning_effort.as_deref();
        if let (Thinking::Default, Some(effort)) = (request.thinking, effort) {
            config["thinkingLevel"] = effort.into();
        }
    }
    let tools = request.tools.iter();
    let function_declarations: Vec<Declaration<'_>> = tools
        .map(|tool| Declaration {
            name: &tool.name,
            description: &tool.description,
            parameters_json_schema: &tool.schema,
        })
        .collect();
    let is_some = !function_declarations.is_empty();
    let tools = is_some.then_some(Tools { function_declarations });
    common::with_tools(&body, tools.as_slice())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Schema,
}

/// Sets thinking: newer models accept a level, older ones a number of tokens.
fn thinking_config(thinking: Thinking, model: &str) -> Value {
    let mut config = json!({ "includeThoughts": true });
    let takes_budget = model.contains("gemini-2");
    let (level, budget) = match thinking {
        Thinking::Default => return config,
        // The smallest value that every model accepts.
        Thinking::Off => ("low", 128),
        Thinking::Low => ("low", 1_024),
        Thinking::Medium => ("medium", 8_192),
        Thinking::High => ("high", 24_576),
    };
    if takes_budget {
        config["thinkingBudget"] = budget.into();
    } else {
        config["thinkingLevel"] = level.into();
    }
    config
}

fn contents(request: &Request) -> Value {
    let mut contents: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut push = |role: &'static str, parts: Vec<Value>| match contents.last_mut() {
        _ if parts.is_empty() => {}
        Some((last, merged)) if *last == role => merged.extend(parts),
        _ => contents.push((role, parts)),
    };
    for message in &request.messages {
        match &**message {
            Message::User(prompt) => {
                push("user", common::prompt_parts(&prompt.blocks).iter().map(part_out).collect());
            }
            Message::Agent { thoughts, text, calls } => {
                let mut parts: Vec<Value> = Vec::new();
                for part in common::answer_parts(thoughts, text, request) {
                    match part {
                        AnswerPart::Text(text) => parts.push(json!({ "text": text })),
                        AnswerPart::Thought(thought) => {
                            // A signature belongs to the text before it. The thoughts themselves are not sent back.
                            let own = thought.seal.as_ref().filter(|seal| seal.call.is_none());
                            let Some(seal) = own else { continue };
                            match parts.last_mut() {
                                Some(last) => last["thoughtSignature"] = seal.data.as_str().into(),
                                None => {
                                    parts.push(json!({ "text": "", "thoughtSignature": seal.data }))
                                }
                            }
                        }
                    }
                }
                let own = || thoughts.iter().filter(|thought| thought.by == request.model);
                parts.extend(calls.iter().map(|call| {
                    let args = common::input_object(&call.input);
                    let mut part = json!({ "functionCall": { "name": call.name, "args": args } });
                    let seals = own().filter_map(|thought| thought.seal.as_ref());
                    let is_of_call = |seal: &&Seal| {
                        seal.call.as_ref().is_some_and(|id| id.given() == call.id.given())
                    };
                    let seal = seals.into_iter().find(is_of_call);
                    if let Some(seal) = seal {
                        part["thoughtSignature"] = seal.data.as_str().into();
                    }
                    part
                }));
                push("model", parts);
            }
            Message::ToolResult { id, text, failed } => {
                let name = common::tool_name(request, id);
                let key = if *failed { "error" } else { "output" };
                let response = json!({ "name": name, "response": { key: text } });
                push("user", vec![json!({ "functionResponse": response })]);
            }
        }
    }
    contents.into_iter().map(|(role, parts)| json!({ "role": role, "parts": parts })).collect()
}

fn part_out(part: &PromptPart<'_>) -> Value {
    match part {
        PromptPart::Text(text) => json!({ "text": text }),
        PromptPart::Image(media) | PromptPart::Audio(media) => {
            json!({ "inlineData": { "mimeType": media.mime, "data": media.data } })
        }
        PromptPart::Pdf { data, .. } => {
            json!({ "inlineData": { "mimeType": "application/pdf", "data": data } })
        }
    }
}

/// Decodes the chunks of one answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    ids: IdGenerator,
    /// Set while a thought has started but not ended.
    is_thinking: bool,
    stop: Option<StopReason>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    #[serde(default)]
    candidates: Vec<Candidate>,
    usage_metadata: Option<UsageIn>,
    prompt_feedback: Option<Feedback>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    content: Option<ContentIn>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ContentIn {
    #[serde(default)]
    parts: Vec<PartIn>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartIn {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<String>,
    function_call: Option<CallIn>,
}

#[derive(Deserialize)]
struct CallIn {
    id: Option<String>,
    #[serde(default)]
    name: String,
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct UsageIn {
    prompt_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
    cached_content_token_count: u64,
}

impl Decoder {
    pub(super) fn new(ids: IdGenerator) -> Decoder {
        Decoder { ids, is_thinking: false, stop: None }
    }

    pub(super) fn decode(&mut self, data: &str, out: &mut Events) -> Result<(), Fault> {
        let chunk: Chunk = serde_json::from_str(data)
            .map_err(|err| Fault::InvalidAnswer(format!("a chunk is not valid: {err}")))?;
        if chunk.error.is_some() {
            return Err(Fault::of_event(&serde_json::from_str(data).unwrap_or_default()));
        }
        if let Some(usage) = chunk.usage_metadata {
            out.push_back(ModelEvent::Usage(Usage {
                input: usage.prompt_token_count.saturating_sub(usage.cached_content_token_count),
                output: usage.candidates_token_count + usage.thoughts_token_count,
                cache_read: usage.cached_content_token_count,
                cache_write: 0,
            }));
        }
        if chunk.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            self.stop = Some(StopReason::Refusal);
        }
        let Some(candidate) = chunk.candidates.into_iter().next() else {
            return Ok(());
        };
        for part in candidate.content.into_iter().flat_map(|content| content.parts) {
            self.decode_part(part, out);
        }
        if let Some(reason) = candidate.finish_reason {
            self.stop = Some(stop_in(&reason)?);
        }
        Ok(())
    }

    fn decode_part(&mut self, part: PartIn, out: &mut Events) {
        let text = part.text.filter(|text| !text.is_empty());
        if part.thought {
            self.is_thinking |= text.is_some();
            out.extend(text.map(ModelEvent::Thought));
            return;
        }
        if let Some(text) = text {
            self.end_thinking(out);
            out.push_back(ModelEvent::Text(text));
        }
        let call = part.function_call.map(|call| ToolRequest {
            id: ToolCallId::new(
                call.id.filter(|id| !id.is_empty()).unwrap_or_else(|| self.ids.next()),
            ),
            name: call.name,
            input: call.args.unwrap_or_else(|| json!({})).into(),
        });
        if let Some(data) = part.thought_signature {
            self.is_thinking = false;
            let seal = Seal { data, call: call.as_ref().map(|call| call.id.clone()) };
            out.push_back(ModelEvent::ThoughtEnd(Some(seal)));
        }
        out.extend(call.map(ModelEvent::Tool));
    }

    fn end_thinking(&mut self, out: &mut Events) {
        if std::mem::take(&mut self.is_thinking) {
            out.push_back(ModelEvent::ThoughtEnd(None));
        }
    }

    /// Handles the end of the stream, which is an error without a finish reason.
    pub(super) fn finish(&mut self, out: &mut Events) -> Result<(), Fault> {
        let Some(stop) = self.stop.take() else {
            return Err(Fault::CutOff);
        };
        self.end_thinking(out);
        out.push_back(ModelEvent::Stop(stop));
        Ok(())
    }
}

fn stop_in(reason: &str) -> Result<StopReason, Fault> {
    Ok(match reason {
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "IMAGE_SAFETY" => StopReason::Refusal,
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
            return Err(Fault::ServerError(format!(
                "the model made an invalid function call ({reason})"
            )));
        }
        // STOP, OTHER, and unknown reasons.
        _ => StopReason::EndTurn,
    })
}
