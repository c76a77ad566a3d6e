//! Shell commands for an editor without terminals: output, limits, and how they end.

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, Start, wait_until};
use crate::directory::Directory;

/// Prepares a program whose model runs these commands in order.
fn playing(inputs: &[Value]) -> Start {
    let lines: Vec<String> =
        inputs.iter().map(|input| format!("model tool bash {input}\nmodel end\n")).collect();
    Agent::playing(&(lines.concat() + "model text \"Done.\"\n"))
}

/// Runs a turn, allows every permission request, and returns the last status and the output of each call.
fn finish(agent: &mut Agent, session: &str) -> Vec<(String, String)> {
    let id = agent.prompt(session, "go");
    let mut calls = Vec::new();
    loop {
        let message = agent.next();
        if message["method"] == "session/request_permission" {
            let once = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            agent.answer(&message["id"], once);
        } else if message["id"] == id {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return calls;
        }
        let update = &message["params"]["update"];
        let status = update["status"].as_str().unwrap_or_default();
        if status == "completed" || status == "failed" {
            let text = update["content"][0]["content"]["text"].as_str().unwrap_or_default();
            // Output is fenced, so that editors show it as it is.
            let text = text
                .strip_prefix("```\n")
                .and_then(|text| text.strip_suffix("\n```"))
                .unwrap_or(text);
            calls.push((status.to_owned(), text.to_owned()));
        }
    }
}

/// Runs one command and returns its status and output.
fn run(input: Value) -> (String, String) {
    let (mut agent, session) = playing(&[input]).session();
    finish(&mut agent, &session).pop().unwrap()
}

fn says(command: &str) -> String {
    let (status, text) = run(json!({ "command": command }));
    assert_eq!(status, "completed", "{text}");
    text
}

/// Returns whether any process has this word among its arguments.
pub(crate) fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default())
        .any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}

// Fault: T01, T02, T11
#[test]
fn result_says_how_a_command_ended() {
    assert!(says("no-such-program").ends_with("(exit code 127)"));
    assert!(says("echo before; exit 3").ends_with("before\n(exit code 3)"));
    assert!(says("kill -SEGV $$").ends_with("(killed by SIGSEGV)"));
    assert_eq!(says("cat; echo end"), "end\n(exit code 0)");
    assert_eq!(says("true"), "(no output)\n(exit code 0)");
}

/// A client without terminals and without live output sees that a command still runs, for how long, and what it printed last.
// R: W24, P7
#[test]
fn long_command_shows_its_progress() {
    let input = json!({ "command": "echo one; sleep 2; echo two", "timeout": 60000 });
    let (mut agent, session) = playing(&[input]).session();
    let id = agent.prompt(&session, "go");
    let shown = agent.find(|message| message.to_string().contains("Running for"));
    let update = &shown["params"]["update"];
    assert_eq!(update["sessionUpdate"], "tool_call_update", "{shown}");
    let text = update["content"][0]["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("```\none\n```\nRunning for "), "{text}");
    assert!(text.ends_with(" s; it is ended after 60 s."), "{text}");
    let ended = agent.find(|message| message["params"]["update"]["status"] == "completed");
    assert!(ended.to_string().contains("two"), "{ended}");
    agent.find(|message| message["id"] == id);
}

// Fault: T12
#[test]
fn command_has_no_terminal() {
    let said = says("tty; test -t 1 || echo none; (exec 3</dev/tty) 2>/dev/null || echo no tty");
    assert_eq!(said, "not a tty\nnone\nno tty\n(exit code 0)");
}

// Fault: T03, T04
#[test]
fn timeout_ends_a_command_with_everything_it_started() {
    let input = json!({
        "command": "echo begun; trap '' TERM; sleep 73101 & setsid sleep 73101 & while :; do sleep 73101; done",
        "timeout": 500,
    });
    let (status, text) = run(input);
    assert_eq!(status, "failed");
    // The shell may still report which of its programs were killed.
    assert!(text.contains("\nbegun"), "{text}");
    assert!(text.contains("timeout"), "{text}");
    assert!(!runs("73101"));
}

// Fault: T04
#[test]
fn command_may_clean_up_when_it_is_terminated() {
    let input = json!({
        "command": "trap 'echo cleaned > mark; exit' TERM; echo ready; sleep 73102 & wait",
        "timeout": 500,
    });
    let (mut agent, session) = playing(&[input]).session();
    finish(&mut agent, &session);
    assert_eq!(std::fs::read_to_string(agent.directory().join("mark")).unwrap(), "cleaned\n");
    assert!(!runs("73102"));
}

// Fault: T05
#[test]
fn daemon_does_not_delay_the_turn_and_is_killed() {
    let said = says("setsid sleep 73103 & echo main");
    assert_eq!(said, "main\n(exit code 0)");
    assert!(!runs("73103"));
}

// Fault: T05
#[test]
fn cancel_ends_a_command_with_everything_it_started() {
    let (mut agent, session) =
        playing(&[json!({ "command": "setsid sleep 73104 & touch begun; sleep 73104" })]).session();
    let id = agent.prompt(&session, "go");
    let asked = agent.find(|message| message["method"] == "session/request_permission");
    let once = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
    agent.answer(&asked["id"], once);
    let begun = agent.directory().join("begun");
    wait_until("the command starts", DEADLINE, || begun.exists());
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(id)["result"]["stopReason"], "cancelled");
    assert!(!runs("73104"));
}

// Fault: T08, T10
#[cfg(target_os = "linux")]
#[test]
fn gibibyte_of_output_needs_little_memory() {
    let input = json!({ "command": "head -c 1073741824 /dev/zero | tr '\\0' x; echo; echo last" });
    let state = Directory::new();
    let small = json!({ "command": "echo first" });
    let (mut agent, session) =
        playing(&[small]).env("XDG_STATE_HOME", &state.display().to_string()).session();
    finish(&mut agent, &session);
    let before = agent.peak_memory();
    drop(agent);
    let (mut agent, session) =
        playing(&[input]).env("XDG_STATE_HOME", &state.display().to_string()).session();
    let (status, text) = finish(&mut agent, &session).pop().unwrap();
    let after = agent.peak_memory();
    assert_eq!(status, "completed");
    let end = &text[text.len() - 300..];
    assert!(end.contains("x\nlast\n(the first 67108864 bytes: /"), "{end}");
    assert!(end.ends_with(".txt)\n(exit code 0)"), "{end}");
    assert!(after < before + 8 * 1024 * 1024, "{before} → {after}");
}

// Fault: T09
#[test]
fn binary_output_becomes_valid_text() {
    let said = says("printf 'a\\377\\000\\033[31mb\\033]0;title\\007c'");
    assert_eq!(said, "a\u{fffd}bc\n(exit code 0)");
}

// Fault: T13, T14
#[test]
fn working_directory_cannot_be_removed_and_a_missing_one_is_reported() {
    let inputs =
        [json!({ "command": "touch a; rm -rf \"$PWD\"; ls -A" }), json!({ "command": "pwd" })];
    let (mut agent, session) = playing(&inputs).session();
    let calls = finish(&mut agent, &session);
    assert!(agent.directory().is_dir());
    assert!(calls[1].1.ends_with("(exit code 0)"), "{calls:?}");

    let (mut agent, session) = playing(&[json!({ "command": "pwd" })]).session();
    std::fs::remove_dir_all(agent.directory()).unwrap();
    let (status, text) = finish(&mut agent, &session).pop().unwrap();
    assert_eq!(status, "failed");
    assert!(text.contains("not run: working folder"), "{text}");
    std::fs::create_dir_all(agent.directory()).unwrap();
}

/// A command without memory reports that itself if an allocation fails; if it is killed, the result says so.
// Fault: T20
#[test]
fn command_that_runs_out_of_memory_is_reported() {
    let said = says("ulimit -d 65536; head -c 1000000000 /dev/zero | tail");
    assert_eq!(said, "tail: memory exhausted\n(exit code 1)");
    let said = says("echo before; kill -KILL $$");
    assert_eq!(said, "before\n(killed by SIGKILL, perhaps because it used too much memory)");
    let said = says("sh -c 'kill -KILL $$'; exit $?");
    assert!(
        said.ends_with(
            "(exit code 137, as after SIGKILL, perhaps because it used too much memory)"
        )
    );
}

// R: T3
#[test]
fn exit_code_is_distinguished_from_a_signal() {
    assert_eq!(says("exit 130"), "(no output)\n(exit code 130)");
    assert_eq!(says("kill -INT $$"), "(no output)\n(killed by SIGINT)");
}

/// The project has programs with the names of system programs, and is on the search path of the agent.
// Fault: T23
#[test]
fn program_of_the_project_does_not_replace_one_of_the_system() {
    use std::os::unix::fs::PermissionsExt;
    let project = Directory::new();
    std::fs::create_dir_all(project.join("bin")).unwrap();
    for name in ["ls", "git", "bash", "bin/cat", "bin/bwrap"] {
        let program = format!("#!/bin/sh\ntouch {}\n", project.join("mark").display());
        std::fs::write(project.join(name), program).unwrap();
        std::fs::set_permissions(project.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let commands = ["ls", "git --version", "cat bin/cat", "bash -c 'type ls git cat'"];
    // These name the project's programs explicitly, so they need permission, which is rejected here.
    let asked =
        ["PATH=.:$PATH ls", "export PATH=$PWD/bin:$PATH; cat ls", "./ls", "hash -p ./ls ls; ls"];
    let inputs: Vec<Value> =
        commands.iter().chain(&asked).map(|command| json!({ "command": command })).collect();
    let search = format!("{0}:.::{0}/bin:/usr/bin:/bin", project.display());
    let mut agent = playing(&inputs).env("PATH", &search).ready();
    let params = json!({ "cwd": project.path(), "mcpServers": [] });
    let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    let id = agent.prompt(&session, "go");
    let (mut questions, mut said) = (Vec::new(), String::new());
    loop {
        let message = agent.next();
        if message["method"] == "session/request_permission" {
            let title = message["params"]["toolCall"]["title"].as_str().unwrap().to_owned();
            let option = if asked.contains(&&*title) { "reject" } else { "once" };
            questions.push(title);
            let outcome = json!({ "outcome": "selected", "optionId": option });
            agent.answer(&message["id"], json!({ "outcome": outcome }));
        } else if message["id"] == id {
            break;
        }
        said.push_str(
            message["params"]["update"]["content"][0]["content"]["text"].as_str().unwrap_or(""),
        );
    }
    assert!(!project.join("mark").exists(), "{said}");
    assert!(said.contains("git version") && said.contains("ls is /"), "{said}");
    assert_eq!(questions.len(), asked.len() + 1, "{questions:?}");
}

// Fault: T26
#[test]
fn too_long_command_is_refused() {
    let (status, text) = run(json!({ "command": format!("echo {}", "x".repeat(200_000)) }));
    assert_eq!(status, "failed");
    assert!(text.contains("not run"), "{text}");
}

// R: T7
#[test]
fn commands_see_no_secrets_and_change_no_repository() {
    let home = Directory::new();
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    std::fs::write(home.join(".ssh/id"), "key").unwrap();
    let command = "env | grep -c SECRET; cat ~/.ssh/id; echo x > ~/new; mkdir .git/hooks; echo x > ok && cat ok";
    let (mut agent, session) = playing(&[json!({ "command": command })])
        .env("HOME", &home.display().to_string())
        .env("MY_SECRET", "hunter2")
        .session();
    let (_, text) = finish(&mut agent, &session).pop().unwrap();
    assert!(text.starts_with("0\n"), "{text}");
    assert!(!text.contains("key\n"), "{text}");
    assert!(text.ends_with("x\n(exit code 0)"), "{text}");
    assert!(!agent.directory().join(".git").exists());
}

// R: T3
#[test]
fn output_is_shown_live_and_only_once() {
    let mut agent =
        playing(&[json!({ "command": "echo one; sleep 0.3; echo two; exit 4" })]).start();
    let capabilities = json!({ "_meta": { "terminal_output": true } });
    let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
    agent.result("initialize", params);
    let session = agent.open();
    let id = agent.prompt(&session, "go");
    let call = agent.find(|message| message["params"]["update"]["sessionUpdate"] == "tool_call");
    let call = &call["params"]["update"];
    assert_eq!(call["content"][0], json!({ "type": "terminal", "terminalId": call["toolCallId"] }));
    let info = &call["_meta"]["terminal_info"];
    assert_eq!(info["terminal_id"], call["toolCallId"]);
    assert_eq!(info["cwd"], json!(agent.directory()));
    agent.reply(id);
    let (mut chunks, mut ends) = (Vec::new(), Vec::new());
    for message in agent.take_seen() {
        let meta = &message["params"]["update"]["_meta"];
        chunks.extend(meta["terminal_output"]["data"].as_str().map(str::to_owned));
        ends.extend(meta.get("terminal_exit").cloned());
    }
    assert_eq!(chunks, ["one\n", "two\n"]);
    assert_eq!(
        ends,
        [json!({ "terminal_id": call["toolCallId"], "exit_code": 4, "signal": null })]
    );
}

// R: T2, T7
#[test]
fn extra_permission_is_requested_by_name() {
    let (mut agent, session) = playing(&[json!({
        "command": "ip link | grep -c : ; echo done",
        "network": true,
        "reason": "to look\u{202e}",
    })])
    .session();
    agent.prompt(&session, "go");
    let asked = agent.find(|message| message["method"] == "session/request_permission");
    let call = &asked["params"]["toolCall"];
    assert_eq!(call["title"], "ip link | grep -c : ; echo done");
    assert_eq!(call["content"][0]["content"]["text"], "Needs the network: to look\\u{202e}");
}
