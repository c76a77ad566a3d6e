//! Without any configuration: the guide describes the project, and the tour shows a turn.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::agent::{Agent, text_of, update_kind};
use crate::directory::Directory;

/// Runs `purlin run` without configuration and without a terminal.
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn run(directory: &Path, words: &[&str]) -> (String, String, Output) {
    let mut command = std::process::Command::new("setsid");
    command.args(["--wait", env!("CARGO_BIN_EXE_purlin"), "run"]).args(words);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", directory);
    command.current_dir(directory).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output)
}

#[test]
fn project_is_described_without_a_model() {
    let directory = Directory::new();
    std::fs::write(directory.join("README.md"), "# Ship\n\nSails the seas.\n").unwrap();
    let (answer, shown, output) = run(&directory, &["what is this project?"]);
    assert!(output.status.success(), "{shown}");
    assert!(answer.contains("**Ship**\n\nSails the seas."), "{answer}");
    assert!(answer.contains("not a model") && answer.contains("purlin auth login"), "{answer}");
    assert!(shown.contains("Read README.md"), "{shown}");
}

#[test]
fn prompt_that_needs_a_model_fails_without_one() {
    let directory = Directory::new();
    let (answer, shown, output) = run(&directory, &["write a commit message"]);
    assert_eq!((output.status.code(), answer.as_str()), (Some(1), ""), "{shown}");
    assert!(shown.contains("No model is connected") && shown.contains("purlin auth login"));
    // The guide that was asked for answers.
    let (answer, _, output) = run(&directory, &["--model", "purlin/guide", "hi"]);
    assert!(output.status.success() && answer.contains("No model is connected"), "{answer}");
}

/// Returns the directory of the tour, which its first text names.
fn stage(text: &str) -> PathBuf {
    let begin = text.find('`').unwrap() + 1;
    PathBuf::from(text[begin..].split('`').next().unwrap())
}

// R: P7, T2
#[test]
fn tour_is_stopped_and_leaves_no_files() {
    let mut agent = Agent::configured(json!({})).ready();
    let params = json!({ "cwd": agent.directory(), "mcpServers": [] });
    let opened = agent.result("session/new", params);
    assert_eq!(opened["models"]["currentModelId"], "purlin/guide");
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let before = names(agent.directory());
    agent.take_seen();
    let id = agent.prompt(&session, "/tour");
    let asked = agent.asked("session/request_permission");
    let diff = &asked["params"]["toolCall"]["content"][0];
    assert!(diff["newText"].as_str().unwrap().contains("Hello, "), "{asked}");
    let directory = stage(&text_of(&session, &agent.take_seen()));
    assert!(directory.join("greet.sh").exists());
    let once = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
    agent.answer(&asked["id"], once.clone());
    // Without a sandbox, the commands of the tour need permission as well.
    let mut seen = Vec::new();
    loop {
        let message = agent.next();
        if message["method"] == "session/request_permission" {
            agent.answer(&message["id"], once.clone());
        } else if message["id"] == id {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            break;
        }
        seen.push(message);
    }
    let outputs: Vec<&Value> = seen
        .iter()
        .filter(|message| update_kind(message) == "tool_call_update")
        .map(|message| &message["params"]["update"])
        .collect();
    let ran = outputs.iter().any(|update| update.to_string().contains("Hello, you!"));
    assert!(ran, "{outputs:?}");
    let text = text_of(&session, &seen);
    assert!(
        text.contains("If you allowed it") && text.contains("A command that is stopped ends"),
        "{text}"
    );
    assert!(!directory.exists());
    assert_eq!(names(agent.directory()), before);
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

#[test]
fn tour_without_a_terminal_claims_nothing_that_was_rejected() {
    let directory = Directory::new();
    let (answer, shown, output) = run(&directory, &["/tour"]);
    assert_eq!(output.status.code(), Some(3), "{shown}");
    assert!(shown.contains("No terminal to ask on"), "{shown}");
    assert!(answer.contains("If not, the model is informed"), "{answer}");
    // The edit and the command were rejected, so the plan may only say that they were proposed.
    assert!(!shown.contains("Hello, you!"), "{shown}");
    for done in ["Propose a correction", "Propose to run it"] {
        assert!(shown.contains(done), "{shown}");
    }
    assert!(!stage(&answer).exists());
}
