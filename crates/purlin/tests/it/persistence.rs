//! One allowed command tries to leave something that runs later, outside the sandbox: files that editors, shells and other agents
//! run by themselves, repositories with hooks, a replaced agent. The user allows every question.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE};

/// A script with one call for each of these inputs.
fn script(inputs: &[Value]) -> String {
    let calls: String = inputs.iter().map(|input| format!("model tool bash {input}\n")).collect();
    format!("{calls}model text \"Done.\"\n")
}

/// Plays a turn. Returns everything that was sent, as text.
fn play(agent: &mut Agent) -> String {
    let session = agent.open();
    let turn = agent.prompt(&session, "go");
    let mut all = String::new();
    loop {
        let message = agent.next();
        all += &message.to_string();
        if message["method"] == "session/request_permission" {
            let once = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            agent.answer(&message["id"], once);
        } else if message["id"] == turn {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return all;
        }
    }
}

fn names() -> Vec<&'static str> {
    shell::AUTO_RUN.iter().copied().chain(["x.code-workspace", "x.sublime-project"]).collect()
}

// R: T7
#[test]
fn files_that_other_programs_run_do_not_stay() {
    let all = names();
    let make = |name: &&str| {
        format!("mkdir -p '{name}' && echo evil > '{name}/evil' || echo evil > '{name}'")
    };
    let tries: Vec<String> = all.iter().map(make).collect();
    let input = json!({ "command": tries.join("\n") });
    let mut agent = Agent::playing(&script(&[input])).ready();
    let directory = agent.directory().to_owned();
    for name in [".zed", ".claude"] {
        std::fs::create_dir(directory.join(name)).unwrap();
        std::fs::write(directory.join(name).join("settings.json"), "mine").unwrap();
    }
    std::fs::write(directory.join(".envrc"), "mine").unwrap();
    let said = play(&mut agent);
    let is_evil = |name: &&&str| {
        let path = directory.join(name);
        path.join("evil").exists() || std::fs::read_to_string(path).is_ok_and(|text| text != "mine")
    };
    let left: Vec<&&str> = all.iter().filter(is_evil).collect();
    eprintln!("attempts: {}", all.len());
    assert_eq!(left, Vec::<&&str>::new());
    assert!(directory.join(".vscode.set-aside").exists());
    assert!(said.contains("A command left files that other programs run"), "{said}");
    assert!(said.contains(".codex was renamed to ") && said.contains("more"), "{said}");
}

// R: T7
#[test]
fn file_that_other_programs_run_is_gone_while_the_command_still_runs() {
    let wait = "while [ -e .vscode ]; do :; done";
    let first = format!("mkdir x; echo evil > x/settings.json; mv x .vscode; {wait}; echo gone");
    let again = format!("while :; do mkdir .vscode; {wait}; done");
    for is_background in [false, true] {
        let inputs = [&first, &again]
            .map(|command| json!({ "command": command, "background": is_background }));
        let read = ["bg1", "bg2"].map(|id| {
            let input = json!({ "id": id, "wait": 60_000 });
            format!("model tool bash_output {input}\nmodel end\n")
        });
        let calls = inputs.iter().map(|input| format!("model tool bash {input}\nmodel end\n"));
        let calls: String = calls.chain(is_background.then(|| read.concat())).collect();
        let mut agent = Agent::playing(&format!("{calls}model text \"Done.\"\n")).ready();
        let directory = agent.directory().to_owned();
        let said = play(&mut agent);
        assert!(said.contains("gone\\n"), "{said}");
        assert!(said.contains("The command was ended: it created"), "{said}");
        assert!(!directory.join(".vscode").exists());
        eprintln!("attempts: 2");
    }
}

/// Nobody is asked before a checker runs, and it runs the project's code.
// R: T7
#[test]
fn checker_leaves_nothing_that_other_programs_run() {
    let script = "model tool write {\"filePath\":\"a.txt\",\"content\":\"x\"}\nmodel end\nmodel text \"Done.\"\n";
    let check = "mkdir -p .vscode; echo evil > .vscode/tasks.json; git init -q n; echo '[core] fsmonitor = x' > n/.git/config";
    let mut agent = Agent::playing(script).config(json!({ "check": { "*.txt": check } })).ready();
    let directory = agent.directory().to_owned();
    let said = play(&mut agent);
    assert!(!directory.join(".vscode").exists() && directory.join(".vscode.set-aside").exists());
    assert!(directory.join("n/.git/config.set-aside").exists());
    assert!(
        said.contains("Problem with a hook or checker") && said.contains(".vscode was renamed to"),
        "{said}"
    );
    eprintln!("attempts: 2");
}

/// What commands prepare so that the agent cannot find or rename what they leave.
// R: T7
#[test]
fn nothing_that_a_command_prepares_keeps_what_it_leaves_from_being_found() {
    let long = format!("{}.code-workspace", "x".repeat(240));
    let fill = "for i in $(seq 1 300); do : > .vscode.set-aside-$i; done; : > .vscode.set-aside; mkdir .vscode";
    let tries =
        [fill.to_owned(), format!("touch {long}"), "touch $'x\\xff.code-workspace'".to_owned()];
    let inputs: Vec<Value> = tries.iter().map(|command| json!({ "command": command })).collect();
    let mut agent = Agent::playing(&script(&inputs)).ready();
    let directory = agent.directory().to_owned();
    play(&mut agent);
    let is_left = |name: &std::ffi::OsStr| shell::is_auto_run_name(&name.to_string_lossy());
    let names = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| is_left(name)).collect();
    assert_eq!(left, Vec::<std::ffi::OsString>::new());
    eprintln!("attempts: {}", tries.len());
}

/// The session ends while a command runs: it is checked all the same, before the program exits.
// R: T7
#[test]
fn background_command_is_checked_when_its_session_ends() {
    let command =
        "git init -q n; echo '[core] fsmonitor = x' > n/.git/config; touch made; sleep 1000";
    let input = json!({ "command": command, "background": true });
    let mut agent = Agent::playing(&script(&[input])).ready();
    let directory = agent.directory().to_owned();
    play(&mut agent);
    crate::agent::wait_until("the command has run", DEADLINE, || directory.join("made").exists());
    agent.close_input();
    assert!(agent.wait(DEADLINE).success());
    assert!(directory.join("n/.git/config.set-aside").exists());
}

// R: T7
#[test]
fn file_that_other_programs_run_can_be_requested_by_name() {
    let directory = crate::directory::Directory::outside_of_tmp();
    let path = directory.join(".husky").display().to_string();
    let input = json!({
        "command": "mkdir .husky && echo hook > .husky/pre-commit",
        "write_outside": [path], "reason": "installs hooks",
    });
    let mut agent = Agent::playing(&script(&[input])).ready();
    let params = json!({ "cwd": &*directory, "mcpServers": [] });
    let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    let turn = agent.prompt(&session, "go");
    let asked = agent.asked("session/request_permission");
    assert!(asked["params"]["toolCall"].to_string().contains(".husky"), "{asked}");
    let once = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
    agent.answer(&asked["id"], once);
    agent.reply(turn);
    assert_eq!(std::fs::read_to_string(directory.join(".husky/pre-commit")).unwrap(), "hook\n");
}

/// What the user's own git would run: in the directory, in the new repositories, after adding them.
#[expect(clippy::disallowed_methods, reason = "the user's own git, after the command")]
fn users_git(directory: &Path, args: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.args(args).current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null");
    // Never the repository around the test's directory.
    git.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap());
    git.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    // Whether it works does not matter, only what it runs.
    git.status().unwrap();
}

// R: T7
#[test]
fn repository_made_by_a_command_runs_nothing_for_the_user() {
    let evil = "touch \"$TOP/ran\"";
    let make = format!(
        "export TOP=$PWD; unset GIT_CONFIG_COUNT; \
         for d in one two three; do git init -q $d; cp plain $d/file; done; \
         git -C one config core.fsmonitor '{evil}'; \
         git -C two config filter.x.clean '{evil}; cat'; echo '* filter=x' > two/.gitattributes; \
         printf '#!/bin/sh\\n{evil}\\n' > three/.git/hooks/post-index-change; chmod +x three/.git/hooks/post-index-change; \
         git init -q --bare four; git -C four config core.bare false; git -C four config core.worktree .; \
         git -C four config core.fsmonitor '{evil}'; \
         mkdir five; git init -q --separate-git-dir=\"$PWD/store\" five; git -C five config core.fsmonitor '{evil}'; \
         mkdir six; ln -s ../one/.git six/.git; echo made"
    )
    .replace("\"$TOP/ran\"", "$TOP/ran");
    let mut agent = Agent::playing(&script(&[json!({ "command": make })])).ready();
    let directory = agent.directory().to_owned();
    std::fs::write(directory.join("plain"), "text\n").unwrap();
    let said = play(&mut agent);
    assert!(said.contains("made"), "{said}");
    for sub in ["one", "two", "three", "four", "five", "six"] {
        let place = directory.join(sub);
        for args in [&["status"][..], &["add", "."], &["diff"], &["log", "-1"]] {
            users_git(&place, args);
        }
    }
    eprintln!("attempts: 6");
    assert!(!directory.join("ran").exists(), "{said}");
    assert!(!Path::new("/ran").exists());
    assert!(said.contains("was renamed to "), "{said}");
    assert!(directory.join("two/.git/config.set-aside").exists());
}

/// The program may lie in the session's directory. A command that replaces it gains nothing.
// R: T7
#[test]
#[expect(clippy::disallowed_methods, reason = "a copy of the program that a command replaces")]
fn replaced_program_restricts_the_next_command_all_the_same() {
    use std::io::{BufRead, BufReader, Write};
    let directory = crate::directory::Directory::outside_of_tmp();
    let bin = directory.join("node_modules/.bin");
    std::fs::create_dir_all(&bin).unwrap();
    let program = bin.join("purlin");
    std::fs::copy(env!("CARGO_BIN_EXE_purlin"), &program).unwrap();
    let outside = directory.join("..").canonicalize().unwrap();
    let escaped = outside.join(format!("escaped-{}", std::process::id()));
    let replace = format!(
        "printf '#!/bin/sh\\ntouch {0}\\n' > x; chmod +x x; mv -f x node_modules/.bin/purlin; echo replaced",
        escaped.display()
    );
    let test = format!("touch {}; echo tried", escaped.display());
    let file = directory.join("script.acp");
    std::fs::write(&file, script(&[json!({ "command": replace }), json!({ "command": test })]))
        .unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["acp", "--model", &format!("script:{}", file.display())]).env_clear();
    command
        .env("HOME", &*directory)
        .env("PATH", "/usr/bin:/bin")
        .env("XDG_DATA_HOME", directory.join("data"));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut send = |message: Value| writeln!(input, "{message}").unwrap();
    send(
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } }),
    );
    send(
        json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new", "params": { "cwd": &*directory, "mcpServers": [] } }),
    );
    let mut all = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        all += &line;
        if message["id"] == 2 {
            let session = &message["result"]["sessionId"];
            let prompt = json!([{ "type": "text", "text": "go" }]);
            send(
                json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": { "sessionId": session, "prompt": prompt } }),
            );
        } else if message["method"] == "session/request_permission" {
            let once = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            send(json!({ "jsonrpc": "2.0", "id": message["id"], "result": once }));
        } else if message["id"] == 3 {
            break;
        }
    }
    drop(input);
    child.wait().unwrap();
    assert!(all.contains("replaced") && all.contains("tried"), "{all}");
    assert!(!escaped.exists(), "{all}");
}

/// The limit of the user's shell ends no process in silence: what cannot be written is an error.
// R: W7
#[test]
fn file_size_limit_is_reported_and_ends_nothing() {
    let start = Agent::playing("model text \"Hello.\"\n").before("ulimit -f 200");
    let data = crate::directory::Directory::outside_of_tmp();
    let mut agent = start.storing_in(&data).ready();
    let mut failed = None;
    for _ in 0..40 {
        let params = json!({ "cwd": agent.directory(), "mcpServers": [] });
        let call = agent.call("session/new", params);
        let reply = agent.reply(call);
        if reply["error"].is_object() {
            failed = Some(reply["error"].clone());
            break;
        }
        let session = reply["result"]["sessionId"].as_str().unwrap().to_owned();
        let turn = agent
            .prompt(&session, &(0..20_000).map(|number| format!("{number} ")).collect::<String>());
        let reply = agent.reply(turn);
        if reply["error"].is_object() {
            failed = Some(reply["error"].clone());
            break;
        }
    }
    assert!(failed.is_some(), "the limit was not reached");
    // The program still answers, and ends when it is asked to.
    assert!(agent.result("session/list", json!({}))["sessions"].is_array());
    agent.close_input();
    assert!(agent.wait(DEADLINE).success());
}
