//! What is seen of an agent from outside: the report, the numbers of spans, and traces that go on in models and MCP servers.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, text_of};
use crate::directory::Directory;
use crate::mcp::wait_for_servers;
use crate::models::{CHAT, Fake, ask};

/// Where keys and other secrets come from, as a user has them.
const IN_CONFIG: &str = "canary-config-plain-1";
const IN_HEADER: &str = "canary-header-2";
const IN_ENVIRONMENT: &str = "canary-environment-3";
const IN_AUTH_FILE: &str = "canary-auth-file-4";
const IN_PROMPT: &str = "sk-canary-prompt-0123456789";
const IN_SERVER: &str = "canary-server-5";

/// Runs a command of the program in a home directory of its own.
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn purlin(home: &Directory, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(args).current_dir(home.join("")).stdin(Stdio::null());
    command.env("HOME", home.join("")).env("ANTHROPIC_API_KEY", IN_ENVIRONMENT);
    for (name, place) in [("CONFIG", "config"), ("DATA", "data"), ("STATE", "state")] {
        command.env(format!("XDG_{name}_HOME"), home.join(place));
    }
    command.env("XDG_RUNTIME_DIR", home.join("run"));
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Makes a home with secrets everywhere, and lets an agent in it have a turn that uses them. Returns what it wrote to stderr.
fn lived_in_home() -> (Directory, String) {
    let home = Directory::new();
    let key = json!({ "openai": { "type": "api", "key": IN_AUTH_FILE } });
    home.write("data/purlin/auth.json", &key.to_string());
    let refused = json!({ "error": { "message": format!("bad key {IN_CONFIG}") } });
    let fake = Fake::new(&format!(
        "tool bash {{\"command\":\"echo {IN_PROMPT}\"}}\nusage 10 2 0 0\n---\nstatus 401\nbody {}\n",
        Value::from(refused.to_string())
    ));
    let mut config = fake.config(CHAT);
    config["provider"]["fake"]["options"]["apiKey"] = json!(IN_CONFIG);
    config["provider"]["fake"]["options"]["headers"] = json!({ "x-team": IN_HEADER });
    config["permission"] = json!({ "bash": "allow" });
    config["mcp"] = json!({ "silent": {
        "type": "local", "command": ["/bin/sh", "-c", format!("echo {IN_SERVER} >&2; exec cat >/dev/null")],
        "environment": { "A": IN_SERVER }, "timeout": 1000,
    } });
    config["trace"] = json!(home.join("trace.jsonl"));
    home.write("config/purlin/purlin.json", &config.to_string());
    let env = |start: crate::agent::Start, name: &'static str, place: &str| {
        start.env(name, &home.join(place).to_string_lossy())
    };
    let start = Agent::configured(config).log("debug", Stdio::piped());
    let start = env(start, "XDG_STATE_HOME", "state");
    let start = env(start, "XDG_DATA_HOME", "data").env("ANTHROPIC_API_KEY", IN_ENVIRONMENT);
    let (mut agent, session) = start.storing_in(&home.join("data")).session();
    let mut stderr = agent.take_stderr();
    let log = std::thread::spawn(move || std::io::read_to_string(&mut stderr).unwrap());
    // The server starts slowly, and what it printed is shown.
    crate::agent::wait_until("the server's output is shown", DEADLINE, || {
        let (_, seen) = ask(&mut agent, &session, "/mcp log silent");
        text_of(&session, &seen).contains("****")
    });
    agent.send_bytes(format!("{{ nonsense {IN_PROMPT}\n").as_bytes());
    let (reply, _) = ask(&mut agent, &session, &format!("use {IN_PROMPT}"));
    assert_eq!(reply["error"]["code"], -32000, "{reply}");
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    (home, log.join().unwrap())
}

/// Returns every file below a directory.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

// R: O1, O2, O4
#[test]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "tar is no child of an agent")]
fn no_secret_is_in_log_trace_page_or_report() {
    let (home, stderr) = lived_in_home();
    let secrets = [IN_CONFIG, IN_HEADER, IN_ENVIRONMENT, IN_AUTH_FILE, IN_PROMPT, IN_SERVER];
    let check = |what: &str, text: &str| {
        let found: Vec<_> = secrets.iter().filter(|secret| text.contains(**secret)).collect();
        assert!(found.is_empty(), "{what} has {found:?}: {text}");
    };
    assert!(stderr.contains("DEBUG"), "{stderr}");
    check("stderr", &stderr);
    check(
        "the log file",
        &std::fs::read_to_string(home.join("state/purlin/log/purlin.log")).unwrap(),
    );
    let trace = home.join("trace.jsonl").to_string_lossy().into_owned();
    check("the trace", &std::fs::read_to_string(&trace).unwrap());
    for form in
        [&[][..], &["--mermaid"], &["--svg", "timing"], &["--svg", "sequence"], &["--perfetto"]]
    {
        let output = purlin(&home, &[&["trace", &trace], form].concat()).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
        check(&format!("{form:?}"), &text(&output));
    }
    let page = home.join("page.html").to_string_lossy().into_owned();
    let output = purlin(&home, &["trace", &trace, "--html", &page]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    check("the page", &std::fs::read_to_string(&page).unwrap());
    let output = purlin(&home, &["logs"]).output().unwrap();
    check("logs", &text(&output));

    let output = purlin(&home, &["report", "--yes", "--output", "report.tar.gz"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    check("what the report shows", &text(&output));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(home.join("report.tar.gz")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let unpacked =
        Command::new("tar").current_dir(home.join("")).args(["xzf", "report.tar.gz"]).status();
    assert!(unpacked.unwrap().success());
    let found = files(&home.join("purlin-report"));
    let mut names: Vec<_> =
        found.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["configuration.txt", "doctor.txt", "log.jsonl", "trace.jsonl", "version.txt"]
    );
    let read = |name: &str| std::fs::read_to_string(home.join("purlin-report").join(name)).unwrap();
    for name in names {
        check(name, &read(name));
        assert!(text(&output).contains(name), "{name} is not shown");
        let inside = home.join("").to_string_lossy().into_owned();
        assert!(
            !read(name).contains(inside.trim_end_matches('/')),
            "{name} has the home directory"
        );
    }
    assert!(read("version.txt").starts_with(&format!("purlin {}", env!("CARGO_PKG_VERSION"))));
    assert!(read("configuration.txt").contains("provider.fake.options.apiKey = \"****\""));
    assert!(read("doctor.txt").contains("sandbox: "));
    assert!(read("log.jsonl").contains("\"operation\":\"turn\""));
    // What was masked is still a trace.
    let shown = purlin(&home, &["trace", "purlin-report/trace.jsonl"]).output().unwrap();
    assert!(text(&shown).contains("session/prompt"), "{shown:?}");
}

// R: O4
#[test]
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "script is no child of an agent")]
fn report_is_written_only_after_a_yes() {
    use std::io::Write;
    let home = Directory::new();
    home.write("config/purlin/purlin.json", "{}");
    let output = purlin(&home, &["report"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output).contains("version.txt") && text(&output).contains("add `--yes`"));
    let answered = |answer: &str| {
        let program = env!("CARGO_BIN_EXE_purlin");
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &format!("{program} report -o report.tar.gz"), "/dev/null"]);
        for (name, place) in [
            ("HOME", ""),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "state"),
        ] {
            terminal.env(name, home.join(place));
        }
        terminal.current_dir(home.join("")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut terminal = terminal.spawn().unwrap();
        terminal.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = terminal.wait_with_output().unwrap();
        (output.status.code(), text(&output))
    };
    let (code, said) = answered("no\n");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("Write report.tar.gz? [y/N]") && said.contains("Nothing was written"),
        "{said}"
    );
    assert!(!home.join("report.tar.gz").exists());
    let (code, said) = answered("y\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(home.join("report.tar.gz").exists());
    // It is not replaced.
    let (code, said) = answered("y\n");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("exists already"), "{said}");
}

// R: O4
#[test]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "tar is no child of an agent")]
fn recording_in_a_report_can_be_played() {
    let home = Directory::new();
    let recording = home.join("recording");
    let start = Agent::playing("model text \"hello\"").recording_to(&recording);
    let (mut agent, session) = start.session();
    agent.result("session/prompt", crate::agent::prompt(&session, "go"));
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let args = ["report", "--yes", "-o", "r.tar.gz", "--recording", "recording"];
    let output = purlin(&home, &args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let unpacked =
        Command::new("tar").current_dir(home.join("")).args(["xzf", "r.tar.gz"]).status();
    assert!(unpacked.unwrap().success());
    let played = purlin(&home, &["replay", "purlin-report/recording"]).output().unwrap();
    assert!(text(&played).starts_with("Identical: "), "{}", text(&played));
}

const CONTEXT: &str = "00-0123456789abcdef0123456789abcdef-00f067aa0ba902b7-01";

/// A server that writes the parameters of each call to a file.
const SERVER: &str = r#"
const tools = [{ name: "note", inputSchema: { type: "object" } }];
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const info = { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "n", version: "1" } };
  const results = { initialize: info, "tools/list": { tools }, "tools/call": { content: [{ type: "text", text: JSON.stringify(params._meta) }] } };
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, result: results[method] ?? {} }));
});
"#;

/// Runs a turn with a model request and an MCP call, and returns the context that each got.
fn contexts_passed_on(allowed: Option<bool>) -> (Option<String>, Option<String>, Vec<Value>) {
    let home = Directory::new();
    home.write("server.js", SERVER);
    let trace = home.join("trace");
    let fake = Fake::new("tool notes_note {}\n---\ntext \"Done.\"\n");
    let mut config = fake.config(CHAT);
    config["permission"] = json!({ "*": "allow" });
    config["trace"] = json!(trace);
    if let Some(allowed) = allowed {
        config["trace_context"] = json!(allowed);
    }
    let mut agent = Agent::configured(config).env("FAKE_KEY", "k").ready();
    let server =
        json!({ "name": "notes", "command": "node", "args": [home.join("server.js")], "env": [] });
    let params = json!({ "cwd": agent.directory(), "mcpServers": [server] });
    let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    wait_for_servers(&mut agent, &session);
    let mut prompt = crate::agent::prompt(&session, "go");
    prompt["_meta"] = json!({ "traceparent": CONTEXT });
    agent.take_seen();
    let id = agent.call("session/prompt", prompt);
    while let message = agent.next()
        && message["id"] != id
    {
        if message["method"] == "session/request_permission" {
            let allowed = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            agent.answer(&message["id"], allowed);
        }
    }
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let of_model =
        fake.requests()[0].headers.iter().find(|(name, _)| name == "traceparent").cloned();
    let result = fake.body(1)["messages"].as_array().unwrap().last().unwrap().to_string();
    let of_server = result.split("traceparent").nth(1).map(|rest| {
        rest.chars()
            .filter(|letter| letter.is_ascii_hexdigit() || *letter == '-')
            .take(55)
            .collect()
    });
    let text = std::fs::read_to_string(trace).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let spans = lines.filter(|line| line["span"].is_string()).collect();
    (of_model.map(|(_, value)| value), of_server, spans)
}

// R: O1
#[test]
fn trace_of_the_client_continues_in_model_and_mcp_server_if_the_user_wants_it() {
    let (of_model, of_server, spans) = contexts_passed_on(Some(true));
    // The receiver's spans are part of ours: the request and the call.
    let expected = |kind: &str| {
        let span = spans.iter().find(|span| span["kind"] == kind).unwrap();
        Some(format!("00-0123456789abcdef0123456789abcdef-{}-01", span["span"].as_str().unwrap()))
    };
    assert_eq!(of_model, expected("model"));
    assert_eq!(of_server, expected("mcp"));
    for allowed in [None, Some(false)] {
        let (of_model, of_server, _) = contexts_passed_on(allowed);
        assert_eq!((of_model, of_server), (None, None), "{allowed:?}");
    }
}

// R: O1
#[test]
fn cost_and_the_reply_have_the_numbers_of_the_spans() {
    let home = Directory::new();
    let trace = home.join("trace");
    let task = json!({ "description": "Look", "prompt": "Do it.", "subagent_type": "explore" });
    let fake = Fake::new(&format!(
        "tool task {task}\nusage 10 1 5 3\n---\ntext \"Seen.\"\nusage 20 2 0 0\n---\ntext \"Done.\"\nusage 40 4 7 0\n"
    ));
    let mut config = fake.config(CHAT);
    config["trace"] = json!(trace);
    let (mut agent, session) = Agent::configured(config).env("FAKE_KEY", "k").session();
    let (reply, seen) = ask(&mut agent, &session, "Look.");
    let (_, cost) = ask(&mut agent, &session, "/cost");
    let table = text_of(&session, &cost);
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let trace = std::fs::read_to_string(trace).unwrap();
    let lines = trace.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let models: Vec<Value> = lines.filter(|line| line["kind"] == "model").collect();
    assert_eq!(models.len(), 3);
    let sum = |name: &str| models.iter().filter_map(|span| span[name].as_u64()).sum::<u64>();
    let dollars: f64 = models.iter().filter_map(|span| span["cost"].as_f64()).sum();
    let (input, output, read) = (sum("tokens_in"), sum("tokens_out"), sum("cache_read"));
    assert!(input > 0 && output > 0 && dollars > 0.0, "{models:?}");
    let usage = &reply["result"]["usage"];
    assert_eq!(
        (&usage["inputTokens"], &usage["outputTokens"]),
        (&json!(input), &json!(output)),
        "{usage}"
    );
    assert_eq!(usage["cachedReadTokens"].as_u64().unwrap_or(0), read, "{usage}");
    let row = format!(
        "| `fake/fake` | 3 | {input} | {read} | {} | {output} | ${dollars:.4} |",
        sum("cache_write")
    );
    assert!(table.contains(&row), "{row}\n{table}");
    let costs = crate::models::updates(&seen, "usage_update");
    assert_eq!(costs.last().unwrap()["cost"]["amount"], json!(dollars));
}

// R: O2
#[test]
#[cfg(unix)]
fn trace_command_names_a_private_page_of_the_last_turn() {
    let state = Directory::new();
    for trace in ["", "trace.jsonl"] {
        let script = "model text \"first answer\"\nmodel end\nmodel text \"second answer\"";
        let start = Agent::playing(script).env("XDG_STATE_HOME", &state.join("").to_string_lossy());
        let file = state.join("trace.jsonl").to_string_lossy().into_owned();
        let start = if trace.is_empty() { start } else { start.env("PURLIN_TRACE", &file) };
        let (mut agent, session) = start.session();
        let (_, seen) = ask(&mut agent, &session, "/trace");
        assert!(text_of(&session, &seen).contains("No turn"), "{seen:?}");
        ask(&mut agent, &session, "one");
        ask(&mut agent, &session, "two");
        let (_, seen) = ask(&mut agent, &session, "/trace");
        let said = text_of(&session, &seen);
        let page = said.split('`').nth(1).unwrap_or_else(|| panic!("no path in {said}"));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(page).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let page = std::fs::read_to_string(page).unwrap();
        let turns = page.matches("\"turn\",\"turn\"").count();
        assert_eq!(turns, 1, "{trace}");
        // With a trace, the messages of the turn are on the page, too.
        let has = ["second answer", "first answer"].map(|text| page.contains(text));
        assert_eq!(has, [!trace.is_empty(), false], "{trace}");
        agent.close_input();
        assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    }
}

/// Nothing listens: who wants to see an agent connects to its socket in a private directory.
// R: O3
#[test]
#[cfg(target_os = "linux")]
fn agent_opens_no_port() {
    let runtime = Directory::new();
    let start = Agent::playing("model text \"one\"");
    let (mut agent, session) =
        start.env("XDG_RUNTIME_DIR", &runtime.join("").to_string_lossy()).session();
    ask(&mut agent, &session, "go");
    let socket = runtime.join(format!("purlin/{}.sock", agent.pid()));
    crate::agent::wait_until("the socket exists", DEADLINE, || socket.exists());
    let fds = std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap();
    let links = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let sockets: Vec<String> = links
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .collect();
    assert!(!sockets.is_empty(), "not even the socket for those who watch");
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let table = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let inode = line.split_whitespace().nth(9).unwrap_or_default();
            assert!(!sockets.iter().any(|socket| socket == inode), "{line}");
        }
    }
    let directory = std::fs::metadata(runtime.join("purlin")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&directory.permissions()) & 0o777, 0o700);
}
