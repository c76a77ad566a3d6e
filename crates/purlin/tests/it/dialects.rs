//! The choice of a dialect, as the log shows it.

use std::io::Read;
use std::process::Stdio;

use serde_json::json;

use crate::agent::Agent;

// R: D1, D2, D3
#[test]
fn the_log_says_which_dialect_is_spoken() {
    let hellos = [
        (json!({ "protocolVersion": 1 }), "v1"),
        (
            json!({ "protocolVersion": 1, "clientCapabilities": { "filesystem": { "read": true } } }),
            "message-reference",
        ),
        (json!({ "protocolVersion": "0.3.1" }), "container"),
    ];
    for (hello, dialect) in hellos {
        let mut agent = Agent::playing("model echo").log("info", Stdio::piped()).start();
        let mut stderr = agent.take_stderr();
        agent.result("initialize", hello);
        agent.close_input();
        let mut log = String::new();
        stderr.read_to_string(&mut log).unwrap();
        let is_told = |line: &str| line.contains("initialize") && line.contains(dialect);
        assert!(log.lines().any(is_told), "{dialect} is not in the log:\n{log}");
    }
}
