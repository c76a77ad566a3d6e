//! A clone with links to devices, pipes and endless files in place of files that are read without a question.

use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::agent::{Agent, DEADLINE};

/// Files that tools, the judge of commands or the opening of a session read.
const PLACES: [&str; 14] = [
    ".gitignore",
    ".ignore",
    ".rgignore",
    ".git/info/exclude",
    ".git/index",
    ".git/config",
    ".git/config.worktree",
    ".git/HEAD",
    ".git/commondir",
    ".git",
    ".gitmodules",
    "AGENTS.md",
    "purlin.json",
    "opencode.json",
];

const SCRIPT: &str = "\
model tool list {\"path\":\"/w\",\"depth\":3}
model tool glob {\"pattern\":\"*.txt\"}
model tool grep {\"pattern\":\"needle\"}
model tool bash {\"command\":\"rg needle\",\"timeout\":2000}
model tool bash {\"command\":\"git status\",\"timeout\":2000}
model tool bash {\"command\":\"git commit -m x\",\"git\":true,\"reason\":\"x\"}
model text \"Done.\"
";

/// The most memory that the program may have used, with room for a debug build.
const MOST_MEMORY: u64 = 150 << 20;

fn make_hostile(kind: &str, path: &Path) {
    match kind {
        "zero" => symlink("/dev/zero", path).unwrap(),
        "stdin" => symlink("/dev/stdin", path).unwrap(),
        "pipe" => mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap(),
        _ => std::fs::File::create(path).unwrap().set_len(3 << 30).unwrap(),
    }
}

/// Plays all tools in a directory with a hostile file. A program such as git may hang on it until its time is over; we may not.
/// The user rejects every command, and allows the other tools: a file of rules that cannot be read makes everything ask.
fn survives(place: &str, kind: &str) {
    let mut agent = Agent::playing(SCRIPT).ready();
    let directory = agent.directory().to_owned();
    if place != ".git" {
        for part in [".git/info", ".git/objects", ".git/refs"] {
            std::fs::create_dir_all(directory.join(part)).unwrap();
        }
        std::fs::write(directory.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    }
    std::fs::write(directory.join("kept.txt"), "needle\n").unwrap();
    let path = directory.join(place);
    if path.is_file() {
        std::fs::remove_file(&path).unwrap();
    }
    make_hostile(kind, &path);
    let session = agent.open();
    let turn = agent.prompt(&session, "go");
    let mut results = Vec::new();
    let mut has_asked_to_read = false;
    loop {
        let message = agent.next();
        if message["method"] == "session/request_permission" {
            let is_command = message["params"]["toolCall"]["kind"] == "execute";
            has_asked_to_read |= !is_command;
            let option = if is_command { "reject" } else { "once" };
            let answer = json!({ "outcome": { "outcome": "selected", "optionId": option } });
            agent.answer(&message["id"], answer);
        } else if message["id"] == turn {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{place} {kind}: {message}");
            break;
        }
        let update = &message["params"]["update"];
        if update["status"] == "completed" {
            results.push(update["content"].to_string());
        }
    }
    for (tool, wanted) in [("list", "kept.txt"), ("glob", "kept.txt"), ("grep", "needle")] {
        let is_found = results.iter().any(|result| result.contains(wanted));
        assert!(is_found, "{place} {kind}: {tool} found nothing in {results:?}");
    }
    let is_unread_rules = place.ends_with(".json") && kind == "sparse";
    assert_eq!(has_asked_to_read, is_unread_rules, "{place} {kind}");
    let is_reported = results.iter().any(|result| result.contains("not used"));
    let is_ignore_file = PLACES[..4].contains(&place) || place == ".git";
    assert!(is_reported || !is_ignore_file, "{place} {kind}: {results:?}");
    // The program still reads its own input, and ends when it is asked to.
    assert!(agent.result("session/list", json!({}))["sessions"].is_array());
    assert!(agent.peak_memory() < MOST_MEMORY, "{place} {kind}: {} bytes", agent.peak_memory());
    let pid = Pid::from_raw(agent.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(agent.wait(DEADLINE).success(), "{place} {kind}");
}

fn survive_all(kind: &str) {
    PLACES.iter().for_each(|place| survives(place, kind));
    eprintln!("attempts: {}", PLACES.len());
}

// R: W7, T2
#[test]
fn links_to_an_endless_device_are_not_read() {
    survive_all("zero");
}

// R: W7, T2
#[test]
fn links_to_our_own_input_are_not_read() {
    survive_all("stdin");
}

// R: W7, T2
#[test]
fn pipes_do_not_stop_the_program() {
    survive_all("pipe");
}

// R: W7, T2
#[test]
fn files_of_three_gigabytes_are_not_read() {
    survive_all("sparse");
}
