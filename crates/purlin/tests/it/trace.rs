//! The trace of a connection, written and displayed by the built program.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE};
use crate::folder::Folder;

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn show(file: &Path, more: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"));
    let output = command.arg("trace").arg(file).args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

// R: O1, O2, D3
#[test]
fn trace_has_every_message_and_the_dialect_but_no_secrets() {
    let folder = Folder::new();
    let file = folder.join("trace");
    let start = Agent::playing("model text \"hello\"").env("PURLIN_TRACE", &file.to_string_lossy());
    let mut agent = start.start();
    let hello = json!({ "protocolVersion": "0.3.1", "clientCapabilities": { "filesRead": false } });
    agent.result("initialize", hello);
    let uri = format!("file://{}", agent.folder().display());
    let server =
        json!({ "name": "x", "command": "no-such-program", "env": { "TOKEN": "canary-7" } });
    let session =
        agent.result("session/new", json!({ "workspaceUri": uri, "mcpServers": [server] }));
    let session = session["sessionId"].as_str().unwrap().to_owned();
    let blocks = json!([{ "type": "text", "content": "use sk-canary-0123456789" }]);
    agent.result("session/prompt", json!({ "sessionId": session, "content": blocks }));
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("canary"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["direction"], &lines[0]["method"]), (&json!("in"), &json!("initialize")));
    assert_eq!(lines[1]["dialect"], "container");
    assert_eq!(lines[1]["why"], "`protocolVersion` is a dotted version string");
    let is_answer = |line: &&Value| {
        line["method"] == "session/prompt"
            && line["direction"] == "out"
            && line["message"]["result"].is_object()
    };
    let answer = lines.iter().find(is_answer).unwrap();
    assert_eq!(answer["session"], json!(session));
    assert!(answer["duration_ms"].is_u64() && answer["time"].is_u64(), "{answer}");
    let list = show(&file, &[]);
    assert!(list.contains("--  dialect container:"), "{list}");
    assert!(list.contains("<-  session/prompt answered: end_turn"), "{list}");
    assert_eq!(list.lines().count(), lines.len());
    let diagram = show(&file, &["--mermaid"]);
    assert!(diagram.starts_with("sequenceDiagram\n"), "{diagram}");
    assert!(diagram.contains("client->>agent: session/prompt"), "{diagram}");
}

// R: O1
#[test]
#[cfg(unix)]
fn trace_that_cannot_be_written_delays_nothing() {
    // Every write to this device fails.
    let start = Agent::playing("model echo\nmodel loop").env("PURLIN_TRACE", "/dev/full");
    let (mut agent, session) = start.session();
    let answer = agent.result("session/prompt", crate::agent::prompt(&session, "go"));
    assert_eq!(answer["stopReason"], "end_turn");
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
}
