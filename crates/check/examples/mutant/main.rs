//! An agent that breaks one rule on request: `mutant --fault ROW`. Without a fault it passes every row of the catalogue.
//!
//! The tests of the suite run it: each fault must fail its own row. It is a complete small agent: `main` has the wire and the
//! sessions, `turn` the turns and tools, `faults` the table of what is broken how. Its model is the file in `CHECK_SCRIPT`.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program for tests, with no crate below it that could start programs"
)]

mod faults;
mod mcp;
mod sessions;
mod turn;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

/// The whole agent.
pub(crate) struct Agent {
    fault: String,
    capabilities: Mutex<Option<Value>>,
    dialect: Mutex<&'static str>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// Calls of ours that wait for a reply.
    waiting: Mutex<HashMap<String, Sender<Value>>>,
    next_id: AtomicU64,
    script: fake_model::Script,
    taken: Mutex<HashSet<usize>>,
    home: PathBuf,
    work: Mutex<()>,
}

/// An open session.
pub(crate) struct Session {
    id: String,
    cwd: PathBuf,
    mode: Mutex<String>,
    /// The id of the open prompt.
    turn: Mutex<Option<Value>>,
    cancelled: AtomicBool,
    /// What the user said so far.
    said: Mutex<String>,
    prompts: Mutex<Vec<Instant>>,
    always: AtomicBool,
    servers: Mutex<Vec<mcp::Server>>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let fault = match words.as_slice() {
        [flag, fault] if flag == "--fault" => fault.clone(),
        [flag, _, text] if flag == "mcp-probe" => return serve_mcp(text),
        _ => String::new(),
    };
    let script =
        std::env::var("CHECK_SCRIPT").ok().and_then(|path| std::fs::read_to_string(path).ok());
    let script = script.unwrap_or_default();
    let in_turn = script.contains("term-turn-begins");
    let is_trapped = match fault.as_str() {
        "shutdown.term" => !in_turn,
        "shutdown.term-turn" => in_turn,
        _ => false,
    };
    if is_trapped && std::env::var("MUTANT_TRAPPED").is_err() {
        let own = std::env::current_exe().unwrap();
        let run = format!("trap '' TERM; exec '{}' --fault {fault}", own.display());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &run]).env("MUTANT_TRAPPED", "1");
        let error = std::os::unix::process::CommandExt::exec(&mut shell);
        eprintln!("{error}");
        std::process::exit(1);
    }
    let home = PathBuf::from(std::env::var("HOME").unwrap()).join("mutant");
    std::fs::create_dir_all(&home).unwrap();
    let agent = Arc::new(Agent {
        fault,
        capabilities: Mutex::default(),
        dialect: Mutex::new("v1"),
        sessions: Mutex::default(),
        waiting: Mutex::default(),
        next_id: AtomicU64::new(1),
        script: fake_model::parse(&script).unwrap(),
        taken: Mutex::default(),
        home,
        work: Mutex::default(),
    });
    agent.serve();
}

/// The suite starts this program as an MCP server, too.
fn serve_mcp(text: &str) {
    let file = PathBuf::from(std::env::var("MCP_PROBE_FILE").unwrap());
    let mark = format!("{text} {}", std::env::var("MCP_PROBE_MARK").unwrap_or_default());
    check::mcp_probe::serve(&file, &mark, std::io::stdin().lock(), std::io::stdout()).ok();
}

impl Agent {
    pub(crate) fn has_fault(&self, id: &str) -> bool {
        self.fault == id
    }

    fn serve(self: &Arc<Agent>) {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            self.line(text.trim_end_matches('\n'));
        }
        if self.has_fault("shutdown.eof") && self.sessions.lock().unwrap().len() == 1 {
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        let in_turn =
            self.sessions.lock().unwrap().values().any(|it| it.turn.lock().unwrap().is_some());
        if self.has_fault("shutdown.eof-turn") && in_turn {
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        self.sessions
            .lock()
            .unwrap()
            .values()
            .for_each(|it| it.cancelled.store(true, Ordering::SeqCst));
        std::process::exit(i32::from(self.has_fault("shutdown.eof-code")));
    }

    fn line(self: &Arc<Agent>, text: &str) {
        if faults::exits(&self.fault, text) {
            if self.has_fault("wire.parse-error-continues") {
                self.send(
                    json!({ "id": null, "error": { "code": -32700, "message": "Parse error" } }),
                );
            }
            std::process::exit(0);
        }
        if text.trim().is_empty() {
            return;
        }
        let error = |id: Value, code: i64, message: &str| json!({ "id": id, "error": { "code": code, "message": message } });
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            self.answer(text, error(Value::Null, -32700, "Parse error"));
            return;
        };
        let id = message.get("id").cloned();
        match (message["method"].as_str(), id) {
            (Some(method), Some(id)) => self.call(text, method, id, &message["params"]),
            (Some(method), None) => self.note(text, method, &message["params"]),
            (None, Some(id))
                if message.get("result").is_some() || message.get("error").is_some() =>
            {
                if let Some(waiting) = self.waiting.lock().unwrap().remove(&id.to_string()) {
                    waiting.send(message).ok();
                }
            }
            (None, id) => {
                self.answer(text, error(id.unwrap_or_default(), -32600, "Invalid Request"));
            }
        }
    }

    fn note(&self, text: &str, method: &str, params: &Value) {
        let sessions = self.sessions.lock().unwrap();
        match method {
            "session/cancel" => {
                let id = params["sessionId"].as_str().unwrap_or_default();
                let everybody = self.has_fault("isolation.cancel");
                for session in sessions.values().filter(|it| it.id == id || everybody) {
                    let said = session.said.lock().unwrap();
                    let is_early = said.is_empty() || said.contains("check-early");
                    let is_lost = self.has_fault("cancel.early") && is_early;
                    session.cancelled.store(!is_lost, Ordering::SeqCst);
                }
            }
            "$/cancel_request" if !self.has_fault("cancel.request") => {
                let is_open = |it: &&Arc<Session>| {
                    it.turn.lock().unwrap().as_ref() == Some(&params["requestId"])
                };
                if let Some(session) = sessions.values().find(is_open) {
                    session.cancelled.store(true, Ordering::SeqCst);
                }
            }
            _ => {}
        }
        drop(sessions);
        if faults::answers_note(&self.fault, text) {
            self.send(
                json!({ "id": null, "error": { "code": -32601, "message": "Method not found" } }),
            );
        }
    }

    /// Sends the reply to a call, changed by the fault. Returns whether it is a result.
    pub(crate) fn answer(&self, request: &str, reply: Value) -> bool {
        let replies = faults::change_reply(&self.fault, request, reply);
        let is_result = replies.iter().any(|reply| reply.get("result").is_some());
        replies.into_iter().for_each(|reply| self.send(reply));
        is_result
    }

    /// Sends a message, changed by the fault.
    pub(crate) fn send(&self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        let _guard = self.work.lock().unwrap();
        let mut out = std::io::stdout().lock();
        for line in faults::change_output(&self.fault, message) {
            out.write_all(&line).and_then(|()| out.write_all(b"\n")).ok();
        }
        out.flush().ok();
    }

    /// Calls the client and waits for its reply, unless the session is cancelled.
    pub(crate) fn ask(&self, session: &Session, method: &str, params: Value) -> Option<Value> {
        let mut id = json!(self.next_id.fetch_add(1, Ordering::SeqCst));
        if self.has_fault("wire.call-ids") {
            id = Value::Null;
        }
        let (tx, rx) = channel();
        self.waiting.lock().unwrap().insert(id.to_string(), tx);
        self.send(json!({ "id": id, "method": method, "params": params }));
        loop {
            if let Ok(reply) = rx.recv_timeout(std::time::Duration::from_millis(10)) {
                return reply.get("result").cloned();
            }
            if session.cancelled.load(Ordering::SeqCst) && !method.starts_with("terminal/") {
                return None;
            }
        }
    }

    pub(crate) fn client_has(&self, pointer: &str) -> bool {
        let capabilities = self.capabilities.lock().unwrap();
        capabilities.as_ref().and_then(|it| it.pointer(pointer)).is_some_and(|value| *value == true)
    }
}
