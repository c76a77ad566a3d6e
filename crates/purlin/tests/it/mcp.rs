//! MCP servers of other authors with the built program: over pipes, streamable HTTP and server-sent events. None of their
//! processes is left, however the program ends.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, prompt, text_of, update_kind, wait_until};
use crate::directory::Directory;

/// Returns the main file of a Node.js package; `cargo xtask test` installs them.
pub(crate) fn package(name: &str) -> PathBuf {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mcp/tests/servers/node_modules");
    let file = at.join("@modelcontextprotocol").join(name).join("dist/index.js");
    assert!(file.exists(), "{} is installed by `cargo xtask test`", file.display());
    file.canonicalize().unwrap()
}

/// Opens a session with these servers.
fn open(agent: &mut Agent, servers: &Value) -> String {
    let params = json!({ "cwd": agent.directory(), "mcpServers": servers });
    agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned()
}

/// Sends `/mcp` until every server is ready.
pub(crate) fn wait_for_servers(agent: &mut Agent, session: &str) -> String {
    let mut state = String::new();
    wait_until("every server is ready", DEADLINE, || {
        let id = agent.prompt(session, "/mcp");
        agent.reply(id);
        state = text_of(session, &agent.take_seen());
        assert!(!state.contains("failed"), "{state}");
        state.contains(": ready") && !state.contains("starting")
    });
    state
}

/// Sends a prompt, allows every permission request, and returns all messages.
fn turn(agent: &mut Agent, session: &str) -> Vec<Value> {
    let id = agent.call("session/prompt", prompt(session, "go"));
    let mut seen = Vec::new();
    loop {
        let message = agent.next();
        if message["method"] == "session/request_permission" {
            let allowed = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            agent.send(&json!({ "id": message["id"], "result": allowed }));
        }
        if message["id"] == id && message.get("method").is_none() {
            return seen;
        }
        seen.push(message);
    }
}

/// Returns the final content of each call of a turn as JSON.
fn results(seen: &[Value]) -> Vec<String> {
    let updates = seen.iter().filter(|message| update_kind(message) == "tool_call_update");
    let updates = updates.map(|message| &message["params"]["update"]);
    updates
        .filter(|update| update["status"] == "completed" || update["status"] == "failed")
        .map(|update| format!("{} {}", update["status"].as_str().unwrap(), update["content"]))
        .collect()
}

const EVERYTHING: &str = r#"
model tool everything_echo {"message":"hello"}
model tool everything_get-sum {"a":2,"b":3}
model tool everything_get-tiny-image {}
model tool everything_get-structured-content {"location":"Chicago"}
model tool everything_trigger-long-running-operation {"duration":1,"steps":3}
model tool everything_no-such-tool {}
"#;

fn check_everything(server: Value) {
    let mut agent = Agent::playing(EVERYTHING).ready();
    let session = open(&mut agent, &json!([server]));
    let state = wait_for_servers(&mut agent, &session);
    assert!(state.contains("get-tiny-image"), "{state}");
    let seen = turn(&mut agent, &session);
    let results = results(&seen);
    let expect = |index: usize, text: &str| {
        assert!(
            results[index].starts_with("completed") && results[index].contains(text),
            "{results:#?}"
        );
    };
    expect(0, "Echo: hello");
    expect(1, "The sum of 2 and 3 is 5.");
    expect(2, "\"type\":\"image\"");
    expect(3, "temperature");
    expect(4, "completed");
    assert!(results[5].contains("unknown tool `everything_no-such-tool`"), "{results:#?}");
    let is_progress = |message: &Value| {
        message["params"]["update"]["content"][0]["content"]["text"]
            .as_str()
            .is_some_and(|text| text.contains(" %"))
    };
    assert!(seen.iter().any(is_progress), "no progress was shown");
}

// R: M1, M3
#[test]
fn everything_works_over_pipes() {
    let main = package("server-everything");
    check_everything(
        json!({ "name": "everything", "command": "node", "args": [main, "stdio"], "env": [] }),
    );
}

/// A server with its own port, killed when it is dropped.
struct Remote(Child, u16);

impl Remote {
    #[expect(clippy::disallowed_methods, reason = "a remote server is no child of the agent")]
    fn start(way: &str) -> Remote {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = std::process::Command::new("node")
            .arg(package("server-everything"))
            .arg(way)
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let remote = Remote(child, port);
        let connects = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until("the server listens", DEADLINE, connects);
        remote
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

// R: M1, M3
#[test]
fn everything_works_over_streamable_http() {
    let remote = Remote::start("streamableHttp");
    let url = format!("http://127.0.0.1:{}/mcp", remote.1);
    check_everything(json!({ "type": "http", "name": "everything", "url": url, "headers": [] }));
}

// R: M1, M3
#[test]
fn everything_works_over_server_sent_events() {
    let remote = Remote::start("sse");
    let url = format!("http://127.0.0.1:{}/sse", remote.1);
    check_everything(json!({ "type": "sse", "name": "everything", "url": url, "headers": [] }));
}

// R: M1, M3
#[test]
fn files_are_written_through_a_server_from_the_configuration() {
    let script = r#"
model tool files_write_file {"path":"/w/made.txt","content":"by a server"}
model tool files_read_text_file {"path":"/w/made.txt"}
"#;
    let main = package("server-filesystem");
    // The project's directory is the server's only root; the client announces it.
    let config = json!({
        "limits": { "prompts_per_minute": 0 },
        "mcp": { "files": { "type": "local", "command": ["node", main, "."] } },
    });
    let mut agent = Agent::playing(script).config(config).ready();
    let session = open(&mut agent, &json!([]));
    wait_for_servers(&mut agent, &session);
    let results = results(&turn(&mut agent, &session));
    assert!(results[1].contains("by a server"), "{results:#?}");
    assert_eq!(std::fs::read_to_string(agent.directory().join("made.txt")).unwrap(), "by a server");
}

// R: M1, S2
#[test]
fn loading_an_open_session_replaces_its_servers() {
    let data = Directory::new();
    let mut agent = Agent::playing("model echo\nmodel loop").storing_in(&data).ready();
    let session = open(&mut agent, &json!([]));
    let main = package("server-everything");
    let server = |name: &str| json!([{ "name": name, "command": "node", "args": [main, "stdio"], "env": [] }]);
    for name in ["first", "second"] {
        let params =
            json!({ "sessionId": session, "cwd": agent.directory(), "mcpServers": server(name) });
        agent.result("session/load", params);
        let state = wait_for_servers(&mut agent, &session);
        assert!(state.contains(&format!("`{name}` (program): ready")), "{state}");
        assert!(name == "first" || !state.contains("first"), "{state}");
    }
}

// R: M1, M2
#[test]
fn session_opens_despite_broken_servers() {
    let mut agent = Agent::playing("model text \"here\"").ready();
    let servers = json!([7, { "name": "none", "command": "no-such-program" }, { "name": "odd", "type": "x" }]);
    let session = open(&mut agent, &servers);
    let seen = turn(&mut agent, &session);
    assert_eq!(text_of(&session, &seen), "here");
    let is_thought = |message: &&Value| update_kind(message) == "agent_thought_chunk";
    let thought =
        seen.iter().find(is_thought).unwrap()["params"]["update"]["content"]["text"].clone();
    for observed in [
        "`mcpServers[0]` is not an object",
        "`mcpServers[2]` (`odd`)",
        "program `no-such-program` not found",
    ] {
        assert!(thought.as_str().unwrap().contains(observed), "{thought}");
    }
}

#[cfg(target_os = "linux")]
mod ends {
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    /// A server that ignores every request to exit, with a child that does the same. `word` is among the arguments of both.
    fn stubborn(word: &str) -> Value {
        let child = format!("exec -a {word} sleep 1000");
        let script = format!(
            "trap '' TERM HUP INT; bash -c '{child}' & while :; do bash -c '{child}'; done"
        );
        json!({ "name": word, "command": "bash", "args": ["-c", script, word], "env": [] })
    }

    /// Returns the number of processes with this word among their arguments.
    fn alive(word: &str) -> usize {
        let cmdline = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| cmdline(entry.ok()?));
        lines
            .filter(|line| line.split(|byte| *byte == 0).any(|part| part == word.as_bytes()))
            .count()
    }

    /// Returns how many of them are servers and not the sandbox around one.
    fn serving(word: &str) -> usize {
        let cmdline = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| cmdline(entry.ok()?));
        let has = |line: &[u8], word: &[u8]| line.split(|byte| *byte == 0).any(|part| part == word);
        lines.filter(|line| has(line, word.as_bytes()) && !has(line, b"__confine")).count()
    }

    fn check(word: &str, end: impl FnOnce(&mut Agent)) {
        let mut agent = Agent::playing("").ready();
        let main = package("server-everything");
        let node = json!({ "name": "node", "command": "node", "args": [main, "stdio", format!("{word}-node")], "env": [] });
        open(&mut agent, &json!([stubborn(word), node]));
        let node = format!("{word}-node");
        // The shell and its two children, and the good server.
        wait_until("the servers run", DEADLINE, || serving(word) >= 3 && serving(&node) == 1);
        end(&mut agent);
        wait_until("all are gone", DEADLINE, || alive(word) == 0 && alive(&node) == 0);
    }

    // R: M2, W23
    // Fault: M15
    #[test]
    fn no_server_outlives_the_end_of_input() {
        check("mcp-end-of-input", |agent| {
            agent.close_input();
            assert_eq!(agent.wait(DEADLINE).code(), Some(0));
        });
    }

    // R: M2, W23
    // Fault: M15
    #[test]
    fn no_server_outlives_a_terminated_program() {
        check("mcp-terminated", |agent| {
            kill_process(Pid::from_raw(agent.pid().cast_signed()).unwrap(), Signal::TERM).unwrap();
            assert_eq!(agent.wait(DEADLINE).code(), Some(0));
        });
    }

    // R: M2, W23
    // Fault: M15
    #[test]
    fn no_server_outlives_a_killed_program() {
        check("mcp-killed", |agent| {
            kill_process(Pid::from_raw(agent.pid().cast_signed()).unwrap(), Signal::KILL).unwrap();
            agent.wait(DEADLINE);
        });
    }

    // R: M2
    #[test]
    fn no_server_outlives_its_session() {
        check("mcp-closed", |agent| {
            let list = agent.take_seen();
            let session = list.iter().find_map(|message| message["params"]["sessionId"].as_str());
            let session = session.map(str::to_owned).unwrap_or_else(|| {
                agent.next()["params"]["sessionId"].as_str().unwrap().to_owned()
            });
            agent.result("session/close", json!({ "sessionId": session }));
        });
    }
}
