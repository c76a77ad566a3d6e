//! Answers that are not streamed, and what agents other than Purlin ask besides answers.

use serde_json::{Value, json};

use crate::format::Format;
use crate::script::{Answer, Step};
use crate::server::ReceivedRequest;

/// Returns whether the model may call tools. Requests for a title or a summary offer none.
pub(crate) fn has_tools(body: &str) -> bool {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    body["tools"].as_array().is_some_and(|tools| !tools.is_empty())
        || body["toolConfig"].is_object()
}

/// Returns whether the request asks for a stream.
pub(crate) fn is_streamed(format: Format, request: &ReceivedRequest) -> bool {
    match format {
        Format::Gemini => !request.path.contains(":generateContent"),
        Format::Bedrock => true,
        Format::Anthropic | Format::Responses | Format::Chat => {
            let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
            body["stream"] == json!(true)
        }
    }
}

/// Returns the answer to a request for the number of tokens.
pub(crate) fn token_count(path: &str) -> Option<&'static str> {
    match path {
        path if path.ends_with("/count_tokens") => Some(r#"{"input_tokens":10}"#),
        path if path.ends_with(":countTokens") => Some(r#"{"totalTokens":10}"#),
        _ => None,
    }
}

/// Returns an answer of text alone as one document, or `None` for any other answer.
pub(crate) fn body(format: Format, answer: &Answer) -> Option<String> {
    let mut text = String::new();
    for step in answer {
        match step {
            Step::Text(more) => text.push_str(more),
            Step::When(_) => {}
            _ => return None,
        }
    }
    let document = match format {
        Format::Anthropic => json!({ "id": "msg", "type": "message", "role": "assistant",
            "model": "fake", "content": [{ "type": "text", "text": text }],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": { "input_tokens": 10, "output_tokens": 5 } }),
        Format::Responses => json!({ "id": "resp", "object": "response", "status": "completed",
            "model": "fake", "output": [{ "type": "message", "id": "m", "role": "assistant",
                "status": "completed",
                "content": [{ "type": "output_text", "text": text, "annotations": [] }] }],
            "usage": { "input_tokens": 10, "output_tokens": 5, "total_tokens": 15 } }),
        Format::Chat => json!({ "id": "c", "object": "chat.completion", "created": 0,
            "model": "fake", "choices": [{ "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": text } }],
            "usage": { "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 } }),
        Format::Gemini => json!({ "candidates": [{ "index": 0, "finishReason": "STOP",
            "content": { "role": "model", "parts": [{ "text": text }] } }],
            "usageMetadata": { "promptTokenCount": 10, "candidatesTokenCount": 5 } }),
        Format::Bedrock => return None,
    };
    Some(document.to_string())
}
