//! The choice of a dialect, as the log shows it.

use std::io::{BufRead, BufReader};
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
        let log = BufReader::new(agent.take_stderr());
        agent.result("initialize", hello);
        // Read while the agent lives: at its end it does not wait for its log.
        let told = log.lines().map(Result::unwrap).find(|line| line.contains("initialize"));
        assert!(told.as_ref().is_some_and(|line| line.contains(dialect)), "{dialect}: {told:?}");
    }
}
