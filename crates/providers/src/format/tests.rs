//! Decodes streams from the providers' documentation, and encodes requests.

mod bedrock;
mod stops;

use std::sync::Arc;

use engine::ports::{ModelEvent, Request, ToolSpec};
use engine::words::{
    Block, Media, Message, ModelId, ModelOptions, Prompt, Seal, Thinking, Thought, ToolCallId,
    ToolRequest,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Events, Format, Target};

pub(crate) const ALL: [Format; 5] = [
    Format::AnthropicMessages,
    Format::OpenAiResponses,
    Format::OpenAiChat,
    Format::Gemini,
    Format::BedrockConverse,
];

const OPTIONS: ModelOptions =
    ModelOptions { reasoning_effort: None, thinking: None, temperature: None };

pub(crate) fn request() -> Request {
    let call = |id: &str, name: &str, input: Value| ToolRequest {
        id: ToolCallId::new(id),
        name: name.to_owned(),
        input: input.into(),
    };
    let image = Media { data: "aGk=".to_owned(), mime: "image/png".to_owned() };
    let ask = Prompt::from(vec![Block::Text("Look.".to_owned()), Block::Image(image)]);
    let result = |id: &str, text: &str, failed: bool| Message::ToolResult {
        id: ToolCallId::new(id),
        text: text.to_owned(),
        failed,
    };
    let messages = vec![
        Message::User(ask),
        Message::Agent {
            thoughts: vec![
                thought("p/m", "Hm.", "SEAL", None, 0),
                thought("p/m", "", "CALLSEAL", Some("c1"), 5),
                thought("other/model", "Foreign.", "FOREIGN", None, 0),
            ],
            text: "I do.".to_owned(),
            calls: vec![
                call("c1", "read", json!({"path":"/a"})),
                call("c2", "read", json!("{bad")),
            ],
        },
        result("c1", "text of a", false),
        result("c2", "not JSON", true),
        Message::User(Prompt::from(vec![Block::Text("Go on.".to_owned())])),
    ];
    Request {
        model: ModelId::new("p/m"),
        instructions: "Be brief.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: vec![Arc::new(ToolSpec {
            adopt: engine::ports::Adopt::nothing(),
            name: "read".to_owned(),
            description: "Reads.".to_owned(),
            schema: json!({ "type": "object" }).into(),
        })],
        thinking: Thinking::High,
        traceparent: None,
    }
}

fn thought(by: &str, text: &str, seal: &str, call: Option<&str>, at: usize) -> Thought {
    Thought {
        by: ModelId::new(by),
        text: text.to_owned(),
        seal: Some(Seal { data: seal.to_owned(), call: call.map(ToolCallId::new) }),
        at,
    }
}

fn encode(format: Format, request: &Request, name: &str) -> Value {
    encode_with(format, request, &Target::for_tests(name, &OPTIONS))
}

fn encode_with(format: Format, request: &Request, target: &Target<'_>) -> Value {
    serde_json::from_slice(&format.encode(request, target).unwrap()).unwrap()
}

/// Decodes the data of events and prints each result as a line.
fn decode(format: Format, stream: &[&str]) -> String {
    let mut decoder = format.decoder(&request());
    let mut events = Events::new();
    let mut failed = None;
    for data in stream {
        if let Err(fault) = decoder.decode(data, &mut events) {
            failed = Some(fault);
            break;
        }
    }
    if failed.is_none() && !events.iter().any(|event| matches!(event, ModelEvent::Stop(_))) {
        failed = decoder.finish(&mut events).err();
    }
    let mut lines: Vec<String> = events.iter().map(print).collect();
    lines.extend(failed.map(|fault| format!("{fault:?}")));
    lines.join("\n")
}

fn print(event: &ModelEvent) -> String {
    match event {
        ModelEvent::Text(text) => format!("text {text}"),
        ModelEvent::Thought(text) => format!("thought {text}"),
        ModelEvent::ThoughtEnd(None) => "end".to_owned(),
        ModelEvent::ThoughtEnd(Some(seal)) => {
            format!("seal {} {}", seal.data, seal.call.as_ref().map_or("", ToolCallId::as_str))
                .trim()
                .to_owned()
        }
        ModelEvent::Waiting { reason, .. } => format!("waiting {reason}"),
        ModelEvent::Notice(what) => format!("notice {what}"),
        ModelEvent::NotRun(why) => format!("not run: {why}"),
        ModelEvent::Tool(call) => format!("tool {} {} {}", call.id, call.name, call.input),
        ModelEvent::Usage(usage) => format!(
            "usage {} {} {} {}",
            usage.input, usage.output, usage.cache_read, usage.cache_write
        ),
        ModelEvent::Stop(stop) => format!("stop {stop:?}"),
    }
}

#[track_caller]
fn check(format: Format, stream: &[&str], expected: &[&str]) {
    assert_eq!(decode(format, stream), expected.join("\n"));
}

#[test]
fn anthropic_thinking_text_and_two_calls() {
    check(
        Format::AnthropicMessages,
        &[
            r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"output_tokens":1}}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see."}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq="}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"XYZ"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Größe\n"}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t1","name":"read","input":{}}}"#,
            r#"{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"t2","name":"list","input":{}}}"#,
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}"#,
            r#"{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"\"/a\"}"}}"#,
            r#"{"type":"content_block_stop","index":3}"#,
            r#"{"type":"content_block_stop","index":3}"#,
            r#"{"type":"content_block_stop","index":4}"#,
            r#"{"type":"something_new","index":9}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":42}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        &[
            "usage 10 1 100 5",
            "thought Let me ",
            "thought see.",
            "seal Eq=",
            "seal redacted XYZ",
            "text Größe\n",
            r#"tool t1 read {"path":"/a"}"#,
            "tool t2 list {}",
            "usage 10 42 100 5",
            "stop EndTurn",
        ],
    );
}

#[test]
fn anthropic_requests_set_cache_breakpoints_and_send_thoughts_back() {
    let body = encode(Format::AnthropicMessages, &request(), "claude-opus-4-7");
    assert_eq!(
        body,
        json!({
            "model": "claude-opus-4-7",
            "max_tokens": 32000,
            "stream": true,
            "system": [{ "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } }],
            "tools": [{ "name": "read", "description": "Reads.", "input_schema": { "type": "object" }, "cache_control": { "type": "ephemeral" } }],
            "thinking": { "type": "adaptive" },
            "output_config": { "effort": "high" },
            "messages": [
                { "role": "user", "content": [
                    { "type": "text", "text": "Look." },
                    { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" }, "cache_control": { "type": "ephemeral" } },
                ]},
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "Hm.", "signature": "SEAL" },
                    { "type": "text", "text": "I do." },
                    { "type": "thinking", "thinking": "", "signature": "CALLSEAL" },
                    { "type": "tool_use", "id": "c1", "name": "read", "input": { "path": "/a" } },
                    { "type": "tool_use", "id": "c2", "name": "read", "input": { "invalid": "{bad" } },
                ]},
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "c1", "content": "text of a" },
                    { "type": "tool_result", "tool_use_id": "c2", "content": "not JSON", "is_error": true },
                    { "type": "text", "text": "Go on.", "cache_control": { "type": "ephemeral" } },
                ]},
            ],
        })
    );
    let old = encode(Format::AnthropicMessages, &request(), "claude-sonnet-4-5");
    assert_eq!(old["thinking"], json!({ "type": "enabled", "budget_tokens": 24000 }));
}

#[test]
fn responses_reasoning_text_and_two_calls() {
    check(
        Format::OpenAiResponses,
        &[
            r#"{"type":"response.created","response":{"id":"r","status":"in_progress"}}"#,
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs1","summary":[]}}"#,
            r#"{"type":"response.reasoning_summary_part.added","item_id":"rs1","summary_index":0}"#,
            r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs1","summary_index":0,"delta":"First."}"#,
            r#"{"type":"response.reasoning_summary_part.added","item_id":"rs1","summary_index":1}"#,
            r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs1","summary_index":1,"delta":"Then."}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs1","summary":[],"encrypted_content":"ENC"}}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"Hello"}"#,
            r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc1","call_id":"c1","name":"read","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"item_id":"fc1","delta":"{\"path\""}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"item_id":"fc1","delta":":1}"}"#,
            r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc1","call_id":"c1","name":"read","arguments":"{\"path\":1}"}}"#,
            r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc1","call_id":"c1","name":"read","arguments":"{\"path\":1}"}}"#,
            r#"{"type":"response.output_item.added","output_index":3,"item":{"type":"function_call","id":"fc2","call_id":"c2","name":"list"}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":3,"item_id":"fc2","delta":"{}"}"#,
            r#"{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":30},"output_tokens":7}}}"#,
        ],
        &[
            "thought First.",
            "thought \n\n",
            "thought Then.",
            r#"seal {"id":"rs1","encrypted_content":"ENC"}"#,
            "text Hello",
            r#"tool c1 read {"path":1}"#,
            "tool c2 list {}",
            "usage 20 7 30 0",
            "stop EndTurn",
        ],
    );
}

#[test]
fn responses_requests_are_stateless() {
    let mut request = request();
    let sealed = r#"{"id":"rs1","encrypted_content":"ENC"}"#;
    request.messages[1] = Arc::new(Message::Agent {
        thoughts: vec![thought("p/m", "Hm.", sealed, None, 0)],
        text: "I do.".to_owned(),
        calls: vec![ToolRequest {
            id: ToolCallId::new("c1"),
            name: "read".to_owned(),
            input: json!({"path":"/a"}).into(),
        }],
    });
    request.messages.remove(3);
    let body = encode(Format::OpenAiResponses, &request, "gpt-5.5");
    assert_eq!(
        body,
        json!({
            "model": "gpt-5.5",
            "stream": true,
            "store": false,
            "max_output_tokens": 32000,
            "instructions": "Be brief.",
            "include": ["reasoning.encrypted_content"],
            "reasoning": { "summary": "auto", "effort": "high" },
            "tools": [{ "type": "function", "name": "read", "description": "Reads.", "parameters": { "type": "object" }, "strict": false }],
            "input": [
                { "type": "message", "role": "user", "content": [
                    { "type": "input_text", "text": "Look." },
                    { "type": "input_image", "image_url": "data:image/png;base64,aGk=" },
                ]},
                { "type": "reasoning", "id": "rs1", "summary": [{ "type": "summary_text", "text": "Hm." }], "encrypted_content": "ENC" },
                { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "I do." }] },
                { "type": "function_call", "call_id": "c1", "name": "read", "arguments": "{\"path\":\"/a\"}" },
                { "type": "function_call_output", "call_id": "c1", "output": "text of a" },
                { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Go on." }] },
            ],
        })
    );
}

#[test]
fn chat_text_calls_and_usage_at_the_end() {
    check(
        Format::OpenAiChat,
        &[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"Hm."}}]}"#,
            r#"{"choices":[{"delta":{"content":"Hello"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"read","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"list","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":30}}}"#,
            "[DONE]",
            "[DONE]",
        ],
        &[
            "thought Hm.",
            "end",
            "text Hello",
            "usage 20 7 30 0",
            r#"tool c1 read {"path":1}"#,
            "tool c2 list {}",
            "stop EndTurn",
        ],
    );
}

#[test]
fn chat_tolerates_what_compatible_servers_send() {
    // No ids, no index, arguments as an object, the whole call in one chunk, no `[DONE]`, finish reason "stop".
    check(
        Format::OpenAiChat,
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"read","arguments":{"path":"/a"}}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"read","arguments":null}}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        ],
        &[r#"tool call_5_1 read {"path":"/a"}"#, "tool call_5_2 read {}", "stop EndTurn"],
    );
    // The same index for every call, each with its own id.
    check(
        Format::OpenAiChat,
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"y","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        ],
        &["tool a x {}", "tool b y {}", "stop EndTurn"],
    );
    // The id repeated in every chunk.
    check(
        Format::OpenAiChat,
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":":1}"}}]},"finish_reason":"stop"}]}"#,
        ],
        &[r#"tool a x {"n":1}"#, "stop EndTurn"],
    );
    // `message` for `delta`, content as parts, reasoning under its other name, null everywhere.
    check(
        Format::OpenAiChat,
        &[
            r#"{"id":null,"choices":[{"message":{"content":[{"type":"text","text":"Hi"}],"reasoning":"Hm.","tool_calls":null},"finish_reason":"length"}],"usage":null}"#,
        ],
        &["thought Hm.", "end", "text Hi", "stop MaxTokens"],
    );
    // Details arrive in chunks and are sent back merged.
    check(
        Format::OpenAiChat,
        &[
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"a"}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"b","signature":"S"}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#,
        ],
        &[
            r#"seal [{"type":"reasoning.text","index":0,"text":"ab","signature":"S"}]"#,
            "text Hi",
            "stop EndTurn",
        ],
    );
}

#[test]
fn chat_requests_keep_text_plain() {
    let mut request = request();
    request.messages[1] = Arc::new(Message::Agent {
        thoughts: vec![Thought {
            by: ModelId::new("p/m"),
            text: "Hm.".to_owned(),
            seal: None,
            at: 0,
        }],
        text: String::new(),
        calls: vec![ToolRequest {
            id: ToolCallId::new("c1"),
            name: "read".to_owned(),
            input: json!({}).into(),
        }],
    });
    request.messages.remove(3);
    let body = encode(Format::OpenAiChat, &request, "qwen");
    assert_eq!(
        body,
        json!({
            "model": "qwen",
            "stream": true,
            "stream_options": { "include_usage": true },
            "max_tokens": 32000,
            "reasoning_effort": "high",
            "tools": [{ "type": "function", "function": { "name": "read", "description": "Reads.", "parameters": { "type": "object" } } }],
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": [
                    { "type": "text", "text": "Look." },
                    { "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=" } },
                ]},
                { "role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
                    { "id": "c1", "type": "function", "function": { "name": "read", "arguments": "{}" } },
                ]},
                { "role": "tool", "tool_call_id": "c1", "content": "text of a" },
                { "role": "user", "content": "Go on." },
            ],
        })
    );
}

#[test]
fn gemini_thoughts_text_and_signed_calls() {
    check(
        Format::Gemini,
        &[
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hm.","thought":true}]}}],"usageMetadata":{"promptTokenCount":50}}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"Hello"}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"read","args":{"path":"/a"}},"thoughtSignature":"SIG"},{"functionCall":{"id":"own","name":"list"}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"END"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":30,"candidatesTokenCount":7,"thoughtsTokenCount":5}}"#,
        ],
        &[
            "usage 50 0 0 0",
            "thought Hm.",
            "end",
            "text Hello",
            "seal SIG call_5_1",
            r#"tool call_5_1 read {"path":"/a"}"#,
            "tool own list {}",
            "usage 20 12 30 0",
            "seal END",
            "stop EndTurn",
        ],
    );
}

#[test]
fn gemini_requests_put_signatures_on_their_parts() {
    let body = encode(Format::Gemini, &request(), "gemini-3-pro");
    assert_eq!(
        body,
        json!({
            "systemInstruction": { "parts": [{ "text": "Be brief." }] },
            "tools": [{ "functionDeclarations": [{ "name": "read", "description": "Reads.", "parametersJsonSchema": { "type": "object" } }] }],
            "generationConfig": { "maxOutputTokens": 32000, "thinkingConfig": { "includeThoughts": true, "thinkingLevel": "high" } },
            "contents": [
                { "role": "user", "parts": [
                    { "text": "Look." },
                    { "inlineData": { "mimeType": "image/png", "data": "aGk=" } },
                ]},
                { "role": "model", "parts": [
                    { "text": "", "thoughtSignature": "SEAL" },
                    { "text": "I do." },
                    { "functionCall": { "name": "read", "args": { "path": "/a" } }, "thoughtSignature": "CALLSEAL" },
                    { "functionCall": { "name": "read", "args": { "invalid": "{bad" } } },
                ]},
                { "role": "user", "parts": [
                    { "functionResponse": { "name": "read", "response": { "output": "text of a" } } },
                    { "functionResponse": { "name": "read", "response": { "error": "not JSON" } } },
                    { "text": "Go on." },
                ]},
            ],
        })
    );
}

#[test]
fn answer_without_an_end_was_cut_off() {
    let texts = [
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
        r#"{"type":"response.output_text.delta","delta":"Hi"}"#,
        r#"{"choices":[{"delta":{"content":"Hi"}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}"#,
    ];
    for (format, text) in ALL.into_iter().zip(texts) {
        check(format, &[text], &["text Hi", "CutOff"]);
    }
}

#[test]
fn errors_inside_a_stream_are_read() {
    let errors = [
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"Overloaded"}}}"#,
        r#"{"error":{"code":503,"message":"Overloaded"}}"#,
        r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"Overloaded"}}"#,
    ];
    for (format, error) in ALL.into_iter().zip(errors) {
        check(format, &[error], &["ServerError(\"Overloaded\")"]);
    }
}

#[test]
fn arguments_that_are_not_json_stay_a_string() {
    check(
        Format::OpenAiChat,
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"n\": "}}]},"finish_reason":"tool_calls"}]}"#,
        ],
        &[r#"tool a x "{\"n\": ""#, "stop EndTurn"],
    );
}

proptest! {
    /// Arbitrary and nearly valid data causes no panic in any format.
    #[test]
    fn arbitrary_data_causes_no_panic(data in proptest::collection::vec(any_data(), 0..20)) {
        for format in ALL {
            let data: Vec<&str> = data.iter().map(String::as_str).collect();
            decode(format, &data);
        }
    }
}

fn any_data() -> impl Strategy<Value = String> {
    let words = prop_oneof![
        Just("type"),
        Just("index"),
        Just("delta"),
        Just("content_block"),
        Just("tool_use"),
        Just("content_block_delta"),
        Just("content_block_stop"),
        Just("choices"),
        Just("tool_calls"),
        Just("candidates"),
        Just("parts"),
        Just("text"),
        Just("response.completed"),
        Just("item"),
        Just("response.output_item.done"),
        Just("function_call"),
        Just("usage"),
        Just("error"),
    ];
    let leaf = prop_oneof![
        words.clone().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        Just(Value::Null),
    ];
    let json = leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(words.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    prop_oneof![json.prop_map(|value| value.to_string()), any::<String>()]
}
