//! What a command may have beyond the sandbox, in the built program: the question, the answer for good, and what opens.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::permissions::{Folder, purlin, text};

/// What came of commands: for each what it showed, and what was asked on the way.
#[derive(Debug, Default)]
struct Came {
    said: Vec<String>,
    asked: Vec<Value>,
}

/// A place for a session's folder `w`, a home and kept answers.
struct Desk(Folder);

impl Desk {
    fn new(name: &str) -> Desk {
        Desk::in_folder(Folder::new(name))
    }

    fn in_folder(top: Folder) -> Desk {
        for folder in ["w", "home", "data"] {
            std::fs::create_dir_all(top.0.join(folder)).unwrap();
        }
        Desk(top)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.0.join(path)
    }

    /// Runs commands in a process of their own, and answers each question with this option.
    fn run(&self, option: &str, inputs: &[Value]) -> Came {
        self.run_with(json!({}), option, inputs)
    }

    fn run_with(&self, config: Value, option: &str, inputs: &[Value]) -> Came {
        let line = |input: &Value| format!("model tool bash {input}\nmodel end\n");
        let script: String = inputs.iter().map(line).collect();
        let home = self.at("home").display().to_string();
        let mut agent = Agent::playing(&script)
            .env("HOME", &home)
            .keeping(&self.at("data"))
            .config(config)
            .ready();
        let params = json!({ "cwd": self.at("w"), "mcpServers": [] });
        let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
        let turn = agent.prompt(&session, "go");
        let mut came = Came::default();
        loop {
            let message = agent.next();
            if message["method"] == "session/request_permission" {
                came.asked.push(message["params"].clone());
                let outcome = json!({ "outcome": "selected", "optionId": option });
                agent.answer(&message["id"], json!({ "outcome": outcome }));
            } else if message["id"] == turn {
                return came;
            }
            let update = &message["params"]["update"];
            if update["status"] == "completed" || update["status"] == "failed" {
                let text = update["content"][0]["content"]["text"].as_str().unwrap_or_default();
                came.said.push(text.to_owned());
            }
        }
    }
}

/// What the question shows besides the title, and what an answer for good to it would keep.
fn question(asked: &Value) -> (String, &str) {
    let blocks = asked["toolCall"]["content"].as_array().unwrap().iter();
    let shown: Vec<&str> = blocks.filter_map(|block| block["content"]["text"].as_str()).collect();
    let always =
        asked["options"].as_array().unwrap().iter().find(|option| option["optionId"] == "always");
    (shown.join("\n"), always.map_or("", |option| option["name"].as_str().unwrap()))
}

#[expect(clippy::disallowed_methods, reason = "a real git is what the sandbox must let work")]
fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command.args(args).current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn wanting_git(command: &str) -> Value {
    json!({ "command": command, "git": true, "reason": "to keep the work" })
}

// R: T2, T7
#[test]
fn an_answer_for_good_to_a_commit_is_for_commits_with_any_message() {
    let desk = Desk::new("wish-commit");
    let work = desk.at("w");
    git(&work, &["init", "-q", "-b", "main"]);
    git(&work, &["config", "user.name", "u"]);
    git(&work, &["config", "user.email", "u@example.com"]);
    let first = wanting_git("git commit -q --allow-empty -m one");
    let came = desk.run("always", &[first]);
    let (shown, always) = question(&came.asked[0]);
    assert_eq!(shown, "Needs to change .git: to keep the work");
    assert_eq!(always, "Always allow `git commit *` with changes of .git for this folder");
    // In another process, with another message, beside what only reads; and nothing else goes with it.
    let second = wanting_git("cd . && git commit -q --allow-empty -m 'two; rm'");
    let other = wanting_git("git commit -q --allow-empty -m three; git tag evil");
    let came = desk.run("reject", &[second, other]);
    assert_eq!(came.asked.len(), 1, "{came:?}");
    let (_, always) = question(&came.asked[0]);
    assert_eq!(always, "Always allow `git tag evil` with changes of .git for this folder");
    assert_eq!(git(&work, &["log", "--format=%s"]), "two; rm\none");
    assert_eq!(git(&work, &["tag"]), "");
    let listed = text(&purlin(&desk.at("data"), &["permissions", "list"]));
    let folder = work.display();
    assert_eq!(
        listed,
        format!(
            "1  allow  bash: git commit *  in {folder}\n2  allow  git: git commit *  in {folder}\n"
        )
    );
}

// R: T2, T7
#[test]
fn a_rule_for_the_network_is_held_against_each_simple_command() {
    let desk = Desk::new("wish-network");
    let rules = json!({
        "bash": "allow",
        "network": { "true *": "allow", "date *": "allow", "curl *": "deny" },
    });
    let config = json!({ "permission": rules });
    let wanting = |command: &str| json!({ "command": command, "network": true, "reason": "x" });
    let inputs = [
        "date x; true",
        "true; curl evil",
        "cd . && curl y",
        "true && /usr/bin/curl y",
        "true; touch z",
    ];
    let came = desk.run_with(config, "reject", &inputs.map(wanting));
    let is_denied = |said: &String| said.contains("curl") && said.contains("deny");
    let denied: Vec<bool> = came.said.iter().map(is_denied).collect();
    assert_eq!(denied, [false, true, true, true, false], "{came:?}");
    assert!(came.said[0].contains("exit code 0"), "{came:?}");
    assert_eq!(came.asked.len(), 1, "{came:?}");
    assert_eq!(came.asked[0]["toolCall"]["title"], "true; touch z");
}
