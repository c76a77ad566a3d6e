//! Commands in the background that try to outlive the session or the agent, and the directory that the commands of a session share.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::agent::{Agent, DEADLINE, wait_until};

/// Returns the number of `sleep` processes with this argument.
fn sleeping(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| *line == format!("sleep\0{word}\0").into_bytes()).count()
}

/// Returns the shared directories of sessions that exist.
fn shared_directories(data: &Path) -> Vec<PathBuf> {
    let directory = data.join("purlin/scratch/shared");
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Starts three processes in the background, one of them a daemon, and ends the session somehow.
fn check(number: u32, data: &Path, end: impl FnOnce(&mut Agent, &str)) {
    let word = format!("{number}.{}", std::process::id());
    let command = format!(
        "echo x > /tmp/left; setsid -f sleep {word}; (trap '' TERM; sleep {word}) & exec sleep {word}"
    );
    let call = json!({ "command": command, "background": true });
    let script = format!("model tool bash {call}\nmodel text \"Started.\"\n");
    let start = Agent::playing(&script).config(json!({ "permission": "allow" })).storing_in(data);
    let (mut agent, session) = start.session();
    let id = agent.prompt(&session, "Start it.");
    assert_eq!(agent.reply(id)["result"]["stopReason"], "end_turn");
    wait_until("the processes run", DEADLINE, || sleeping(&word) == 3);
    assert_eq!(shared_directories(data).len(), 1);
    end(&mut agent, &session);
    wait_until("all are gone", DEADLINE, || sleeping(&word) == 0);
}

// R: T3, W23
#[test]
fn nothing_in_the_background_outlives_its_session() {
    let data = tempfile::tempdir().unwrap();
    check(74401, data.path(), |agent, session| {
        agent.result("session/close", json!({ "sessionId": session }));
        wait_until("the folder is gone", DEADLINE, || shared_directories(data.path()).is_empty());
    });
}

// R: T3, W23
#[test]
fn nothing_in_the_background_outlives_the_end_of_input() {
    let data = tempfile::tempdir().unwrap();
    check(74402, data.path(), |agent, _| {
        agent.close_input();
        assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    });
    assert_eq!(shared_directories(data.path()), Vec::<PathBuf>::new());
}

// R: T3, W23
#[test]
fn nothing_in_the_background_outlives_a_killed_agent_and_the_next_one_removes_its_directory() {
    let data = tempfile::tempdir().unwrap();
    check(74403, data.path(), |agent, _| {
        let pid = Pid::from_raw(agent.pid().cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        agent.wait(DEADLINE);
    });
    let left = shared_directories(data.path());
    assert_eq!(left.len(), 1);
    check(74404, data.path(), |agent, _| {
        assert_ne!(shared_directories(data.path()), left);
        agent.close_input();
        agent.wait(DEADLINE);
    });
}

// R: T3
#[test]
fn number_of_commands_in_the_background_is_limited() {
    let call = json!({ "command": "sleep 1000", "background": true });
    let mut script = String::new();
    for _ in 0..9 {
        script.push_str(&format!("model tool bash {call}\nmodel end\n"));
    }
    let start = Agent::playing(&script).config(json!({ "permission": "allow" }));
    let (mut agent, session) = start.session();
    let id = agent.prompt(&session, "Start them.");
    agent.reply(id);
    let failed: Vec<String> = agent
        .take_seen()
        .iter()
        .map(|message| &message["params"]["update"])
        .filter(|update| update["status"] == "failed")
        .map(|update| update["content"][0]["content"]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].contains("8 commands already run in the background"), "{}", failed[0]);
}
