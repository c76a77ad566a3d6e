//! The trace of a connection, written and displayed by the built program.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE};
use crate::directory::Directory;

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn show(file: &Path, more: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"));
    let output = command.arg("trace").arg(file).args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

// R: O1, O2, D3
#[test]
fn trace_has_every_message_and_the_dialect_but_no_secrets() {
    let directory = Directory::new();
    let file = directory.join("trace");
    let start = Agent::playing("model text \"hello\"").env("PURLIN_TRACE", &file.to_string_lossy());
    let mut agent = start.start();
    let hello = json!({ "protocolVersion": "0.3.1", "clientCapabilities": { "filesRead": false } });
    agent.result("initialize", hello);
    let uri = format!("file://{}", agent.directory().display());
    let server =
        json!({ "name": "x", "command": "no-such-program", "env": { "TOKEN": "canary-7" } });
    let session =
        agent.result("session/new", json!({ "workspaceUri": uri, "mcpServers": [server] }));
    let session = session["sessionId"].as_str().unwrap().to_owned();
    let blocks = json!([{ "type": "text", "content": "use sk-canary-0123456789" }]);
    agent.result("session/prompt", json!({ "sessionId": session, "content": blocks }));
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("canary"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["direction"], &lines[0]["method"]), (&json!("in"), &json!("initialize")));
    assert_eq!(lines[1]["dialect"], "container");
    assert_eq!(lines[1]["why"], "`protocolVersion` is a dotted version string");
    let is_answer = |line: &&Value| {
        line["method"] == "session/prompt"
            && line["direction"] == "out"
            && line["message"]["result"].is_object()
    };
    let answer = lines.iter().find(is_answer).unwrap();
    assert_eq!(answer["session"], json!(session));
    assert!(answer["duration_ms"].is_u64() && answer["time"].is_u64(), "{answer}");
    let list = show(&file, &[]);
    assert!(list.contains("--  dialect container:"), "{list}");
    assert!(list.contains("<-  session/prompt answered: end_turn"), "{list}");
    assert_eq!(list.lines().count(), lines.len());
    let diagram = show(&file, &["--mermaid"]);
    assert!(diagram.starts_with("sequenceDiagram\n"), "{diagram}");
    assert!(diagram.contains("client->>agent: session/prompt"), "{diagram}");
}

// R: O1
#[test]
#[cfg(unix)]
fn trace_that_cannot_be_written_delays_nothing() {
    // Every write to this device fails.
    let start = Agent::playing("model echo\nmodel loop").env("PURLIN_TRACE", "/dev/full");
    let (mut agent, session) = start.session();
    let answer = agent.result("session/prompt", crate::agent::prompt(&session, "go"));
    assert_eq!(answer["stopReason"], "end_turn");
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
}

/// Returns the spans of a trace.
fn spans(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["span"].is_string()).collect()
}

// R: O1, O2
#[test]
#[cfg(unix)]
fn spans_share_their_ids_with_the_messages_and_nest() {
    let directory = Directory::new();
    let file = directory.join("trace");
    let script = "model usage {\"input\":90,\"output\":7}\nmodel tool read {\"filePath\":\"missing\"}\nmodel end\nmodel text \"done\"";
    let start = Agent::playing(script).env("PURLIN_TRACE", &file.to_string_lossy());
    let (mut agent, session) = start.session();
    let mut prompt = crate::agent::prompt(&session, "go");
    let context = "00-0123456789abcdef0123456789abcdef-00f067aa0ba902b7-01";
    prompt["_meta"] = json!({ "traceparent": context });
    agent.result("session/prompt", prompt);
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    let spans = spans(&file);
    let of = |kind: &str| spans.iter().filter(|span| span["kind"] == kind).collect::<Vec<_>>();
    let ([turn], [first, second]) = (&of("turn")[..], &of("model")[..]) else {
        panic!("{spans:#?}");
    };
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_call = |line: &Value| line["method"] == "session/prompt" && line["direction"] == "in";
    let call = lines.into_iter().find(is_call).unwrap();
    assert_eq!((&turn["request"], &turn["session"]), (&call["id"], &json!(session)));
    assert_eq!((&turn["stop"], &turn["traceparent"]), (&json!("end_turn"), &json!(context)));
    assert_eq!((&first["tokens_in"], &first["tokens_out"]), (&json!(90), &json!(7)));
    assert!(first["first_byte_ms"].is_f64() && second["duration_ms"].is_f64(), "{first}");
    assert_eq!((&first["parent"], &second["parent"]), (&turn["span"], &turn["span"]));
    let [tool] = &of("tool")[..] else { panic!("{spans:#?}") };
    assert_eq!((&tool["parent"], &tool["end"]), (&turn["span"], &json!("failed")));
    assert!(tool["call"].is_string() && tool["error"].as_str().unwrap().contains("missing"));
    assert_eq!(of("run")[0]["parent"], tool["span"]);
    let page = directory.join("page.html");
    assert_eq!(show(&file, &["--html", &page.to_string_lossy()]), "");
    assert!(std::fs::read_to_string(page).unwrap().contains("Purlin trace"));
    let events: Value = serde_json::from_str(&show(&file, &["--perfetto"])).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > spans.len());
    assert!(show(&file, &["--svg", "timing"]).starts_with("<svg"));
    assert!(show(&file, &["--svg", "sequence"]).starts_with("<svg"));
    assert_eq!(show(&file, &["--method", "model"]).lines().count(), 2);
}

// R: O2
#[test]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn tap_passes_every_byte_on_and_ends_like_the_agent() {
    use std::io::{Read, Write};
    let directory = Directory::new();
    let file = directory.join("trace");
    // An agent that answers everything with itself, complains, and fails.
    let agent = "cat; echo complaint >&2; exit 7";
    let mut tap = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"))
        .args(["tap", "--trace", &file.to_string_lossy(), "--", "sh", "-c", agent])
        .env("XDG_RUNTIME_DIR", directory.join("run"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut sent = b"not json \xff\r\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"key\":\"canary\"}}\n".to_vec();
    sent.extend(vec![b'x'; 300_000]);
    let mut input = tap.stdin.take().unwrap();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || input.write_all(&copy).unwrap());
    let mut received = Vec::new();
    tap.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    let mut complaint = String::new();
    tap.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!(tap.wait().unwrap().code(), Some(7));
    assert!(received == sent, "{} bytes came back of {}", received.len(), sent.len());
    assert_eq!(complaint, "complaint\n");
    let list = show(&file, &[]);
    assert!(list.contains("->  m  #1") && list.contains("<-  m  #1"), "{list}");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("canary"));
}
