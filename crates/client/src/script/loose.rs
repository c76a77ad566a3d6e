//! Playing against an agent whose wording is not known: transcripts with the tag `loose`.
//!
//! A `<` line waits for a message that is like it and passes over all others. The client serves calls that the transcript
//! does not mention: files and terminals for real, permission by the policy in effect. A failure before the first `row`
//! line ends the transcript, because nothing after it could be judged.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use wire::RpcError;

use super::compare;
use super::player::{Player, write_all};
use super::{Failure, Stopped};
use crate::host::{Host, HostOptions, Permission};
use crate::transcript::{PermissionPolicy, ReplyValue, TranscriptLine, TranscriptStep};

/// How long to wait for a message after one was missing.
const IMPATIENT: Duration = Duration::from_secs(3);

/// How long an agent may take to close its output after its input was closed.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// A served call: the id and the answer.
type Served = (Value, Result<Box<RawValue>, RpcError>);

pub(super) struct Loose {
    pub(super) is_on: bool,
    pub(super) policy: PermissionPolicy,
    pub(super) host: Host,
    /// Calls of the agent that are being served.
    pub(super) served: JoinSet<Served>,
    /// Replies to our calls by id, with names in place of values.
    pub(super) replies: HashMap<String, Value>,
    /// The agent's calls as they were received, by their names.
    pub(super) calls: HashMap<String, Value>,
    /// The call that a `<` line matched last.
    pub(super) matched: Option<String>,
    /// The length of the log when the client last sent something, and when that was.
    pub(super) mark: usize,
    pub(super) sent_at: Instant,
    pub(super) within: Option<u64>,
    /// Messages that must not come: the line, and the length of the log there.
    pub(super) never: Vec<(usize, usize)>,
    linger: Duration,
}

impl Loose {
    pub(super) fn new(is_on: bool, directory: &Path, linger: Duration) -> Loose {
        let host = Host::new(HostOptions {
            files: true,
            terminals: true,
            cwd: directory.to_owned(),
            permission: Permission::Reject,
        });
        Loose {
            is_on,
            policy: PermissionPolicy::Choose("allow_once"),
            host,
            served: JoinSet::new(),
            replies: HashMap::new(),
            calls: HashMap::new(),
            matched: None,
            mark: 0,
            sent_at: Instant::now(),
            within: None,
            never: Vec::new(),
            linger,
        }
    }

    /// Stores what later lines may refer to.
    pub(super) fn remember(&mut self, raw: Value, named: &Value) {
        match (named.get("method"), named.get("id")) {
            (None, Some(id)) => {
                self.replies.insert(id.to_string(), named.clone());
            }
            (Some(_), Some(Value::String(name))) => {
                self.calls.insert(name.clone(), raw);
            }
            _ => {}
        }
    }

    fn reply_value(&self, wanted: &ReplyValue) -> Option<&Value> {
        let reply = self.replies.get(&wanted.call.to_string())?;
        let value = reply.get("result")?.pointer(&wanted.pointer)?;
        let is_none = value.is_null() || *value == json!(false) || *value == json!([]);
        (!is_none).then_some(value)
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Player<'_, R, W> {
    pub(super) async fn play_loosely(&mut self, line: &TranscriptLine) {
        match &line.step {
            TranscriptStep::Expect(expected) => {
                let expected = self.names.with_lets(expected);
                self.expect_eventually(line, &expected).await;
            }
            TranscriptStep::Send(_) | TranscriptStep::SendRaw(_) => {
                self.mark_sending();
                self.send_step(line, &line.step).await;
            }
            TranscriptStep::Flood(count, message) => self.flood(line, *count, message).await,
            TranscriptStep::Eof => self.close().await,
            TranscriptStep::Needs(wanted) => {
                if self.loose.reply_value(wanted).is_none() {
                    let reason = format!("the agent does not announce {}", wanted.pointer);
                    self.stop(reason, true);
                }
            }
            TranscriptStep::Let(name, wanted) => match self.loose.reply_value(wanted).cloned() {
                Some(value) => self.names.set(name, value),
                None => self.stop(format!("the agent does not offer {}", wanted.pointer), true),
            },
            TranscriptStep::Never(_) => {
                let at = (self.index - 1, self.played.log.len());
                self.loose.never.push(at);
            }
            TranscriptStep::Seen(expected) => {
                let expected = self.names.with_lets(expected);
                if !self.has_seen(&expected, self.loose.mark) {
                    self.fail(line, "no such message was received", Some(&expected), None);
                }
            }
            TranscriptStep::Says(text) => {
                let said = self.said(self.loose.mark);
                if !said.contains(text.as_str()) {
                    let expected = Value::from(text.as_str());
                    self.fail(
                        line,
                        "the text was not received",
                        Some(&expected),
                        Some(&said.into()),
                    );
                }
            }
            TranscriptStep::Quiet(millis) => self.pass_time(Duration::from_millis(*millis)).await,
            TranscriptStep::Within(millis) => self.loose.within = Some(*millis),
            TranscriptStep::Serve => {
                if let Some(name) = self.loose.matched.take() {
                    self.serve(&name).await;
                }
            }
            TranscriptStep::Policy(policy) => self.loose.policy = *policy,
            step => self.play_check(line, step).await,
        }
    }

    fn mark_sending(&mut self) {
        self.loose.mark = self.played.log.len();
        self.loose.sent_at = Instant::now();
    }

    async fn flood(&mut self, line: &TranscriptLine, count: usize, message: &str) {
        self.mark_sending();
        let mut bytes = Vec::new();
        for number in 0..count {
            let text = message.replace("{n}", &number.to_string());
            bytes.extend(self.names.in_raw_line(text.as_bytes()));
            bytes.push(b'\n');
        }
        self.record(false, format!("{count} times: {message}").into());
        self.send(line, bytes).await;
    }

    /// Waits for a message that is like the expected one.
    async fn expect_eventually(&mut self, line: &TranscriptLine, expected: &Value) {
        let latest = Instant::now() + self.wait * 4;
        loop {
            let wait = self.wait.min(latest.saturating_duration_since(Instant::now()));
            let Some(got) = self.next_loose(wait).await else {
                let reason =
                    if self.has_ended() { "the output ended" } else { "nothing was received" };
                self.fail(line, reason, Some(expected), None);
                self.wait = self.wait.min(IMPATIENT);
                self.loose.within = None;
                if self.has_ended() {
                    self.stop("the agent has ended".to_owned(), false);
                }
                return;
            };
            let Some(difference) = compare::open_difference(expected, &got) else {
                self.check_time(line);
                self.loose.matched = got.get("method").and(got.get("id")).and_then(name_of);
                return;
            };
            if is_other_answer(expected, &got) {
                self.fail(line, &difference.to_string(), Some(expected), Some(&got));
                self.loose.within = None;
                return;
            }
            self.pass_over(&got).await;
        }
    }

    pub(super) fn check_time(&mut self, line: &TranscriptLine) {
        let Some(limit) = self.loose.within.take() else { return };
        let took = self.loose.sent_at.elapsed().as_millis();
        if took > u128::from(limit) {
            self.fail(line, &format!("took {took} ms, more than {limit} ms"), None, None);
        }
    }

    /// Serves a call that no line mentions. Other messages need no answer.
    async fn pass_over(&mut self, got: &Value) {
        if got.get("method").is_some()
            && let Some(name) = got.get("id").and_then(name_of)
        {
            self.serve(&name).await;
        }
    }

    async fn serve(&mut self, name: &str) {
        let (Some(id), Some(call)) = (self.names.call(name).cloned(), self.loose.calls.get(name))
        else {
            return;
        };
        let method = call["method"].as_str().unwrap_or_default();
        if method == "session/request_permission" {
            if let Some(reply) = permission_reply(&id, &call["params"], self.loose.policy) {
                self.reply(reply).await;
            }
            return;
        }
        let params = serde_json::value::to_raw_value(&call["params"]).ok();
        let work = self.loose.host.serve(method, params.as_deref());
        self.loose.served.spawn(async move { (id, work.await) });
    }

    pub(super) async fn reply(&mut self, reply: Value) {
        let Some(mut writer) = self.writer.take() else { return };
        self.record(false, reply.clone());
        // A broken pipe shows as the end of the output.
        if write_all(&mut writer, format!("{reply}\n").as_bytes()).await.is_ok() {
            self.writer = Some(writer);
        }
    }

    /// Returns the next message, and answers calls that were served meanwhile.
    async fn next_loose(&mut self, wait: Duration) -> Option<Value> {
        let until = tokio::time::Instant::now() + wait;
        loop {
            if let Some(message) = self.pending.pop_front() {
                return Some(message);
            }
            tokio::select! {
                raw = self.reader.next() => self.receive(raw?),
                Some(done) = self.loose.served.join_next(), if !self.loose.served.is_empty() => {
                    if let Ok((id, outcome)) = done {
                        self.reply(served_reply(id, outcome)).await;
                    }
                }
                () = tokio::time::sleep_until(until) => return None,
            }
        }
    }

    pub(super) async fn pass_time(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.next_loose(left).await {
                Some(got) => self.pass_over(&got).await,
                None => return,
            }
        }
    }

    /// Reads until the agent has closed its output.
    pub(super) async fn drain(&mut self, wait: Duration) {
        self.pass_time(wait).await;
    }

    /// Reports an agent that still runs after a signal.
    pub(super) fn must_have_ended(&mut self) {
        let line = self.index.checked_sub(1).and_then(|index| self.transcript.lines().get(index));
        if let Some(line) = line.filter(|_| !self.has_ended()) {
            self.fail(line, "still running after SIGTERM", None, None);
        }
    }

    pub(super) async fn end_loosely(&mut self) {
        if self.writer.is_some() && self.played.stopped.is_none() {
            self.pass_time(self.loose.linger).await;
        }
        self.close().await;
        self.pass_time(CLOSE_WAIT).await;
        let lines = self.transcript.lines();
        for (index, from) in std::mem::take(&mut self.loose.never) {
            let TranscriptStep::Never(unwanted) = &lines[index].step else { continue };
            let unwanted = self.names.with_lets(unwanted);
            let found = self.found(&unwanted, from);
            if let Some((at, message)) = found {
                self.fail(&lines[index], "this must not be sent", None, Some(&message));
                if let Some(failure) = self.played.failures.last_mut() {
                    failure.log_length = at + 1;
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.reader.has_ended()
    }

    fn stop(&mut self, reason: String, is_inapplicable: bool) {
        self.played.stopped = Some(Stopped { index: self.index, reason, is_inapplicable });
    }

    pub(super) fn fail(
        &mut self,
        line: &TranscriptLine,
        reason: &str,
        expected: Option<&Value>,
        got: Option<&Value>,
    ) {
        self.played.failures.push(Failure {
            expected: expected.map(compare::print),
            got: got.map(compare::print),
            log_length: self.played.log.len(),
            ..Failure::at(Some(line), reason)
        });
        if line.row.is_none() {
            self.stop(format!("the preparation failed: {reason}"), false);
        }
    }

    fn has_seen(&mut self, expected: &Value, from: usize) -> bool {
        self.found(expected, from).is_some()
    }

    /// Returns the first message of the agent since then that is like this.
    fn found(&mut self, expected: &Value, from: usize) -> Option<(usize, Value)> {
        let log = self.played.log.iter().enumerate().skip(from);
        let mut messages = log.filter(|(_, entry)| entry.from_agent);
        messages.find_map(|(at, entry)| {
            let named = self.names.with_known_names(entry.message.clone());
            compare::open_difference(expected, &named).is_none().then_some((at, named))
        })
    }

    /// Returns the agent's text since then.
    fn said(&self, from: usize) -> String {
        let log = self.played.log.iter().skip(from).filter(|entry| entry.from_agent);
        let updates = log.map(|entry| &entry.message["params"]["update"]);
        let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
    }
}

fn name_of(id: &Value) -> Option<String> {
    id.as_str().map(str::to_owned)
}

/// Returns whether this is the answer to the call that the expectation is about, but another one than expected.
fn is_other_answer(expected: &Value, got: &Value) -> bool {
    let is_reply = |message: &Value| message.get("method").is_none() && message.get("id").is_some();
    is_reply(expected) && is_reply(got) && expected["id"] == got["id"]
}

fn served_reply(id: Value, outcome: Result<Box<RawValue>, RpcError>) -> Value {
    match outcome {
        Ok(result) => {
            let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
            json!({ "jsonrpc": "2.0", "id": id, "result": result })
        }
        Err(error) => json!({ "jsonrpc": "2.0", "id": id,
            "error": { "code": error.code.0, "message": error.message } }),
    }
}

/// Returns the answer to a permission request, or `None` if it gets none.
fn permission_reply(id: &Value, params: &Value, policy: PermissionPolicy) -> Option<Value> {
    let outcome = match policy {
        PermissionPolicy::Hold => return None,
        PermissionPolicy::Fail => {
            let error = json!({ "code": -32603, "message": "Internal error" });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
        PermissionPolicy::Cancelled => json!({ "outcome": "cancelled" }),
        PermissionPolicy::Choose(kind) => {
            let options = params["options"].as_array().map(Vec::as_slice).unwrap_or_default();
            let direction = kind.split('_').next().unwrap_or_default();
            let exact = options.iter().find(|option| option["kind"] == kind);
            let similar = || {
                let of_kind = |option: &&Value| {
                    option["kind"].as_str().is_some_and(|kind| kind.starts_with(direction))
                };
                options.iter().find(of_kind)
            };
            match exact.or_else(similar) {
                Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
                None => json!({ "outcome": "cancelled" }),
            }
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } }))
}
