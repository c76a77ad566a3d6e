//! Diagnostics after an edit: checkers and language servers, in the sandbox, as the model sees what they say.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, wait_until};
use crate::models::{CHAT, Fake, ask};

/// A language server that reports every line with `bad` in it. `MODE` makes it misbehave.
const SERVER: &str = r#"
const mode = process.argv[2];
let buffer = Buffer.alloc(0);
const send = (message) => {
  const body = JSON.stringify({ jsonrpc: '2.0', ...message });
  process.stdout.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
};
const report = (uri, text) => {
  if (mode === 'dies') process.exit(3);
  if (mode === 'hangs') return send({ method: '$/progress', params: { token: 1, value: { kind: 'begin' } } });
  if (mode === 'ill') {
    const params = { health: 'error', quiescent: true, message: 'No project\nwas found' };
    return send({ method: 'experimental/serverStatus', params });
  }
  if (mode === 'lies') return process.stdout.write('Content-Length: 99999999999\r\n\r\n');
  const version = ++versions;
  const diagnostics = [];
  text.split('\n').forEach((line, number) => {
    const character = line.indexOf('bad');
    const start = { line: number, character };
    if (character >= 0) diagnostics.push({ range: { start }, severity: 1, code: 'B1', message: `found ${line}` });
  });
  send({ id: 'ask', method: 'workspace/configuration', params: { items: [{}, {}] } });
  found = diagnostics;
  if (mode === 'asked') return;
  const publish = (params) => send({ method: 'textDocument/publishDiagnostics', params });
  if (mode === 'late') return void setTimeout(() => publish({ uri, diagnostics }), 3500);
  if (mode === 'stale' && version > 1) publish({ uri, version: version - 1, diagnostics: [] });
  publish({ uri, version, diagnostics });
  if (mode === 'stale') publish({ uri, version: version - 1, diagnostics: [] });
};
let versions = 0;
let found = [];
let refusals = 0;
// Asks for the question once more, the first time.
const answer = (id) => refusals++ === 0
  ? send({ id, error: { code: -32802, message: 'cancelled', data: { retriggerRequest: true } } })
  : send({ id, result: { kind: 'full', items: found } });
const start = (id) => mode === 'refuses'
  ? send({ id, error: { code: -32603, message: 'No TypeScript was found' } })
  : send({ id, result: { capabilities: mode === 'asked' ? { diagnosticProvider: {} } : {} } });
process.stdin.on('data', (chunk) => {
  buffer = Buffer.concat([buffer, chunk]);
  for (;;) {
    const head = buffer.indexOf('\r\n\r\n');
    if (head < 0) return;
    const length = Number(/Content-Length: (\d+)/.exec(buffer.subarray(0, head))[1]);
    if (buffer.length < head + 4 + length) return;
    const message = JSON.parse(buffer.subarray(head + 4, head + 4 + length));
    buffer = buffer.subarray(head + 4 + length);
    const { method, id, params } = message;
    if (method === 'initialize') start(id);
    if (method === 'textDocument/diagnostic') answer(id);
    if (method === 'textDocument/didOpen') report(params.textDocument.uri, params.textDocument.text);
    if (method === 'textDocument/didChange') report(params.textDocument.uri, params.contentChanges[0].text);
  }
});
"#;

/// Writes files one after the other, and returns what the model is told about each.
fn results(config: &Value, prepare: impl FnOnce(&Path), contents: &[&str]) -> Vec<String> {
    let (_agent, results) = run(config, prepare, contents);
    results
}

fn run(config: &Value, prepare: impl FnOnce(&Path), contents: &[&str]) -> (Agent, Vec<String>) {
    let mut script = String::new();
    for content in contents {
        let input = json!({ "filePath": "a.txt", "content": content });
        script.push_str(&format!("tool write {input}\n---\n"));
    }
    let fake = Fake::new(&format!("{script}text \"Done.\"\n---\nloop"));
    let mut all = fake.config(CHAT);
    all["permission"] = json!("allow");
    all["limits"]["max_requests_per_turn"] = json!(50);
    for (key, value) in config.as_object().unwrap() {
        all[key] = value.clone();
    }
    let mut agent = Agent::configured(all).ready();
    std::fs::write(agent.directory().join("server.js"), SERVER).unwrap();
    prepare(agent.directory());
    let session = agent.open();
    let (reply, _) = ask(&mut agent, &session, "Write.");
    assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
    let requests = fake.requests();
    let last: Value = serde_json::from_str(&requests[contents.len()].body).unwrap();
    let messages = last["messages"].as_array().unwrap().iter();
    let results = messages.filter(|message| message["role"] == "tool");
    let results = results.map(|message| message["content"].as_str().unwrap().to_owned()).collect();
    (agent, results)
}

fn lsp(mode: &str) -> Value {
    let command = ["node", "server.js", mode];
    json!({ "lsp": { "own": { "command": command, "extensions": [".txt"], "timeout": 5 } } })
}

// R: T4
#[test]
fn checker_reports_what_is_new_about_the_changed_file() {
    let check = "grep -Hn bad \"$1\" | sed 's/:\\([0-9]*\\):\\(.*\\)/:\\1:1: error: found \\2/'; echo other.txt:1:1: error: x";
    let config = json!({ "check": { "*.txt": check, "*.rs": "echo never; exit 1" } });
    let results = results(&config, |_| {}, &["bad one\n", "fine\nbad one\nbad two\n", "fine\n"]);
    let new = "New diagnostics of `";
    assert!(results[0].contains(new) && results[0].ends_with("a.txt:1:1: error: found bad one"));
    assert!(results[1].contains("a.txt:3:1: error: found bad two\n(1 reported before remain)"));
    assert!(!results[2].contains("diagnostics"), "{}", results[2]);
    assert!(!results.concat().contains("\nother.txt"), "{results:?}");
}

// R: T4
#[test]
fn checker_that_fails_is_reported_and_the_edit_stays() {
    let config = json!({ "check": {
        "*.txt": { "command": "sleep 100", "timeout": 1 },
        "*": "no-such-program",
    } });
    let (agent, results) = run(&config, |_| {}, &["x"]);
    assert!(results[0].contains("(diagnostics of `sleep 100`: it took longer than 1 seconds)"));
    assert!(results[0].contains("no-such-program: command not found"), "{}", results[0]);
    assert_eq!(std::fs::read_to_string(agent.directory().join("a.txt")).unwrap(), "x");
}

// R: T4
#[test]
fn language_server_reports_what_is_new_about_the_changed_file() {
    let results = results(&lsp("good"), |_| {}, &["bad one\n", "é\nbad two\n", "fine\n"]);
    assert!(
        results[0]
            .ends_with("New diagnostics of `own` in a.txt:\na.txt:1:1: error: B1: found bad one")
    );
    assert!(results[1].ends_with("a.txt:2:1: error: B1: found bad two"), "{}", results[1]);
    assert!(!results[2].contains("diagnostics"), "{}", results[2]);
}

// R: T4
#[test]
fn language_server_is_asked_if_it_sends_nothing_by_itself() {
    let results = results(&lsp("asked"), |_| {}, &["bad one\n", "fine\n", "bad two\n"]);
    assert!(results[0].ends_with("a.txt:1:1: error: B1: found bad one"), "{}", results[0]);
    assert!(!results[1].contains("diagnostics"), "{}", results[1]);
    assert!(results[2].ends_with("a.txt:1:1: error: B1: found bad two"), "{}", results[2]);
}

// R: T4
#[test]
fn first_diagnostics_of_a_slow_language_server_are_waited_for() {
    let results = results(&lsp("late"), |_| {}, &["bad one\n"]);
    assert!(results[0].ends_with("a.txt:1:1: error: B1: found bad one"), "{}", results[0]);
}

// R: T4
#[test]
fn diagnostics_of_an_older_version_are_ignored() {
    let results = results(&lsp("stale"), |_| {}, &["bad one\n", "bad two\n"]);
    assert!(results[0].ends_with("error: B1: found bad one"), "{}", results[0]);
    assert!(results[1].ends_with("error: B1: found bad two"), "{}", results[1]);
}

// R: T4
#[test]
fn language_server_that_misbehaves_is_reported_and_the_edit_stays() {
    let died = results(&lsp("dies"), |_| {}, &["1", "2", "3", "4"]);
    assert!(died[2].contains("(diagnostics of `own`: node server.js dies ended)"), "{}", died[2]);
    assert!(died[3].contains("it was started 3 times and ended each time"), "{}", died[3]);
    let lied = results(&lsp("lies"), |_| {}, &["1"]);
    assert!(lied[0].contains("(diagnostics of `own`: node server.js lies ended)"), "{}", lied[0]);
    // One that never finishes its work is waited for up to the time-out, and then nothing is known.
    let mut config = lsp("hangs");
    config["lsp"]["own"]["timeout"] = json!(1);
    let hung = results(&config, |_| {}, &["1"]);
    assert!(hung[0].contains("(diagnostics of `own`: nothing within 1 s; "), "{}", hung[0]);
    let ill = results(&lsp("ill"), |_| {}, &["1"]);
    assert!(ill[0].contains("(diagnostics of `own`: No project was found)"), "{}", ill[0]);
    let refused = results(&lsp("refuses"), |_| {}, &["1"]);
    assert!(refused[0].contains("node server.js refuses ended: No TypeScript was found"));
    let missing =
        json!({ "lsp": { "own": { "command": ["no-such-server"], "extensions": [".txt"] } } });
    assert!(results(&missing, |_| {}, &["1"])[0].contains("(diagnostics of `own`: "));
}

// R: T2
#[test]
fn project_without_trust_runs_no_checker_and_no_language_server() {
    let project = json!({ "check": { "*": "touch ran-check" }, "lsp": lsp("good")["lsp"] });
    let prepare = |directory: &Path| {
        std::fs::write(directory.join("purlin.json"), project.to_string()).unwrap();
    };
    let (agent, results) = run(&json!({}), prepare, &["bad\n"]);
    assert!(!results[0].contains("diagnostics"), "{}", results[0]);
    assert!(!agent.directory().join("ran-check").exists());
}

// R: T7, W23
#[test]
fn language_server_is_sandboxed_and_ends_with_a_killed_agent() {
    let outside = format!("/usr/purlin-test-{}", std::process::id());
    let word = format!("75{}", std::process::id());
    let script = format!("touch {outside}; sleep {word} & exec node server.js good");
    let command = json!(["sh", "-c", script]);
    let config = json!({ "lsp": { "own": { "command": command, "extensions": [".txt"] } } });
    let (mut agent, results) = run(&config, |_| {}, &["bad\n"]);
    assert!(results[0].contains("found bad"), "{}", results[0]);
    assert!(!Path::new(&outside).exists(), "it wrote outside the project");
    let is_running = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines =
            processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.any(|line| line == format!("sleep\0{word}\0").into_bytes())
    };
    assert!(is_running());
    let pid = Pid::from_raw(agent.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    agent.wait(DEADLINE);
    wait_until("it is gone", DEADLINE, || !is_running());
}

// R: T1
#[test]
fn model_that_accepts_no_images_is_told_that_it_cannot_see_a_picture() {
    let fake = Fake::new("tool read {\"filePath\":\"dot.gif\"}\n---\ntext \"Done.\"\n---\nloop");
    for (input, expected) in
        [("text", "This model does not accept images"), ("image", "is shown below")]
    {
        let mut config = fake.config(CHAT);
        config["provider"]["fake"]["models"]["fake"]["modalities"] =
            json!({ "input": ["text", input] });
        let mut agent = Agent::configured(config).ready();
        let gif = b"GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
        std::fs::write(agent.directory().join("dot.gif"), gif).unwrap();
        let session = agent.open();
        let before = fake.requests().len();
        ask(&mut agent, &session, "Look.");
        let body = fake.body(before + 1).to_string();
        assert!(body.contains(expected), "{body}");
        assert_eq!(body.contains("data:image/"), input == "image", "{body}");
    }
}
