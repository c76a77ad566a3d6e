//! The commands of the shell: what they print, where there is nothing to print, and what they refuse.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::commands::runs;
use crate::crash::Folder;

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(arguments).current_dir(home).stdin(Stdio::null());
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
    command
}

/// Runs `purlin` as a user with this home.
fn purlin(home: &Path, arguments: &[&str]) -> Output {
    command(home, arguments).output().unwrap()
}

fn said(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let home = Folder::new("head");
    let all: [&[&str]; 8] = [
        &["models"],
        &["man"],
        &["completions", "bash"],
        &["config", "schema"],
        &["config", "show"],
        &["doctor"],
        &["auth", "list"],
        &["sessions", "list"],
    ];
    for arguments in all {
        let mut child = command(&home.0, arguments);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Before it says anything, as far as that can be had.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(said(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn what_is_empty_says_so() {
    let home = Folder::new("empty");
    let all: [(&[&str], &str); 6] = [
        (&["auth", "list"], "There are no keys."),
        (&["mcp", "list"], "No MCP servers are configured."),
        (&["mcp", "test"], "No MCP servers are configured."),
        (&["trust", "--list"], "No folder is trusted."),
        (&["permissions", "list"], "No answers are kept."),
        (&["sessions", "list"], "No sessions are kept here."),
    ];
    for (arguments, words) in all {
        let output = purlin(&home.0, arguments);
        assert!(said(&output.stdout).starts_with(words), "{arguments:?}: {output:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn what_is_not_there_is_refused() {
    let home = Folder::new("refused");
    let all: [(&[&str], &str); 14] = [
        (
            &["auth", "login", "nope"],
            "the provider `nope`, which is not known; there are anthropic",
        ),
        (&["trust", "/nope"], "there is no folder /nope"),
        (&["run", " "], "the prompt is empty"),
        (&["run", "--model", "nope/x", "hi"], "the provider `nope`, which is not known"),
        (&["run", "--model", "script:nope", "hi"], "the script nope cannot be read"),
        (&["man", "mcp", "nope"], "there is no command `mcp nope`"),
        (&["sessions", "import", "/nope"], "/nope cannot be read"),
        (&["sessions", "import", "/dev/null"], "/dev/null cannot be read: it is no regular file"),
        (&["sessions", "import", "/bin/sh"], "/bin/sh cannot be read"),
        (&["--log", "bogus", "models"], "error, warn, info, debug and trace"),
        (&["models", "--config", "/nope"], "/nope cannot be read"),
        (&["mcp", "test", "--config", "/nope"], "/nope cannot be read"),
        (&["mcp", "list", "--config", "/nope"], "/nope cannot be read"),
        (&["config", "show", "--config", "/nope"], "/nope cannot be read"),
    ];
    for (arguments, words) in all {
        let output = purlin(&home.0, arguments);
        assert!(said(&output.stderr).contains(words), "{arguments:?}: {output:?}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    // The first server makes the file.
    let file = home.0.join("new.json").display().to_string();
    let output = purlin(&home.0, &["mcp", "--config", &file, "add", "x", "--", "node"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn models_are_listed_with_the_file_that_was_given_and_the_guide() {
    let home = Folder::new("models");
    let file = home.0.join("mine.json");
    let models = json!({ "m": {} });
    let options = json!({ "apiKey": "sk-canary", "baseURL": "http://127.0.0.1:9/v1" });
    let config = json!({ "provider": { "here": { "options": options, "models": models } } });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let output = purlin(&home.0, &["models", "--config", &file]);
    let text = said(&output.stdout);
    assert!(text.contains("here/m") && text.contains(&file), "{text}");
    assert!(!text.contains("purlin.json") && !text.contains("canary"), "{text}");
    assert!(text.contains("\n  purlin/guide\n"), "{text}");
    let theirs = home.0.join(".config/opencode/opencode.json");
    std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    std::fs::write(&theirs, config.to_string()).unwrap();
    let output = purlin(&home.0, &["models"]);
    let standing = format!("(here): key from {}\n", theirs.display());
    assert!(said(&output.stdout).contains(&standing), "{output:?}");
}

/// What an import refuses of a file that says it is a session.
#[test]
fn an_import_is_checked_before_anything_is_kept() {
    let home = Folder::new("checked");
    let file = home.0.join("session.json");
    let exported = |form: u32, id: &str, cwd: &str| {
        json!({
            "purlin_session": form, "id": id, "cwd": cwd, "created_at": "", "updated_at": "", "records": [],
        })
    };
    let import = |session: Value| {
        std::fs::write(&file, session.to_string()).unwrap();
        purlin(&home.0, &["sessions", "import", &file.display().to_string()])
    };
    for (session, words) in [
        (exported(2, "a", "/"), "it has the form 2, and this version reads 1"),
        (exported(1, "../../up", "/"), "its `id` must be 1 to 64 letters"),
        (exported(1, "", "/"), "its `id` must be 1 to 64 letters"),
        (exported(1, "a", "here"), "its `cwd` must be an absolute path"),
    ] {
        let output = import(session);
        assert!(said(&output.stderr).contains(words), "{words}: {output:?}");
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
    let listed = purlin(&home.0, &["sessions", "list"]);
    assert_eq!(said(&listed.stdout), "No sessions are kept here.\n");
    assert_eq!(said(&import(exported(1, "a-1_B", "/")).stdout), "a-1_B\n");
}

/// The agent runs in another folder; a script is found from the shell's.
#[test]
fn a_run_finds_its_script_and_names_the_modes_and_the_slip() {
    let home = Folder::new("slips");
    std::fs::create_dir(home.0.join("work")).unwrap();
    std::fs::write(home.0.join("script.acp"), "model text \"Found.\"\n").unwrap();
    let run = |more: &[&str]| {
        let front = ["run", "--cwd", "work", "--model", "script:script.acp"];
        purlin(&home.0, &[&front, more].concat())
    };
    let output = run(&["hi"]);
    assert_eq!((said(&output.stdout), output.status.code()), ("Found.\n", Some(0)), "{output:?}");
    let output = run(&["--mode", "nope", "hi"]);
    assert!(said(&output.stderr).contains("no mode `nope`; there are build, plan, ask"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(run(&["--mode", "architect", "hi"]).status.code(), Some(0));
    let output = run(&["/contxt"]);
    assert!(said(&output.stdout).contains("no command `/contxt`. Did you mean `/context`?"));
    assert_eq!(output.status.code(), Some(1));
    for prompt in ["/context", "/mcp", "/tour-guide is what?", "/usr/bin"] {
        assert_eq!(run(&[prompt]).status.code(), Some(0), "{prompt}");
    }
    // What had only commands is called by the first of them.
    let listed = purlin(&home.0, &["sessions", "list"]);
    assert!(said(&listed.stdout).contains("  /contxt  ("), "{listed:?}");
    std::fs::write(home.0.join("script.acp"), "model text \"a\"\nmodle end\n").unwrap();
    let output = run(&["hi"]);
    assert!(said(&output.stderr).contains("line 2: `modle` starts no line"), "{output:?}");
}

/// An agent that says nothing and does not watch its input.
#[cfg(unix)]
#[test]
fn an_agent_goes_with_the_run_that_is_told_to_end() {
    let home = Folder::new("silent");
    let mark = home.0.join("mark");
    let agent = format!("touch '{}'; exec sleep 73105", mark.display());
    let mut child =
        command(&home.0, &["run", "hi", "--agent", "sh", "-c", &agent]).spawn().unwrap();
    while !mark.exists() || !runs("73105") {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // The kernel takes a moment to take it away.
    let is_gone = |_: &i32| {
        std::thread::sleep(Duration::from_millis(10));
        !runs("73105")
    };
    assert!((0..1000).find(is_gone).is_some());
}

#[test]
fn the_manual_has_a_page_for_every_command_that_it_names() {
    let home = Folder::new("manual");
    let page = |words: &[&str]| {
        let output = purlin(&home.0, &[&["man"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        said(&output.stdout).replace('\\', "")
    };
    let named = |page: &str| -> Vec<String> {
        let names = page.lines().filter_map(|line| line.strip_suffix("(1)"));
        names
            .filter_map(|name| name.strip_prefix("purlin-"))
            .map(|name| name.replace('-', " "))
            .collect()
    };
    let main = page(&[]);
    assert!(main.contains("purlin man COMMAND"), "{main}");
    let commands = named(&main);
    assert!(commands.contains(&"mcp".to_owned()), "{commands:?}");
    for command in commands {
        let below = page(&[command.as_str()]);
        assert!(below.contains(&format!("purlin-{command}")), "{below}");
        for name in named(&below) {
            page(&name.split(' ').collect::<Vec<_>>());
        }
    }
}

/// A server that is not there is named with the reason, and nothing else is started twice.
#[test]
fn the_doctor_names_an_mcp_server_that_fails() {
    let home = Folder::new("doctor");
    let none = purlin(&home.0, &["doctor"]);
    assert!(said(&none.stdout).contains("✓ mcp: no servers are configured\n"), "{none:?}");
    purlin(&home.0, &["mcp", "add", "gone", "--", "/no/such program", "--token", "canary"]);
    let output = purlin(&home.0, &["doctor"]);
    let text = said(&output.stdout);
    assert!(
        text.contains("! mcp: 1 of 1 server does not work\n    gone: there is no program"),
        "{text}"
    );
    let listed = purlin(&home.0, &["mcp", "list"]);
    assert_eq!(said(&listed.stdout), "gone\t'/no/such program' --token '****'\n");
}

/// A model that plans, changes a file and runs a command.
fn script(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "model tool plan {{\"entries\":[\"Look\",\"Leap\"]}}\n\
         model tool read {{\"path\":\"{folder}/a.txt\"}}\nmodel end\n\
         model tool edit {{\"path\":\"{folder}/a.txt\",\"oldString\":\"old\",\"newString\":\"new\"}}\n\
         model tool bash {{\"command\":\"echo out of it\"}}\n\
         model text \"Done.\"\n"
    )
}

#[cfg(target_os = "linux")]
#[test]
fn what_commands_said_is_shown() {
    let home = Folder::new("run");
    let file = home.0.join("script.acp");
    std::fs::write(&file, "model tool bash {\"command\":\"seq 1 50\"}\nmodel text \"Done.\"\n")
        .unwrap();
    let model = format!("script:{}", file.display());
    let output = purlin(&home.0, &["run", "--allow", "--model", &model, "go"]);
    assert_eq!(said(&output.stdout), "Done.\n");
    let aside = said(&output.stderr);
    assert!(aside.contains("\n    1\n") && aside.contains("\n    50\n"), "{aside}");
    assert!(aside.contains(" lines …\n") && !aside.contains("\n    20\n"), "{aside}");
}

/// What a client is shown when it loads a session.
fn loaded(data: &Path, session: &str) -> Vec<Value> {
    let mut agent = Agent::playing("").keeping(data).ready();
    agent.result("session/load", json!({ "sessionId": session }));
    let seen = agent.take_seen();
    seen.into_iter().map(|message| message["params"]["update"].clone()).collect()
}

// R: S11
#[cfg(target_os = "linux")]
#[test]
fn an_exported_session_holds_what_was_shown_and_reads_back_the_same() {
    let home = Folder::new("export");
    std::fs::write(home.0.join("a.txt"), "kept\nold\n").unwrap();
    std::fs::write(home.0.join("script.acp"), script(&home.0)).unwrap();
    let model = format!("script:{}", home.0.join("script.acp").display());
    let ran = purlin(&home.0, &["run", "--allow", "--model", &model, "Change it."]);
    assert_eq!(said(&ran.stdout), "Done.\n", "{ran:?}");
    let listed = purlin(&home.0, &["sessions", "list"]);
    let session = said(&listed.stdout).split_whitespace().next().unwrap().to_owned();
    let text = purlin(&home.0, &["sessions", "export", &session]);
    let text = said(&text.stdout);
    for part in ["Change it.", "- [ ] Leap", "-old\n+new", " kept", "out of it", "Done."] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let file = home.0.join("session.json").display().to_string();
    purlin(&home.0, &["sessions", "export", &session, "--format", "json", "-o", &file]);
    let other = Folder::new("import");
    let taken = purlin(&other.0, &["sessions", "import", &file]);
    assert_eq!(said(&taken.stdout).trim(), session, "{taken:?}");
    let data = |home: &Folder| home.0.join(".local/share");
    let (before, after) = (loaded(&data(&home), &session), loaded(&data(&other), &session));
    assert!(before.len() > 5, "{before:#?}");
    assert_eq!(before, after);
}
