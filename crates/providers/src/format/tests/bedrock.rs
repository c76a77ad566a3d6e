//! Amazon Bedrock Converse, and options of models in every format.

use engine::words::{ModelOptions, Thinking};
use serde_json::{Value, json};

use super::{Format, Target, check, decode, encode_with, request};

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

#[test]
fn converse_requests_merge_roles_and_send_thoughts_back() {
    let options = ModelOptions::default();
    let body =
        encode_with(Format::BedrockConverse, &request(), &Target::for_tests(CLAUDE, &options));
    let cache = json!({ "cachePoint": { "type": "default" } });
    assert_eq!(
        body,
        json!({
            "system": [{ "text": "Be brief." }, cache],
            "inferenceConfig": { "maxTokens": 32000 },
            "additionalModelRequestFields": { "thinking": { "type": "enabled", "budget_tokens": 24000 } },
            "toolConfig": { "tools": [{ "toolSpec": { "name": "read", "description": "Reads.", "inputSchema": { "json": { "type": "object" } } } }] },
            "messages": [
                { "role": "user", "content": [
                    { "text": "Look." },
                    { "image": { "format": "png", "source": { "bytes": "aGk=" } } },
                    cache,
                ]},
                { "role": "assistant", "content": [
                    { "reasoningContent": { "reasoningText": { "text": "Hm.", "signature": "SEAL" } } },
                    { "text": "I do." },
                    { "reasoningContent": { "reasoningText": { "text": "", "signature": "CALLSEAL" } } },
                    { "toolUse": { "toolUseId": "c1", "name": "read", "input": { "path": "/a" } } },
                    { "toolUse": { "toolUseId": "c2", "name": "read", "input": { "invalid": "{bad" } } },
                ]},
                { "role": "user", "content": [
                    { "toolResult": { "toolUseId": "c1", "content": [{ "text": "text of a" }], "status": "success" } },
                    { "toolResult": { "toolUseId": "c2", "content": [{ "text": "not JSON" }], "status": "error" } },
                    { "text": "Go on." },
                    cache,
                ]},
            ],
        })
    );
    let other = encode_with(
        Format::BedrockConverse,
        &request(),
        &Target { can_think: false, ..Target::for_tests("amazon.nova-pro-v1:0", &options) },
    );
    assert!(!other.to_string().contains("cachePoint") && !other.to_string().contains("thinking\""));
}

#[test]
fn converse_reasoning_text_and_calls() {
    check(
        Format::BedrockConverse,
        &[
            r#"{"messageStart":{"role":"assistant","p":"abc"}}"#,
            r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Hm."}}}}"#,
            r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"SIG"}}}}"#,
            r#"{"contentBlockStop":{"contentBlockIndex":0}}"#,
            r#"{"contentBlockDelta":{"contentBlockIndex":1,"delta":{"text":"Hello"}}}"#,
            r#"{"contentBlockStop":{"contentBlockIndex":1}}"#,
            r#"{"contentBlockStart":{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"t1","name":"read"}}}}"#,
            r#"{"contentBlockDelta":{"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"path\":"}}}}"#,
            r#"{"contentBlockDelta":{"contentBlockIndex":2,"delta":{"toolUse":{"input":"\"/a\"}"}}}}"#,
            r#"{"contentBlockStop":{"contentBlockIndex":2}}"#,
            r#"{"ofTomorrow":{}}"#,
            r#"{"messageStop":{"stopReason":"tool_use"}}"#,
            r#"{"metadata":{"usage":{"inputTokens":10,"outputTokens":5,"totalTokens":15,"cacheReadInputTokens":3},"metrics":{"latencyMs":1}}}"#,
        ],
        &[
            "thought Hm.",
            "seal SIG",
            "text Hello",
            r#"tool t1 read {"path":"/a"}"#,
            "usage 10 5 3 0",
            "stop EndTurn",
        ],
    );
    let stop = |reason: &str| {
        let event = format!(r#"{{"messageStop":{{"stopReason":"{reason}"}}}}"#);
        decode(Format::BedrockConverse, &[&event])
    };
    assert_eq!(stop("max_tokens"), "stop MaxTokens");
    assert_eq!(stop("guardrail_intervened"), "stop Refusal");
    assert!(stop("malformed_tool_use").starts_with("ServerError"));
    check(Format::BedrockConverse, &[r#"{"messageStart":{}}"#], &["CutOff"]);
}

/// Options of the config are sent where the format has them; a level that the user chose takes precedence.
#[test]
fn options_of_a_model_are_sent_where_the_format_has_them() {
    let options = ModelOptions {
        reasoning_effort: Some("minimal".to_owned()),
        thinking: Some(json!({ "type": "enabled", "budgetTokens": 5000 })),
        temperature: Some(0.5),
    };
    let body = |format: Format, thinking: Thinking| -> Value {
        let mut request = request();
        request.thinking = thinking;
        encode_with(format, &request, &Target::for_tests("m", &options))
    };
    let anthropic = body(Format::AnthropicMessages, Thinking::Default);
    assert_eq!(anthropic["temperature"], 0.5);
    assert_eq!(anthropic["thinking"], json!({ "type": "enabled", "budget_tokens": 5000 }));
    assert_eq!(anthropic["output_config"], json!({ "effort": "minimal" }));
    let responses = body(Format::OpenAiResponses, Thinking::Default);
    assert_eq!(
        (&responses["temperature"], &responses["reasoning"]["effort"]),
        (&json!(0.5), &json!("minimal"))
    );
    for format in [Format::OpenAiChat, Format::AzureChat] {
        let chat = body(format, Thinking::Default);
        assert_eq!(
            (&chat["temperature"], &chat["reasoning_effort"]),
            (&json!(0.5), &json!("minimal"))
        );
    }
    let gemini = &body(Format::Gemini, Thinking::Default)["generationConfig"];
    assert_eq!(
        (&gemini["temperature"], &gemini["thinkingConfig"]["thinkingLevel"]),
        (&json!(0.5), &json!("minimal"))
    );
    let bedrock = body(Format::BedrockConverse, Thinking::Default);
    assert_eq!(bedrock["inferenceConfig"]["temperature"], 0.5);
    assert_eq!(bedrock["additionalModelRequestFields"]["thinking"]["budget_tokens"], 5000);
    assert_eq!(body(Format::OpenAiChat, Thinking::High)["reasoning_effort"], "high");
}
