//! `/undo`, `/redo` and `/rewind` in the built program: what they restore, and what they leave unchanged.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

use crate::directory::Directory;
use crate::second_process::{ask, directory, hello, open};
use crate::syscalls::Agent;

const WRITE: &str = r#"
model tool read {"path":"FOLDER/d/a.txt"}
model tool write {"path":"FOLDER/d/a.txt","content":"new"}
model tool read {"path":"FOLDER/d/linked.txt"}
model tool write {"path":"FOLDER/d/linked.txt","content":"new"}
model text "Done."
"#;

/// The content of the files after each command, in an order in which each command is possible.
const COMMANDS: [(&str, &str); 4] =
    [("/undo", "old"), ("/redo", "new"), ("/rewind 1", "old"), ("/redo", "new")];

/// A project with two files, one of which has a hard link. As root, both belong to another user.
fn project() -> Directory {
    let directory = directory(WRITE);
    let config = r#"{ "limits": { "prompts_per_minute": 0 } }"#;
    std::fs::create_dir_all(directory.join(".config/purlin")).unwrap();
    std::fs::write(directory.join(".config/purlin/purlin.json"), config).unwrap();
    std::fs::create_dir(directory.join("d")).unwrap();
    for file in ["d/a.txt", "d/linked.txt"] {
        let path = directory.join(file);
        std::fs::write(&path, "old").unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(1234), Some(4321)).unwrap();
        }
    }
    std::fs::hard_link(directory.join("d/linked.txt"), directory.join("d/other.txt")).unwrap();
    directory
}

/// Starts the agent and makes it change both files.
fn changed(directory: &Directory) -> (Agent, String) {
    let mut agent = Agent::start(directory, None);
    hello(&mut agent, false);
    let session = open(&mut agent, directory);
    let (ended, _) = ask(&mut agent, &session, "go");
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert_eq!(std::fs::read_to_string(directory.join("d/a.txt")).unwrap(), "new");
    (agent, session)
}

fn said(agent: &mut Agent, session: &str, command: &str) -> String {
    let (ended, shown) = ask(agent, session, command);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{command}: {ended}");
    shown.iter().filter_map(|update: &Value| update["content"]["text"].as_str()).collect()
}

// R: W16
// Fault: F11
#[test]
fn undone_files_keep_their_names_and_their_owner() {
    let directory = project();
    let facts = |file: &str| {
        let data = directory.join(file).metadata().unwrap();
        (data.uid(), data.gid(), data.mode(), data.nlink())
    };
    let files = ["d/a.txt", "d/linked.txt", "d/other.txt"];
    let before = files.map(facts);
    let (mut agent, session) = changed(&directory);
    for (command, expected) in COMMANDS {
        said(&mut agent, &session, command);
        for file in files {
            let text = std::fs::read_to_string(directory.join(file)).unwrap();
            assert_eq!(text, expected, "{command}: {file}");
        }
        assert_eq!(files.map(facts), before, "{command}");
    }
    agent.end();
}

// R: W16
#[test]
fn files_changed_since_stay_unchanged_by_each_command() {
    let directory = project();
    let (mut agent, session) = changed(&directory);
    let file = directory.join("d/a.txt");
    for (command, expected) in COMMANDS {
        let now = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, "mine").unwrap();
        let text = said(&mut agent, &session, command);
        assert!(text.contains("changed since") && text.contains("a.txt"), "{command}: {text}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine", "{command}");
        let other = std::fs::read_to_string(directory.join("d/linked.txt")).unwrap();
        assert_eq!(other, now, "{command}: none is changed unless all are");
        std::fs::write(&file, now).unwrap();
        said(&mut agent, &session, command);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected, "{command}");
    }
    agent.end();
}

// R: W16
#[test]
fn read_only_file_leaves_all_files_unchanged_by_each_command() {
    let directory = project();
    let (mut agent, session) = changed(&directory);
    let files = ["d/a.txt", "d/linked.txt"].map(|file| directory.join(file));
    let contents = || files.each_ref().map(|file| std::fs::read_to_string(file).unwrap());
    for (command, expected) in COMMANDS {
        let now = contents();
        for file in &files {
            let mode = file.metadata().unwrap().mode();
            std::fs::set_permissions(file, Permissions::from_mode(0o444)).unwrap();
            let text = said(&mut agent, &session, command);
            assert!(
                text.starts_with("Nothing was ") && text.contains("read-only"),
                "{command}: {text}"
            );
            assert_eq!(contents(), now, "{command}");
            std::fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        }
        said(&mut agent, &session, command);
        assert_eq!(contents(), [expected, expected], "{command}");
    }
    agent.end();
}

/// The files outside have the content that the commands expect, so only their location tells them apart.
// R: T5, W19
#[test]
fn swapped_in_link_leads_no_command_outside() {
    let (directory, outside) = (project(), project());
    let (mut agent, session) = changed(&directory);
    let [real, link] = ["d", "link"].map(|name| directory.join(name));
    symlink(outside.join("d"), &link).unwrap();
    let contents = |directory: &Path| {
        ["d/a.txt", "d/linked.txt"]
            .map(|file| std::fs::read_to_string(directory.join(file)).unwrap())
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let swapper = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap();
        }
    });
    for (command, _) in COMMANDS.iter().cycle().take(200) {
        said(&mut agent, &session, command);
        assert_eq!(contents(&outside), ["old", "old"], "{command}");
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    let names = std::fs::read_dir(outside.join("d")).unwrap().count();
    assert_eq!(names, 3, "nothing was made outside");
    agent.end();
}
