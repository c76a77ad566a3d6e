//! `purlin setup`: changes the settings of editors, as a user runs it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::directory::Directory;

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn setup(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.arg("setup").args(arguments).current_dir(home).stdin(Stdio::null());
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").output().unwrap()
}

fn said(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn entry_is_written_once_and_starts_this_program() {
    let home = Directory::new();
    let cases = [
        ("zed", ".config/zed/settings.json", "agent_servers"),
        ("jetbrains", ".jetbrains/acp.json", "agent_servers"),
        ("vscode", ".config/Code/User/settings.json", "acp.agents"),
    ];
    for (editor, file, key) in cases {
        let output = setup(&home, &[editor, "--yes"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(said(&output.stdout).contains("+    \"Purlin\": {"), "{output:?}");
        let written = std::fs::read_to_string(home.join(file)).unwrap();
        let value: Value = serde_json::from_str(&written).unwrap();
        let entry = &value[key]["Purlin"];
        assert_eq!(entry["command"], env!("CARGO_BIN_EXE_purlin"));
        assert_eq!(entry["args"], serde_json::json!(["acp"]));
        let again = setup(&home, &[editor]);
        assert!(said(&again.stdout).starts_with("Purlin is already in "), "{again:?}");
        assert_eq!(std::fs::read_to_string(home.join(file)).unwrap(), written);
    }
    let list = setup(&home, &[]);
    assert_eq!(said(&list.stdout).matches("set up in ").count(), cases.len(), "{list:?}");
}

#[test]
fn nothing_is_written_without_agreement_or_to_a_broken_file() {
    let home = Directory::new();
    let file = home.join("mine.json");
    std::fs::write(&file, "{ \"agent_servers\": oops }").unwrap();
    let name = file.display().to_string();
    let broken = setup(&home, &["zed", "--file", &name, "--yes"]);
    assert_eq!(broken.status.code(), Some(2), "{broken:?}");
    assert!(said(&broken.stderr).contains("is not valid JSON"), "{broken:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{ \"agent_servers\": oops }");
    let unasked = setup(&home, &["zed"]);
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    assert!(said(&unasked.stderr).contains("add `--yes`"), "{unasked:?}");
    assert!(said(&unasked.stdout).contains("+++ "), "{unasked:?}");
    assert!(!home.join(".config/zed/settings.json").exists());
    let unknown = setup(&home, &["ed"]);
    assert!(said(&unknown.stderr).contains("must be one of zed, jetbrains"), "{unknown:?}");
}

#[test]
fn editors_that_are_configured_in_code_get_a_snippet() {
    let home = Directory::new();
    for editor in ["codecompanion", "avante", "agent-shell", "toad", "qt-creator"] {
        let output = setup(&home, &[editor]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(said(&output.stdout).contains(env!("CARGO_BIN_EXE_purlin")), "{output:?}");
        assert_eq!(setup(&home, &[editor, "--file", "x"]).status.code(), Some(2), "{editor}");
    }
}
