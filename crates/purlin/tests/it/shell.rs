//! The commands of the shell: what they print, where there is nothing to print, and what they refuse.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::crash::Folder;

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(arguments).current_dir(home).stdin(Stdio::null());
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
    command
}

/// Runs `purlin` as a user with this home.
fn purlin(home: &Path, arguments: &[&str]) -> Output {
    command(home, arguments).output().unwrap()
}

fn said(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let home = Folder::new("head");
    let all: [&[&str]; 8] = [
        &["models"],
        &["man"],
        &["completions", "bash"],
        &["config", "schema"],
        &["config", "show"],
        &["doctor"],
        &["auth", "list"],
        &["sessions", "list"],
    ];
    for arguments in all {
        let mut child = command(&home.0, arguments);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Before it says anything, as far as that can be had.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(said(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn what_is_empty_says_so() {
    let home = Folder::new("empty");
    let all: [(&[&str], &str); 6] = [
        (&["auth", "list"], "There are no keys."),
        (&["mcp", "list"], "No MCP servers are configured."),
        (&["mcp", "test"], "No MCP servers are configured."),
        (&["trust", "--list"], "No folder is trusted."),
        (&["permissions", "list"], "No answers are kept."),
        (&["sessions", "list"], "No sessions are kept here."),
    ];
    for (arguments, words) in all {
        let output = purlin(&home.0, arguments);
        assert!(said(&output.stdout).starts_with(words), "{arguments:?}: {output:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn what_is_not_there_is_refused() {
    let home = Folder::new("refused");
    let all: [(&[&str], &str); 5] = [
        (&["--log", "bogus", "models"], "error, warn, info, debug and trace"),
        (&["models", "--config", "/nope"], "/nope cannot be read"),
        (&["mcp", "test", "--config", "/nope"], "/nope cannot be read"),
        (&["mcp", "list", "--config", "/nope"], "/nope cannot be read"),
        (&["config", "show", "--config", "/nope"], "/nope cannot be read"),
    ];
    for (arguments, words) in all {
        let output = purlin(&home.0, arguments);
        assert!(said(&output.stderr).contains(words), "{arguments:?}: {output:?}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    // The first server makes the file.
    let file = home.0.join("new.json").display().to_string();
    let output = purlin(&home.0, &["mcp", "--config", &file, "add", "x", "--", "node"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn models_are_listed_with_the_file_that_was_given_and_the_guide() {
    let home = Folder::new("models");
    let file = home.0.join("mine.json");
    let models = json!({ "m": {} });
    let options = json!({ "apiKey": "sk-canary", "baseURL": "http://127.0.0.1:9/v1" });
    let config = json!({ "provider": { "here": { "options": options, "models": models } } });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let output = purlin(&home.0, &["models", "--config", &file]);
    let text = said(&output.stdout);
    assert!(text.contains("here/m") && text.contains(&file), "{text}");
    assert!(!text.contains("purlin.json") && !text.contains("canary"), "{text}");
    assert!(text.contains("\n  purlin/guide\n"), "{text}");
}

/// A model that plans, changes a file and runs a command.
fn script(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "model tool plan {{\"entries\":[\"Look\",\"Leap\"]}}\n\
         model tool read {{\"path\":\"{folder}/a.txt\"}}\nmodel end\n\
         model tool edit {{\"path\":\"{folder}/a.txt\",\"oldString\":\"old\",\"newString\":\"new\"}}\n\
         model tool bash {{\"command\":\"echo out of it\"}}\n\
         model text \"Done.\"\n"
    )
}

#[cfg(target_os = "linux")]
#[test]
fn what_commands_said_is_shown() {
    let home = Folder::new("run");
    let file = home.0.join("script.acp");
    std::fs::write(&file, "model tool bash {\"command\":\"seq 1 50\"}\nmodel text \"Done.\"\n")
        .unwrap();
    let model = format!("script:{}", file.display());
    let output = purlin(&home.0, &["run", "--allow", "--model", &model, "go"]);
    assert_eq!(said(&output.stdout), "Done.\n");
    let aside = said(&output.stderr);
    assert!(aside.contains("\n    1\n") && aside.contains("\n    50\n"), "{aside}");
    assert!(aside.contains(" lines …\n") && !aside.contains("\n    20\n"), "{aside}");
}

/// What a client is shown when it loads a session.
fn loaded(data: &Path, session: &str) -> Vec<Value> {
    let mut agent = Agent::playing("").keeping(data).ready();
    agent.result("session/load", json!({ "sessionId": session }));
    let seen = agent.take_seen();
    seen.into_iter().map(|message| message["params"]["update"].clone()).collect()
}

// R: S11
#[cfg(target_os = "linux")]
#[test]
fn an_exported_session_holds_what_was_shown_and_reads_back_the_same() {
    let home = Folder::new("export");
    std::fs::write(home.0.join("a.txt"), "kept\nold\n").unwrap();
    std::fs::write(home.0.join("script.acp"), script(&home.0)).unwrap();
    let model = format!("script:{}", home.0.join("script.acp").display());
    let ran = purlin(&home.0, &["run", "--allow", "--model", &model, "Change it."]);
    assert_eq!(said(&ran.stdout), "Done.\n", "{ran:?}");
    let listed = purlin(&home.0, &["sessions", "list"]);
    let session = said(&listed.stdout).split_whitespace().next().unwrap().to_owned();
    let text = purlin(&home.0, &["sessions", "export", &session]);
    let text = said(&text.stdout);
    for part in ["Change it.", "- [ ] Leap", "-old\n+new", " kept", "out of it", "Done."] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let file = home.0.join("session.json").display().to_string();
    purlin(&home.0, &["sessions", "export", &session, "--format", "json", "-o", &file]);
    let other = Folder::new("import");
    let taken = purlin(&other.0, &["sessions", "import", &file]);
    assert_eq!(said(&taken.stdout).trim(), session, "{taken:?}");
    let data = |home: &Folder| home.0.join(".local/share");
    let (before, after) = (loaded(&data(&home), &session), loaded(&data(&other), &session));
    assert!(before.len() > 5, "{before:#?}");
    assert_eq!(before, after);
}
