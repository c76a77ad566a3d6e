//! Sessions in a second process: when it may open them, and what it restores of them.

use std::io::BufRead;
use std::path::Path;

use engine::ports::{Journal, PromptKind, Record, State};
use engine::words::{Block, MessageId, Prompt, SessionId, StopReason};
use serde_json::{Value, json};
use settings::Limits;

use crate::directory::Directory;
use crate::syscalls::Agent;

pub(crate) const WRITE: &str = r#"
model tool read {"path":"FOLDER/a.txt"}
model tool write {"path":"FOLDER/a.txt","content":"new"}
model text "Done."
"#;

pub(crate) fn directory(script: &str) -> Directory {
    let directory = Directory::new();
    let script = script.replace("FOLDER", &directory.to_string_lossy());
    std::fs::write(directory.join("script.acp"), script).unwrap();
    std::fs::write(directory.join("a.txt"), "old").unwrap();
    directory
}

pub(crate) fn hello(agent: &mut Agent, fs: bool) -> Value {
    let fs = json!({ "readTextFile": fs, "writeTextFile": fs });
    let offers = json!({ "fs": fs, "session": { "notices": {} } });
    let params = json!({ "protocolVersion": 1, "clientCapabilities": offers });
    agent.call("initialize", &params, &mut Vec::new()).unwrap()
}

pub(crate) fn open(agent: &mut Agent, directory: &Path) -> String {
    let params = json!({ "cwd": directory, "mcpServers": [] });
    let made = agent.call("session/new", &params, &mut Vec::new()).unwrap();
    made["result"]["sessionId"].as_str().unwrap().to_owned()
}

pub(crate) fn ask(agent: &mut Agent, session: &str, text: &str) -> (Value, Vec<Value>) {
    let mut shown = Vec::new();
    let prompt = [json!({ "type": "text", "text": text })];
    let params = json!({ "sessionId": session, "prompt": prompt });
    let ended = agent.call("session/prompt", &params, &mut shown).unwrap();
    (ended, shown)
}

pub(crate) fn load(agent: &mut Agent, session: &str) -> (Value, Vec<Value>) {
    let mut shown = Vec::new();
    let params = json!({ "sessionId": session });
    (agent.call("session/load", &params, &mut shown).unwrap(), shown)
}

// R: S2, S9
#[test]
fn session_opens_with_a_notice_when_its_directory_is_gone() {
    let directory = directory("model text \"Hello.\"\nmodel loop\n");
    let work = directory.join("work");
    std::fs::create_dir(&work).unwrap();
    let mut one = Agent::start(&directory, None);
    hello(&mut one, false);
    let session = open(&mut one, &work);
    ask(&mut one, &session, "go");
    one.end();
    std::fs::remove_dir(&work).unwrap();
    for (method, updates) in [("session/load", true), ("session/resume", false)] {
        let mut two = Agent::start(&directory, None);
        hello(&mut two, false);
        let mut shown = Vec::new();
        let params = json!({ "sessionId": session, "cwd": work, "mcpServers": [] });
        let loaded = two.call(method, &params, &mut shown).unwrap();
        assert!(loaded.get("result").is_some(), "{loaded}");
        let is_shown = shown.iter().any(|update| update["content"]["text"] == "Hello.");
        assert_eq!(is_shown, updates, "{shown:?}");
        let (ended, observed) = ask(&mut two, &session, "still there?");
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        let is_informed = |update: &Value| update.to_string().contains("tools cannot work there");
        assert!(shown.iter().chain(&observed).any(is_informed), "{observed:?}");
        two.end();
    }
}

/// Editors open the next window before they close the last one.
// R: S11, S6
#[test]
fn idle_session_continues_in_another_process() {
    let directory = directory("model text \"Hello.\"\nmodel loop\n");
    let (mut one, mut two) = (Agent::start(&directory, None), Agent::start(&directory, None));
    hello(&mut one, false);
    hello(&mut two, false);
    let session = open(&mut one, &directory);
    ask(&mut one, &session, "go");
    let (loaded, shown) = load(&mut two, &session);
    assert!(loaded.get("result").is_some(), "{loaded}");
    assert!(shown.iter().any(|update| update["content"]["text"] == "Hello."), "{shown:?}");
    // It is told without having asked.
    assert_eq!(next_notice(&mut one), "Continued in another window");
    for _ in 0..2 {
        let (refused, _) = ask(&mut one, &session, "still here?");
        assert_eq!(refused["error"]["code"], -31902, "{refused}");
        let words = refused["error"]["message"].as_str().unwrap();
        assert!(words.contains("continued in another window"), "{refused}");
    }
    let (ended, _) = ask(&mut two, &session, "go on");
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    // An explicit load brings it back, with what happened meanwhile.
    let (loaded, shown) = load(&mut one, &session);
    assert!(loaded.get("result").is_some(), "{loaded}");
    assert!(shown.iter().any(|update| update["content"]["text"] == "go on"), "{shown:?}");
    assert_eq!(next_notice(&mut two), "Continued in another window");
    let (ended, _) = ask(&mut one, &session, "back here");
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    // The other one ends without touching what is not its own any more.
    two.end();
    let (ended, _) = ask(&mut one, &session, "and on");
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    one.end();
}

/// Waits for a notice and returns its title.
fn next_notice(agent: &mut Agent) -> String {
    loop {
        let mut line = String::new();
        assert!(agent.output.read_line(&mut line).unwrap() > 0, "the agent ended");
        let message: Value = serde_json::from_str(&line).unwrap();
        let update = &message["params"]["update"];
        if update["sessionUpdate"] == "notice" {
            return update["title"].as_str().unwrap().to_owned();
        }
    }
}

/// Begins a turn that never ends, and waits until its first text is shown.
fn hang(agent: &mut Agent, session: &str) {
    let prompt = [json!({ "type": "text", "text": "go" })];
    agent.send("session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
    let mut line = String::new();
    while !line.contains("Working.") {
        line.clear();
        agent.output.read_line(&mut line).unwrap();
    }
}

const HANG: &str = "model text \"Working.\"\nmodel hang\nmodel loop\n";

/// A running turn keeps its session, unless the client insists: then it ends like a cancelled one.
// R: S11, S6
#[test]
fn running_turn_is_ended_by_force_only() {
    let directory = directory(HANG);
    let (mut one, mut two) = (Agent::start(&directory, None), Agent::start(&directory, None));
    hello(&mut one, false);
    hello(&mut two, false);
    let session = open(&mut one, &directory);
    hang(&mut one, &session);
    let (refused, _) = load(&mut two, &session);
    let words = refused["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(refused["error"]["code"], -31902, "{refused}");
    assert!(words.contains("a turn has been running since"), "{words}");
    let params = json!({ "sessionId": session, "_meta": { "takeOver": true } });
    let loaded = two.call("session/load", &params, &mut Vec::new()).unwrap();
    assert!(loaded.get("result").is_some(), "{loaded}");
    let mut line = String::new();
    while !line.contains("\"error\"") {
        line.clear();
        one.output.read_line(&mut line).unwrap();
    }
    let ended: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ended["error"]["code"], -31902, "{ended}");
    assert!(line.contains("continued in another window"), "{ended}");
    one.end();
    two.end();
}

/// What began on the first window's screen ends there.
// R: S11
#[test]
fn call_of_a_turn_that_is_taken_over_ends_in_its_window() {
    let script =
        "model text \"Working.\"\nmodel tool bash {\"command\": \"sleep 60\"}\nmodel loop\n";
    let directory = directory(script);
    let (mut one, mut two) = (Agent::start(&directory, None), Agent::start(&directory, None));
    hello(&mut one, false);
    hello(&mut two, false);
    let session = open(&mut one, &directory);
    hang(&mut one, &session);
    let read_until = |one: &mut Agent, word: &str| {
        let mut lines = String::new();
        while !lines.contains(word) {
            one.output.read_line(&mut lines).unwrap();
        }
        lines
    };
    read_until(&mut one, "in_progress");
    let params = json!({ "sessionId": session, "_meta": { "takeOver": true } });
    assert!(two.call("session/load", &params, &mut Vec::new()).unwrap().get("result").is_some());
    let lines = read_until(&mut one, "-31902");
    assert!(lines.contains("\"status\":\"failed\""), "{lines}");
    one.end();
    two.end();
}

/// D17, D18, D19: only one process at a time has a session with a running turn. When it dies, in whatever way, the session is
/// free at once.
// R: S11, W15
#[test]
fn running_turn_keeps_its_session_until_the_process_is_killed() {
    let directory = directory(HANG);
    let (mut one, mut two) = (Agent::start(&directory, None), Agent::start(&directory, None));
    hello(&mut one, false);
    hello(&mut two, false);
    let session = open(&mut one, &directory);
    hang(&mut one, &session);
    let (refused, shown) = load(&mut two, &session);
    let error = &refused["error"];
    assert_eq!(error["code"], -31902, "{refused}");
    assert_eq!(shown, Vec::<Value>::new());
    let place = format!("process {}", one.pid());
    assert!(error["data"]["details"].as_str().unwrap().contains(&place), "{error}");
    let params = json!({ "sessionId": session });
    let refused = two.call("session/delete", &params, &mut Vec::new()).unwrap();
    assert_eq!(refused["error"]["code"], -31902, "{refused}");
    one.kill();
    let (loaded, shown) = load(&mut two, &session);
    assert!(loaded.get("result").is_some(), "{loaded}");
    assert!(shown.iter().any(|update| update["content"]["text"] == "Working."), "{shown:?}");
    two.end();
}

/// The first client wrote the file. The second has no file methods, so the program writes to the disk itself.
// R: W16, T1
#[test]
fn turn_is_undone_after_a_kill_and_redone_after_another() {
    let directory = directory(WRITE);
    let file = || std::fs::read_to_string(directory.join("a.txt")).unwrap();
    let mut agent = Agent::start(&directory, None);
    hello(&mut agent, true);
    let session = open(&mut agent, &directory);
    ask(&mut agent, &session, "go");
    assert_eq!(file(), "new");
    agent.kill();
    let steps = [("/undo", "old"), ("/undo", "old"), ("/redo", "new"), ("/redo", "new")];
    for (command, expected) in steps {
        let mut agent = Agent::start(&directory, None);
        hello(&mut agent, false);
        load(&mut agent, &session);
        let (ended, _) = ask(&mut agent, &session, command);
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{command}: {ended}");
        assert_eq!(file(), expected, "{command}");
        agent.kill();
    }
    std::fs::write(directory.join("a.txt"), "mine").unwrap();
    let mut agent = Agent::start(&directory, None);
    hello(&mut agent, false);
    load(&mut agent, &session);
    let (_, shown) = ask(&mut agent, &session, "/undo");
    assert_eq!(file(), "mine");
    let said: String =
        shown.iter().filter_map(|update| update["content"]["text"].as_str()).collect();
    assert!(said.contains("changed since") && said.contains("a.txt"), "{said}");
    agent.end();
}

/// D05, D25: where nothing can be stored, a notice says so, loading is not announced, and everything else works.
// R: S9, I2
#[test]
fn without_a_home_sessions_stay_in_memory_and_loading_is_not_announced() {
    let directory = directory("model text \"Hello.\"\n");
    for data in ["/proc/no/such/folder", "/dev/null/purlin"] {
        let mut agent = Agent::start_in(&directory, None, Path::new(data));
        let offered = hello(&mut agent, false);
        assert_eq!(offered["result"]["agentCapabilities"]["loadSession"], json!(false), "{data}");
        let session = open(&mut agent, &directory);
        let (ended, shown) = ask(&mut agent, &session, "go");
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{data}");
        assert!(shown.iter().any(|update| update["sessionUpdate"] == "notice"), "{shown:?}");
        agent.end();
    }
}

/// D09: the data directory is deleted while the program runs. It continues, and the next process starts with an empty store.
#[test]
fn deleted_store_does_not_stop_a_session() {
    let directory = directory("model text \"Hello.\"\nmodel loop\n");
    let mut agent = Agent::start(&directory, None);
    hello(&mut agent, false);
    let session = open(&mut agent, &directory);
    std::fs::remove_dir_all(directory.join("data")).unwrap();
    ask(&mut agent, &session, "go");
    let mut other = Agent::start(&directory, None);
    hello(&mut other, false);
    let fresh = open(&mut other, &directory);
    let (ended, _) = ask(&mut other, &fresh, "go");
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    agent.end();
    other.end();
}

/// D15: a session of 100 MB is shown completely. Memory grows with what the model can read, not with the size of the session.
// R: S8, Q3
#[tokio::test]
async fn session_of_100_mb_loads_in_64_mb_of_memory() {
    const CHUNKS: usize = 1700;
    let directory = directory("model text \"Hello.\"\n");
    let session = SessionId::new("large");
    let limits = Limits { max_history_bytes: 0, ..Limits::default() };
    let store = purlin::storage::store_in(
        store::Location::Directory(directory.join("data/purlin")),
        &limits,
    );
    store.create(&session, &directory).await.unwrap();
    let prompt = Prompt::from(vec![Block::Text("go".to_owned())]);
    for chunk in 0..CHUNKS {
        let message = MessageId::new(format!("m{chunk}"));
        let kind = PromptKind::Message;
        let record = Record::Prompt { message: &message, prompt: &prompt, kind };
        store.append(&session, record).await.unwrap();
        let text = format!("{chunk} {}", "z".repeat(60_000));
        store.append_event(&session, engine::Event::Text { message, text }, None).await.unwrap();
        let end = Record::TurnEnd(Some(StopReason::EndTurn));
        store.append(&session, end).await.unwrap();
    }
    store.release(&session, State::Paused).await.unwrap();
    drop(store);

    let mut agent = Agent::start(&directory, None);
    hello(&mut agent, false);
    let before = peak_memory(agent.pid());
    agent.send("session/load", &json!({ "sessionId": "large" }));
    let mut chunks = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        agent.output.read_until(b'\n', &mut line).unwrap();
        // Parsing 100 MB of JSON here would take longer than loading it.
        if line.windows(9).any(|window| window == b"\"result\":") {
            break;
        }
        chunks += usize::from(line.len() > 60_000);
    }
    let grown = peak_memory(agent.pid()) - before;
    assert_eq!(chunks, CHUNKS);
    assert!(grown < 64 * 1024, "{grown} KiB");
    agent.end();
}

/// Returns the peak memory of a process, in KiB.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
