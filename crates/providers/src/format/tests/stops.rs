//! Why an answer ended, in each format.

use super::*;

#[test]
fn every_stop_reason_is_known() {
    let anthropic = |reason: &str| {
        let delta = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#);
        decode(Format::AnthropicMessages, &[&delta, r#"{"type":"message_stop"}"#])
    };
    for reason in ["end_turn", "stop_sequence", "tool_use", "pause_turn", "new_one"] {
        assert_eq!(anthropic(reason), "stop EndTurn", "{reason}");
    }
    assert_eq!(anthropic("max_tokens"), "stop MaxTokens");
    assert_eq!(anthropic("model_context_window_exceeded"), "stop MaxTokens");
    assert_eq!(anthropic("refusal"), "stop Refusal");

    let responses = |reason: &str| {
        let end = format!(
            r#"{{"type":"response.incomplete","response":{{"incomplete_details":{{"reason":"{reason}"}}}}}}"#
        );
        decode(Format::OpenAiResponses, &[&end])
    };
    assert_eq!(responses("max_output_tokens"), "stop MaxTokens");
    assert_eq!(responses("content_filter"), "stop Refusal");
    let refused = [
        r#"{"type":"response.refusal.delta","delta":"I cannot."}"#,
        r#"{"type":"response.completed","response":{}}"#,
    ];
    assert_eq!(decode(Format::OpenAiResponses, &refused), "text I cannot.\nstop Refusal");

    let chat = |reason: &str| {
        let end = format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
        decode(Format::OpenAiChat, &[&end])
    };
    for reason in ["stop", "tool_calls", "function_call", "eos"] {
        assert_eq!(chat(reason), "stop EndTurn", "{reason}");
    }
    assert_eq!(chat("length"), "stop MaxTokens");
    assert_eq!(chat("content_filter"), "stop Refusal");

    let gemini = |reason: &str| {
        decode(Format::Gemini, &[&format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#)])
    };
    assert_eq!(gemini("STOP"), "stop EndTurn");
    assert_eq!(gemini("OTHER"), "stop EndTurn");
    assert_eq!(gemini("MAX_TOKENS"), "stop MaxTokens");
    for reason in ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"] {
        assert_eq!(gemini(reason), "stop Refusal", "{reason}");
    }
    assert!(gemini("MALFORMED_FUNCTION_CALL").starts_with("Server"));
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#;
    assert_eq!(decode(Format::Gemini, &[blocked]), "stop Refusal");
}
