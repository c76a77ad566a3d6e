//! MCP servers from the files of a project: they do not start until the user has seen the exact command on a terminal and
//! agreed, nor after it has changed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;

use crate::agent::{Agent, text_of};
use crate::directory::Directory;
use crate::mcp::{package, wait_for_servers};

/// A project, and the directory where trust is stored.
struct Project(Directory);

impl Project {
    fn new() -> Project {
        let top = Directory::new();
        std::fs::create_dir_all(top.join("w")).unwrap();
        Project(top)
    }

    fn cwd(&self) -> PathBuf {
        self.0.join("w")
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// Writes the configuration with one server, which has `word` among its arguments.
    fn name_server(&self, word: &str) {
        let command = json!(["node", package("server-everything"), "stdio", word]);
        let config = json!({ "mcp": { "own": { "type": "local", "command": command } } });
        std::fs::write(self.cwd().join("purlin.json"), config.to_string()).unwrap();
    }
}

/// Runs `purlin trust` on a terminal, answers yes, and returns its output.
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
pub(crate) fn trust(data: &Path, directory: &Path) -> String {
    let command = format!("'{}' trust '{}'", env!("CARGO_BIN_EXE_purlin"), directory.display());
    let mut child = std::process::Command::new("script")
        .args(["--quiet", "--command", &command, "/dev/null"])
        .env("XDG_DATA_HOME", data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"y\n").unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// Opens a session and returns the output of `/mcp`.
fn servers(agent: &mut Agent, cwd: &Path) -> (String, String) {
    let params = json!({ "cwd": cwd, "mcpServers": [] });
    let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    let turn = agent.prompt(&session, "/mcp");
    agent.reply(turn);
    let said = text_of(&session, &agent.take_seen());
    (session, said)
}

// R: M1, M3, S12
#[test]
fn servers_of_a_project_start_only_while_trusted() {
    let project = Project::new();
    project.name_server("project-server-one");
    let mut agent = Agent::playing("model echo\nmodel loop").storing_in(&project.data()).ready();
    let (_, before) = servers(&mut agent, &project.cwd());
    assert!(!before.contains("`own`"), "{before}");
    let shown = trust(&project.data(), &project.cwd());
    let command =
        format!("node {} stdio project-server-one", package("server-everything").display());
    assert!(shown.contains(&command) && shown.contains("Trusted."), "{shown}");
    let (session, _) = servers(&mut agent, &project.cwd());
    let state = wait_for_servers(&mut agent, &session);
    assert!(state.contains("`own` (program): ready"), "{state}");
    project.name_server("project-server-two");
    let (_, changed) = servers(&mut agent, &project.cwd());
    assert!(!changed.contains("`own`"), "{changed}");
}
