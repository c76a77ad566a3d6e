//! Tests of the player against a small agent in memory and against real programs.

use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::*;
use crate::Spec;

/// Answers each line with the messages that `react` returns, until its input ends.
async fn agent(stream: tokio::io::DuplexStream, react: impl Fn(&str) -> Vec<Value>) {
    let (input, mut output) = tokio::io::split(stream);
    let mut lines = BufReader::new(input).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        for mut message in react(&line) {
            if let Value::Object(members) = &mut message {
                members.insert("jsonrpc".to_owned(), json!("2.0"));
            }
            output.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        }
    }
}

fn chunk(text: &str) -> Value {
    json!({ "method": "session/update", "params": { "sessionId": "long-session-id-0001", "update": {
        "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } } } })
}

/// An agent that opens a session, says hello in three chunks, and asks before it is done.
fn react(line: &str) -> Vec<Value> {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        return vec![json!({ "id": null, "error": { "code": -32700, "message": "Parse error" } })];
    };
    match message["method"].as_str() {
        Some("session/new") => {
            assert_eq!(message["params"]["cwd"], "/tmp/run");
            vec![json!({ "id": message["id"], "result": { "sessionId": "long-session-id-0001" } })]
        }
        Some("session/prompt") => {
            assert_eq!(message["params"]["sessionId"], "long-session-id-0001");
            vec![
                chunk("Hel"),
                chunk("lo"),
                chunk("!"),
                json!({ "id": 77, "method": "ask", "params": { "path": "/tmp/run/a.txt" } }),
            ]
        }
        None => {
            assert_eq!(message["id"], 77);
            vec![json!({ "id": 2, "result": { "stopReason": "end_turn" } })]
        }
        Some(_) => Vec::new(),
    }
}

async fn played_by(text: &str, react: impl Fn(&str) -> Vec<Value>) -> Replay {
    let transcript = Transcript::parse(text, &|_| None).unwrap();
    let (ours, theirs) = tokio::io::duplex(256);
    let (input, output) = tokio::io::split(ours);
    let play = play(&transcript, Path::new("/tmp/run"), input, output);
    let (played, ()) = tokio::join!(play, agent(theirs, react));
    played
}

async fn played(text: &str) -> Replay {
    played_by(text, react).await
}

const GOOD: &str = r#"# A turn.
> {"id":1,"method":"session/new","params":{"cwd":"/w"}}
< {"id":1,"result":{"sessionId":"s1"}}

> {"id":2,"method":"session/prompt","params":{"sessionId":"s1"}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hello!"}}}}
model text "ignored here"
< {"id":"a1","method":"ask","params":{"path":"/w/a.txt"}}
> {"id":"a1","result":{}}
< {"id":2,"result":{"stopReason":"end_turn"}}
"#;

#[tokio::test(start_paused = true)]
async fn matching_conversation_has_no_failures_and_is_not_rewritten() {
    let played = played(GOOD).await;
    assert_eq!(played.report(), "");
    assert_eq!(played.updated, GOOD);
    assert_eq!(played.seen.len(), 6);
    assert_eq!(played.seen[0]["result"]["sessionId"], "long-session-id-0001");
}

#[tokio::test(start_paused = true)]
async fn wildcards_match_text_in_any_chunks() {
    let text = GOOD.replace("Hello!", "…").replace("{\"path\":\"/w/a.txt\"}", "{\"…\":\"…\"}");
    let played = played(&text).await;
    assert_eq!(played.report(), "");
    assert_eq!(played.updated, text);
}

#[tokio::test(start_paused = true)]
async fn difference_is_reported_and_rewritten() {
    let text = GOOD.replace("Hello!", "Hello?").replace("end_turn", "cancelled");
    let played = played(&text).await;
    let reported: Vec<_> =
        played.failures.iter().map(|failure| (failure.line, failure.reason.as_str())).collect();
    assert_eq!(
        reported,
        [
            (6, r#"params.update.content.text is "Hello!", not "Hello?""#),
            (10, r#"result.stopReason is "end_turn", not "cancelled""#),
        ]
    );
    let rewritten: Vec<_> = played.updated.lines().zip(GOOD.lines()).collect();
    for (updated, good) in rewritten {
        let value = |line: &str| {
            line.strip_prefix("< ").and_then(|json| serde_json::from_str::<Value>(json).ok())
        };
        assert_eq!((value(updated), updated.len()), (value(good), good.len()));
    }
}

#[tokio::test(start_paused = true)]
async fn missing_and_unexpected_lines_are_reported_and_rewritten() {
    let surplus = GOOD
        .replace("< {\"id\":\"a1\",\"method\":\"ask\",\"params\":{\"path\":\"/w/a.txt\"}}\n", "");
    let played_surplus = played(&surplus).await;
    assert!(!played_surplus.passed());
    assert!(played_surplus.updated.contains("\"method\":\"ask\""));

    let missing = GOOD.replace("model text", "< {\"method\":\"never\"}\nmodel text");
    let played_missing = played(&missing).await;
    let failure = &played_missing.failures[0];
    assert_eq!((played_missing.failures.len(), failure.line), (1, 7));
    assert_eq!(
        failure.to_string(),
        "line 7: nothing was received instead\n  expected {\"method\":\"never\"}"
    );
    assert_eq!(played_missing.updated, GOOD);
}

#[tokio::test(start_paused = true)]
async fn tag_allows_any_order_and_still_finds_what_is_missing() {
    let mut lines: Vec<&str> = GOOD.lines().collect();
    lines.swap(5, 7);
    let swapped = lines.join("\n") + "\n";
    assert!(!played(&swapped).await.passed());
    let tagged = format!("tag any-order\n{swapped}");
    assert_eq!(played(&tagged).await.report(), "");
    let missing = tagged.replacen("< ", "< {\"method\":\"never\"}\n< ", 1);
    assert!(played(&missing).await.report().contains("\"never\""));
}

#[tokio::test(start_paused = true)]
async fn output_after_the_last_line_is_a_failure() {
    let text = "> {\"id\":2,\"method\":\"session/prompt\",\"params\":{\"sessionId\":\"long-session-id-0001\"}}\nexit 0\n";
    let played = played(text).await;
    assert_eq!(played.failures.len(), 2, "{}", played.report());
    let lines: Vec<_> = played.updated.lines().collect();
    assert!(lines[1].contains("Hello!") && lines[2].contains("\"a1\""), "{lines:?}");
    assert_eq!(lines[3], "exit 0");
}

#[tokio::test(start_paused = true)]
async fn raw_lines_are_sent_as_they_are_and_eof_closes() {
    let text = ">! nonsense\n< {\"id\":null,\"error\":{\"code\":-32700,\"message\":\"…\"}}\neof\n";
    let played = played(text).await;
    assert_eq!(played.report(), "");
    assert_eq!(played.updated, text);
}

#[tokio::test(start_paused = true)]
async fn timeout_and_end_of_output_are_distinguished() {
    let played_timeout = played("> {\"method\":\"note\"}\n< {\"id\":1}\n").await;
    assert_eq!(played_timeout.failures[0].reason, "nothing was received");
    let played_end = played("eof\n< {\"id\":1}\n").await;
    assert_eq!(played_end.failures[0].reason, "the output ended");
    assert_eq!(played_end.updated, "eof\n");
}

#[tokio::test(start_paused = true)]
async fn line_that_is_not_json_is_a_failure() {
    let played = played_by("> {\"id\":1}\n< {\"id\":1}\n", |_| vec![json!("not a message")]).await;
    assert_eq!(played.failures.len(), 1);
    assert_eq!(played.failures[0].got.as_deref(), Some("\"not a message\""));
}

#[tokio::test(start_paused = true)]
async fn flood_of_updates_does_not_block_a_long_line() {
    let pad = "x".repeat(10_000);
    let text = format!("> {{\"method\":\"one\"}}\n> {{\"method\":\"{pad}\"}}\n< {{\"n\":\"…\"}}\n");
    let flood = |_: &str| (0..1000).map(|number| json!({ "n": number })).collect();
    let played = played_by(&text, flood).await;
    assert_eq!(played.seen.len(), 2000);
}

#[cfg(unix)]
mod programs {
    use super::*;

    async fn play_shell(text: &str, script: &'static str) -> Replay {
        let transcript = Transcript::parse(text, &|_| None).unwrap();
        let spec = |setup: &ProgramSetup| {
            Spec::new("sh", &setup.directory).args(["-c", script]).env("SCRIPT", &setup.script)
        };
        play_program(&transcript, spec).await.unwrap()
    }

    const ANSWER: &str =
        r#"read line; printf '{"jsonrpc":"2.0","id":1,"result":{"cwd":"%s"}}\n' "$PWD""#;

    #[tokio::test]
    async fn files_are_created_and_exit_code_is_checked() {
        let text = "fs /w/b/a.txt \"hello\"\nmodel text \"/w/x\"\n> {\"id\":1}\n< {\"id\":1,\"result\":{\"cwd\":\"/w\"}}\nfs /w/c.txt \"hello\"\nexit 3\n";
        let script = r#"read line; printf '{"jsonrpc":"2.0","id":1,"result":{"cwd":"%s"}}\n' "$PWD"; cp b/a.txt c.txt; grep -q "$PWD/x" $SCRIPT && exit 3"#;
        let played = play_shell(text, script).await;
        assert_eq!(played.report(), "");
    }

    #[tokio::test]
    async fn wrong_exit_code_and_files_are_reported() {
        let text = "> {\"id\":1}\n< {\"id\":1,\"…\":\"…\"}\nfs /w/c.txt \"hello\"\n";
        let script = r#"read line; echo '{"jsonrpc":"2.0","id":1}'; echo bye >&2; exit 4"#;
        let played = play_shell(text, script).await;
        let reasons: Vec<_> =
            played.failures.iter().map(|failure| failure.reason.as_str()).collect();
        assert_eq!(reasons, ["unexpected exit status", "/w/c.txt has other content"]);
        assert_eq!(played.stderr, "bye\n");
    }

    #[tokio::test]
    async fn matching_exit_code_and_files_pass() {
        let played = play_shell("> {\"id\":1}\n< {\"id\":1,\"result\":\"…\"}\n", ANSWER).await;
        assert_eq!(played.report(), "");
    }
}
