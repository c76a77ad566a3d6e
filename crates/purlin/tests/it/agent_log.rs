//! The log file of an agent: what can be found out after something went wrong.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE};
use crate::directory::Directory;

/// Returns the lines of the log.
fn lines(state: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(state.join("purlin/log/purlin.log")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// R: O1, O4
#[test]
#[cfg(unix)]
fn log_file_has_causes_refusals_and_invalid_lines_but_no_secrets() {
    use std::os::unix::fs::PermissionsExt;
    let state = Directory::new();
    let start = Agent::playing("model fail broken")
        .env("XDG_STATE_HOME", &state.join("").to_string_lossy())
        .env("PURLIN_LOG_FILE", "debug");
    let (mut agent, session) = start.session();
    agent.send_bytes(b"{ nonsense sk-canary-0123456789\n");
    agent.error("session/prompt", crate::agent::prompt("nope", "go"));
    agent.error("session/prompt", crate::agent::prompt(&session, "it is sk-canary-0123456789"));
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let file = state.join("purlin/log/purlin.log");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("canary"), "{text}");
    let lines = lines(state.path());
    let find = |level: &str, operation: &str| {
        let is_it = |line: &&Value| line["level"] == level && line["operation"] == operation;
        lines.iter().find(is_it).unwrap_or_else(|| panic!("no {level} {operation}: {text}"))
    };
    // The turn that failed: its session, its request, how long it took, and why.
    let failed = find("error", "turn");
    assert_eq!(failed["session"], json!(session));
    assert!(failed["request"].is_string() && failed["duration_ms"].is_u64(), "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("failed: "), "{failed}");
    // The call that was refused.
    let refused = find("warn", "session/prompt");
    assert_eq!(refused["session"], "nope");
    assert!(refused["request"].is_string(), "{refused}");
    // The invalid line: that there was one, and at the lowest level what it began with.
    find("warn", "invalid line");
    let bytes = find("debug", "invalid line");
    assert!(bytes["message"].as_str().unwrap().contains("{ nonsense ****"), "{bytes}");
    find("info", "turn");
}
