//! Hooks and commands from the files of a project: they run after the user has seen and trusted them, and not after they
//! have changed.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::agent::{Agent, text_of};
use crate::directory::Directory;
use crate::models::{ask, updates};
use crate::project_servers::trust;

/// A project, and the directory where trust is stored.
struct Project(Directory);

impl Project {
    fn new() -> Project {
        let top = Directory::new();
        std::fs::create_dir_all(top.join("w/.purlin/commands")).unwrap();
        Project(top)
    }

    fn cwd(&self) -> PathBuf {
        self.0.join("w")
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn set_hook(&self, words: &str) {
        let command = format!("echo '{}'", json!({ "context": words }));
        let config = json!({ "hooks": { "before_turn": [{ "command": command }] } });
        std::fs::write(self.cwd().join("purlin.json"), config.to_string()).unwrap();
    }

    fn set_command(&self, command: &str) {
        let text = format!("It says: !`{command}`\n");
        std::fs::write(self.cwd().join(".purlin/commands/say.md"), text).unwrap();
    }
}

/// Opens a session. Returns what the model saw for a plain prompt and for the command, and what the user saw.
fn observed(agent: &mut Agent, cwd: &Path) -> (String, String, String) {
    let opened = agent.result("session/new", json!({ "cwd": cwd, "mcpServers": [] }));
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let (_, seen) = ask(agent, &session, "Hello.");
    let thoughts = updates(&seen, "agent_thought_chunk");
    let thoughts = thoughts.iter().map(|thought| thought["content"]["text"].to_string()).collect();
    let plain = text_of(&session, &seen);
    let (_, seen) = ask(agent, &session, "/say");
    (plain, text_of(&session, &seen), thoughts)
}

// R: T2
#[test]
fn hooks_and_commands_of_a_project_run_only_while_trusted() {
    let project = Project::new();
    project.set_hook("From the hook.");
    project.set_command("echo from the command");
    let mut agent = Agent::playing("model echo\nmodel loop").storing_in(&project.data()).ready();
    let (plain, command, problem) = observed(&mut agent, &project.cwd());
    assert_eq!(plain, "Hello.");
    assert!(command.contains("this project is not trusted"), "{command}");
    assert!(problem.contains("folder not trusted"), "{problem}");

    let shown = trust(&project.data(), &project.cwd());
    assert!(shown.contains("echo from the command") && shown.contains("Trusted."), "{shown}");
    let (plain, command, problem) = observed(&mut agent, &project.cwd());
    assert_eq!(plain, "Hello.\nFrom the hook.");
    assert_eq!(command, "It says: from the command\nFrom the hook.");
    assert_eq!(problem, "");

    project.set_hook("Another word.");
    let (plain, command, problem) = observed(&mut agent, &project.cwd());
    assert_eq!(plain, "Hello.");
    assert!(command.contains("this project is not trusted"), "{command}");
    assert!(problem.contains("settings changed since you trusted them"), "{problem}");

    project.set_hook("From the hook.");
    project.set_command("echo something else");
    let (plain, command, _) = observed(&mut agent, &project.cwd());
    assert_eq!(plain, "Hello.");
    assert!(command.contains("it runs `echo something else`"), "{command}");
}
