//! Extra permissions of commands in the built program: the request, the saved rule, and what becomes accessible.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::directory::Directory;
use crate::permissions::{purlin, text};

/// The results of commands: the output of each, and the permission requests.
#[derive(Debug, Default)]
struct Results {
    said: Vec<String>,
    asked: Vec<Value>,
}

/// Directories for a session (`w`), a home and saved rules.
struct Place(Directory);

impl Place {
    fn new() -> Place {
        Place::in_directory(Directory::new())
    }

    /// A place outside of `/tmp`: commands have that to themselves, and directories there cannot be requested.
    fn outside_of_tmp() -> Place {
        Place::in_directory(Directory::outside_of_tmp())
    }

    fn in_directory(top: Directory) -> Place {
        for directory in ["w", "home", "data"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        Place(top)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Runs commands in a new process and answers each permission request with this option.
    fn run(&self, option: &str, inputs: &[Value]) -> Results {
        self.run_with(json!({}), &|| option, inputs)
    }

    /// The same with a configuration, and a function that chooses each answer.
    fn run_with<'a>(
        &self,
        config: Value,
        answer: &dyn Fn() -> &'a str,
        inputs: &[Value],
    ) -> Results {
        let line = |input: &Value| format!("model tool bash {input}\nmodel end\n");
        let script: String = inputs.iter().map(line).collect();
        let home = self.at("home").display().to_string();
        let start = Agent::playing(&script).env("HOME", &home).storing_in(&self.at("data"));
        let mut agent = start.config(config).ready();
        let params = json!({ "cwd": self.at("w"), "mcpServers": [] });
        let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
        let turn = agent.prompt(&session, "go");
        let mut came = Results::default();
        loop {
            let message = agent.next();
            if message["method"] == "session/request_permission" {
                came.asked.push(message["params"].clone());
                let outcome = json!({ "outcome": "selected", "optionId": answer() });
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

/// Returns the text of a permission request besides its title, and the rule that "always" would save.
fn question(asked: &Value) -> (String, &str) {
    let blocks = asked["toolCall"]["content"].as_array().unwrap().iter();
    let shown: Vec<&str> = blocks.filter_map(|block| block["content"]["text"].as_str()).collect();
    let always =
        asked["options"].as_array().unwrap().iter().find(|option| option["optionId"] == "always");
    (shown.join("\n"), always.map_or("", |option| option["name"].as_str().unwrap()))
}

#[expect(clippy::disallowed_methods, reason = "a real git is what the sandbox must let work")]
fn git(directory: &Path, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command.args(args).current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn input_for_git(command: &str) -> Value {
    json!({ "command": command, "git": true, "reason": "to keep the work" })
}

// R: T2, T7
#[test]
fn saved_permission_to_commit_applies_to_any_message() {
    let desk = Place::new();
    let work = desk.at("w");
    git(&work, &["init", "-q", "-b", "main"]);
    git(&work, &["config", "user.name", "u"]);
    git(&work, &["config", "user.email", "u@example.com"]);
    let first = input_for_git("git commit -q --allow-empty -m one");
    let came = desk.run("always", &[first]);
    let (shown, always) = question(&came.asked[0]);
    assert_eq!(shown, "Needs to change .git: to keep the work");
    assert_eq!(always, "Always allow `git commit *` with changes of .git in this project");
    // In another process, with another message, together with a read-only command; nothing else is included.
    let second = input_for_git("cd . && git commit -q --allow-empty -m 'two; rm'");
    let other = input_for_git("git commit -q --allow-empty -m three; git tag evil");
    let came = desk.run("reject", &[second, other]);
    assert_eq!(came.asked.len(), 1, "{came:?}");
    let (_, always) = question(&came.asked[0]);
    assert_eq!(always, "Always allow `git tag evil` with changes of .git in this project");
    assert_eq!(git(&work, &["log", "--format=%s"]), "two; rm\none");
    assert_eq!(git(&work, &["tag"]), "");
    let listed = text(&purlin(&desk.at("data"), &["permissions", "list"]));
    let directory = work.display();
    assert_eq!(
        listed,
        format!(
            "1  allow  bash: git commit *  in {directory}\n2  allow  git: git commit *  in {directory}\n"
        )
    );
}

// R: T2, T7
#[test]
fn network_rule_is_checked_for_each_simple_command() {
    let desk = Place::new();
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
    let came = desk.run_with(config, &|| "reject", &inputs.map(wanting));
    let is_denied = |said: &String| said.contains("curl") && said.contains("deny");
    let denied: Vec<bool> = came.said.iter().map(is_denied).collect();
    assert_eq!(denied, [false, true, true, true, false], "{came:?}");
    assert!(came.said[0].contains("exit code 0"), "{came:?}");
    assert_eq!(came.asked.len(), 1, "{came:?}");
    assert_eq!(came.asked[0]["toolCall"]["title"], "true; touch z");
}

fn writing_to(directories: &[&str], command: &str) -> Value {
    json!({ "command": command, "write_outside": directories, "reason": "fills the cache" })
}

// R: T2, T7
#[test]
fn permission_to_write_outside_opens_only_that_directory() {
    let desk = Place::outside_of_tmp();
    for directory in [".cargo/sub/.git", ".cargo2", ".ssh"] {
        std::fs::create_dir_all(desk.at("home").join(directory)).unwrap();
    }
    std::fs::write(desk.at("home/.cargo/credentials.toml"), "a key").unwrap();
    let cargo = desk.at("home/.cargo").display().to_string();
    let fill = "mkdir -p ~/.cargo/registry && echo crate > ~/.cargo/registry/x; touch in-session";
    let attack = "cat ~/.cargo/credentials.toml; touch ~/.cargo2/f ~/f ~/.cargo/../g; mkdir ~/.cargo/.git/hooks; \
                  touch ~/.cargo/sub/.git/config; mv ~/.cargo/sub ~/.cargo/sub2; mv ~/.cargo ~/.cargo3; \
                  rm -f ~/.cargo/credentials.toml; ln -s ~/.ssh ~/.cargo/link; touch ~/.cargo/link/key; echo attacked";
    let came =
        desk.run("once", &[writing_to(&["~/.cargo"], fill), writing_to(&["~/.cargo"], attack)]);
    let (shown, always) = question(&came.asked[0]);
    assert!(shown.starts_with(&format!("Needs to write to {cargo}: fills the cache")), "{shown}");
    assert!(always.ends_with(&format!(" and writing to `{cargo}` in this project")), "{always}");
    let read = |path: &str| std::fs::read_to_string(desk.at(path)).unwrap_or_default();
    assert_eq!(read("home/.cargo/registry/x"), "crate\n", "{came:?}");
    assert!(desk.at("w/in-session").exists());
    assert!(came.said[1].contains("attacked") && !came.said[1].contains("a key"), "{came:?}");
    assert_eq!(read("home/.cargo/credentials.toml"), "a key");
    for path in [
        ".cargo2/f",
        "f",
        "g",
        ".cargo/.git",
        ".cargo/sub/.git/config",
        ".cargo/sub2",
        ".cargo3",
        ".ssh/key",
    ] {
        assert!(!desk.at("home").join(path).exists(), "{path}: {came:?}");
    }
    // Without the request nothing there is accessible, and a rejected request is not repeated.
    let plain = |command: &str| json!({ "command": command });
    let inputs = [
        plain("touch ~/.cargo/later"),
        plain("echo x > ~/.cargo/later"),
        writing_to(&["~/.ssh"], "touch ~/.ssh/key"),
        writing_to(&["~/"], "touch ~/key"),
        writing_to(&["~/.cargo/new"], "true"),
    ];
    let came = desk.run("once", &inputs);
    assert_eq!(came.asked.len(), 1, "{came:?}");
    assert!(!desk.at("home/.cargo/later").exists());
    let place = format!("it cannot write to {cargo}/later, which is outside");
    for (said, why) in came.said[1..].iter().zip([&*place, "hidden", "a whole home", "nearest"]) {
        assert!(said.contains(why), "{said}");
    }
    // A deny rule for paths outside also denies this.
    let rules = json!({ "permission": { "external_directory": "deny", "write_outside": "allow" } });
    let denied = [writing_to(&["~/.cargo"], "touch ~/.cargo/later")];
    let came = desk.run_with(rules, &|| "once", &denied);
    assert!(came.asked.is_empty() && came.said[0].contains("external_directory"), "{came:?}");
    let args = [
        "permissions",
        "explain",
        "--cwd",
        &desk.at("w").display().to_string(),
        "--",
        "ls > /opt/f",
    ];
    let said = text(&purlin(&desk.at("data"), &args));
    assert!(said.starts_with("Would be rejected: it cannot write to /opt/f, "), "{said}");
}

// R: T2, T7
#[test]
fn saved_permission_to_write_outside_applies_to_that_directory() {
    let desk = Place::outside_of_tmp();
    for directory in ["home/a*/in", "home/ab"] {
        std::fs::create_dir_all(desk.at(directory)).unwrap();
    }
    std::os::unix::fs::symlink(desk.at("home/a*"), desk.at("link")).unwrap();
    let link = desk.at("link").display().to_string();
    let came = desk.run("always", &[writing_to(&["~/a*"], "touch ~/'a*'/one")]);
    assert_eq!(came.asked.len(), 1, "{came:?}");
    let touch = "touch ~/'a*'/one";
    let inputs =
        [&*link, "~/a*", "~/ab", "~/a*/in"].map(|directory| writing_to(&[directory], touch));
    let came = desk.run("reject", &inputs);
    assert_eq!(came.asked.len(), 2, "{came:?}");
    let listed = text(&purlin(&desk.at("data"), &["permissions", "list"]));
    let pattern = format!("write_outside: {}/a\\*  in", desk.at("home").display());
    assert!(listed.contains(&pattern), "{listed}");
}

// R: T2, T7
#[test]
fn directory_that_moves_during_the_request_is_not_written() {
    let desk = Place::outside_of_tmp();
    for directory in ["home/a", "home/b"] {
        std::fs::create_dir_all(desk.at(directory)).unwrap();
    }
    let link = desk.at("link");
    std::os::unix::fs::symlink(desk.at("home/a"), &link).unwrap();
    let input = writing_to(&[link.to_str().unwrap()], &format!("touch {}/f", link.display()));
    let swap = || {
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(desk.at("home/b"), &link).unwrap();
        "once"
    };
    let came = desk.run_with(json!({}), &swap, &[input]);
    assert!(came.said[0].contains("has moved since"), "{came:?}");
    let gone = || {
        std::fs::remove_dir(desk.at("home/a")).unwrap();
        "once"
    };
    let came = desk.run_with(json!({}), &gone, &[writing_to(&["~/a"], "touch ~/a/f")]);
    assert!(came.said[0].contains("was not run"), "{came:?}");
    assert!(!desk.at("home/b/f").exists() && !desk.at("home/a").exists());
}

// R: T2, T7
#[test]
fn repository_can_be_created_with_permission_and_is_protected_afterwards() {
    let desk = Place::new();
    let work = desk.at("w");
    let plain = |command: &str| json!({ "command": command });
    let came = desk.run("once", &[plain("git init -q; mkdir -p .git/hooks; echo status $?")]);
    assert!(came.said[0].contains("status 1") && !work.join(".git").exists(), "{came:?}");
    let init =
        "git init -q -b main && git config user.name u && git config user.email u@example.com";
    let commit = "touch file && git add file && git commit -qm first && git log --format=%s";
    let attack = "echo id > .git/hooks/pre-commit; git config alias.x '!id'; echo attacked";
    let inputs = [
        input_for_git(init),
        input_for_git(commit),
        input_for_git(attack),
        plain("rm -rf .git; echo gone"),
    ];
    let came = desk.run("once", &inputs);
    let needs = format!(
        "Needs to create a repository in {} (.git, with its hooks and configuration): to keep the work",
        work.display()
    );
    assert_eq!(question(&came.asked[0]).0, needs);
    assert!(question(&came.asked[1]).0.starts_with("Needs to change .git: "), "{came:?}");
    assert!(came.said[1].contains("first") && came.said[2].contains("attacked"), "{came:?}");
    assert_eq!(git(&work, &["log", "--format=%s"]), "first");
    assert!(!work.join(".git/hooks/pre-commit").exists());
    assert!(!git(&work, &["config", "--list", "--local"]).contains("alias"));
}
