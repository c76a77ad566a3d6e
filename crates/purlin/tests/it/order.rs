//! Order of messages, and isolation of sessions.

use std::collections::HashMap;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, line, prompt, text_of, update_kind};

fn session_of(message: &Value) -> Option<&str> {
    message["params"]["sessionId"].as_str()
}

// R: S3, W13, W14
#[test]
fn twenty_sessions_stream_in_parallel_without_mixing() {
    const SESSIONS: usize = 20;
    let config = json!({ "limits": { "updates_per_minute": 0, "prompts_per_minute": 0 } });
    // The model repeats the user's text, so mixed-up text would be recognised.
    let script = "model echo\nmodel wait 5\nmodel echo\nmodel wait 5\nmodel echo\nmodel loop";
    let mut agent = Agent::playing(script).config(config).ready();
    let sessions: Vec<String> = (0..SESSIONS).map(|_| agent.open()).collect();
    for round in 0..10 {
        let canary = |index: usize| format!("[canary {round} of {index}] ").repeat(200);
        let turns: HashMap<u64, usize> = (0..SESSIONS)
            .map(|index| (agent.prompt(&sessions[index], &canary(index)), index))
            .collect();
        let mut said = vec![String::new(); SESSIONS];
        let mut is_answered = [false; SESSIONS];
        while is_answered.contains(&false) {
            let message = agent.next();
            if let Some(index) = message["id"].as_u64().map(|id| turns[&id]) {
                assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
                assert!(!std::mem::replace(&mut is_answered[index], true), "{message}");
                assert_eq!(said[index], canary(index).repeat(3));
                continue;
            }
            let session = session_of(&message).unwrap();
            let index = sessions.iter().position(|known| known == session).unwrap();
            assert!(!is_answered[index], "an update after the answer: {message}");
            said[index].push_str(&text_of(session, [&message]));
        }
    }
}

// R: S3, W7, W9
#[test]
fn panic_ends_only_its_own_turn() {
    let script = "model text \"one\"\nmodel wait 300\nmodel text \"two\"\nmodel end\n\
                  model text \"before\"\nmodel panic\nmodel end\nmodel echo\nmodel loop";
    let (mut agent, calm) = Agent::playing(script).log("error", Stdio::piped()).session();
    let mut log = agent.take_stderr();
    let broken = agent.open();
    let calm_turn = agent.prompt(&calm, "slowly");
    agent.find(|message| update_kind(message) == "agent_message_chunk");
    let broken_turn = agent.prompt(&broken, "break");
    let reply = agent.reply(broken_turn);
    assert_eq!(reply["error"]["code"], -32603, "{reply}");
    let reference = reply["error"]["data"]["reference"].as_str().unwrap().to_owned();
    assert!(!reply.to_string().contains("script said so"), "{reply}");
    assert_eq!(agent.reply(calm_turn)["result"]["stopReason"], "end_turn");
    let seen = agent.take_seen();
    assert_eq!(text_of(&calm, &seen), "two");
    assert_eq!(text_of(&broken, &seen), "before");
    let turn = agent.prompt(&broken, "and on");
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
    assert_eq!(text_of(&broken, &agent.take_seen()), "and on");
    // The log has the same reference.
    agent.close_input();
    agent.wait(DEADLINE);
    let mut logged = String::new();
    log.read_to_string(&mut logged).unwrap();
    assert!(logged.contains(&reference), "{logged}");
    assert!(logged.contains("panicked at"), "{logged}");
}

// R: W15
#[test]
fn second_prompt_is_refused_and_the_first_continues() {
    let (mut agent, session) = Agent::playing("model text \"on\"\nmodel hang").session();
    let first = agent.prompt(&session, "first");
    for _ in 0..50 {
        let refused = agent.error("session/prompt", prompt(&session, "second"));
        assert_eq!(refused["code"], -31902, "{refused}");
    }
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(first)["result"]["stopReason"], "cancelled");
}

// R: W11
#[test]
fn eleventh_prompt_of_a_minute_is_refused() {
    let start = Agent::playing("model echo\nmodel loop").config(json!({}));
    let (mut agent, session) = start.session();
    for _ in 0..10 {
        assert_eq!(agent.result("session/prompt", prompt(&session, "x"))["stopReason"], "end_turn");
    }
    let refused = agent.error("session/prompt", prompt(&session, "x"));
    assert_eq!(refused["code"], -32003, "{refused}");
    let wait = refused["data"]["retryAfterMs"].as_u64().unwrap();
    assert!((1..=60_000).contains(&wait), "{refused}");
    let other = agent.open();
    assert_eq!(agent.result("session/prompt", prompt(&other, "x"))["stopReason"], "end_turn");
}

/// Sessions over the limit are refused; closing one allows another.
// R: S3
#[test]
fn sessions_are_limited_and_closing_one_allows_another() {
    let config = json!({ "limits": { "max_sessions": 5 } });
    let mut agent = Agent::playing("").config(config).ready();
    let sessions: Vec<String> = (0..5).map(|_| agent.open()).collect();
    let cwd = agent.directory().to_owned();
    let refused = agent.error("session/new", json!({ "cwd": cwd }));
    assert_eq!(refused["code"], -32003, "{refused}");
    assert_eq!(refused["data"]["kind"], "too_many_sessions", "{refused}");
    agent.result("session/close", json!({ "sessionId": sessions[0] }));
    agent.open();
}

// R: S3, Q3
#[test]
fn hundreds_of_sessions_are_opened_in_parallel() {
    let mut agent = Agent::playing("").ready();
    let new = |id: u64, cwd: &std::path::Path| {
        line(&json!({ "id": id, "method": "session/new", "params": { "cwd": cwd } }))
    };
    let ids: Vec<u64> = (0..500).map(|_| agent.fresh_id()).collect();
    let burst: String = ids.iter().map(|id| new(*id, agent.directory())).collect();
    agent.send_bytes(burst.as_bytes());
    for id in ids {
        let reply = agent.reply(id);
        assert!(reply["result"]["sessionId"].is_string(), "{reply}");
    }
}

// R: S3, W9, Q3
#[test]
fn two_thousand_sessions_are_answered_one_by_one() {
    let mut agent = Agent::playing("").ready();
    let cwd = agent.directory().to_owned();
    let ids: Vec<u64> =
        (0..2000).map(|_| agent.call("session/new", json!({ "cwd": cwd }))).collect();
    let mut opened = 0;
    for id in ids {
        let reply = agent.reply(id);
        match reply["error"]["code"].as_i64() {
            None => opened += 1,
            Some(code) => assert!(matches!(code, -32003 | -31902), "{reply}"),
        }
    }
    assert!((1..=1000).contains(&opened), "{opened} sessions were opened");
    let refused = agent.error("still_there", json!({}));
    assert_eq!(refused["code"], -32601);
}

// R: S1, W13
#[test]
fn session_sends_no_update_before_its_id_is_known() {
    let mut agent = Agent::playing("").ready();
    let cwd = agent.directory().to_owned();
    let ids: Vec<u64> = (0..50).map(|_| agent.call("session/new", json!({ "cwd": cwd }))).collect();
    let mut known: HashMap<String, usize> = HashMap::new();
    while known.values().filter(|updates| **updates == 1).count() < ids.len() {
        let message = agent.next();
        if let Some(session) = message["result"]["sessionId"].as_str() {
            assert!(is_uuid(session), "{session}");
            assert!(known.insert(session.to_owned(), 0).is_none());
            continue;
        }
        let session = session_of(&message).unwrap();
        let updates = known.get_mut(session).expect("an update before the session's id");
        *updates += 1;
        assert_eq!(update_kind(&message), "available_commands_update", "{message}");
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12]
        && text.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c))
}

/// The cancel directly follows the prompt, in the same write and often in the same read.
// R: S5
#[test]
fn cancel_directly_after_its_prompt_is_never_lost() {
    let (mut agent, session) = Agent::playing("model hang\nmodel loop").session();
    for round in 0..200 {
        let id = agent.fresh_id();
        let mut both = line(
            &json!({ "id": id, "method": "session/prompt", "params": prompt(&session, "go") }),
        );
        let cancel =
            line(&json!({ "method": "session/cancel", "params": { "sessionId": session } }));
        // Before the first chunk, twice, and after the end: there is one answer, and further cancels are ignored.
        both.push_str(&cancel.repeat(1 + round % 3));
        agent.send_bytes(both.as_bytes());
        assert_eq!(agent.reply(id)["result"]["stopReason"], "cancelled", "round {round}");
        agent.send_bytes(cancel.as_bytes());
    }
    assert!(agent.take_seen().is_empty());
}

// R: S5, W2
#[test]
fn prompt_can_be_cancelled_by_its_id() {
    let (mut agent, session) =
        Agent::playing("model text \"on\"\nmodel hang\nmodel loop").session();
    for id in [json!(900), json!("a string"), json!(-1.5), json!("9\u{20ac}\n")] {
        agent.send(
            &json!({ "id": id, "method": "session/prompt", "params": prompt(&session, "go") }),
        );
        agent.find(|message| update_kind(message) == "agent_message_chunk");
        agent.note("$/cancel_request", json!({ "requestId": "nobody's" }));
        agent.note("$/cancel_request", json!({ "requestId": id }));
        let reply = agent.next();
        assert_eq!((&reply["id"], &reply["result"]["stopReason"]), (&id, &json!("cancelled")));
    }
}

// R: S4, W13, W16
#[test]
fn change_during_a_turn_is_announced_before_it_is_answered() {
    let (mut agent, session) = Agent::playing("model text \"on\"\nmodel hang").session();
    let turn = agent.prompt(&session, "go");
    agent.find(|message| update_kind(message) == "agent_message_chunk");
    let params = json!({ "sessionId": session, "modeId": "plan" });
    agent.result("session/set_mode", params);
    let kinds: Vec<String> =
        agent.take_seen().iter().map(|message| update_kind(message).to_owned()).collect();
    assert_eq!(kinds, ["current_mode_update", "config_option_update"]);
    for (method, member) in [("session/set_mode", "modeId"), ("session/set_model", "modelId")] {
        let refused = agent.error(method, json!({ "sessionId": session, member: "sk-nothing" }));
        assert_eq!(refused["code"], -32602, "{refused}");
        assert!(!refused.to_string().contains("sk-nothing"), "{refused}");
    }
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
}

// R: S5, W9
#[test]
fn closing_a_session_during_a_turn_answers_both_calls() {
    let (mut agent, session) = Agent::playing("model text \"on\"\nmodel hang").session();
    let turn = agent.prompt(&session, "go");
    let close = agent.call("session/close", json!({ "sessionId": session }));
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
    assert!(agent.reply(close).get("error").is_none());
    let gone = agent.error("session/prompt", prompt(&session, "x"));
    assert_eq!(gone["code"], -31900, "{gone}");
}

/// Calls after the close find no session, whether they were read before the close was handled or after.
// R: W9, W13
#[test]
fn calls_after_a_close_are_all_answered() {
    for _ in 0..20 {
        let (mut agent, session) = Agent::playing("model text \"on\"\nmodel hang").session();
        let mut lines = String::new();
        let mut add = |id: u64, method: &str, mut params: Value| {
            params["sessionId"] = json!(session);
            lines.push_str(&line(&json!({ "id": id, "method": method, "params": params })));
        };
        add(100, "session/prompt", prompt(&session, "go"));
        add(101, "session/close", json!({}));
        for id in 0..5 {
            add(200 + 3 * id, "session/set_mode", json!({ "modeId": "plan" }));
            add(201 + 3 * id, "session/close", json!({}));
            add(202 + 3 * id, "session/prompt", prompt(&session, "again"));
        }
        agent.send_bytes(lines.as_bytes());
        assert_eq!(agent.reply(100)["result"]["stopReason"], "cancelled");
        assert!(agent.reply(101)["result"].is_object());
        for id in 200..215 {
            let reply = agent.reply(id);
            let code = reply["error"]["code"].as_i64().unwrap();
            assert!(matches!(code, -31900 | -31902), "{reply}");
        }
    }
}

// R: I4, W8
#[test]
fn no_session_opens_between_logout_and_login() {
    let (mut agent, session) = Agent::playing("model echo\nmodel loop").session();
    let cwd = agent.directory().to_owned();
    agent.result("logout", json!({}));
    for (method, params) in
        [("session/new", json!({ "cwd": cwd })), ("session/prompt", prompt(&session, "x"))]
    {
        let refused = agent.error(method, params);
        assert_eq!(refused["code"], -32000, "{refused}");
    }
    let refused = agent.error("authenticate", json!({ "methodId": "sk-wrong" }));
    assert_eq!(refused["code"], -32602, "{refused}");
    assert!(!refused.to_string().contains("sk-wrong"), "{refused}");
    assert_eq!(agent.error("session/new", json!({ "cwd": cwd }))["code"], -32000);
    let ways = agent.initialize()["authMethods"].clone();
    agent.result("authenticate", json!({ "methodId": ways[0]["id"] }));
    agent.open();
    assert_eq!(agent.result("session/prompt", prompt(&session, "x"))["stopReason"], "end_turn");
}

/// A turn without progress for too long ends, but not the session.
// R: W12
#[test]
fn silent_model_ends_the_turn_with_a_timeout() {
    let config = json!({ "limits": { "no_progress_seconds": 1 } });
    let script = "model text \"on\"\nmodel hang\nmodel end\nmodel echo";
    let (mut agent, session) = Agent::playing(script).config(config).session();
    let refused = crate::agent::within(Duration::from_secs(30), || {
        agent.error("session/prompt", prompt(&session, "x"))
    });
    assert_eq!(refused["code"], -32001, "{refused}");
    assert_eq!(refused["data"]["kind"], "no_progress", "{refused}");
    assert_eq!(agent.result("session/prompt", prompt(&session, "x"))["stopReason"], "end_turn");
}

/// Reading a pipe that nobody writes to never returns.
// R: W19
#[cfg(target_os = "linux")]
#[test]
fn pipes_in_place_of_project_files_stop_no_session() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let mut agent = Agent::playing("model echo\nmodel loop").ready();
    for name in ["purlin.json", "opencode.json", "AGENTS.md", ".purlin/agent/a.md", ".git/HEAD"] {
        let pipe = agent.directory().join(name);
        std::fs::create_dir_all(pipe.parent().unwrap()).unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    for session in [agent.open(), agent.open()] {
        let turn = agent.prompt(&session, "hello");
        let reply = agent.reply(turn);
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
    }
}
