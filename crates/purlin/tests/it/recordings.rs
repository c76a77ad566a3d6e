//! Recordings: what is in them, and that a replay notices every difference.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::agent::{Agent, DEADLINE};
use crate::directory::Directory;

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn replay(recording: &Path) -> (String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_purlin")).arg("replay").arg(recording).output();
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.code())
}

/// Records a turn with a command and a file, and returns its directory.
fn record() -> (Directory, std::path::PathBuf) {
    let directory = Directory::new();
    let recording = directory.join("recording");
    let script = "model text \"I look.\"\nmodel tool bash {\"command\":\"echo found\"}\nmodel end\n\
                  model text \"Found it, sk-canary-0123456789.\"";
    let start = Agent::playing(script).recording_to(&recording);
    let mut agent = start.ready();
    let key = json!({ "methodId": "none", "_meta": { "api_key": "canary-of-the-client" } });
    agent.error("authenticate", key);
    let session = agent.open();
    let prompt = agent.prompt(&session, "go with sk-canary-9876543210");
    agent.reply(prompt);
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    (directory, recording)
}

// R: O1
#[test]
fn replay_is_identical_and_finds_a_changed_byte() {
    let (_directory, recording) = record();
    let (text, code) = replay(&recording);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("Identical: "), "{text}");

    // Another byte in what the client got.
    let output = recording.join("output.jsonl");
    let lines = std::fs::read_to_string(&output).unwrap();
    std::fs::write(&output, lines.replacen("I look.", "I lool.", 1)).unwrap();
    let (text, code) = replay(&recording);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("output differs") && text.contains("I lool."), "{text}");
    std::fs::write(&output, &lines).unwrap();

    // A line less.
    let (all_but_last, _) = lines.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(&output, format!("{all_but_last}\n")).unwrap();
    let (text, code) = replay(&recording);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("- (nothing)"), "{text}");
    std::fs::write(&output, &lines).unwrap();

    // Another answer of the model, and another result of the tool.
    let entries = recording.join("entries.jsonl");
    let recorded = std::fs::read_to_string(&entries).unwrap();
    for (from, to) in [("I look.", "I lool."), ("found\\n", "fount\\n")] {
        assert!(recorded.contains(from), "{recorded}");
        std::fs::write(&entries, recorded.replace(from, to)).unwrap();
        let (text, code) = replay(&recording);
        assert_eq!(code, Some(1), "{from}: {text}");
    }
}

// R: O1
#[test]
#[cfg(unix)]
fn recording_is_private_and_has_no_secrets() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, recording) = record();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&recording), 0o700);
    for file in ["entries.jsonl", "output.jsonl"] {
        let text = std::fs::read_to_string(recording.join(file)).unwrap();
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(mode(&recording.join(file)), 0o600);
    }
    let (text, _) = replay(&recording);
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn process_that_was_killed_can_be_replayed_up_to_there() {
    let directory = Directory::new();
    let recording = directory.join("recording");
    let start = Agent::playing("model text \"one\"\nmodel hang");
    let (mut agent, session) = start.recording_to(&recording).session();
    agent.prompt(&session, "go");
    agent.find(|message| message.to_string().contains("\"one\""));
    drop(agent);
    let (text, code) = replay(&recording);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("Identical: "), "{text}");
}

/// The key is masked, but its provider is not forgotten.
#[test]
fn log_in_with_a_masked_key_is_replayed() {
    let directory = Directory::new();
    let recording = directory.join("recording");
    let mut agent = Agent::playing("model text \"one\"").recording_to(&recording).ready();
    let key = serde_json::json!({ "key": "sk-ant-canary-0123456789" });
    let login =
        |key: serde_json::Value| serde_json::json!({ "methodId": "api_key", "credentials": key });
    agent.result("authenticate", login(key));
    agent.error("authenticate", login(serde_json::json!({ "key": "canary-of-nobody" })));
    let session = agent.open();
    let id = agent.prompt(&session, "go");
    agent.reply(id);
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let (text, code) = replay(&recording);
    assert_eq!(code, Some(0), "{text}");
    assert!(!std::fs::read_to_string(recording.join("entries.jsonl")).unwrap().contains("canary"));
}

#[test]
fn second_recording_does_not_replace_the_first() {
    let (_directory, recording) = record();
    let before = std::fs::read(recording.join("entries.jsonl")).unwrap();
    let mut agent = Agent::playing("").recording_to(&recording).start();
    assert_eq!(agent.wait(DEADLINE).code(), Some(2));
    assert_eq!(std::fs::read(recording.join("entries.jsonl")).unwrap(), before);
}
