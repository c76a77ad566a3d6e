//! Faults of providers, P01 to P36 of docs/internals/model-faults.md: the built program with the fake model server.
//!
//! A `Case` says what the server does and what the client must see. `check` also verifies that the session still works, that
//! the history has exactly what was shown, and that the key appears nowhere. `places` has the faults of the network and of
//! HTTP, `answers` those after a status of 200.

mod answers;
mod places;

use std::io::Read;
use std::process::Stdio;
use std::thread::JoinHandle;

use fake_model::ReceivedRequest;
use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, text_of};
use crate::models::{CANARY, CHAT, Fake, ask, config_at, updates};

/// A timeout that the test waits for, in milliseconds.
const SHORT: u64 = 1000;
/// A timeout that is never reached, however busy the machine is.
const LONG: u64 = 60_000;

/// One fault, and what the client must see.
struct Case<'a> {
    package: &'a str,
    /// What the server does until it works again.
    script: &'a str,
    /// The number of requests until then.
    requests: usize,
    /// The notice before each retry; empty if there is no retry.
    notice: &'a str,
    /// The text shown to the client.
    shown: &'a str,
    /// The number of tool calls shown to the client.
    calls: usize,
    ends: Ends<'a>,
    header_timeout: u64,
    chunk_timeout: u64,
}

/// How a turn ends.
#[derive(Clone, Copy)]
enum Ends<'a> {
    /// With this stop reason.
    Well(&'a str),
    /// With an error of this code and kind that has these words in its details.
    Badly(i64, &'a str, &'a [&'a str]),
}

impl Default for Case<'_> {
    fn default() -> Self {
        Case {
            package: CHAT,
            script: "",
            requests: 1,
            notice: "",
            shown: "",
            calls: 0,
            ends: Ends::Well("end_turn"),
            header_timeout: LONG,
            chunk_timeout: LONG,
        }
    }
}

impl<'a> Ends<'a> {
    const fn unavailable(words: &'a [&'a str]) -> Ends<'a> {
        Ends::Badly(-32004, "model_unavailable", words)
    }

    const fn failed(words: &'a [&'a str]) -> Ends<'a> {
        Ends::Badly(-32004, "model_failed", words)
    }

    const fn incomplete(words: &'a [&'a str]) -> Ends<'a> {
        Ends::Badly(-32004, "answer_incomplete", words)
    }
}

impl Case<'_> {
    /// The configuration of a user whose model is at `url`.
    fn config(&self, url: &str) -> Value {
        let mut config = config_at(url, self.package);
        let options = &mut config["provider"]["fake"]["options"];
        options["headerTimeout"] = json!(self.header_timeout);
        options["chunkTimeout"] = json!(self.chunk_timeout);
        config
    }
}

/// A client with a session of a program that logs everything.
struct Client {
    agent: Agent,
    session: String,
    log: JoinHandle<String>,
    /// Everything the client received.
    heard: String,
    /// The whole text of the model.
    shown: String,
}

impl Client {
    fn new(config: Value) -> Client {
        let mut agent = Agent::configured(config)
            .env("FAKE_KEY", CANARY)
            .env("NO_PROXY", "*")
            .storing_in("data".as_ref())
            .log("trace", Stdio::piped())
            .start();
        let mut stderr = agent.take_stderr();
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            stderr.read_to_end(&mut log).unwrap();
            String::from_utf8_lossy(&log).into_owned()
        });
        let hello = agent.initialize();
        let params = json!({ "cwd": agent.directory(), "mcpServers": [] });
        let opened = agent.result("session/new", params);
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        let heard = format!("{hello}{opened}");
        Client { agent, session, log, heard, shown: String::new() }
    }

    fn ask(&mut self, text: &str) -> (Value, Vec<Value>) {
        let (reply, seen) = ask(&mut self.agent, &self.session, text);
        self.heard += &format!("{reply}{}", Value::from(seen.clone()));
        self.shown += &text_of(&self.session, &seen);
        (reply, seen)
    }

    /// Runs the turn with the fault and checks what the client sees.
    fn meet(&mut self, case: &Case<'_>) {
        let (reply, seen) = self.ask("Go.");
        let place = format!("{}, {}: {reply}", case.package, case.script);
        match case.ends {
            Ends::Well(stop) => assert_eq!(reply["result"]["stopReason"], stop, "{place}"),
            Ends::Badly(code, kind, words) => {
                let error = &reply["error"];
                let details = error["data"]["details"].as_str().unwrap_or_default();
                assert_eq!(error["code"], code, "{place}");
                assert_eq!(error["data"]["kind"], kind, "{place}");
                assert!(words.iter().all(|words| details.contains(words)), "{words:?}, {place}");
            }
        }
        assert_eq!(text_of(&self.session, &seen), case.shown, "{place}");
        assert_eq!(updates(&seen, "tool_call").len(), case.calls, "{place}");
        let waits = waits(&seen);
        let retries = if case.notice.is_empty() { 0 } else { case.requests - 1 };
        assert_eq!(waits.len(), retries, "{waits:?}, {place}");
        assert!(waits.iter().all(|wait| wait.contains(case.notice)), "{waits:?}, {place}");
    }

    /// Prompts again and gets an answer.
    fn prompt_again(&mut self) {
        let (reply, seen) = self.ask("Again.");
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
        assert_eq!(text_of(&self.session, &seen), "Back.", "{reply}");
    }

    /// Loads the session, ends the program, and searches its output for the key.
    fn end(mut self) {
        self.agent.take_seen();
        let cwd = self.agent.directory().to_owned();
        let params = json!({ "sessionId": self.session, "cwd": cwd, "mcpServers": [] });
        let loaded = self.agent.result("session/load", params);
        let seen = self.agent.take_seen();
        assert_eq!(text_of(&self.session, &seen), self.shown);
        self.heard += &format!("{loaded}{}", Value::from(seen));
        self.agent.close_input();
        assert!(self.agent.wait(DEADLINE).success());
        let log = self.log.join().unwrap();
        assert!(!log.is_empty());
        assert!(!self.heard.contains(CANARY), "the client got the key");
        assert!(!log.contains(CANARY), "the log has the key");
    }
}

/// Returns the notices about retries.
fn waits(seen: &[Value]) -> Vec<&str> {
    let thoughts = updates(seen, "agent_thought_chunk").into_iter();
    let thoughts = thoughts.filter_map(|update| update["content"]["text"].as_str());
    thoughts.flat_map(str::lines).filter(|line| line.contains(". Retrying")).collect()
}

/// Plays a fault of a server that works afterwards. Returns the requests to the server.
fn check(case: &Case<'_>) -> Vec<ReceivedRequest> {
    let fake = Fake::new(&format!("{}\n---\ntext \"Back.\"", case.script));
    let mut client = Client::new(case.config(&fake.url));
    client.meet(case);
    let place = format!("{}, {}", case.package, case.script);
    assert_eq!(fake.requests().len(), case.requests, "{place}");
    client.prompt_again();
    let asked = fake.requests();
    check_history(case, &asked[case.requests]);
    assert_eq!(asked.len(), case.requests + 1, "{place}");
    let has_key =
        |asked: &ReceivedRequest| asked.headers.iter().any(|(_, value)| value.contains(CANARY));
    assert!(asked.iter().all(has_key), "{place}");
    client.end();
    asked
}

/// Checks that the next request has the shown text exactly once, and none of the notices.
fn check_history(case: &Case<'_>, next: &ReceivedRequest) {
    let body = &next.body;
    if !case.shown.is_empty() {
        assert_eq!(body.matches(case.shown).count(), 1, "{}: {body}", case.package);
    }
    assert!(!body.contains("Retrying"), "{}: {body}", case.package);
}

/// Plays a fault of a server that never works; the session continues with another model.
fn check_elsewhere(url: &str, case: &Case<'_>) {
    let fake = Fake::new("text \"Back.\"");
    let mut config = case.config(url);
    config["provider"]["other"] = case.config(&fake.url)["provider"]["fake"].take();
    let mut client = Client::new(config);
    client.meet(case);
    let choice = json!({ "sessionId": client.session, "modelId": "other/fake" });
    client.agent.result("session/set_model", choice);
    client.prompt_again();
    check_history(case, &fake.requests()[0]);
    client.end();
}

/// Returns the same answer this many times.
fn times(count: usize, answer: &str) -> String {
    vec![answer; count].join("\n---\n")
}

/// Checks that silence leads to a retry.
fn check_silence(answer: &str, package: &str) {
    check(&Case {
        package,
        script: &format!("{answer}\n---\ntext \"late\""),
        requests: 2,
        notice: "fake sent nothing for 1.0 s",
        shown: "late",
        header_timeout: SHORT,
        chunk_timeout: SHORT,
        ..Case::default()
    });
}

/// Checks that silence leads to three retries and no more.
fn check_long_silence(answer: &str) {
    check(&Case {
        script: &times(4, answer),
        requests: 4,
        notice: "fake sent nothing for 1.0 s",
        ends: Ends::unavailable(&["sent nothing for 1.0 s", "Try again later", "chunkTimeout"]),
        header_timeout: SHORT,
        chunk_timeout: SHORT,
        ..Case::default()
    });
}
