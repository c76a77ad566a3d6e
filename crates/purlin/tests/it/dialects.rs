//! The log says which dialect was recognised.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::agent::Agent;

// R: D1, D2, D3
#[test]
fn log_names_the_recognised_dialect() {
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
        // Read while the agent runs: when it exits it does not wait for its log.
        let observed = log.lines().map(Result::unwrap).find(|line| line.contains("dialect="));
        assert!(
            observed.as_ref().is_some_and(|line| line.contains(dialect)),
            "{dialect}: {observed:?}"
        );
    }
}
