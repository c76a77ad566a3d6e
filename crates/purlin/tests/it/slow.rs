//! Slow clients and fast models: when updates wait, are merged, and when a turn is stopped.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::{Agent, message, text_of, update_kind};

fn is_chunk(message: &Value) -> bool {
    update_kind(message) == "agent_message_chunk"
}

// R: W17
#[test]
fn turn_of_a_client_that_does_not_read_is_stopped_without_loss() {
    let script = "model window 1000000000\nmodel chunks 50000000 \"0123456789\"\nmodel end\nmodel text \"still here\"";
    let config = json!({ "limits": { "unread_seconds": 2 } });
    let (mut agent, session) = Agent::playing(script).config(config).session();
    agent.pause();
    let turn = agent.prompt(&session, "flood");
    // The limit is a time without reading, so the test has to let it pass.
    std::thread::sleep(Duration::from_secs(8));
    agent.resume();
    let reply = agent.reply(turn);
    assert_eq!(reply["error"]["code"], -32001, "{reply}");
    assert_eq!(reply["error"]["data"]["kind"], "client_not_reading", "{reply}");
    let text = text_of(&session, &agent.take_seen());
    assert!(text.len() >= 10_000, "only {} bytes came through", text.len());
    assert!(text.bytes().enumerate().all(|(at, byte)| byte == b'0' + (at % 10) as u8));

    let turn = agent.prompt(&session, "again");
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
    assert_eq!(text_of(&session, &agent.take_seen()), "still here");
}

/// More sessions than the budget of all sessions allows: some wait for it when they are cancelled.
// R: W16, W17
#[test]
fn turn_cancelled_while_waiting_returns_its_budget() {
    const SESSIONS: usize = 24;
    let script = format!("model chunks 1000 {}\nmodel loop", json!("x".repeat(200_000)));
    let mut agent = Agent::playing(&script).ready();
    let sessions: Vec<String> = (0..SESSIONS).map(|_| agent.open()).collect();
    for _ in 0..4 {
        agent.pause();
        let turns: Vec<u64> =
            sessions.iter().map(|session| agent.prompt(session, "flood")).collect();
        #[cfg(target_os = "linux")]
        agent.wait_until_quiet();
        for session in &sessions {
            agent.note("session/cancel", json!({ "sessionId": session }));
        }
        agent.resume();
        for turn in turns {
            assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
        }
        agent.take_seen();
    }
    for session in &sessions {
        let turn = agent.prompt(session, "flood");
        agent.find(|message| is_chunk(message) && message["params"]["sessionId"] == **session);
        agent.note("session/cancel", json!({ "sessionId": session }));
        assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
        agent.take_seen();
    }
}

/// A slow reader must not be mistaken for one that does not read.
// R: W17
#[test]
fn slow_reader_is_not_stopped() {
    const TIMES: usize = 600;
    let chunk = "0123456789".repeat(100);
    let script = format!("model chunks {TIMES} \"{chunk}\"");
    let config = json!({ "limits": { "unread_seconds": 1 } });
    let mut agent = Agent::playing(&script).config(config).unread().start();
    agent.call("initialize", json!({ "protocolVersion": 1 }));
    let cwd = agent.directory().to_owned();
    agent.call("session/new", json!({ "cwd": cwd }));
    let mut output = agent.take_output();
    let mut read = Vec::new();
    let mut turn = None;
    loop {
        // One page at a time: emptying a full pipe takes far longer than the limit.
        let mut page = vec![0; 4096];
        let count = std::io::Read::read(&mut output, &mut page).unwrap();
        read.extend_from_slice(&page[..count]);
        let lines: Vec<Value> = read
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
            .map(message)
            .collect();
        let session = lines.iter().find_map(|line| line["result"]["sessionId"].as_str());
        match (session, turn) {
            (Some(session), None) => {
                turn = Some(agent.prompt(session, "much"));
                continue;
            }
            (Some(session), Some(turn)) => {
                if let Some(reply) = lines.iter().find(|line| line["id"] == turn) {
                    assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
                    assert_eq!(text_of(session, &lines), chunk.repeat(TIMES));
                    return;
                }
            }
            (None, _) => continue,
        }
        // The slow pace of the reader is what this tests.
        std::thread::sleep(Duration::from_millis(60));
    }
}

// R: W11, W14
#[test]
fn updates_respect_the_rate_limit_and_lose_nothing() {
    const STEPS: usize = 250;
    const CHUNKS: usize = 20;
    let steps: String = (0..STEPS)
        .map(|step| format!("model chunks {CHUNKS} \"<{step}>\"\nmodel wait 12\n"))
        .collect();
    let script = format!("model text \"first\"\nmodel wait 200\n{steps}model text \"last\"");
    let (mut agent, session) = Agent::playing(&script).session();
    let start = Instant::now();
    let turn = agent.prompt(&session, "stream");
    let first = agent.next();
    let (first_after, first_text) = (start.elapsed(), text_of(&session, [&first]));
    assert_eq!(first_text, "first");
    let reply = agent.reply(turn);
    let took = start.elapsed();
    assert_eq!(reply["result"]["stopReason"], "end_turn");
    let seen = agent.take_seen();
    let expected: String =
        (0..STEPS).map(|step| format!("<{step}>").repeat(CHUNKS)).collect::<String>() + "last";
    assert_eq!(text_of(&session, &seen), expected);
    // A tenth of the thousand per minute at once, the rest evenly, and two more for the first and the last.
    let budget = 100.0 + took.as_secs_f64() * 15.0 + 2.0;
    let count = seen.iter().filter(|message| is_chunk(message)).count() + 1;
    assert!(count as f64 <= budget, "{count} updates in {took:?}");
    assert!(count > 10, "only {count} updates: everything was delayed");
    assert!(first_after < took / 2, "the first chunk took {first_after:?} of {took:?}");
}

/// Text waits when the rate limit is reached, but only until the limit allows it.
// R: W11
#[test]
fn delayed_text_is_sent_before_the_next_request() {
    let script = "model chunks 5000 \"0123456789\"\nmodel hang";
    let (mut agent, session) = Agent::playing(script).session();
    let turn = agent.prompt(&session, "stream");
    let mut text = String::new();
    while text.len() < 50_000 {
        text.push_str(&text_of(&session, [&agent.next()]));
    }
    assert_eq!(text, "0123456789".repeat(5000));
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
}

/// Reads to the reply and checks that no update exceeds the size limit.
fn short_updates(agent: &mut Agent, turn: u64) -> Vec<Value> {
    let mut seen = Vec::new();
    loop {
        let line = agent.next_line().unwrap();
        let message = message(&line);
        if message["id"] == turn && message.get("method").is_none() {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return seen;
        }
        let is_update = message["method"] == "session/update";
        assert!(!is_update || line.len() <= 100 * 1024, "an update of {} bytes", line.len());
        match message["method"].as_str().unwrap() {
            "fs/read_text_file" => {
                agent.answer(&message["id"], json!({ "content": "é\u{1}\"".repeat(1_000_000) }));
            }
            "fs/write_text_file" => agent.answer(&message["id"], json!({})),
            "session/request_permission" => {
                let outcome = json!({ "outcome": "selected", "optionId": "once" });
                agent.answer(&message["id"], json!({ "outcome": outcome }));
            }
            _ => seen.push(message),
        }
    }
}

// R: W10, W14
#[test]
fn long_text_is_split_between_characters() {
    let chunk = "plain, äöü, €, 🦀, \u{1}\u{1f}, \"quoted\\\", \n";
    for text in [chunk.repeat(30_000), "\u{1}".repeat(300_000), "🦀".repeat(100_000)] {
        let script = format!("model text {}", json!(text));
        let (mut agent, session) = Agent::playing(&script).session();
        let turn = agent.prompt(&session, "speak");
        let seen = short_updates(&mut agent, turn);
        assert!(text_of(&session, &seen) == text, "the text differs");
    }
}

// R: W10, P7
#[test]
fn long_tool_output_is_shortened() {
    let change = |new: &str| json!({ "filePath": "/w/b", "oldString": "é", "newString": new, "replaceAll": true });
    // As JSON, the first new content is twice as long as a message about a file may be, and the second just fits.
    let script = format!(
        "model window 1000000000\nmodel tool read {{\"filePath\":\"/w/b\"}}\nmodel tool edit {}\nmodel tool edit {}\nmodel text \"done\"",
        change("line of text"),
        change("x")
    );
    let (mut agent, session) = Agent::playing(&script).with_files().session();
    let turn = agent.prompt(&session, "work");
    let seen = short_updates(&mut agent, turn);
    let ended: Vec<&Value> = seen
        .iter()
        .map(|message| &message["params"]["update"]["status"])
        .filter(|status| *status == "completed" || *status == "failed")
        .collect();
    assert_eq!(ended, ["completed", "failed", "completed"]);
    let is_too_large =
        |message: &&Value| message["params"]["update"]["rawOutput"]["code"] == -31702;
    assert_eq!(seen.iter().filter(is_too_large).count(), 1);
    assert_eq!(text_of(&session, &seen), "done");
}

/// The client answers only once it was shown what is waited for. The diff of the call stays, and so it is at the end.
// R: W24
#[test]
fn wait_of_a_tool_is_shown_and_its_diff_stays() {
    let script = "model tool write {\"path\":\"a.txt\",\"content\":\"new\"}\nmodel text \"Done.\"";
    let (mut agent, session) = Agent::playing(script).with_files().session();
    let turn = agent.prompt(&session, "go");
    let mut progress = None;
    while progress.is_none() {
        let message = agent.next();
        match message["method"].as_str() {
            Some("fs/read_text_file") => agent.answer(&message["id"], json!({ "content": "" })),
            Some("session/request_permission") => {
                let outcome = json!({ "outcome": "selected", "optionId": "once" });
                agent.answer(&message["id"], json!({ "outcome": outcome }));
            }
            // Not answered before the wait was shown.
            Some("fs/write_text_file") => {
                progress = Some(agent.find(|update| update.to_string().contains("so far")));
                agent.answer(&message["id"], json!(null));
            }
            _ => assert_ne!(message["id"], turn, "{message}"),
        }
    }
    let content = |update: &Value| update["params"]["update"]["content"].clone();
    let shown = content(&progress.unwrap());
    assert_eq!((&shown[0]["type"], &shown[1]["type"]), (&json!("diff"), &json!("content")));
    let end = agent.find(|update| update["params"]["update"]["status"] == "completed");
    assert_eq!(content(&end), json!([shown[0]]), "{end}");
    agent.reply(turn);
}
