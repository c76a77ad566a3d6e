//! `purlin serve`: sessions that outlive their connections, and who may use them.

pub(crate) mod client;
pub(crate) mod security;
pub(crate) mod shim;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use self::client::{Client, Server, numbered_script, text_of};
use crate::directory::Directory;

/// Checks that numbered words are there once each, in order.
fn assert_whole(text: &str, count: usize) {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let wanted: Vec<String> = (0..count).map(|number| format!("w{number}")).collect();
    assert_eq!(words, wanted);
}

fn prompt(session: &str, key: &str) -> Value {
    json!({
        "sessionId": session,
        "prompt": [{ "type": "text", "text": "go" }],
        "_meta": { "reqKey": key },
    })
}

fn resume(session: &str, last: u64) -> Value {
    json!({ "sessionId": session, "_meta": { "lastSeq": last } })
}

// R: S10, S9, C2
#[test]
fn turn_continues_without_its_connection_and_nothing_is_lost_or_repeated() {
    let directory = Directory::new();
    directory.write("script.acp", &numbered_script(200, 5));
    let server = Server::start(&directory, &[]);
    let mut one = Client::connect(&server);
    let session = one.open(&directory);
    one.send("session/prompt", &prompt(&session, "p1"));
    let mut seen = Vec::new();
    while text_of(&seen).split_whitespace().count() < 20 {
        seen.push(one.next().unwrap());
    }
    let last = client::last_seq(&seen).unwrap();
    drop(one);

    let mut two = Client::connect(&server);
    let resumed = two.call("session/resume", &resume(&session, last), &mut seen);
    assert!(resumed.get("result").is_some(), "{resumed}");
    let ended = two.call("session/prompt", &prompt(&session, "p1"), &mut seen);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert_whole(&text_of(&seen), 200);
    let numbers: Vec<u64> = seen.iter().filter_map(client::seq_of).collect();
    assert_eq!(numbers.len(), numbers.iter().collect::<BTreeSet<_>>().len());
    assert!(numbers.is_sorted(), "{numbers:?}");
    // Sent a third time, it is answered from what is stored.
    let mut more = Vec::new();
    let again = two.call("session/prompt", &prompt(&session, "p1"), &mut more);
    assert_eq!(again["result"]["stopReason"], "end_turn", "{again}");
    assert_eq!(text_of(&more), "");
}

// R: O1
#[test]
fn log_of_a_server_has_the_turns_of_its_sessions() {
    let directory = Directory::new();
    directory.write("script.acp", &numbered_script(3, 0));
    let server = Server::start(&directory, &["--log", "debug"]);
    let mut client = Client::connect(&server);
    let session = client.open(&directory);
    client.call("session/prompt", &prompt(&session, "p1"), &mut Vec::new());
    drop(client);
    server.terminate();
    server.exit_status();
    let log = std::fs::read_to_string(directory.join("state/purlin/log/purlin.log")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let turns: Vec<Value> = lines.filter(|line| line["operation"] == "turn").collect();
    assert_eq!(turns.len(), 2, "{log}");
    assert!(turns.iter().all(|line| line["session"] == json!(session)), "{log}");
    assert_eq!(turns[1]["stop"], "end_turn");
    // At the lowest level, every message.
    for direction in ["received {", "sent {"] {
        let message = format!("\"message\":\"{direction}");
        let of = |line: &&str| line.contains("session/prompt") && line.contains(&message);
        assert!(log.lines().any(|line| of(&line)), "no {direction}: {log}");
    }
}

// R: S10, S9, S6
#[test]
fn turn_of_a_killed_server_is_continued_by_the_next_one() {
    let directory = Directory::new();
    // The second answer is what the model says when it is asked again.
    let script = format!("{}model end\nmodel text \"again\"\n", numbered_script(400, 5));
    directory.write("script.acp", &script);
    let server = Server::start(&directory, &[]);
    let mut one = Client::connect(&server);
    let session = one.open(&directory);
    one.send("session/prompt", &prompt(&session, "p1"));
    let mut seen = Vec::new();
    while text_of(&seen).split_whitespace().count() < 20 {
        seen.push(one.next().unwrap());
    }
    server.kill();
    while let Some(message) = one.next() {
        seen.push(message);
    }
    let last = client::last_seq(&seen).unwrap();

    // The scripted model of the next process begins with its first answer.
    directory.write("script.acp", "model text \"again\"\n");
    let server = Server::start(&directory, &[]);
    let mut two = Client::connect(&server);
    let resumed = two.call("session/resume", &resume(&session, last), &mut seen);
    assert!(resumed.get("result").is_some(), "{resumed}");
    let ended = two.call("session/prompt", &prompt(&session, "p1"), &mut seen);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    let text = text_of(&seen);
    let recorded = text.strip_suffix("again").expect("the model was asked again");
    assert_whole(recorded, recorded.split_whitespace().count());
    // Whoever loads the session sees the same.
    let mut three = Client::connect(&server);
    let mut loaded = Vec::new();
    three.call("session/load", &json!({ "sessionId": session }), &mut loaded);
    assert_eq!(text_of(&loaded), text);
}

// R: S10
#[test]
fn watcher_sees_prompts_and_answers_but_may_not_write() {
    let directory = Directory::new();
    directory.write("script.acp", &numbered_script(50, 1));
    let server = Server::start(&directory, &[]);
    let mut writer = Client::connect(&server);
    let session = writer.open(&directory);
    let mut watcher = Client::connect(&server);
    let watch = json!({ "sessionId": session, "_meta": { "watch": true } });
    let mut watched = Vec::new();
    watcher.call("session/load", &watch, &mut watched);
    let mut seen = Vec::new();
    writer.call("session/prompt", &prompt(&session, "p1"), &mut seen);
    assert_whole(&text_of(&seen), 50);
    while text_of(&watched).split_whitespace().count() < 50 {
        watched.push(watcher.next().unwrap());
    }
    assert_whole(&text_of(&watched), 50);
    let is_prompt =
        |message: &&Value| message["params"]["update"]["sessionUpdate"] == "user_message_chunk";
    assert_eq!(watched.iter().filter(is_prompt).count(), 1);
    assert_eq!(seen.iter().filter(is_prompt).count(), 0);
    let refused = watcher.call("session/prompt", &prompt(&session, "p2"), &mut watched);
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

// R: S10, T7
#[test]
fn client_that_does_not_read_slows_nobody_and_misses_nothing() {
    let directory = Directory::new();
    let filler = "x".repeat(4_000);
    let words: String =
        (0..2_000).map(|number| format!("model text \"w{number}{filler} \"\n")).collect();
    directory.write("script.acp", &words);
    let server = Server::start(&directory, &[]);
    let mut slow = Client::connect(&server);
    let session = slow.open(&directory);
    let mut writer = Client::connect(&server);
    let mut seen = Vec::new();
    writer.call("session/load", &json!({ "sessionId": session }), &mut seen);
    let ended = writer.call("session/prompt", &prompt(&session, "p1"), &mut seen);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    let mut late = Vec::new();
    while text_of(&late).split_whitespace().count() < 2_000 {
        late.push(slow.next().unwrap());
    }
    for messages in [seen, late] {
        assert_whole(&text_of(&messages).replace(&filler, ""), 2_000);
    }
}

// R: S10, C2
#[test]
fn open_permission_request_is_asked_again_on_the_next_connection() {
    let directory = Directory::new();
    let path = directory.join("a.txt");
    directory.write(
        "script.acp",
        &format!(
            "model tool write {}\nmodel text \"Done.\"\n",
            json!({ "path": path, "content": "new" })
        ),
    );
    let server = Server::start(&directory, &[]);
    let mut one = Client::connect(&server);
    let session = one.open(&directory);
    one.send("session/prompt", &prompt(&session, "p1"));
    one.answers_permission = false;
    let mut seen = Vec::new();
    while !seen.iter().any(|message: &Value| message["method"] == "session/request_permission") {
        seen.push(one.next().unwrap());
    }
    let last = client::last_seq(&seen).unwrap();
    drop(one);
    let mut two = Client::connect(&server);
    two.call("session/resume", &resume(&session, last), &mut seen);
    let ended = two.call("session/prompt", &prompt(&session, "p1"), &mut seen);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "new");
}

// R: S10
#[test]
fn stopping_server_lets_a_turn_end() {
    let directory = Directory::new();
    directory.write("script.acp", &numbered_script(100, 5));
    let server = Server::start(&directory, &[]);
    let mut one = Client::connect(&server);
    let session = one.open(&directory);
    one.send("session/prompt", &prompt(&session, "p1"));
    let mut seen = vec![one.next().unwrap()];
    server.terminate();
    while let Some(message) = one.next() {
        seen.push(message);
    }
    assert_whole(&text_of(&seen), 100);
    let ended = seen.iter().find(|message| message.get("result").is_some()).unwrap();
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    assert!(server.exit_status().success());
}

// R: S10, S8
#[test]
fn stopped_turn_is_left_for_the_next_server() {
    let directory = Directory::new();
    directory.write("script.acp", "model text \"first \"\nmodel hang\n");
    let server = Server::start(&directory, &["--drain", "0"]);
    let mut one = Client::connect(&server);
    let session = one.open(&directory);
    one.send("session/prompt", &prompt(&session, "p1"));
    let mut seen = Vec::new();
    while text_of(&seen).is_empty() {
        seen.push(one.next().unwrap());
    }
    server.terminate();
    while let Some(message) = one.next() {
        seen.push(message);
    }
    assert!(server.exit_status().success());
    directory.write("script.acp", "model text \"second\"\n");
    let server = Server::start(&directory, &[]);
    let mut two = Client::connect(&server);
    let last = client::last_seq(&seen).unwrap();
    two.call("session/resume", &resume(&session, last), &mut seen);
    let ended = two.call("session/prompt", &prompt(&session, "p1"), &mut seen);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert_eq!(text_of(&seen), "first second");
}
