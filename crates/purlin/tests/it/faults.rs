//! What providers do wrong, P01 to P36 of the fault list: the built program against the fake server.
//!
//! A `Case` says what the server does and what the client must see; `check` also sees to it that the session goes on,
//! that the history holds what was shown, and that the key is nowhere. The faults themselves: `places` has those of
//! the network and of HTTP, `answers` those of what comes after a status of 200.

mod answers;
mod places;

use std::io::Read;
use std::process::Stdio;
use std::thread::JoinHandle;

use fake_model::ReceivedRequest;
use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, text_of};
use crate::models::{CANARY, CHAT, Fake, ask, config_at, updates};

/// A time-out that is waited for, in milliseconds.
const SHORT: u64 = 1000;
/// A time-out that does not pass, however busy the machine is.
const LONG: u64 = 60_000;

/// One fault, and what the client sees of it.
struct Case<'a> {
    package: &'a str,
    /// What the server does before it works again.
    script: &'a str,
    /// How many requests that takes.
    requests: usize,
    /// What the client is told before each further request; nothing if there is none.
    told: &'a str,
    /// The text that the client is shown.
    shown: &'a str,
    /// How many calls of tools the client is shown.
    calls: usize,
    ends: Ends<'a>,
    header_timeout: u64,
    chunk_timeout: u64,
}

/// How a turn ends.
#[derive(Clone, Copy)]
enum Ends<'a> {
    /// With this reason to stop.
    Well(&'a str),
    /// With this code and kind, and with these words in the details.
    Badly(i64, &'a str, &'a [&'a str]),
}

impl Default for Case<'_> {
    fn default() -> Self {
        Case {
            package: CHAT,
            script: "",
            requests: 1,
            told: "",
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
        Ends::Badly(-32603, "model_unavailable", words)
    }

    const fn failed(words: &'a [&'a str]) -> Ends<'a> {
        Ends::Badly(-32603, "model_failed", words)
    }

    const fn incomplete(words: &'a [&'a str]) -> Ends<'a> {
        Ends::Badly(-32603, "answer_incomplete", words)
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

/// A client in a session with a program that logs all it can.
struct Client {
    agent: Agent,
    session: String,
    log: JoinHandle<String>,
    /// Everything the client got.
    heard: String,
    /// Everything the model said.
    shown: String,
}

impl Client {
    fn new(config: Value) -> Client {
        let mut agent = Agent::configured(config)
            .env("FAKE_KEY", CANARY)
            .env("NO_PROXY", "*")
            .keeping("data".as_ref())
            .log("trace", Stdio::piped())
            .start();
        let mut stderr = agent.take_stderr();
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            stderr.read_to_end(&mut log).unwrap();
            String::from_utf8_lossy(&log).into_owned()
        });
        let hello = agent.initialize();
        let params = json!({ "cwd": agent.folder(), "mcpServers": [] });
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

    /// Meets the fault, and checks what the client sees of it.
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
        let retries = if case.told.is_empty() { 0 } else { case.requests - 1 };
        assert_eq!(waits.len(), retries, "{waits:?}, {place}");
        assert!(waits.iter().all(|wait| wait.contains(case.told)), "{waits:?}, {place}");
    }

    /// Asks once more, and gets an answer.
    fn go_on(&mut self) {
        let (reply, seen) = self.ask("Again.");
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
        assert_eq!(text_of(&self.session, &seen), "Back.", "{reply}");
    }

    /// Loads the session, ends the program, and looks for the key.
    fn end(mut self) {
        self.agent.take_seen();
        let cwd = self.agent.folder().to_owned();
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

/// What the client was told of further tries.
fn waits(seen: &[Value]) -> Vec<&str> {
    let thoughts = updates(seen, "agent_thought_chunk").into_iter();
    let thoughts = thoughts.filter_map(|update| update["content"]["text"].as_str());
    thoughts.flat_map(str::lines).filter(|line| line.contains(". Retrying")).collect()
}

/// Plays a fault against a server that works afterwards. Returns what the server was asked.
fn check(case: &Case<'_>) -> Vec<ReceivedRequest> {
    let fake = Fake::new(&format!("{}\n---\ntext \"Back.\"", case.script));
    let mut client = Client::new(case.config(&fake.url));
    client.meet(case);
    let place = format!("{}, {}", case.package, case.script);
    assert_eq!(fake.requests().len(), case.requests, "{place}");
    client.go_on();
    let asked = fake.requests();
    check_history(case, &asked[case.requests]);
    assert_eq!(asked.len(), case.requests + 1, "{place}");
    let has_key =
        |asked: &ReceivedRequest| asked.headers.iter().any(|(_, value)| value.contains(CANARY));
    assert!(asked.iter().all(has_key), "{place}");
    client.end();
    asked
}

/// The model's next request holds what was shown, once, and nothing of what the user was told beside it.
fn check_history(case: &Case<'_>, next: &ReceivedRequest) {
    let body = &next.body;
    if !case.shown.is_empty() {
        assert_eq!(body.matches(case.shown).count(), 1, "{}: {body}", case.package);
    }
    assert!(!body.contains("Retrying"), "{}: {body}", case.package);
}

/// Plays a fault of a place that never works; the session goes on with another model.
fn check_elsewhere(url: &str, case: &Case<'_>) {
    let fake = Fake::new("text \"Back.\"");
    let mut config = case.config(url);
    config["provider"]["other"] = case.config(&fake.url)["provider"]["fake"].take();
    let mut client = Client::new(config);
    client.meet(case);
    let choice = json!({ "sessionId": client.session, "modelId": "other/fake" });
    client.agent.result("session/set_model", choice);
    client.go_on();
    check_history(case, &fake.requests()[0]);
    client.end();
}

/// The same answer so many times.
fn times(count: usize, answer: &str) -> String {
    vec![answer; count].join("\n---\n")
}

/// Silence is tried again.
fn check_silence(answer: &str, package: &str) {
    check(&Case {
        package,
        script: &format!("{answer}\n---\ntext \"late\""),
        requests: 2,
        told: "fake sent nothing for 1.0 s",
        shown: "late",
        header_timeout: SHORT,
        chunk_timeout: SHORT,
        ..Case::default()
    });
}

/// Silence is tried three times again and no more.
fn check_long_silence(answer: &str) {
    check(&Case {
        script: &times(4, answer),
        requests: 4,
        told: "fake sent nothing for 1.0 s",
        ends: Ends::unavailable(&["sent nothing for 1.0 s", "Try again later", "chunkTimeout"]),
        header_timeout: SHORT,
        chunk_timeout: SHORT,
        ..Case::default()
    });
}
