//! Memory limits for everything that a client sends or does not read.
//!
//! Every limit is the difference between the memory of the process before and its peak, as reported by the kernel.

use std::io::Write;
use std::process::ChildStdin;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::linux::MIB;
use crate::agent::{Agent, DEADLINE, line, text_of, within};

/// The memory that no test in this file may exceed.
const MOST: u64 = 16 * MIB;
const HUGE: u64 = 256 * MIB;
/// Fifty thousand calls without a pause.
const FAST: (u64, Duration) = (50_000, Duration::ZERO);

/// Sends one line: `front`, 256 MiB of `filler`, and `back`.
fn send_huge(agent: &mut Agent, front: &str, filler: &[u8], back: &str) {
    send_large(agent, HUGE, front, filler, back);
}

fn send_large(agent: &mut Agent, size: u64, front: &str, filler: &[u8], back: &str) {
    let block = filler.repeat(MIB as usize / filler.len());
    agent.send_bytes(front.as_bytes());
    for _ in 0..size / MIB {
        agent.send_bytes(&block);
    }
    agent.send_bytes(back.as_bytes());
    agent.send_bytes(b"\n");
}

/// Runs `work`, then checks its memory and that the program still works.
fn check_cost<T>(agent: &mut Agent, work: impl FnOnce(&mut Agent) -> T) -> T {
    let before = agent.memory();
    let done = work(agent);
    let cost = agent.peak_memory() - before;
    assert!(cost <= MOST, "{} KiB", cost / 1024);
    assert_eq!(agent.error("still_there", json!({}))["code"], -32601);
    done
}

// R: W10, W22
#[test]
fn huge_prompt_is_refused_with_the_id_after_it() {
    let (mut agent, session) = Agent::playing("").session();
    let front = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/prompt\",\"params\":{{\"sessionId\":\"{session}\",\"prompt\":[{{\"type\":\"text\",\"text\":\""
    );
    let reply = check_cost(&mut agent, |agent| {
        send_huge(agent, &front, "word\\n\u{e9}, ".as_bytes(), "\"}]},\"id\":\"behind\"}");
        agent.next()
    });
    assert_eq!(reply["id"], "behind", "{reply}");
    assert_eq!(reply["error"]["code"], -32600, "{reply}");
    assert_eq!(reply["error"]["data"]["kind"], "message_too_large", "{reply}");
    assert!(reply["error"]["data"]["limit"].is_u64(), "{reply}");
}

// R: W10, W22
#[test]
fn huge_line_with_its_method_last_is_refused_with_its_id() {
    let mut agent = Agent::playing("").ready();
    let reply = check_cost(&mut agent, |agent| {
        let front = "{\"params\":{\"x\":[";
        send_huge(agent, front, b"[1,{\"a\":2}],   ", "0]},\"id\":77,\"method\":\"session/new\"}");
        agent.next()
    });
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(77), &json!(-32600)), "{reply}");
}

// R: W3, W22
#[test]
fn huge_garbage_is_answered_as_invalid_json() {
    let mut agent = Agent::playing("").ready();
    let fillers =
        [(&b"garbage "[..], HUGE), (b"[", 32 * MIB), (b"\xff\x00", 32 * MIB), (b"{", 32 * MIB)];
    let more = [(&b"\""[..], 32 * MIB), (b"{\"a\":", 32 * MIB), (b"\\", 32 * MIB)];
    for (filler, size) in fillers.into_iter().chain(more) {
        let reply = check_cost(&mut agent, |agent| {
            send_large(agent, size, "", filler, "");
            agent.next()
        });
        assert_eq!(reply["id"], Value::Null, "{reply}");
        let code = reply["error"]["code"].as_i64().unwrap();
        assert!(code == -32700 || code == -32600, "{reply}");
    }
}

// R: W2, W22
#[test]
fn huge_notifications_and_unexpected_replies_are_not_answered() {
    let mut agent = Agent::playing("").ready();
    check_cost(&mut agent, |agent| {
        send_huge(agent, "{\"jsonrpc\":\"2.0\",\"method\":\"note\",\"params\":\"", b"x", "\"}");
    });
    check_cost(&mut agent, |agent| {
        send_huge(agent, "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":\"", b"x", "\"}");
    });
    assert_eq!(agent.take_seen(), Vec::<Value>::new());
}

// R: W10, W22
#[test]
fn huge_reply_fails_only_the_call_it_answers() {
    let script = "model tool read {\"path\":\"/w/a.txt\"}\nmodel text \"went on\"";
    let (mut agent, session) = Agent::playing(script).with_files().session();
    let turn = agent.prompt(&session, "read");
    let question = agent.asked("fs/read_text_file");
    let front =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":\"", question["id"]);
    let reply = check_cost(&mut agent, |agent| {
        send_huge(agent, &front, b"x", "\"}}");
        agent.reply(turn)
    });
    assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
    let seen = agent.take_seen();
    let failed = |message: &Value| message["params"]["update"]["status"] == "failed";
    assert!(seen.iter().any(failed), "{seen:?}");
    assert_eq!(text_of(&session, &seen), "went on");
}

/// Writes in another thread, since the program must stop reading at some point.
fn write_in_background(
    mut input: ChildStdin,
    lines: Vec<String>,
    pace: Duration,
) -> JoinHandle<ChildStdin> {
    std::thread::spawn(move || {
        for line in lines {
            input.write_all(line.as_bytes()).unwrap();
            if !pace.is_zero() {
                // The pace of a client is what this tests.
                std::thread::sleep(pace);
            }
        }
        input
    })
}

/// Sends this many calls without reading, checks the memory, then reads and counts the answers.
fn flood(
    agent: &mut Agent,
    (calls, pace): (u64, Duration),
    call: impl Fn(u64) -> Value,
) -> Vec<Value> {
    let lines: Vec<String> = (0..calls).map(|id| line(&call(1_000_000 + id))).collect();
    agent.pause();
    let before = agent.memory();
    let input = agent.take_input();
    let writer = write_in_background(input, lines, pace);
    agent.wait_until_quiet();
    let cost = agent.peak_memory() - before;
    assert!(cost <= MOST, "{} KiB", cost / 1024);
    assert!(!writer.is_finished(), "everything was taken in although nothing could get out");
    agent.resume();
    let mut replies = Vec::new();
    let mut is_answered = vec![false; calls as usize];
    while replies.len() < calls as usize {
        let message = agent.next();
        let Some(id) = message["id"].as_u64().and_then(|id| id.checked_sub(1_000_000)) else {
            continue;
        };
        assert!(!std::mem::replace(&mut is_answered[id as usize], true), "{message}");
        replies.push(message);
    }
    agent.set_input(writer.join().unwrap());
    let cost = agent.peak_memory() - before;
    assert!(cost <= MOST, "{} KiB while it was read", cost / 1024);
    replies
}

// R: W9, W17, Q3
#[test]
fn unread_answers_make_further_calls_wait_in_the_pipe() {
    let (mut agent, _) = Agent::playing("").session();
    let replies =
        flood(&mut agent, FAST, |id| json!({ "id": id, "method": "unknown", "params": {} }));
    assert!(replies.iter().all(|reply| reply["error"]["code"] == -32601));
    assert_eq!(agent.error("still_there", json!({}))["code"], -32601);
}

/// The session answers these after its updates, and each answer is large. At full speed most of them would be
/// refused.
// R: W9, W17
#[test]
fn unread_answers_of_a_session_make_further_calls_wait_in_the_pipe() {
    let (mut agent, session) = Agent::playing("").session();
    let replies = flood(&mut agent, (20_000, Duration::from_micros(200)), |id| {
        let params = json!({ "sessionId": session, "configId": "mode", "value": "build" });
        json!({ "id": id, "method": "session/set_config_option", "params": params })
    });
    let done = replies.iter().filter(|reply| reply["result"].is_object()).count();
    assert!(done > 1_000, "only {done} were not refused");
    assert_eq!(agent.error("still_there", json!({}))["code"], -32601);
}

/// The answers and updates of a mode that changes all the time.
// R: W9, W17, S4
#[test]
fn unread_updates_make_further_calls_wait_in_the_pipe() {
    let (mut agent, session) = Agent::playing("").session();
    flood(&mut agent, FAST, |id| {
        let mode = if id % 2 == 0 { "plan" } else { "build" };
        let params = json!({ "sessionId": session, "modeId": mode });
        json!({ "id": id, "method": "session/set_mode", "params": params })
    });
    assert_eq!(agent.error("still_there", json!({}))["code"], -32601);
}

/// 60 MB of text with characters of one to four bytes.
// R: W14, W17, Q3
#[test]
fn unread_text_pauses_the_model_and_is_not_lost() {
    const TIMES: usize = 60_000;
    let chunk: String = "0123456789 äöü €… 🦀🚀 \"\\ \t".repeat(25);
    let script = format!("model chunks {TIMES} {}", json!(chunk));
    let (mut agent, session) = Agent::playing(&script).session();
    agent.pause();
    let before = agent.memory();
    let turn = agent.prompt(&session, "flood");
    agent.wait_until_quiet();
    let cost = agent.peak_memory() - before;
    assert!(cost <= MOST, "{} KiB", cost / 1024);
    agent.resume();
    let expected = chunk.repeat(TIMES);
    let mut at = 0;
    within(DEADLINE, || {
        loop {
            let line = agent.next_line().unwrap();
            assert!(line.len() <= 100 * 1024, "a line of {} bytes", line.len());
            let message = crate::agent::message(&line);
            if message["id"] == turn {
                assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
                break;
            }
            // A split inside a character would not be valid UTF-8, and a replaced character would not be equal.
            let text = text_of(&session, [&message]);
            assert!(expected[at..].starts_with(&text), "the text differs after byte {at}");
            at += text.len();
        }
    });
    assert_eq!(at, expected.len());
}
