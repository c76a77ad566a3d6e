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

// R: O1
#[test]
fn log_file_has_the_begin_and_end_of_every_flow() {
    let state = Directory::new();
    let script = "model usage {\"input\":90,\"output\":7}\nmodel tool list {\"path\":\".\"}\nmodel end\nmodel text \"done\"";
    let start = Agent::playing(script).env("XDG_STATE_HOME", &state.join("").to_string_lossy());
    let mut agent = start.ready();
    let server = json!({ "name": "mute", "command": "no-such-program", "args": [], "env": [] });
    let params = json!({ "cwd": agent.directory(), "mcpServers": [server] });
    let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    let id = agent.prompt(&session, "go");
    agent.reply(id);
    agent.error("session/load", json!({ "sessionId": "nope", "cwd": "/", "mcpServers": [] }));
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let lines = lines(state.path());
    let of = |operation: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["operation"] == operation).collect()
    };
    let says = |line: &Value, text: &str| line["message"].as_str().unwrap().contains(text);
    let [begun, ended] = of("connection")[..] else { panic!("{lines:#?}") };
    assert!(says(begun, "begun") && begun["request"].is_string(), "{begun}");
    assert!(says(ended, "ended") && ended["duration_ms"].is_u64(), "{ended}");
    let [opened, closed] = of("session")[..] else { panic!("{lines:#?}") };
    assert!(says(opened, "opened: new") && says(closed, "closed"), "{opened} {closed}");
    let [begun, ended] = of("turn")[..] else { panic!("{lines:#?}") };
    assert!(says(begun, "begun") && ended["stop"] == "end_turn", "{ended}");
    assert_eq!((&ended["tokens_in"], &ended["tokens_out"]), (&json!(90), &json!(7)));
    let [tool, done] = of("tool")[..] else { panic!("{lines:#?}") };
    assert!(says(tool, "list: begun") && says(done, "list: completed"), "{tool} {done}");
    assert!(tool["call"].is_string() && done["duration_ms"].is_u64(), "{done}");
    // Everything in a turn says which call on the wire it belongs to.
    for line in [begun, ended, tool, done, of("model")[0]] {
        assert_eq!((&line["session"], &line["request"]), (&json!(session), &json!(id.to_string())));
    }
    let servers = of("mcp server");
    assert!(says(servers[0], "starting") && servers[0]["session"] == json!(session));
    let failed = servers.iter().find(|line| line["level"] == "warn").unwrap();
    assert!(failed["duration_ms"].is_u64() && failed["server"] == "mute", "{failed}");
    // A call that is refused later, too.
    let [refused] = of("session/load")[..] else { panic!("{lines:#?}") };
    assert_eq!((&refused["level"], &refused["session"]), (&json!("warn"), &json!("nope")));
    assert!(refused["request"].is_string() && refused["duration_ms"].is_u64(), "{refused}");
    for line in &lines {
        assert!(line["time"].is_string() && line["pid"].is_u64(), "{line}");
    }
}
