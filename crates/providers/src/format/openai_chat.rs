//! OpenAI Chat Completions: `POST /chat/completions`, streamed, as OpenAI and its many imitators speak it.
//!
//! What compatible servers really send, and what becomes of it:
//!
//! | they send | we |
//! |---|---|
//! | a tool call without an id | make one up, unique in the conversation |
//! | no `index`, or the same for all calls | a new id or name begins a new call |
//! | `arguments` as an object, or null | write it as text, or take it as empty |
//! | the whole call in one chunk | as any other |
//! | `message` instead of `delta` | read it as a delta |
//! | `content` as a list of parts | take their text |
//! | `reasoning_content` or `reasoning` | show it as thinking |
//! | `reasoning_details` | show it as thinking, send it back unchanged |
//! | usage in the last chunk, in each, or never | take the last there is |
//! | no `[DONE]` | a finish reason is an end as well |
//! | `finish_reason` "stop" beside tool calls | the calls count |
//! | an `error` inside a chunk | the class it would have as a status |

use std::borrow::Cow;

use engine::ports::{ModelEvent, Request};
use engine::words::{Message, Seal, StopReason, Thinking, Thought, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Declared, Events, IdMaker, Part, Target, ToolDraft};
use crate::fault::Fault;

pub(super) fn encode(request: &Request, target: &Target<'_>) -> serde_json::Result<Vec<u8>> {
    let mut body = json!({
        "model": target.name,
        "stream": true,
        "stream_options": { "include_usage": true },
        "messages": messages(request, target),
    });
    let effort = match request.thinking {
        Thinking::Default => None,
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
    super::with_tools(&body, &tools)
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Declared<'a>,
}

fn messages(request: &Request, target: &Target<'_>) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    if !request.instructions.is_empty() {
        messages.push(json!({ "role": "system", "content": &*request.instructions }));
    }
    for message in &request.messages {
        messages.push(match &**message {
            Message::User(prompt) => {
                json!({ "role": "user", "content": content_out(&super::parts(&prompt.blocks)) })
            }
            Message::Agent { thoughts, text, calls } => {
                let mut message = json!({ "role": "assistant", "content": text });
                if !calls.is_empty() {
                    let calls = calls.iter().map(|call| {
                        let arguments = super::input_object(&call.input).to_string();
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
                    give_back(&mut message, own);
                }
                message
            }
            Message::ToolResult { id, text, .. } => {
                json!({ "role": "tool", "tool_call_id": id.given(), "content": text })
            }
        });
    }
    // OpenRouter passes the marks on to models whose cache wants them.
    if target.is_openrouter && target.name.starts_with("anthropic/") {
        let marked = |text: &Value| json!([{ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } }]);
        let last_user = messages.iter().rposition(|message| message["role"] == "user");
        for index in [Some(0), last_user].into_iter().flatten() {
            if messages[index]["content"].is_string() {
                messages[index]["content"] = marked(&messages[index]["content"]);
            }
        }
    }
    messages.into()
}

/// Sends thinking back beside the calls it led to; elsewhere servers do not want it.
fn give_back<'a>(message: &mut Value, thoughts: impl Iterator<Item = &'a Thought>) {
    let mut words = String::new();
    for thought in thoughts {
        match &thought.seal {
            Some(seal) => {
                let details = serde_json::from_str(&seal.data).unwrap_or_default();
                message["reasoning_details"] = details;
            }
            None => words.push_str(&thought.text),
        }
    }
    if !words.is_empty() {
        message["reasoning_content"] = words.into();
    }
}

/// Text alone goes as text: not every server reads a list.
fn content_out(parts: &[Part<'_>]) -> Value {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image(_) | Part::Pdf { .. } | Part::Audio(_) => None,
        })
        .collect();
    if texts.len() == parts.len() {
        return texts.join("\n").into();
    }
    let part_out = |part: &Part<'_>| match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Image(media) => {
            let url = format!("data:{};base64,{}", media.mime, media.data);
            json!({ "type": "image_url", "image_url": { "url": url } })
        }
        Part::Pdf { name, data } => json!({
            "type": "file",
            "file": {
                "filename": name.rsplit('/').next().unwrap_or(name),
                "file_data": format!("data:application/pdf;base64,{data}"),
            },
        }),
        Part::Audio(media) => json!({
            "type": "input_audio",
            "input_audio": {
                "data": media.data,
                "format": media.mime.rsplit('/').next().unwrap_or("wav"),
            },
        }),
    };
    parts.iter().map(part_out).collect()
}

/// Reads the chunks of one answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    ids: IdMaker,
    /// The calls so far, each with the index the server gave it.
    drafts: Vec<(Option<u64>, ToolDraft)>,
    /// Set while thinking has come and its end has not been told.
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
    pub(super) fn new(ids: IdMaker) -> Decoder {
        Decoder {
            ids,
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
            .map_err(|err| Fault::Garbled(format!("a chunk is no JSON we know: {err}")))?;
        if chunk.error.is_some() {
            return Err(Fault::of_event(&serde_json::from_str(data).unwrap_or_default()));
        }
        if let Some(usage) = chunk.usage {
            out.push_back(ModelEvent::Usage(usage_in(&usage)));
        }
        let Some(choice) = chunk.choices.into_iter().next() else {
            return Ok(());
        };
        if let Some(delta) = choice.delta {
            self.take(delta, out)?;
        }
        if let Some(reason) = choice.finish_reason {
            match &*reason {
                "" => {}
                "error" => return Err(Fault::Server("the answer ended with an error".to_owned())),
                "length" | "max_tokens" => self.stop = Some(StopReason::MaxTokens),
                "content_filter" | "refusal" => self.stop = Some(StopReason::Refusal),
                // stop, tool_calls, function_call, and what imitators call them.
                _ => self.stop = self.stop.or(Some(StopReason::EndTurn)),
            }
        }
        Ok(())
    }

    fn take(&mut self, delta: Delta<'_>, out: &mut Events) -> Result<(), Fault> {
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
            out.push_back(ModelEvent::Text(text));
        }
        if let Some(refusal) = delta.refusal.filter(|text| !text.is_empty()) {
            self.stop = Some(StopReason::Refusal);
            out.push_back(ModelEvent::Text(refusal));
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.take_call(call)?;
        }
        Ok(())
    }

    fn take_call(&mut self, call: Call<'_>) -> Result<(), Fault> {
        let id = call.id.filter(|id| !id.is_empty());
        let function = call.function.unwrap_or(Function { name: None, arguments: Value::Null });
        let name = function.name.filter(|name| !name.is_empty());
        let same_id = |draft: &ToolDraft| match (&id, &draft.id) {
            (Some(new), Some(old)) => **new == **old,
            (Some(_), None) => draft.arguments.is_empty() && name.is_none(),
            (None, _) => name.is_none() || draft.name.is_empty(),
        };
        let at = match call.index {
            Some(index) => self.drafts.iter().rposition(|(held, _)| *held == Some(index)),
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
            Value::String(piece) => draft.push(&piece),
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

    /// Takes the end of the stream: fine if there was a finish reason.
    pub(super) fn finish(&mut self, out: &mut Events) -> Result<(), Fault> {
        if self.is_over {
            return Ok(());
        }
        if self.stop.is_none() {
            return Err(Fault::Cut);
        }
        self.end(out);
        Ok(())
    }

    fn end(&mut self, out: &mut Events) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.end_thinking(out);
        for (_, draft) in std::mem::take(&mut self.drafts) {
            out.push_back(ModelEvent::Tool(draft.finish(&mut self.ids)));
        }
        out.push_back(ModelEvent::Stop(self.stop.unwrap_or(StopReason::EndTurn)));
    }
}

/// Details come in pieces too: neighbours of one kind and index are one.
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
