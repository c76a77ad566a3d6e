//! Every way in which a connection can end, and what the program still does then.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, prompt, text_of, update_kind, within};

/// Three times the promised time to exit, without and with a running turn: the machine may be busy.
const IDLE: Duration = Duration::from_secs(3);
const BUSY: Duration = Duration::from_secs(9);

const HANGING: &str = "model text \"begun\"\nmodel hang\nmodel loop";
const STREAMING: &str = "model text \"begun\"\nmodel chunks 50000000 \"more \"\nmodel loop";

/// Starts a turn and returns when its first text has arrived.
fn in_a_turn(script: &str) -> (Agent, u64) {
    let (mut agent, session) = Agent::playing(script).session();
    let turn = agent.prompt(&session, "go");
    agent.find(|message| update_kind(message) == "agent_message_chunk");
    (agent, turn)
}

/// Reads to the end of the output: the turn must be answered once, with `cancelled`, after its last update.
fn expect_cancelled(agent: &mut Agent, turn: u64) {
    let mut last = None;
    while let Some(line) = agent.next_line() {
        last = Some(crate::agent::message(&line));
    }
    let last: Value = last.expect("nothing was said at the end");
    assert_eq!(last["id"], turn, "{last}");
    assert_eq!(last["result"]["stopReason"], "cancelled", "{last}");
}

// R: W23
#[test]
fn end_of_input_ends_an_idle_program() {
    for is_ready in [false, true] {
        let mut agent = Agent::playing("").start();
        if is_ready {
            agent.initialize();
            agent.open();
        }
        agent.close_input();
        assert_eq!(within(IDLE, || agent.wait(DEADLINE)).code(), Some(0));
        assert_eq!(agent.next_line(), None);
    }
}

// R: W23, S5
#[test]
fn end_of_input_cancels_a_turn_and_reports_it() {
    for script in [HANGING, STREAMING] {
        let (mut agent, turn) = in_a_turn(script);
        agent.close_input();
        let status = within(BUSY, || agent.wait(DEADLINE));
        assert_eq!(status.code(), Some(0), "{script}");
        expect_cancelled(&mut agent, turn);
    }
}

/// The rest of the output is never read; the program must exit all the same.
// R: W17, W23
#[cfg(target_os = "linux")]
#[test]
fn end_of_input_ends_a_program_whose_output_is_not_read() {
    let (mut agent, session) = Agent::playing(STREAMING).session();
    agent.pause();
    agent.prompt(&session, "go");
    agent.wait_until_quiet();
    agent.close_input();
    assert_eq!(within(BUSY, || agent.wait(DEADLINE)).code(), Some(0));
}

// R: W23
#[test]
fn last_line_without_line_end_is_handled() {
    let (mut agent, session) = Agent::playing("model echo").session();
    let id = agent.fresh_id();
    let params = prompt(&session, "half");
    let line =
        crate::agent::line(&json!({ "id": id, "method": "session/prompt", "params": params }));
    agent.send_bytes(line.trim_end().as_bytes());
    agent.close_input();
    // The turn may complete before it is cancelled, but it must be answered.
    let reply = agent.reply(id);
    assert!(reply["result"]["stopReason"].is_string(), "{reply}");
    assert_eq!(within(BUSY, || agent.wait(DEADLINE)).code(), Some(0));
}

// R: W3, W23
#[test]
fn half_a_line_at_the_end_is_answered_as_invalid_json() {
    let mut agent = Agent::playing("").ready();
    agent.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"sess");
    agent.close_input();
    let reply = agent.next();
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&Value::Null, &(-32700).into()));
    assert_eq!(within(IDLE, || agent.wait(DEADLINE)).code(), Some(0));
}

// R: W1
#[test]
fn half_a_line_waits_for_the_rest() {
    let mut agent = Agent::playing("").ready();
    let id = agent.fresh_id();
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"nope\"}}\n");
    for byte in line.as_bytes() {
        agent.send_bytes(std::slice::from_ref(byte));
    }
    assert_eq!(agent.reply(id)["error"]["code"], -32601);
}

#[cfg(unix)]
mod signals {
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    const SIGNALS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

    fn kill(agent: &Agent, signal: Signal) {
        kill_process(Pid::from_raw(agent.pid().cast_signed()).unwrap(), signal).unwrap();
    }

    // R: W23
    #[test]
    fn signals_end_an_idle_program() {
        for signal in SIGNALS {
            let (mut agent, _) = Agent::playing("").session();
            kill(&agent, signal);
            assert_eq!(within(IDLE, || agent.wait(DEADLINE)).code(), Some(0), "{signal:?}");
        }
    }

    // R: W23, S5
    #[test]
    fn signals_cancel_a_turn_and_report_it() {
        for signal in SIGNALS {
            for script in [HANGING, STREAMING] {
                let (mut agent, turn) = in_a_turn(script);
                kill(&agent, signal);
                let status = within(BUSY, || agent.wait(DEADLINE));
                assert_eq!(status.code(), Some(0), "{signal:?} {script}");
                expect_cancelled(&mut agent, turn);
            }
        }
    }

    /// The program has stopped reading because its answers are not read; signals still end it.
    // R: W17, W23
    #[cfg(target_os = "linux")]
    #[test]
    fn signals_end_a_program_whose_answers_are_not_read() {
        let mut agent = Agent::playing("").ready();
        agent.pause();
        let mut input = agent.take_input();
        let line = crate::agent::line(&json!({ "id": 5, "method": "unknown" }));
        let writer = std::thread::spawn(move || {
            // Fails when the program has exited.
            while std::io::Write::write_all(&mut input, line.as_bytes()).is_ok() {}
        });
        agent.wait_until_quiet();
        kill(&agent, Signal::TERM);
        assert_eq!(within(BUSY, || agent.wait(DEADLINE)).code(), Some(0));
        writer.join().unwrap();
    }

    // R: W23
    #[test]
    fn kill_leaves_no_process_behind() {
        let (mut agent, turn) = in_a_turn(HANGING);
        let pid = agent.pid();
        kill(&agent, Signal::KILL);
        assert_eq!(within(IDLE, || agent.wait(DEADLINE)).code(), None);
        assert!(agent.take_seen().iter().all(|message| message["id"] != turn));
        assert_eq!(agent.next_line(), None);
        #[cfg(target_os = "linux")]
        assert_eq!(Agent::children(pid), Vec::<u32>::new());
        assert!(kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::TERM).is_err());
    }

    /// The program may be stopped for a while, for instance by a debugger.
    // R: W12
    #[test]
    fn stopped_program_continues() {
        let (mut agent, session) = Agent::playing("model echo\nmodel loop").session();
        kill(&agent, Signal::STOP);
        let turn = agent.prompt(&session, "while it sleeps");
        kill(&agent, Signal::CONT);
        assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
        assert_eq!(text_of(&session, &agent.take_seen()), "while it sleeps");
    }
}

// R: W23
#[test]
fn closed_output_ends_the_program() {
    let (mut agent, _) = in_a_turn(STREAMING);
    agent.close_output();
    assert_eq!(within(BUSY, || agent.wait(DEADLINE)).code(), Some(0));
}

/// Runs a short conversation, of which every line is logged.
fn talk(agent: &mut Agent) {
    let session = agent.open();
    for _ in 0..200 {
        agent.send_bytes(b"nonsense that is worth a line in the log\n");
        assert_eq!(agent.next()["error"]["code"], -32700);
    }
    let turn = agent.prompt(&session, "hello");
    assert_eq!(agent.reply(turn)["result"]["stopReason"], "end_turn");
    assert_eq!(text_of(&session, &agent.take_seen()), "hello");
    agent.close_input();
    assert_eq!(within(BUSY, || agent.wait(DEADLINE)).code(), Some(0));
}

// R: W1
#[test]
fn unread_log_changes_nothing() {
    let mut agent = Agent::playing("model echo").log("trace", Stdio::piped()).ready();
    // The pipe stays open and is never read, so it fills.
    let _stderr = agent.take_stderr();
    for _ in 0..20_000 {
        agent.send_bytes(b"{\"jsonrpc\":\"2.0\",\"method\":\"unknown\",\"params\":{}}\n");
    }
    talk(&mut agent);
}

// R: W1
#[test]
fn closed_log_changes_nothing() {
    let mut agent = Agent::playing("model echo").log("trace", Stdio::piped()).ready();
    drop(agent.take_stderr());
    talk(&mut agent);
}

/// Input may come from a file or `/dev/null`.
// R: W23
#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn input_from_a_file_works() {
    let directory = Agent::playing("").start().directory().to_owned();
    let input = directory.with_extension("in");
    std::fs::write(&input, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"))
        .arg("acp")
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    std::fs::remove_file(&input).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(crate::agent::message(&output.stdout)["result"]["protocolVersion"], 1);
}

// R: W1
#[cfg(target_os = "linux")]
#[test]
fn program_listens_on_no_port() {
    let (agent, _) = in_a_turn(HANGING);
    assert_eq!(agent.listening_sockets(), Vec::<String>::new());
    assert_eq!(Agent::children(agent.pid()), Vec::<u32>::new());
}
