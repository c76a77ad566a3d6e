//! Hostile and broken clients: wrong order, wrong answers, no answers. Each case has a defined result.

use serde_json::{Value, json};

use crate::agent::{Agent, line, prompt, text_of, update_kind};

const WRITES: &str = "model tool write {\"path\":\"/w/a.txt\",\"content\":\"new\"}\n\
                      model text \"went on\"\nmodel loop";
const READS: &str = "model tool read {\"path\":\"/w/a.txt\"}\nmodel text \"went on\"\nmodel loop";

fn statuses(messages: &[Value]) -> Vec<String> {
    let status = |message: &Value| {
        let update = &message["params"]["update"];
        Some(update["status"].as_str()?.to_owned())
    };
    messages.iter().filter_map(status).collect()
}

/// Starts a turn and returns it with its permission request.
fn turn_with_permission_request() -> (Agent, String, u64, Value) {
    // The client has no file methods, so the permission request is the first call.
    let (mut agent, session) = Agent::playing(WRITES).session();
    let turn = agent.prompt(&session, "write");
    let question = agent.asked("session/request_permission");
    (agent, session, turn, question)
}

fn choose(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}

// R: I5
#[test]
fn nothing_works_before_initialize() {
    let mut agent = Agent::playing("").start();
    for method in ["authenticate", "session/new", "session/prompt", "unknown", "_ext", "logout"] {
        let refused = agent.error(method, json!({}));
        assert_eq!(refused["code"], -32600, "{method}: {refused}");
    }
    agent.note("session/cancel", json!({ "sessionId": "x" }));
    agent.note("$/cancel_request", json!({ "requestId": 1 }));
    agent.answer(&json!(1), json!({}));
    agent.initialize();
    assert!(agent.take_seen().is_empty());
    agent.open();
}

// R: I1
#[test]
fn initialize_may_be_repeated_with_any_version() {
    let (mut agent, session) = Agent::playing("model echo\nmodel loop").session();
    for version in [0, 1, 2, 65535] {
        let result = agent.result("initialize", json!({ "protocolVersion": version }));
        assert_eq!(result["protocolVersion"], 1, "{result}");
    }
    assert_eq!(agent.result("session/prompt", prompt(&session, "x"))["stopReason"], "end_turn");
}

// R: S5, P7
#[test]
fn unanswered_permission_request_can_be_cancelled() {
    let (mut agent, session, turn, question) = turn_with_permission_request();
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
    let seen = agent.take_seen();
    let cancelled = |message: &&Value| message["method"] == "$/cancel_request";
    let withdrawn: Vec<&Value> = seen.iter().filter(cancelled).collect();
    assert_eq!(withdrawn.len(), 1, "{seen:?}");
    assert_eq!(withdrawn[0]["params"]["requestId"], question["id"]);
    assert_eq!(statuses(&seen), ["pending", "failed"], "{seen:?}");
    assert!(seen.iter().all(|message| message["method"] != "fs/write_text_file"));
}

// R: S5
#[test]
fn permission_after_a_cancel_is_ignored() {
    let (mut agent, session, turn, question) = turn_with_permission_request();
    agent.note("session/cancel", json!({ "sessionId": session }));
    agent.answer(&question["id"], choose("once"));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
    agent.answer(&question["id"], choose("always"));
    // Nothing was granted: the next turn requests permission again.
    agent.take_seen();
    let turn = agent.prompt(&session, "say");
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
    let turn = agent.prompt(&session, "write");
    let again = agent.asked("session/request_permission");
    agent.answer(&again["id"], choose("reject"));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
}

// R: C3, W9
#[test]
fn unexpected_replies_change_nothing() {
    let (mut agent, session, turn, question) = turn_with_permission_request();
    let id = question["id"].as_u64().unwrap();
    for other in
        [json!(id + 1), json!(0), json!(-1), json!(id.to_string()), json!(null), json!(1e99)]
    {
        agent.answer(&other, choose("once"));
        agent.send(&json!({ "id": other, "error": { "code": -32601, "message": "no" } }));
    }
    agent.answer(&question["id"], choose("reject"));
    // A second answer to the same request, this time a valid one, comes too late.
    agent.answer(&question["id"], choose("once"));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
    let seen = agent.take_seen();
    assert_eq!(statuses(&seen), ["pending", "failed"], "{seen:?}");
    assert_eq!(text_of(&session, &seen), "went on");
}

// R: C3
#[test]
fn invalid_answers_never_grant_permission() {
    let id = "ID";
    let answers = [
        json!({ "id": id, "result": choose("once"), "error": { "code": 1, "message": "both" } }),
        json!({ "id": id, "error": { "code": -32603, "message": "no" } }),
        json!({ "id": id, "error": "a text" }),
        json!({ "id": id, "error": null }),
        json!({ "id": id, "error": { "code": 1e300, "message": 7 } }),
        json!({ "id": id, "result": null }),
        json!({ "id": id, "result": true }),
        json!({ "id": id, "result": [] }),
        json!({ "id": id, "result": "once" }),
        json!({ "id": id, "result": { "outcome": "selected", "optionId": "once" } }),
        json!({ "id": id, "result": { "outcome": { "outcome": "selected" } } }),
        json!({ "id": id, "result": { "outcome": { "outcome": "cancelled" } } }),
        json!({ "id": id, "result": choose("ONCE") }),
        json!({ "id": id, "result": choose("once\u{0}") }),
        json!({ "id": id, "result": choose("") }),
    ];
    let (mut agent, session) = Agent::playing(WRITES).with_files().session();
    for mut answer in answers {
        let turn = agent.prompt(&session, "write");
        let read = agent.asked("fs/read_text_file");
        let missing = json!({ "code": -31700, "message": "File not found" });
        agent.send(&json!({ "id": read["id"], "error": missing }));
        let question = agent.asked("session/request_permission");
        answer["id"] = question["id"].clone();
        agent.send(&answer);
        assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn", "{answer}");
        let seen = agent.take_seen();
        assert!(seen.iter().all(|message| message["method"] != "fs/write_text_file"), "{answer}");
        assert_eq!(statuses(&seen), ["pending", "failed"], "{answer}");
    }
}

// R: W12
#[test]
fn unanswered_file_read_is_retried_once_and_the_turn_continues() {
    let config = json!({ "limits": { "read_timeout_seconds": 1 } });
    let (mut agent, session) = Agent::playing(READS).config(config).with_files().session();
    let turn = agent.prompt(&session, "read");
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
    let seen = agent.take_seen();
    let asked: Vec<&Value> = seen.iter().filter(|m| m["method"] == "fs/read_text_file").collect();
    let withdrawn: Vec<&Value> =
        seen.iter().filter(|m| m["method"] == "$/cancel_request").collect();
    assert_eq!((asked.len(), withdrawn.len()), (2, 2), "{seen:?}");
    for (asked, withdrawn) in asked.iter().zip(withdrawn) {
        assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    }
    assert_eq!(statuses(&seen), ["pending", "in_progress", "failed"], "{seen:?}");
    assert_eq!(text_of(&session, &seen), "went on");
    // Late answers to both are ignored.
    for asked in asked {
        agent.answer(&asked["id"], json!({ "content": "late" }));
    }
    assert_eq!(agent.error("still_there", json!({}))["code"], -32601);
    assert!(agent.take_seen().is_empty());
}

// R: W12
#[test]
fn second_attempt_to_read_a_file_succeeds() {
    let config = json!({ "limits": { "read_timeout_seconds": 1 } });
    let (mut agent, session) = Agent::playing(READS).config(config).with_files().session();
    let turn = agent.prompt(&session, "read");
    agent.asked("fs/read_text_file");
    let second = agent.asked("fs/read_text_file");
    agent.answer(&second["id"], json!({ "content": "in the end" }));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
    assert_eq!(statuses(&agent.take_seen()), ["pending", "in_progress", "completed"]);
}

// R: W5
#[test]
fn ten_thousand_unknown_notifications_are_ignored() {
    let (mut agent, session) = Agent::playing("model echo").session();
    let note = line(&json!({ "method": "unknown/note", "params": { "x": "y" } }));
    let cancel = line(&json!({ "method": "session/cancel", "params": { "sessionId": session } }));
    let stray = line(&json!({ "method": "session/cancel", "params": { "sessionId": "nobody" } }));
    let broken = line(&json!({ "method": "session/cancel", "params": 7 }));
    for _ in 0..2_500 {
        agent.send_bytes([&*note, &cancel, &stray, &broken].concat().as_bytes());
    }
    let turn = agent.prompt(&session, "after the storm");
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
    let seen = agent.take_seen();
    assert!(seen.iter().all(|message| update_kind(message) == "agent_message_chunk"), "{seen:?}");
    assert_eq!(text_of(&session, &seen), "after the storm");
}

// R: W21
#[test]
fn flood_of_bad_lines_is_answered_at_a_limited_rate() {
    let config = json!({ "limits": { "errors_per_minute": 100 } });
    let mut agent = Agent::playing("").config(config).ready();
    agent.send_bytes(&b"nonsense\n".repeat(5_000));
    let call = agent.call("still_there", json!({}));
    assert_eq!(agent.reply(call)["error"]["code"], -32601);
    let seen = agent.take_seen();
    assert_eq!(seen.len(), 100);
    assert!(seen.iter().all(|message| message["error"]["code"] == -32700));
}

/// Every line with an id is answered; only lines without one are limited.
// R: W9, W21
#[test]
fn every_bad_call_of_a_flood_is_answered() {
    let config = json!({ "limits": { "errors_per_minute": 1 } });
    let mut agent = Agent::playing("").config(config).ready();
    let ids: Vec<u64> = (0..5_000).map(|_| agent.call("unknown", json!({}))).collect();
    for id in ids {
        assert_eq!(agent.reply(id)["error"]["code"], -32601);
    }
}

// R: W2, W9
#[test]
fn reused_id_is_refused_and_the_first_call_is_answered() {
    let (mut agent, session) = Agent::playing("model text \"on\"\nmodel hang").session();
    let turn = agent.prompt(&session, "go");
    agent.find(|message| update_kind(message) == "agent_message_chunk");
    agent.send(
        &json!({ "id": turn, "method": "session/close", "params": { "sessionId": session } }),
    );
    assert_eq!(agent.reply(turn)["error"]["code"], -32600);
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
}

// R: W19
#[test]
fn working_directory_must_be_absolute() {
    let mut agent = Agent::playing("").ready();
    for cwd in ["", "./src", "relative/path", "../up", "~", "file:///tmp", "C:relative"] {
        let refused = agent.error("session/new", json!({ "cwd": cwd, "mcpServers": [] }));
        assert_eq!(refused["code"], -32602, "{cwd}: {refused}");
        assert_eq!(refused["data"]["path"], "cwd", "{refused}");
    }
    // The one relative path that is accepted.
    let opened = agent.result("session/new", json!({ "cwd": ".", "mcpServers": [] }));
    assert!(opened["sessionId"].is_string(), "{opened}");
}

// R: W18
#[test]
fn null_characters_are_refused_in_every_text() {
    let (mut agent, session) = Agent::playing("model echo\nmodel loop").session();
    let cwd = agent.directory().to_owned();
    let server = |name: &str| json!({ "name": name, "command": "/bin/x", "args": [], "env": [] });
    let calls = [
        ("session/new", json!({ "cwd": "/tmp/\u{0}x", "mcpServers": [] }), "cwd"),
        ("session/new", json!({ "cwd": "/tmp/\u{0}x" }), "cwd"),
        (
            "session/new",
            json!({ "cwd": cwd, "mcpServers": [server("a\u{0}")] }),
            "mcpServers[0].name",
        ),
        ("session/prompt", prompt(&session, "\u{0}"), "prompt[0].text"),
        ("session/prompt", prompt("\u{0}", "x"), "sessionId"),
        ("session/set_mode", json!({ "sessionId": session, "modeId": "plan\u{0}" }), "modeId"),
        ("authenticate", json!({ "methodId": "local\u{0}" }), "methodId"),
    ];
    for (method, params, path) in calls {
        let refused = agent.error(method, params);
        assert_eq!(refused["code"], -32602, "{method}: {refused}");
        assert_eq!(refused["data"]["path"], path, "{method}: {refused}");
    }
}

/// The path in an error may only have names of the protocol: names that the client made up could be anything.
// R: W6, W7
#[test]
fn errors_do_not_repeat_names_made_up_by_the_client() {
    let (mut agent, session) = Agent::playing("").session();
    let huge = "sk-key".repeat(10_000);
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    for key in ["sk-key", &huge] {
        for value in [json!("\u{0}"), deep.clone()] {
            let mut params = prompt(&session, "x");
            params["_meta"] = json!({ key: value });
            let id = agent.fresh_id();
            agent.send(&json!({ "id": id, "method": "session/prompt", "params": params }));
            let mut reply = agent.reply(id);
            assert!(!reply["error"].to_string().contains("sk-key"), "{}", reply.to_string().len());
            params = json!({ "sessionId": session, "modeId": "plan", key: value });
            let id = agent.call("session/set_mode", params);
            reply = agent.reply(id);
            assert!(!reply["error"].to_string().contains("sk-key"), "{}", reply.to_string().len());
        }
    }
}

/// Few open files, little memory, no environment, another working directory, a deleted one.
// R: I6, S3
#[cfg(unix)]
#[test]
fn program_works_with_few_resources() {
    let places = [
        "ulimit -n 64",
        "ulimit -v 262144",
        "ulimit -s 256",
        "unset HOME XDG_CONFIG_HOME TERM PATH LANG LC_ALL",
        "export HOME=/nonexistent XDG_CONFIG_HOME=relative TERM= LC_ALL=C",
        "export HOME=$(printf '/\\377\\376')",
        "cd /",
        "d=$(mktemp -d); cd $d; rmdir $d",
    ];
    for place in places {
        let start = Agent::playing("model echo\nmodel loop").before(place);
        let (mut agent, session) = start.session();
        for _ in 0..20 {
            agent.open();
        }
        let turn = agent.prompt(&session, place);
        assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn", "{place}");
        assert_eq!(text_of(&session, &agent.take_seen()), place);
        agent.close_input();
        assert_eq!(agent.wait(crate::agent::DEADLINE).code(), Some(0), "{place}");
    }
}
