//! Faults after the status 200: P18 to P34 and P36.

use serde_json::{Value, json};

use super::{Case, Client, Ends, SHORT, check, check_long_silence, check_silence, times};
#[cfg(target_os = "linux")]
use crate::agent::linux::MIB;
use crate::agent::{Agent, DEADLINE, text_of};
use crate::directory::Directory;
use crate::models::{ANTHROPIC, CHAT, Fake, PACKAGES, ask};

const RESPONSES: &str = "@ai-sdk/openai";
const GEMINI: &str = "@ai-sdk/google";

/// Returns a line of a script that sends these events unchanged.
fn raw(events: &[Value]) -> String {
    let events = events.iter().map(|event| match event {
        Value::String(data) => format!("data: {data}\n\n"),
        event => format!("data: {event}\n\n"),
    });
    format!("raw {}", Value::from(events.collect::<String>()))
}

// R: P6
#[test]
fn p18_silence_in_the_text() {
    for package in PACKAGES {
        check(&Case {
            package,
            script: "text \"half\"\nhang\n---\ntext \" more\"",
            requests: 2,
            notice: "sent nothing for 1.0 s",
            shown: "half more",
            chunk_timeout: SHORT,
            ..Case::default()
        });
    }
}

/// The model gets its own text back and continues it.
// R: P6
#[test]
fn answer_that_broke_off_is_continued() {
    for package in PACKAGES {
        let asked = check(&Case {
            package,
            script: "thought \"Hm.\"\ntext \"The answer \"\ntool plan {\"entries\":[\"x\"]}\ncut\n---\ntext \"is 42.\"",
            requests: 2,
            notice: "was cut off",
            shown: "The answer is 42.",
            ..Case::default()
        });
        assert!(!asked[0].body.contains("Continue it exactly"), "{package}");
        let resumed = &asked[1].body;
        assert!(
            resumed.contains("The answer") && resumed.contains("Continue it exactly"),
            "{resumed}"
        );
        // Neither the words that asked for it nor an unfinished thought stay in the conversation.
        let next = &asked[2].body;
        assert!(
            !next.contains("Continue it exactly") && !next.contains("Hm."),
            "{package}: {next}"
        );
    }
}

// R: P6
#[test]
fn answer_that_breaks_off_again_and_again_is_incomplete() {
    for package in PACKAGES {
        check(&Case {
            package,
            script: "text \"a\"\ncut\n---\ntext \"b\"\ncut\n---\ntext \"c\"\ncut\n---\ntext \"defg\"\ncut",
            requests: 4,
            notice: "was cut off",
            shown: "abcdefg",
            ends: Ends::incomplete(&[
                "The answer from fake was cut off",
                "The part that was shown is saved",
            ]),
            ..Case::default()
        });
    }
}

/// An answer of which only thoughts were shown starts again.
#[test]
fn answer_that_broke_off_in_its_thoughts_starts_again() {
    for package in PACKAGES {
        let asked = check(&Case {
            package,
            script: "thought \"Hm.\"\ncut\n---\ntext \"Hello.\"",
            requests: 2,
            notice: "was cut off",
            shown: "Hello.",
            ..Case::default()
        });
        assert_eq!(asked[0].body, asked[1].body, "{package}");
    }
}

// R: P6
#[test]
fn p18_shown_text_survives_a_restart() {
    let silence = times(3, "raw \": ping\\n\\n\"\nhang");
    for package in PACKAGES {
        let fake = Fake::new(&format!(
            "text \"half an answer\"\nhang\n---\n{silence}\n---\ntext \"Back.\""
        ));
        let mut case = Case { package, ..Case::default() };
        case.chunk_timeout = SHORT;
        let config = case.config(&fake.url);
        let data = Directory::new();
        let (mut agent, session) = Agent::configured(config.clone()).storing_in(&data).session();
        let (reply, _) = ask(&mut agent, &session, "Go.");
        assert_eq!(reply["error"]["data"]["kind"], "answer_incomplete", "{package}: {reply}");
        let cwd = agent.directory().to_owned();
        agent.close_input();
        agent.wait(DEADLINE);

        let mut agent = Agent::configured(config).storing_in(&data).ready();
        let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
        agent.result("session/load", params);
        assert_eq!(text_of(&session, &agent.take_seen()), "half an answer", "{package}");
        let (_, seen) = ask(&mut agent, &session, "Go on.");
        assert_eq!(text_of(&session, &seen), "Back.", "{package}");
        let next = &fake.requests()[4].body;
        assert_eq!(next.matches("half an answer").count(), 1, "{package}: {next}");
    }
}

// R: P6
#[test]
fn p19_silence_in_the_arguments_of_a_call() {
    let open = "open-tool plan \"{\\\"entries\\\":[\"\nhang";
    check_long_silence(open);
    for package in PACKAGES {
        // An incomplete call was never shown, so a retry is safe.
        check_silence(open, package);
        check(&Case {
            package,
            script: &format!("text \"half\"\n{open}\n---\ntext \" more\""),
            requests: 2,
            notice: "sent nothing for 1.0 s",
            shown: "half more",
            chunk_timeout: SHORT,
            ..Case::default()
        });
    }
}

/// Cuts an answer, first before anything was shown, then after some text.
fn check_cut(cut: &str) {
    for package in PACKAGES {
        check(&Case {
            package,
            script: &format!("{cut}\n---\ntext \"half\"\n{cut}\n---\ntext \" more\""),
            requests: 3,
            notice: "was cut off",
            shown: "half more",
            ..Case::default()
        });
    }
}

// R: P6
#[test]
fn p20_cut_inside_an_event_shows_no_garbage() {
    check_cut("torn \"garbage\"\ncut");
    check_cut("torn \"garbage\"\nend");
}

// R: P6
#[test]
fn p21_cut_inside_a_character_shows_no_garbage() {
    check_cut("torn \"größe\"\ncut");
    check_cut("torn \"größe\"\nend");
}

// R: P6
#[test]
fn p22_answer_without_its_end_is_incomplete() {
    check_cut("header content-type: text/event-stream\ncut");
    check_cut("end");
    check(&Case {
        script: &times(4, "end"),
        requests: 4,
        notice: "was cut off",
        ends: Ends::unavailable(&["The answer from fake was cut off", "Try again or choose"]),
        ..Case::default()
    });
}

#[test]
fn p22_connection_ends_before_the_headers() {
    check(&Case {
        script: "cut\n---\ncut\n---\ntext \"Hello.\"",
        requests: 3,
        notice: "fake cannot be reached",
        shown: "Hello.",
        ..Case::default()
    });
}

/// A signature of a failed attempt belongs to no answer, and the provider would reject it.
#[test]
fn p22_signature_of_a_failed_attempt_is_not_sent_back() {
    // Chat Completions accepts no signatures with plain text.
    for package in [ANTHROPIC, RESPONSES, GEMINI] {
        let asked = check(&Case {
            package,
            script: "signature \"OLD\"\nend\n---\nsignature \"NEW\"\ntext \"Hello.\"",
            requests: 2,
            notice: "was cut off",
            shown: "Hello.",
            ..Case::default()
        });
        let next = &asked[2].body;
        assert!(next.contains("NEW") && !next.contains("OLD"), "{package}: {next}");
    }
}

fn anthropic_call() -> [Value; 3] {
    [
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "tool_use", "id": "t1", "name": "plan", "input": {} } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": "{\"entries\":[\"x\"]}" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
    ]
}

fn responses_call() -> [Value; 2] {
    let call = |arguments: &str| json!({ "type": "function_call", "id": "f1", "call_id": "t1", "name": "plan", "arguments": arguments });
    [
        json!({ "type": "response.output_item.added", "output_index": 0, "item": call("") }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": call("{\"entries\":[\"x\"]}") }),
    ]
}

fn chat_end() -> [Value; 3] {
    [
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
        json!({ "choices": [], "usage": { "prompt_tokens": 1, "completion_tokens": 1 } }),
        json!("[DONE]"),
    ]
}

fn gemini_text(text: &str, end: Option<&str>) -> Value {
    let content = json!({ "role": "model", "parts": [{ "text": text }] });
    json!({ "candidates": [{ "content": content, "finishReason": end, "index": 0 }] })
}

#[test]
fn p23_repeated_events() {
    // A repeated call runs once.
    let [begin, arguments, end] = &anthropic_call();
    let anthropic = [begin, begin, arguments, end, end, begin, arguments, end].map(Clone::clone);
    let [added, done] = &responses_call();
    let responses = [added, added, done, done, added, done].map(Clone::clone);
    for (package, events) in [(ANTHROPIC, raw(&anthropic)), (RESPONSES, raw(&responses))] {
        check(&Case {
            package,
            script: &format!("{events}\n---\ntext \"Hello.\""),
            requests: 2,
            shown: "Hello.",
            calls: 1,
            ..Case::default()
        });
    }
    // A repeated end is ignored.
    let end = [json!({ "type": "message_stop" }), json!({ "type": "message_stop" })];
    let completed = json!({ "type": "response.completed", "response": {} });
    let ends = [
        (ANTHROPIC, raw(&end)),
        (RESPONSES, raw(&[completed.clone(), completed])),
        (CHAT, raw(&[chat_end(), chat_end()].concat())),
        (GEMINI, raw(&[gemini_text("", Some("STOP")), gemini_text("", Some("STOP"))])),
    ];
    for (package, end) in ends {
        let script = format!("text \"Hello.\"\n{end}");
        check(&Case { package, script: &script, shown: "Hello.", ..Case::default() });
    }
}

#[test]
fn p24_events_out_of_order() {
    let late = "text \" never\"\nend";
    let [_, arguments, end] = anthropic_call();
    let [added, done] = responses_call();
    let completed = json!({ "type": "response.completed", "response": {} });
    let cases = [
        (ANTHROPIC, raw(&[end, arguments]), raw(&[json!({ "type": "message_stop" })])),
        (
            RESPONSES,
            raw(&[
                json!({ "type": "response.function_call_arguments.delta", "output_index": 3, "delta": "{" }),
            ]),
            raw(std::slice::from_ref(&completed)),
        ),
        (CHAT, raw(&chat_end()[..2]), raw(&chat_end()[2..])),
        (GEMINI, raw(&[json!({ "usageMetadata": { "promptTokenCount": 1 } })]), String::new()),
    ];
    for (package, early, end) in cases {
        let end = if end.is_empty() { String::new() } else { format!("{end}\n{late}") };
        let script = format!("{early}\ntext \"Hello.\"\n{end}");
        check(&Case { package, script: &script, shown: "Hello.", ..Case::default() });
    }
    // The end of a call before its start.
    check(&Case {
        package: RESPONSES,
        script: &format!("{}\n---\ntext \"Hello.\"", raw(&[done, added, completed])),
        requests: 2,
        shown: "Hello.",
        calls: 1,
        ..Case::default()
    });
}

#[test]
fn p25_unknown_events_and_parts() {
    let cases = [
        (
            ANTHROPIC,
            vec![
                json!({ "type": "of_tomorrow", "x": 1 }),
                json!({ "type": "content_block_start", "index": 7, "content_block": { "type": "of_tomorrow" } }),
                json!({ "type": "content_block_delta", "index": 7, "delta": { "type": "of_tomorrow" } }),
                json!({ "type": "content_block_stop", "index": 7 }),
            ],
        ),
        (
            RESPONSES,
            vec![
                json!({ "type": "response.of_tomorrow", "x": 1 }),
                json!({ "type": "response.output_item.added", "output_index": 7, "item": { "type": "of_tomorrow" } }),
                json!({ "type": "response.output_item.done", "output_index": 7, "item": { "type": "of_tomorrow" } }),
            ],
        ),
        (
            CHAT,
            vec![
                json!({ "object": "of_tomorrow" }),
                json!({ "choices": [{ "index": 0, "delta": { "of_tomorrow": {} }, "x": 1 }] }),
            ],
        ),
        (
            GEMINI,
            vec![
                json!({ "ofTomorrow": 1 }),
                json!({ "candidates": [{ "content": { "parts": [{ "ofTomorrow": {} }] }, "index": 0 }] }),
            ],
        ),
    ];
    for (package, events) in cases {
        let script = format!(
            "raw \"id: 1\\nretry: 5\\nevent: of_tomorrow\\n: comment\\n\\n\"\n{}\ntext \"Hello.\"",
            raw(&events)
        );
        check(&Case { package, script: &script, shown: "Hello.", ..Case::default() });
        // Invalid JSON is an error without a retry, which would bring the same.
        check(&Case {
            package,
            script: &raw(&[json!("of tomorrow")]),
            ends: Ends::failed(&["fake sent an invalid answer", "Try again or choose"]),
            ..Case::default()
        });
    }
}

/// Plays a fault that would need much memory if it were read completely.
#[cfg(target_os = "linux")]
fn check_size(package: &str, fault: &str) {
    let fake = Fake::new(&format!("text \"Warm.\"\n---\n{fault}\n---\ntext \"Back.\""));
    let case = Case {
        package,
        ends: Ends::failed(&[
            "exceeds the limit of 4194304 bytes",
            "Try again or choose another model",
        ]),
        ..Case::default()
    };
    let mut client = Client::new(case.config(&fake.url));
    client.ask("Get warm.");
    let before = client.agent.memory();
    client.meet(&case);
    let cost = client.agent.peak_memory() - before;
    assert!(cost <= 16 * MIB, "{package}: {} KiB", cost / 1024);
    client.prompt_again();
    assert_eq!(fake.requests().len(), 3);
    client.end();
}

#[cfg(target_os = "linux")]
#[test]
fn p26_event_of_100_mib_is_not_buffered() {
    for package in PACKAGES {
        check_size(package, "flood 104857600");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn p27_gzip_bomb_is_not_unpacked() {
    for package in PACKAGES {
        check_size(package, "header content-encoding: gzip\nbomb 67108864");
    }
}

#[test]
fn p28_web_page_instead_of_an_answer() {
    let page = "body \"<html>Log in to the hotel</html>\"";
    let html = format!("header content-type: text/html; charset=utf-8\n{page}");
    for package in PACKAGES {
        for script in [&html, &format!("status 404\n{html}"), &format!("status 403\n{html}")] {
            let words =
                ["received a web page instead of an answer", "Check the base URL and the proxy"];
            let ends = if script.contains("403") {
                Ends::Badly(-32000, "auth_required", &words)
            } else {
                Ends::failed(&words)
            };
            check(&Case { package, script, ends, ..Case::default() });
        }
        let ends = Ends::failed(&["no events", "Check the base URL"]);
        check(&Case { package, script: page, ends, ..Case::default() });
    }
}

#[test]
fn p29_unknown_tool_is_reported_to_the_model() {
    for package in PACKAGES {
        let asked = check(&Case {
            package,
            script: "tool fly {}\n---\ntext \"Then not.\"",
            requests: 2,
            shown: "Then not.",
            calls: 1,
            ..Case::default()
        });
        assert!(asked[1].body.contains("unknown tool `fly`"), "{package}");
    }
}

#[test]
fn p30_invalid_arguments_are_reported_to_the_model() {
    // Gemini's arguments are part of its JSON, so they are always valid.
    for package in [ANTHROPIC, RESPONSES, CHAT] {
        let asked = check(&Case {
            package,
            script: "raw-tool read \"{\\\"path\\\": \"\n---\ntext \"Sorry.\"",
            requests: 2,
            shown: "Sorry.",
            calls: 1,
            ..Case::default()
        });
        assert!(asked[1].body.contains("is not a JSON object"), "{package}");
    }
}

#[test]
fn p31_two_hundred_tool_calls_in_one_answer() {
    let calls = "tool plan {\"entries\":[\"x\"]}\n".repeat(200);
    for package in PACKAGES {
        check(&Case {
            package,
            script: &format!("{calls}---\ntext \"All.\""),
            requests: 2,
            shown: "All.",
            calls: 200,
            ..Case::default()
        });
    }
}

#[test]
fn p32_endless_loop_of_tool_calls_is_stopped() {
    check(&Case {
        script: &times(5, "tool plan {\"entries\":[\"x\"]}"),
        requests: 5,
        shown: "The turn reached its limit of 5 requests (`max_requests_per_turn`). \
                Use `/continue` to resume it, or say what to do instead.",
        calls: 5,
        ends: Ends::Well("max_turn_requests"),
        ..Case::default()
    });
}

#[test]
fn p33_empty_answer_is_retried_once() {
    let empty = "usage 1 0 0 0";
    for package in PACKAGES {
        check(&Case {
            package,
            script: &format!("{empty}\n---\ntext \"Hello.\""),
            requests: 2,
            notice: "fake sent an empty answer",
            shown: "Hello.",
            ..Case::default()
        });
        check(&Case {
            package,
            script: &format!("{empty}\n---\n{empty}"),
            requests: 2,
            notice: "fake sent an empty answer",
            ends: Ends::failed(&["fake sent an empty answer", "Try again or choose another model"]),
            ..Case::default()
        });
    }
}

#[test]
fn p34_context_overflow_is_compacted_once() {
    let openai = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
    let bodies = [
        (ANTHROPIC, r#"{"error":{"type":"invalid_request_error","message":"prompt is too long"}}"#),
        (RESPONSES, openai),
        (CHAT, openai),
        (GEMINI, r#"{"error":{"code":400,"message":"The input token count exceeds the maximum"}}"#),
    ];
    for (package, body) in bodies {
        let full = format!("status 400\nbody {}", Value::from(body));
        let summary = "text \"What was.\"";
        let fake = Fake::new(&format!(
            "text \"One.\"\n---\n{full}\n---\n{summary}\n---\ntext \"Two.\"\n---\n\
             {full}\n---\n{summary}\n---\n{full}\n---\ntext \"Back.\""
        ));
        let mut case = Case { package, shown: "Two.", ..Case::default() };
        let mut client = Client::new(case.config(&fake.url));
        client.ask("First.");
        client.meet(&case);
        let mended = fake.requests()[3].body.clone();
        assert!(mended.contains("What was.") && mended.contains("Go."), "{package}: {mended}");
        let words = ["The conversation is too long", "Start a new session"];
        case.shown = "";
        case.ends = Ends::Badly(-32004, "context_full", &words);
        client.meet(&case);
        client.prompt_again();
        assert_eq!(fake.requests().len(), 8, "{package}");
        client.end();
    }
}

#[test]
fn p36_one_token_just_before_each_timeout() {
    check(&Case {
        script: "text \"a\"\nwait 1000\ntext \"b\"\nwait 1000\ntext \"c\"\nwait 1000",
        shown: "abc",
        header_timeout: 2000,
        chunk_timeout: 2000,
        ..Case::default()
    });
}
