//! The command line: what the subcommands print and what they refuse.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, wait_until};
use crate::commands::runs;
use crate::directory::Directory;

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(arguments).current_dir(home).stdin(Stdio::null());
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
    command
}

/// Runs `purlin` for a user with this home directory.
fn purlin(home: &Path, arguments: &[&str]) -> Output {
    command(home, arguments).output().unwrap()
}

fn said(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn closed_output_is_not_an_error() {
    let home = Directory::new();
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
        let mut child = command(&home, arguments);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Closed before the program prints anything, as far as possible.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(said(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn empty_lists_are_reported_as_empty() {
    let home = Directory::new();
    let all: [(&[&str], &str); 6] = [
        (&["auth", "list"], "No keys."),
        (&["mcp", "list"], "No MCP servers configured."),
        (&["mcp", "test"], "No MCP servers configured."),
        (&["trust", "--list"], "No trusted folders."),
        (&["permissions", "list"], "No saved answers."),
        (&["sessions", "list"], "No stored sessions."),
    ];
    for (arguments, words) in all {
        let output = purlin(&home, arguments);
        assert!(said(&output.stdout).starts_with(words), "{arguments:?}: {output:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

// R: T2
#[test]
fn broken_configuration_is_reported_by_every_command_that_reads_it() {
    let home = Directory::new();
    home.write(".config/purlin/purlin.json", "{ \"permission\": ");
    let all: [&[&str]; 6] = [
        &["auth", "list"],
        &["sessions", "list"],
        &["models"],
        &["mcp", "list"],
        &["permissions", "list"],
        &["config", "show"],
    ];
    for arguments in all {
        let output = purlin(&home, arguments);
        assert!(said(&output.stderr).contains("purlin.json:1: "), "{arguments:?}: {output:?}");
    }
    assert!(said(&purlin(&home, &["doctor"]).stdout).contains("purlin.json:1: "));
}

#[test]
fn missing_things_are_refused() {
    let home = Directory::new();
    let all: [(&[&str], &str); 14] = [
        (&["auth", "login", "nope"], "unknown provider `nope`. Known: anthropic"),
        (&["trust", "/nope"], "folder not found: /nope"),
        (&["run", " "], "the prompt is empty"),
        (&["run", "--model", "nope/x", "hi"], "unknown provider `nope`"),
        (&["run", "--model", "script:nope", "hi"], "cannot read the script nope"),
        (&["man", "mcp", "nope"], "unknown command `mcp nope`"),
        (&["sessions", "import", "/nope"], "cannot read /nope"),
        (&["sessions", "import", "/dev/null"], "cannot read /dev/null: not a regular file"),
        (&["sessions", "import", "/bin/sh"], "cannot read /bin/sh"),
        (&["--log", "bogus", "models"], "error, warn, info, debug, trace"),
        (&["models", "--config", "/nope"], "cannot read /nope"),
        (&["mcp", "test", "--config", "/nope"], "cannot read /nope"),
        (&["mcp", "list", "--config", "/nope"], "cannot read /nope"),
        (&["config", "show", "--config", "/nope"], "cannot read /nope"),
    ];
    for (arguments, words) in all {
        let output = purlin(&home, arguments);
        assert!(said(&output.stderr).contains(words), "{arguments:?}: {output:?}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    // Adding the first server creates the file.
    let file = home.join("new.json").display().to_string();
    let output = purlin(&home, &["mcp", "--config", &file, "add", "x", "--", "node"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn models_of_a_configuration_file_are_listed() {
    let home = Directory::new();
    let file = home.join("mine.json");
    let models = json!({ "m": {} });
    let options = json!({ "apiKey": "sk-canary", "baseURL": "http://127.0.0.1:9/v1" });
    let config = json!({ "provider": { "here": { "options": options, "models": models } } });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let output = purlin(&home, &["models", "--config", &file]);
    let text = said(&output.stdout);
    assert!(text.contains("here/m") && text.contains(&file), "{text}");
    assert!(!text.contains("purlin.json") && !text.contains("canary"), "{text}");
    assert!(text.contains("\n  purlin/guide\n"), "{text}");
    let theirs = home.join(".config/opencode/opencode.json");
    std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    std::fs::write(&theirs, config.to_string()).unwrap();
    let output = purlin(&home, &["models"]);
    let standing = format!("(here): key from {}\n", theirs.display());
    assert!(said(&output.stdout).contains(&standing), "{output:?}");
}

/// Import refuses invalid session files.
#[test]
fn import_is_checked_before_anything_is_stored() {
    let home = Directory::new();
    let file = home.join("session.json");
    let exported = |form: u32, id: &str, cwd: &str| {
        json!({
            "purlin_session": form, "id": id, "cwd": cwd, "created_at": "", "updated_at": "", "records": [],
        })
    };
    let import = |session: Value| {
        std::fs::write(&file, session.to_string()).unwrap();
        purlin(&home, &["sessions", "import", &file.display().to_string()])
    };
    for (session, words) in [
        (exported(2, "a", "/"), "its format is 2, and this version reads 1"),
        (exported(1, "../../up", "/"), "its `id` must be 1 to 64 letters"),
        (exported(1, "", "/"), "its `id` must be 1 to 64 letters"),
        (exported(1, "a", "here"), "its `cwd` must be an absolute path"),
    ] {
        let output = import(session);
        assert!(said(&output.stderr).contains(words), "{words}: {output:?}");
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
    let listed = purlin(&home, &["sessions", "list"]);
    assert_eq!(said(&listed.stdout), "No stored sessions.\n");
    assert_eq!(said(&import(exported(1, "a-1_B", "/")).stdout), "a-1_B\n");
}

/// The agent runs in another directory; the path of the script is relative to the current one.
#[test]
fn run_finds_its_script_and_reports_mistakes() {
    let home = Directory::new();
    std::fs::create_dir(home.join("work")).unwrap();
    std::fs::write(home.join("script.acp"), "model text \"Found.\"\n").unwrap();
    let run = |more: &[&str]| {
        let front = ["run", "--cwd", "work", "--model", "script:script.acp"];
        purlin(&home, &[&front, more].concat())
    };
    let output = run(&["hi"]);
    assert_eq!((said(&output.stdout), output.status.code()), ("Found.\n", Some(0)), "{output:?}");
    let output = run(&["--mode", "nope", "hi"]);
    assert!(
        said(&output.stderr)
            .contains("unknown mode `nope`; the agent has build, accept_edits, plan, ask")
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(run(&["--mode", "architect", "hi"]).status.code(), Some(0));
    let output = run(&["/contxt"]);
    assert!(said(&output.stdout).contains("Unknown command `/contxt`. Did you mean `/context`?"));
    assert_eq!(output.status.code(), Some(1));
    for (prompt, why) in [
        ("/rewind x", "`x` is not a message number."),
        ("/rewind 9", "Message 9 not found."),
        ("/mode fast", "Unknown mode `fast`."),
        ("/model none", "Unknown model `none`."),
    ] {
        let output = run(&[prompt]);
        assert!(said(&output.stdout).starts_with(why), "{output:?}");
        assert_eq!(output.status.code(), Some(1), "{prompt}");
    }
    for prompt in ["/rewind", "/context", "/mcp", "/tour-guide is what?", "/usr/bin"] {
        assert_eq!(run(&[prompt]).status.code(), Some(0), "{prompt}");
    }
    // A session with commands only gets the first one as its title.
    let listed = purlin(&home, &["sessions", "list"]);
    assert!(said(&listed.stdout).contains("  /contxt  ("), "{listed:?}");
    let first = said(&listed.stdout).split_whitespace().next().unwrap().to_owned();
    assert!(purlin(&home, &["sessions", "show", &first]).status.success(), "{first}");
    // Without a terminal, it must be said that nothing is asked.
    let refused = purlin(&home, &["sessions", "delete", &first]);
    assert!(said(&refused.stderr).contains("use `--yes`"), "{refused:?}");
    assert!(purlin(&home, &["sessions", "delete", "--yes", &first]).status.success());
    assert!(!purlin(&home, &["sessions", "show", &first]).status.success());
    std::fs::write(home.join("script.acp"), "model text \"a\"\nmodle end\n").unwrap();
    let output = run(&["hi"]);
    assert!(said(&output.stderr).contains("line 2: unknown line `modle`"), "{output:?}");
}

/// An agent that prints nothing and does not read its input.
#[cfg(unix)]
#[test]
fn agent_ends_when_its_run_is_terminated() {
    let home = Directory::new();
    let mark = home.join("mark");
    let agent = format!("touch '{}'; exec sleep 73105", mark.display());
    let mut child = command(&home, &["run", "hi", "--agent", "sh", "-c", &agent]).spawn().unwrap();
    wait_until("the agent runs", DEADLINE, || mark.exists() && runs("73105"));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_until("the kernel removes the agent", Duration::from_secs(10), || !runs("73105"));
}

#[test]
fn manual_has_a_page_for_every_command() {
    let home = Directory::new();
    let page = |words: &[&str]| {
        let output = purlin(&home, &[&["man"], words].concat());
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

/// The doctor names a missing server with the reason.
#[test]
fn doctor_names_a_failing_mcp_server() {
    let home = Directory::new();
    let none = purlin(&home, &["doctor"]);
    assert!(said(&none.stdout).contains("✓ mcp: no servers configured\n"), "{none:?}");
    purlin(&home, &["mcp", "add", "gone", "--", "/no/such program", "--token", "canary"]);
    let output = purlin(&home, &["doctor"]);
    let text = said(&output.stdout);
    assert!(text.contains("! mcp: 1 of 1 server failed\n    gone: "), "{text}");
    let listed = purlin(&home, &["mcp", "list"]);
    assert_eq!(said(&listed.stdout), "gone\t'/no/such program' --token '****'\n");
}

/// A model that sends a plan, changes a file and runs a command.
fn script(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "model tool plan {{\"entries\":[\"Look\",\"Leap\"]}}\n\
         model tool read {{\"path\":\"{directory}/a.txt\"}}\nmodel end\n\
         model tool edit {{\"path\":\"{directory}/a.txt\",\"oldString\":\"old\",\"newString\":\"new\"}}\n\
         model tool bash {{\"command\":\"echo out of it\"}}\n\
         model text \"Done.\"\n"
    )
}

#[cfg(target_os = "linux")]
#[test]
fn run_shows_the_output_of_commands() {
    let home = Directory::new();
    let file = home.join("script.acp");
    std::fs::write(&file, "model tool bash {\"command\":\"seq 1 50\"}\nmodel text \"Done.\"\n")
        .unwrap();
    let model = format!("script:{}", file.display());
    let output = purlin(&home, &["run", "--allow", "all", "--model", &model, "go"]);
    assert_eq!(said(&output.stdout), "Done.\n");
    let aside = said(&output.stderr);
    assert!(aside.contains("\n    1\n") && aside.contains("\n    50\n"), "{aside}");
    assert!(aside.contains(" lines …\n") && !aside.contains("\n    20\n"), "{aside}");
}

/// Returns what a client sees when it loads a session.
fn loaded(data: &Path, session: &str) -> Vec<Value> {
    let mut agent = Agent::playing("").storing_in(data).ready();
    agent.result("session/load", json!({ "sessionId": session }));
    let seen = agent.take_seen();
    seen.into_iter().map(|message| message["params"]["update"].clone()).collect()
}

// R: S11
#[cfg(target_os = "linux")]
#[test]
fn exported_session_can_be_imported_unchanged() {
    let home = Directory::new();
    std::fs::write(home.join("a.txt"), "kept\nold\n").unwrap();
    std::fs::write(home.join("script.acp"), script(&home)).unwrap();
    let model = format!("script:{}", home.join("script.acp").display());
    let ran = purlin(&home, &["run", "--allow", "all", "--model", &model, "Change it."]);
    assert_eq!(said(&ran.stdout), "Done.\n", "{ran:?}");
    let listed = purlin(&home, &["sessions", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let session = listed["id"].as_str().unwrap().to_owned();
    let text = purlin(&home, &["sessions", "export", &session]);
    let text = said(&text.stdout);
    for part in ["Change it.", "- [ ] Leap", "-old\n+new", " kept", "out of it", "Done."] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let file = home.join("session.json").display().to_string();
    purlin(&home, &["sessions", "export", &session, "--format", "json", "-o", &file]);
    let other = Directory::new();
    let taken = purlin(&other, &["sessions", "import", &file]);
    assert_eq!(said(&taken.stdout).trim(), session, "{taken:?}");
    let data = |home: &Directory| home.join(".local/share");
    let (before, after) = (loaded(&data(&home), &session), loaded(&data(&other), &session));
    assert!(before.len() > 5, "{before:#?}");
    assert_eq!(before, after);
}
