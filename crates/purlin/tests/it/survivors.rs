//! MCP servers that try to outlive the agent: launchers, servers that ignore signals, and daemons, with and without the
//! sandbox, however the agent ends.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, wait_until};

/// Three times the promised time, for a busy machine.
const SOON: Duration = Duration::from_millis(600);

/// Scripts that never answer as servers, and the number of processes each starts. `WORD` is among their arguments.
const SCRIPTS: [(&str, usize); 4] = [
    ("exec sleep WORD", 1),
    // Like `npx`: a program that starts a shell that starts a program.
    ("sh -c 'sh -c \"sleep WORD; :\"; :'; :", 1),
    ("trap '' TERM HUP INT; sleep WORD & sleep WORD & wait; sleep WORD", 2),
    ("setsid -f sleep WORD; (setsid sh -c 'trap \"\" TERM; sleep WORD; :' &); exec sleep WORD", 3),
];

/// Returns the number of `sleep` processes with this argument.
fn sleeping(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| *line == format!("sleep\0{word}\0").into_bytes()).count()
}

/// Opens a session with all of them, with and without the sandbox, and ends the program.
fn check(number: u32, end: impl FnOnce(&mut Agent)) {
    let word = format!("{number}.{}", std::process::id());
    let mut servers = serde_json::Map::new();
    for (index, (script, _)) in SCRIPTS.iter().enumerate() {
        let command = json!(["sh", "-c", script.replace("WORD", &word)]);
        for sandbox in [true, false] {
            let entry = json!({ "type": "local", "command": command, "sandbox": sandbox });
            servers.insert(format!("s{index}-{sandbox}"), entry);
        }
    }
    let config = json!({ "mcp": Value::Object(servers) });
    let (mut agent, _session) = Agent::playing("").config(config).session();
    let all = 2 * SCRIPTS.iter().map(|(_, count)| count).sum::<usize>();
    wait_until("the servers run", DEADLINE, || sleeping(&word) == all);
    end(&mut agent);
    wait_until("all are gone", SOON, || sleeping(&word) == 0);
}

fn signal(agent: &Agent, signal: Signal) {
    kill_process(Pid::from_raw(agent.pid().cast_signed()).unwrap(), signal).unwrap();
}

// R: M2, W23
// Fault: M15
#[test]
fn m15_no_process_of_a_server_outlives_the_end_of_input() {
    check(73401, |agent| {
        agent.close_input();
        assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    });
}

// R: M2, W23
// Fault: M15
#[test]
fn m15_no_process_of_a_server_outlives_a_terminated_program() {
    check(73402, |agent| {
        signal(agent, Signal::TERM);
        assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    });
}

// R: M2, W23
// Fault: M15
#[test]
fn m15_no_process_of_a_server_outlives_a_killed_program() {
    check(73403, |agent| {
        signal(agent, Signal::KILL);
        agent.wait(DEADLINE);
    });
}
