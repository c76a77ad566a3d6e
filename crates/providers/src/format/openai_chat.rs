//! OpenAI Chat Completions: `POST /chat/completions`, streamed, for OpenAI and compatible servers.
//!
//! What compatible servers send, and how it is handled:
//!
//! | received | handling |
//! |---|---|
//! | a tool call without an id | an id is generated, unique in the conversation |
//! | no `index`, or the same for all calls | a new id or name begins a new call |
//! | `arguments` as an object, or null | serialised, or empty |
//! | the whole call in one chunk | like any other |
//! | `message` instead of `delta` | read as a delta |
//! | `content` as a list of parts | their text is used |
//! | `reasoning_content` or `reasoning` | shown as thinking |
//! | `reasoning_details` | shown as thinking and sent back unchanged |
//! | usage in the last chunk, in each, or never | the last one is used |
//! | no `[DONE]` | a finish reason is also an end |
//! | `finish_reason` "stop" with tool calls | the calls are made |
//! | an `error` inside a chunk | classified like an HTTP status |
//! | a call written as text | made a native call under the conditions of `text_calls` |
//! | `prompt_progress` (llama.cpp) | shown if it takes long |

use std::borrow::Cow;

use engine::ports::{ModelEvent, Request};
use engine::words::{Message, Seal, StopReason, Thinking, Thought, ToolCallId, ToolRequest, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::common::{self, Events, FunctionSpec, IdGenerator, PromptPart, Target, ToolDraft};
use super::text_calls::TextCalls;
use crate::fault::Fault;

pub(super) fn encode(request: &Request, target: &Target<'_>) -> serde_json::Result<Vec<u8>> {
    let mut body = json!({
        "model": target.name,
        "stream": true,
        "stream_options": { "include_usage": true },
        "messages": messages(request, target),
    });
    if let Some(max_tokens) = target.max_tokens {
        let key = if target.counts_reasoning { "max_completion_tokens" } else { "max_tokens" };
        body[key] = max_tokens.into();
    }
    if let Some(temperature) = target.options.temperature {
        body["temperature"] = temperature.into();
    }
    if target.has_progress {
        body["return_progress"] = true.into();
    }
    let effort = match request.thinking {
        Thinking::Default => target.options.reasoning_effort.as_deref(),
        Thinking::Off if target.is_openrouter => Some("none"),
        Thinking::Off | Thinking::Low => Some("low"),
        Thinking::Medium => Some("medium"),
        Thinking::High => Some("high"),
    };
    if let Some(effort) = effort.filter(|_| target.can_think) {
        if target.is_openrouter {
            body["reasoning"] = json!({ "effort": effort });
        } else {
            body["reasoning_effort"] = effort.into();
        }
    }
    let tools = request.tools.iter();
    let tools: Vec<Tool<'_>> =
        tools.map(|tool| Tool { kind: "function", function: (&**tool).into() }).collect();
    common::with_tools(&body, &tools)
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: FunctionSpec<'a>,
}

fn messages(request: &Request, target: &Target<'_>) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    if !request.instructions.is_empty() {
        messages.push(json!({ "role": "system", "content": &*request.instructions }));
    }
    for message in &request.messages {
        messages.push(match &**message {
            Message::User(prompt) => {
                json!({ "role": "user", "content": content_out(&common::prompt_parts(&prompt.blocks)) })
            }
            Message::Agent { thoughts, text, calls } => {
                let mut message = json!({ "role": "assistant", "content": text });
                if !calls.is_empty() {
                    let calls = calls.iter().map(|call| {
                        let arguments = common::input_object(&call.input).to_string();
                        json!({
                            "id": call.id.given(),
                            "type": "function",
                            "function": { "name": call.name, "arguments": arguments },
                        })
                    });
                    message["tool_calls"] = calls.collect();
                    if text.is_empty() {
                        message["content"] = Value::Null;
                    }
                    let own = thoughts.iter().filter(|thought| thought.by == request.model);
                    add_thoughts(&mut message, own);
                }
                message
            }
            Message::ToolResult { id, text, .. } => {
                json!({ "role": "tool", "tool_call_id": id.given(), "content": text })
            }
        });
    }
    // OpenRouter passes the cache breakpoints on to models that need them.
    if target.is_openrouter && target.name.starts_with("anthropic/") {
        let with_breakpoint = |text: &Value| json!([{ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } }]);
        let last_user = messages.iter().rposition(|message| message["role"] == "user");
        for index in [Some(0), last_user].into_iter().flatten() {
            if messages[index]["content"].is_string() {
                messages[index]["content"] = with_breakpoint(&messages[index]["content"]);
            }
        }
    }
    messages.into()
}

/// Sends thoughts back with the tool calls that they led to. Elsewhere servers do not accept them.
fn add_thoughts<'a>(message: &mut Value, thoughts: impl Iterator<Item = &'a Thought>) {
    let mut text = String::new();
    for thought in thoughts {
        match &thought.seal {
            Some(seal) => {
                let details = serde_json::from_str(&seal.data).unwrap_or_default();
                message["reasoning_details"] = details;
            }
            None => text.push_str(&thought.text),
        }
    }
    if !text.is_empty() {
        message["reasoning_content"] = text.into();
    }
}

/// Encodes a prompt. Text alone is sent as a string, because not every server accepts a list.
fn content_out(parts: &[PromptPart<'_>]) -> Value {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            PromptPart::Text(text) => Some(text.as_str()),
            PromptPart::Image(_) | PromptPart::Pdf { .. } | PromptPart::Audio(_) => None,
        })
        .collect();
    if texts.len() == parts.len() {
        return texts.join("\n").into();
    }
    let part_out = |part: &PromptPart<'_>| match part {
        PromptPart::Text(text) => json!({ "type": "text", "text": text }),
        PromptPart::Image(media) => {
            let url = format!("data:{};base64,{}", media.mime, media.data);
            json!({ "type": "image_url", "image_url": { "url": url } })
        }
        PromptPart::Pdf { name, data } => json!({
            "type": "file",
            "file": {
                "filename": name.rsplit('/').next().unwrap_or(name),
                "file_data": format!("data:application/pdf;base64,{data}"),
            },
        }),
        PromptPart::Audio(media) => json!({
            "type": "input_audio",
            "input_audio": {
                "data": media.data,
                "format": media.mime.rsplit('/').next().unwrap_or("wav"),
            },
        }),
    };
    parts.iter().map(part_out).collect()
}

/// Decodes the chunks of one answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    ids: IdGenerator,
    text_calls: TextCalls,
    /// The calls so far, each with the server's index.
    drafts: Vec<(Option<u64>, ToolDraft)>,
    /// Set while a thought has started but not ended.
    is_thinking: bool,
    details: Vec<Value>,
    stop: Option<StopReason>,
    is_over: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default, borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<UsageIn>,
    error: Option<Value>,
    prompt_progress: Option<PromptProgress>,
}

/// How much of the prompt llama.cpp has read.
#[derive(Deserialize)]
struct PromptProgress {
    total: u64,
    processed: u64,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, alias = "message")]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(default)]
    content: Option<Content>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    reasoning_details: Option<Vec<Value>>,
    refusal: Option<String>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Call<'a>>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
struct ContentPart {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Call<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct UsageIn {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl Decoder {
    pub(super) fn new(ids: IdGenerator, text_calls: TextCalls) -> Decoder {
        Decoder {
            ids,
            text_calls,
            drafts: Vec::new(),
            is_thinking: false,
            details: Vec::new(),
            stop: None,
            is_over: false,
        }
    }

    pub(super) fn decode(&mut self, data: &str, out: &mut Events) -> Result<(), Fault> {
        if data.trim() == "[DONE]" {
            self.end(out);
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_str(data)
            .map_err(|err| Fault::InvalidAnswer(format!("a chunk is not valid: {err}")))?;
        if chunk.error.is_some() {
            return Err(Fault::of_event(&serde_json::from_str(data).unwrap_or_default()));
        }
        if let Some(progress) = chunk.prompt_progress {
            let (done, all) = (progress.processed, progress.total);
            out.push_back(ModelEvent::Notice(format!("{done} of {all} tokens")));
        }
        if let Some(usage) = chunk.usage {
            out.push_back(ModelEvent::Usage(usage_in(&usage)));
        }
        let Some(choice) = chunk.choices.into_iter().next() else {
            return Ok(());
        };
        if let Some(delta) = choice.delta {
            self.decode_delta(delta, out)?;
        }
        if let Some(reason) = choice.finish_reason {
            match &*reason {
                "" => {}
                "error" => {
                    return Err(Fault::ServerError("the answer ended with an error".to_owned()));
                }
                "length" | "max_tokens" => self.stop = Some(StopReason::MaxTokens),
                "content_filter" | "refusal" => self.stop = Some(StopReason::Refusal),
                // stop, tool_calls, function_call, and unknown reasons.
                _ => self.stop = self.stop.or(Some(StopReason::EndTurn)),
            }
        }
        Ok(())
    }

    fn decode_delta(&mut self, delta: Delta<'_>, out: &mut Events) -> Result<(), Fault> {
        let thought = delta.reasoning_content.or(delta.reasoning).filter(|text| !text.is_empty());
        if let Some(thought) = thought {
            self.is_thinking = true;
            out.push_back(ModelEvent::Thought(thought));
        }
        if let Some(details) = delta.reasoning_details {
            self.is_thinking = true;
            self.details.extend(details);
        }
        let text = match delta.content {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => parts.into_iter().map(|part| part.text).collect(),
            None => String::new(),
        };
        if !text.is_empty() {
            self.end_thinking(out);
            out.extend(self.text_calls.push(text).map(ModelEvent::Text));
        }
        if let Some(refusal) = delta.refusal.filter(|text| !text.is_empty()) {
            self.stop = Some(StopReason::Refusal);
            out.extend(self.text_calls.release().map(ModelEvent::Text));
            out.push_back(ModelEvent::Text(refusal));
        }
        if delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty()) {
            // A server that sends native calls leaves only text in the text.
            out.extend(self.text_calls.release().map(ModelEvent::Text));
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.decode_call(call)?;
        }
        Ok(())
    }

    fn decode_call(&mut self, call: Call<'_>) -> Result<(), Fault> {
        let id = call.id.filter(|id| !id.is_empty());
        let function = call.function.unwrap_or(Function { name: None, arguments: Value::Null });
        let name = function.name.filter(|name| !name.is_empty());
        let same_id = |draft: &ToolDraft| match (&id, &draft.id) {
            (Some(new), Some(old)) => **new == **old,
            (Some(_), None) => draft.arguments.is_empty() && name.is_none(),
            (None, _) => name.is_none() || draft.name.is_empty(),
        };
        let at = match call.index {
            Some(index) => self.drafts.iter().rposition(|(known, _)| *known == Some(index)),
            None => self.drafts.len().checked_sub(1),
        };
        let at = at.filter(|at| same_id(&self.drafts[*at].1)).unwrap_or_else(|| {
            self.drafts.push((call.index, ToolDraft::default()));
            self.drafts.len() - 1
        });
        let draft = &mut self.drafts[at].1;
        if let Some(id) = id {
            draft.id = Some(id.into_owned());
        }
        if let Some(name) = name {
            draft.name = name.into_owned();
        }
        match function.arguments {
            Value::Null => Ok(()),
            Value::String(chunk) => draft.push(&chunk),
            whole => draft.push(&whole.to_string()),
        }
    }

    fn end_thinking(&mut self, out: &mut Events) {
        if !std::mem::take(&mut self.is_thinking) {
            return;
        }
        let details = std::mem::take(&mut self.details);
        let seal = (!details.is_empty())
            .then(|| Seal { data: Value::from(join_details(details)).to_string(), call: None });
        out.push_back(ModelEvent::ThoughtEnd(seal));
    }

    /// Handles the end of the stream, which is an error without a finish reason.
    pub(super) fn finish(&mut self, out: &mut Events) -> Result<(), Fault> {
        if self.is_over {
            return Ok(());
        }
        if self.stop.is_none() {
            return Err(Fault::CutOff);
        }
        self.end(out);
        Ok(())
    }

    fn end(&mut self, out: &mut Events) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.end_thinking(out);
        let is_complete = matches!(self.stop, None | Some(StopReason::EndTurn));
        let recovered = if is_complete { self.text_calls.recover() } else { None };
        match recovered {
            Some((name, input)) => {
                let (id, input) = (ToolCallId::new(self.ids.next()), input.into());
                out.push_back(ModelEvent::Tool(ToolRequest { id, name, input }));
            }
            None => {
                out.extend(self.text_calls.release().map(ModelEvent::Text));
                let has_no_call = is_complete && self.drafts.is_empty();
                let why = if has_no_call { self.text_calls.explain() } else { None };
                out.extend(why.map(ModelEvent::NotRun));
            }
        }
        for (_, draft) in std::mem::take(&mut self.drafts) {
            out.push_back(ModelEvent::Tool(draft.finish(&mut self.ids)));
        }
        out.push_back(ModelEvent::Stop(self.stop.unwrap_or(StopReason::EndTurn)));
    }
}

/// Merges consecutive details of the same type and index: they arrive in chunks, too.
fn join_details(details: Vec<Value>) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for detail in details {
        let is_next = joined
            .last()
            .is_some_and(|last| last["type"] == detail["type"] && last["index"] == detail["index"]);
        let Some(last) = joined.last_mut().filter(|_| is_next) else {
            joined.push(detail);
            continue;
        };
        let Value::Object(members) = detail else { continue };
        for (key, value) in members {
            match (key.as_str(), last[&key].as_str(), value.as_str()) {
                ("text" | "summary" | "data", Some(front), Some(back)) => {
                    last[&key] = format!("{front}{back}").into();
                }
                _ if !value.is_null() => last[&key] = value,
                _ => {}
            }
        }
    }
    joined
}

fn usage_in(usage: &UsageIn) -> Usage {
    let details = usage.prompt_tokens_details.as_ref();
    let read = details.and_then(|details| details.cached_tokens).or(usage.prompt_cache_hit_tokens);
    let (read, written) =
        (read.unwrap_or(0), details.and_then(|details| details.cache_write_tokens).unwrap_or(0));
    Usage {
        input: usage.prompt_tokens.saturating_sub(read).saturating_sub(written),
        output: usage.completion_tokens,
        cache_read: read,
        cache_write: written,
    }
}
