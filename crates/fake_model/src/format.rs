//! The formats from the server's side: how each step of a script looks on the wire.
//!
//! Shares no code with the decoders of `providers`: it follows the providers' documentation, so that one can reveal
//! mistakes in the other.

use serde_json::{Value, json};

use crate::bedrock;

/// The format of a request, which follows from its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Anthropic,
    Responses,
    Chat,
    Gemini,
    Bedrock,
}

impl Format {
    pub(crate) fn of_path(path: &str) -> Option<Format> {
        let path = path.split('?').next().unwrap_or(path);
        match path {
            path if path.ends_with("/messages") => Some(Format::Anthropic),
            path if path.ends_with("/responses") => Some(Format::Responses),
            path if path.ends_with("/chat/completions") => Some(Format::Chat),
            path if path.ends_with(":streamGenerateContent")
                || path.ends_with(":generateContent") =>
            {
                Some(Format::Gemini)
            }
            path if path.ends_with("/converse-stream") => Some(Format::Bedrock),
            _ => None,
        }
    }
}

/// Writes the events of one answer and counts its blocks and calls.
pub(crate) struct Encoder {
    format: Format,
    /// The number of blocks or items so far.
    block: u64,
    /// The kind of the open block.
    open: Option<&'static str>,
    /// The text of the open message of the Responses format, whose end repeats it.
    message: Option<String>,
    calls: u64,
    /// The number of the request; it makes the ids of tool calls unique.
    request: usize,
    usage: [u64; 4],
    stop: Option<String>,
    has_calls: bool,
}

impl Encoder {
    pub(crate) fn new(format: Format, request: usize) -> Encoder {
        Encoder {
            format,
            block: 0,
            open: None,
            message: None,
            calls: 0,
            request,
            usage: [10, 5, 0, 0],
            stop: None,
            has_calls: false,
        }
    }

    pub(crate) fn begin(&mut self) -> String {
        match self.format {
            Format::Anthropic => event(
                &json!({"type":"message_start","message":{"id":"msg","role":"assistant","content":[],"usage":{"input_tokens":self.usage[0],"output_tokens":1,"cache_read_input_tokens":self.usage[2],"cache_creation_input_tokens":self.usage[3]}}}),
            ),
            Format::Responses => event(
                &json!({"type":"response.created","response":{"id":"resp","status":"in_progress"}}),
            ),
            Format::Chat => event(
                &json!({"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}),
            ),
            Format::Gemini => String::new(),
            Format::Bedrock => line("messageStart", &json!({"role":"assistant"})),
        }
    }

    /// Returns what is sent for events of this format.
    pub(crate) fn pack(&self, events: String) -> Vec<u8> {
        match self.format {
            Format::Bedrock => bedrock::frames(&events),
            _ => events.into_bytes(),
        }
    }

    /// Returns the content type of an answer.
    pub(crate) fn content_type(&self) -> &'static str {
        match self.format {
            Format::Bedrock => "application/vnd.amazon.eventstream",
            _ => "text/event-stream",
        }
    }

    pub(crate) fn usage(&mut self, counts: [u64; 4]) {
        self.usage = counts;
    }

    pub(crate) fn stop(&mut self, reason: &str) {
        self.stop = Some(reason.to_owned());
    }

    pub(crate) fn text(&mut self, text: &str) -> String {
        match self.format {
            Format::Anthropic => {
                self.open_block("text", || json!({"type":"text","text":""}))
                    + &event(
                        &json!({"type":"content_block_delta","index":self.block - 1,"delta":{"type":"text_delta","text":text}}),
                    )
            }
            Format::Responses => {
                let mut out = String::new();
                if self.message.is_none() {
                    let item = json!({"type":"message","id":"m","role":"assistant","status":"in_progress","content":[]});
                    out = event(
                        &json!({"type":"response.output_item.added","output_index":self.block,"item":item}),
                    );
                }
                self.message.get_or_insert_default().push_str(text);
                out + &event(
                    &json!({"type":"response.output_text.delta","item_id":"m","output_index":self.block,"content_index":0,"delta":text}),
                )
            }
            Format::Chat => event(
                &json!({"choices":[{"index":0,"delta":{"content":text},"finish_reason":null}]}),
            ),
            Format::Gemini => event(
                &json!({"candidates":[{"content":{"role":"model","parts":[{"text":text}]},"index":0}]}),
            ),
            Format::Bedrock => self.converse_delta("text", &json!({"text":text})),
        }
    }

    /// Ends the open message of the Responses format.
    fn end_message(&mut self) -> String {
        let Some(text) = self.message.take() else { return String::new() };
        let content = json!([{"type":"output_text","text":text,"annotations":[]}]);
        let item = json!({"type":"message","id":"m","role":"assistant","status":"completed","content":content});
        event(&json!({"type":"response.output_item.done","output_index":self.block,"item":item}))
    }

    pub(crate) fn thought(&mut self, text: &str) -> String {
        match self.format {
            Format::Anthropic => {
                self.open_block(
                    "thinking",
                    || json!({"type":"thinking","thinking":"","signature":""}),
                ) + &event(
                    &json!({"type":"content_block_delta","index":self.block - 1,"delta":{"type":"thinking_delta","thinking":text}}),
                )
            }
            Format::Responses => event(
                &json!({"type":"response.reasoning_summary_text.delta","item_id":"rs","output_index":self.block,"summary_index":0,"delta":text}),
            ),
            Format::Chat => event(
                &json!({"choices":[{"index":0,"delta":{"reasoning_content":text},"finish_reason":null}]}),
            ),
            Format::Gemini => event(
                &json!({"candidates":[{"content":{"role":"model","parts":[{"text":text,"thought":true}]},"index":0}]}),
            ),
            Format::Bedrock => {
                self.converse_delta("thinking", &json!({"reasoningContent":{"text":text}}))
            }
        }
    }

    pub(crate) fn signature(&mut self, data: &str) -> String {
        match self.format {
            Format::Anthropic => {
                self.open_block(
                    "thinking",
                    || json!({"type":"thinking","thinking":"","signature":""}),
                ) + &event(
                    &json!({"type":"content_block_delta","index":self.block - 1,"delta":{"type":"signature_delta","signature":data}}),
                ) + &self.close()
            }
            Format::Responses => {
                self.block += 1;
                event(
                    &json!({"type":"response.output_item.done","output_index":self.block - 1,"item":{"type":"reasoning","id":format!("rs{}", self.block),"summary":[],"encrypted_content":data}}),
                )
            }
            Format::Chat => event(
                &json!({"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":data}]},"finish_reason":null}]}),
            ),
            Format::Gemini => event(
                &json!({"candidates":[{"content":{"role":"model","parts":[{"text":"","thoughtSignature":data}]},"index":0}]}),
            ),
            Format::Bedrock => {
                self.converse_delta("thinking", &json!({"reasoningContent":{"signature":data}}))
                    + &self.close()
            }
        }
    }

    /// A tool call, without its end if `is_whole` is false. Its arguments come in two chunks where the format allows that.
    pub(crate) fn tool(&mut self, name: &str, arguments: &str, is_whole: bool) -> String {
        self.has_calls = true;
        self.calls += 1;
        let id = format!("call{}x{}", self.request, self.calls);
        let half = (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at));
        let (front, back) = arguments.split_at(half.unwrap_or(0));
        match self.format {
            Format::Anthropic => {
                let mut out = self.close();
                self.block += 1;
                let index = self.block - 1;
                out += &event(
                    &json!({"type":"content_block_start","index":index,"content_block":{"type":"tool_use","id":id,"name":name,"input":{}}}),
                );
                for chunk in [front, back] {
                    out += &event(
                        &json!({"type":"content_block_delta","index":index,"delta":{"type":"input_json_delta","partial_json":chunk}}),
                    );
                }
                if is_whole {
                    out += &event(&json!({"type":"content_block_stop","index":index}));
                }
                out
            }
            Format::Responses => {
                let mut out = self.end_message();
                self.block += 1;
                let index = self.block - 1;
                let item = format!("fc{}", self.calls);
                out += &event(
                    &json!({"type":"response.output_item.added","output_index":index,"item":{"type":"function_call","id":item,"call_id":id,"name":name,"arguments":""}}),
                );
                for chunk in [front, back] {
                    out += &event(
                        &json!({"type":"response.function_call_arguments.delta","item_id":item,"output_index":index,"delta":chunk}),
                    );
                }
                if is_whole {
                    out += &event(
                        &json!({"type":"response.output_item.done","output_index":index,"item":{"type":"function_call","id":item,"call_id":id,"name":name,"arguments":arguments}}),
                    );
                }
                out
            }
            Format::Chat => {
                let index = self.calls - 1;
                let call = |call: Value| {
                    event(
                        &json!({"choices":[{"index":0,"delta":{"tool_calls":[call]},"finish_reason":null}]}),
                    )
                };
                call(
                    json!({"index":index,"id":id,"type":"function","function":{"name":name,"arguments":""}}),
                ) + &call(json!({"index":index,"function":{"arguments":front}}))
                    + &call(json!({"index":index,"function":{"arguments":back}}))
            }
            Format::Gemini => {
                let args: Value =
                    serde_json::from_str(arguments).unwrap_or(Value::String(arguments.to_owned()));
                event(
                    &json!({"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":name,"args":args}}]},"index":0}]}),
                )
            }
            Format::Bedrock => self.converse_tool(&id, name, [front, back], is_whole),
        }
    }

    /// A tool call of Bedrock's Converse.
    fn converse_tool(&mut self, id: &str, name: &str, chunks: [&str; 2], is_whole: bool) -> String {
        let mut out = self.close();
        self.block += 1;
        let index = self.block - 1;
        out += &line(
            "contentBlockStart",
            &json!({"contentBlockIndex":index,"start":{"toolUse":{"toolUseId":id,"name":name}}}),
        );
        for chunk in chunks {
            out += &line(
                "contentBlockDelta",
                &json!({"contentBlockIndex":index,"delta":{"toolUse":{"input":chunk}}}),
            );
        }
        if is_whole {
            out += &line("contentBlockStop", &json!({"contentBlockIndex":index}));
        }
        out
    }

    pub(crate) fn error(&mut self, kind: &str, message: &str) -> String {
        match self.format {
            Format::Anthropic => {
                event(&json!({"type":"error","error":{"type":kind,"message":message}}))
            }
            Format::Responses => event(&json!({"type":"error","code":kind,"message":message})),
            Format::Chat | Format::Gemini => {
                event(&json!({"error":{"code":kind,"status":kind,"message":message}}))
            }
            Format::Bedrock => line(&format!("!{kind}"), &json!({"message":message})),
        }
    }

    pub(crate) fn end(&mut self) -> String {
        let [input, output, read, written] = self.usage;
        let stop = self.stop.clone();
        match self.format {
            Format::Anthropic => {
                let ordinary = if self.has_calls { "tool_use" } else { "end_turn" };
                let stop = stop.unwrap_or_else(|| ordinary.to_owned());
                self.close()
                    + &event(
                        &json!({"type":"message_delta","delta":{"stop_reason":stop,"stop_sequence":null},"usage":{"input_tokens":input,"output_tokens":output,"cache_read_input_tokens":read,"cache_creation_input_tokens":written}}),
                    )
                    + &event(&json!({"type":"message_stop"}))
            }
            Format::Responses => {
                let usage = json!({"input_tokens":input + read,"input_tokens_details":{"cached_tokens":read},"output_tokens":output,"total_tokens":input + read + output});
                let end = match stop.as_deref() {
                    Some(reason) => event(
                        &json!({"type":"response.incomplete","response":{"id":"resp","status":"incomplete","incomplete_details":{"reason":reason},"usage":usage}}),
                    ),
                    None => event(
                        &json!({"type":"response.completed","response":{"id":"resp","status":"completed","usage":usage}}),
                    ),
                };
                self.end_message() + &end
            }
            Format::Chat => {
                let ordinary = if self.has_calls { "tool_calls" } else { "stop" };
                let stop = stop.unwrap_or_else(|| ordinary.to_owned());
                event(&json!({"choices":[{"index":0,"delta":{},"finish_reason":stop}]}))
                    + &event(
                        &json!({"choices":[],"usage":{"prompt_tokens":input + read,"completion_tokens":output,"prompt_tokens_details":{"cached_tokens":read}}}),
                    )
                    + "data: [DONE]\n\n"
            }
            Format::Gemini => {
                let stop = stop.unwrap_or_else(|| "STOP".to_owned());
                event(
                    &json!({"candidates":[{"content":{"role":"model","parts":[]},"finishReason":stop,"index":0}],"usageMetadata":{"promptTokenCount":input + read,"cachedContentTokenCount":read,"candidatesTokenCount":output}}),
                )
            }
            Format::Bedrock => {
                let ordinary = if self.has_calls { "tool_use" } else { "end_turn" };
                let stop = stop.unwrap_or_else(|| ordinary.to_owned());
                self.close()
                    + &line("messageStop", &json!({"stopReason":stop}))
                    + &line(
                        "metadata",
                        &json!({"usage":{"inputTokens":input,"outputTokens":output,"totalTokens":input + output,"cacheReadInputTokens":read,"cacheWriteInputTokens":written},"metrics":{"latencyMs":1}}),
                    )
            }
        }
    }

    /// A delta of Bedrock's Converse in a block of this kind, which it opens if needed: only tool calls have a start event.
    fn converse_delta(&mut self, kind: &'static str, delta: &Value) -> String {
        let mut out = String::new();
        if self.open != Some(kind) {
            out = self.close();
            self.block += 1;
            self.open = Some(kind);
        }
        let delta = json!({"contentBlockIndex":self.block - 1,"delta":delta});
        out + &line("contentBlockDelta", &delta)
    }

    /// Opens a block of this kind unless one is open; Anthropic's blocks have a start and an end.
    fn open_block(&mut self, kind: &'static str, begin: impl FnOnce() -> Value) -> String {
        if self.open == Some(kind) {
            return String::new();
        }
        let out = self.close();
        self.block += 1;
        self.open = Some(kind);
        out + &event(
            &json!({"type":"content_block_start","index":self.block - 1,"content_block":begin()}),
        )
    }

    fn close(&mut self) -> String {
        match self.open.take() {
            Some(_) if self.format == Format::Bedrock => {
                line("contentBlockStop", &json!({"contentBlockIndex":self.block - 1}))
            }
            Some(_) => event(&json!({"type":"content_block_stop","index":self.block - 1})),
            None => String::new(),
        }
    }
}

fn event(data: &Value) -> String {
    match data.get("type").and_then(Value::as_str) {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// An event of Bedrock, before it becomes a frame.
fn line(name: &str, data: &Value) -> String {
    format!("{name} {data}\n")
}
