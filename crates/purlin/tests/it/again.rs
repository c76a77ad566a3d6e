//! Another process: what it may take over, and what it knows of what the first one did.

use std::io::BufRead;
use std::path::Path;

use engine::ports::{Journal, PromptKind, Record, State};
use engine::words::{Block, MessageId, Prompt, SessionId, StopReason};
use serde_json::{Value, json};
use settings::Limits;

use crate::crash::Folder;
use crate::syscalls::Agent;

const WRITE: &str = r#"
model tool read {"path":"FOLDER/a.txt"}
model tool write {"path":"FOLDER/a.txt","content":"new"}
model text "Done."
"#;

pub(crate) fn folder(name: &str, script: &str) -> Folder {
    let folder = Folder::new(name);
    let script = script.replace("FOLDER", &folder.0.to_string_lossy());
    std::fs::write(folder.0.join("script.acp"), script).unwrap();
    std::fs::write(folder.0.join("a.txt"), "old").unwrap();
    folder
}

pub(crate) fn hello(agent: &mut Agent, fs: bool) -> Value {
    let fs = json!({ "readTextFile": fs, "writeTextFile": fs });
    let offers = json!({ "fs": fs, "session": { "notices": {} } });
    let params = json!({ "protocolVersion": 1, "clientCapabilities": offers });
    agent.call("initialize", &params, &mut Vec::new()).unwrap()
}

pub(crate) fn open(agent: &mut Agent, folder: &Path) -> String {
    let params = json!({ "cwd": folder, "mcpServers": [] });
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
fn a_session_whose_folder_is_gone_still_opens_and_says_so() {
    let folder = folder("gone", "model text \"Hello.\"\nmodel loop\n");
    let work = folder.0.join("work");
    std::fs::create_dir(&work).unwrap();
    let mut one = Agent::start(&folder.0, None);
    hello(&mut one, false);
    let session = open(&mut one, &work);
    ask(&mut one, &session, "go");
    one.end();
    std::fs::remove_dir(&work).unwrap();
    for (method, updates) in [("session/load", true), ("session/resume", false)] {
        let mut two = Agent::start(&folder.0, None);
        hello(&mut two, false);
        let mut shown = Vec::new();
        let params = json!({ "sessionId": session, "cwd": work, "mcpServers": [] });
        let loaded = two.call(method, &params, &mut shown).unwrap();
        assert!(loaded.get("result").is_some(), "{loaded}");
        let is_shown = shown.iter().any(|update| update["content"]["text"] == "Hello.");
        assert_eq!(is_shown, updates, "{shown:?}");
        let (ended, told) = ask(&mut two, &session, "still there?");
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        let is_told = |update: &Value| update.to_string().contains("is not there any more");
        assert!(shown.iter().chain(&told).any(is_told), "{told:?}");
        two.end();
    }
}

/// C23, D17, D18, D19: one process has a session at a time; whoever dies lets go of it at once, however it dies.
// R: S11, W15
#[test]
fn a_session_is_open_in_one_process_and_free_once_that_is_killed() {
    let folder = folder("owner", "model text \"Hello.\"\nmodel loop\n");
    let (mut one, mut two) = (Agent::start(&folder.0, None), Agent::start(&folder.0, None));
    hello(&mut one, false);
    hello(&mut two, false);
    let session = open(&mut one, &folder.0);
    ask(&mut one, &session, "go");
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
    assert!(shown.iter().any(|update| update["content"]["text"] == "Hello."), "{shown:?}");
    ask(&mut two, &session, "go on");
    two.end();
}

/// The first client wrote the file, the second offers no files: the program does it itself, on the disk.
// R: W16, T1
#[test]
fn a_turn_is_taken_back_after_a_kill_and_brought_back_after_another() {
    let folder = folder("undo", WRITE);
    let file = || std::fs::read_to_string(folder.0.join("a.txt")).unwrap();
    let mut agent = Agent::start(&folder.0, None);
    hello(&mut agent, true);
    let session = open(&mut agent, &folder.0);
    ask(&mut agent, &session, "go");
    assert_eq!(file(), "new");
    agent.kill();
    let steps = [("/undo", "old"), ("/undo", "old"), ("/redo", "new"), ("/redo", "new")];
    for (command, expected) in steps {
        let mut agent = Agent::start(&folder.0, None);
        hello(&mut agent, false);
        load(&mut agent, &session);
        let (ended, _) = ask(&mut agent, &session, command);
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{command}: {ended}");
        assert_eq!(file(), expected, "{command}");
        agent.kill();
    }
    std::fs::write(folder.0.join("a.txt"), "mine").unwrap();
    let mut agent = Agent::start(&folder.0, None);
    hello(&mut agent, false);
    load(&mut agent, &session);
    let (_, shown) = ask(&mut agent, &session, "/undo");
    assert_eq!(file(), "mine");
    let said: String =
        shown.iter().filter_map(|update| update["content"]["text"].as_str()).collect();
    assert!(said.contains("changed since") && said.contains("a.txt"), "{said}");
    agent.end();
}

/// D05, D25: where nothing can be kept, that is said, loading is not offered, and the rest works.
// R: S9, I2
#[test]
fn without_a_home_sessions_live_in_memory_and_loading_is_not_offered() {
    let folder = folder("home", "model text \"Hello.\"\n");
    for data in ["/proc/no/such/folder", "/dev/null/purlin"] {
        let mut agent = Agent::start_in(&folder.0, None, Path::new(data));
        let offered = hello(&mut agent, false);
        assert_eq!(offered["result"]["agentCapabilities"]["loadSession"], json!(false), "{data}");
        let session = open(&mut agent, &folder.0);
        let (ended, shown) = ask(&mut agent, &session, "go");
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{data}");
        assert!(shown.iter().any(|update| update["sessionUpdate"] == "notice"), "{shown:?}");
        agent.end();
    }
}

/// D09: the folder is deleted under a running program. It goes on, and the next one begins anew.
#[test]
fn a_store_that_is_deleted_stops_nobody() {
    let folder = folder("deleted", "model text \"Hello.\"\nmodel loop\n");
    let mut agent = Agent::start(&folder.0, None);
    hello(&mut agent, false);
    let session = open(&mut agent, &folder.0);
    std::fs::remove_dir_all(folder.0.join("data")).unwrap();
    ask(&mut agent, &session, "go");
    let mut other = Agent::start(&folder.0, None);
    hello(&mut other, false);
    let fresh = open(&mut other, &folder.0);
    let (ended, _) = ask(&mut other, &fresh, "go");
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    agent.end();
    other.end();
}

/// D15: a session of 100 MB is shown whole, and memory grows by what a model can read, not by what there is.
// R: S8, Q3
#[tokio::test]
async fn a_session_of_100_mb_loads_in_64_mb() {
    const PIECES: usize = 1700;
    let folder = folder("large", "model text \"Hello.\"\n");
    let session = SessionId::new("large");
    let limits = Limits { max_history_bytes: 0, ..Limits::default() };
    let store = purlin::assemble::store_in(Some(folder.0.join("data/purlin")), &limits);
    store.create(&session, &folder.0).await.unwrap();
    let prompt = Prompt::from(vec![Block::Text("go".to_owned())]);
    for piece in 0..PIECES {
        let message = MessageId::new(format!("m{piece}"));
        let kind = PromptKind::Message;
        let record = Record::Prompt { message: &message, prompt: &prompt, kind };
        store.append(&session, record).await.unwrap();
        let text = format!("{piece} {}", "z".repeat(60_000));
        store.keep(&session, engine::Event::Text { message, text }, None).await.unwrap();
        let end = Record::TurnEnd(Some(StopReason::EndTurn));
        store.append(&session, end).await.unwrap();
    }
    store.leave(&session, State::Paused).await.unwrap();
    drop(store);

    let mut agent = Agent::start(&folder.0, None);
    hello(&mut agent, false);
    let before = most_memory(agent.pid());
    agent.send("session/load", &json!({ "sessionId": "large" }));
    let mut pieces = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        agent.output.read_until(b'\n', &mut line).unwrap();
        // Reading 100 MB into values would take longer than loading them.
        if line.windows(9).any(|window| window == b"\"result\":") {
            break;
        }
        pieces += usize::from(line.len() > 60_000);
    }
    let grown = most_memory(agent.pid()) - before;
    assert_eq!(pieces, PIECES);
    assert!(grown < 64 * 1024, "{grown} KiB");
    agent.end();
}

/// The most memory that a process ever had, in KiB.
fn most_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
