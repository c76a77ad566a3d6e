//! Lines of loose transcripts that check what happened so far: answers, numbers of messages, tool calls, files.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::compare;
use super::player::Player;
use crate::transcript::{TranscriptLine, TranscriptStep};

/// How often a file is looked at.
const LOOK: Duration = Duration::from_millis(25);

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Player<'_, R, W> {
    pub(super) async fn play_check(&mut self, line: &TranscriptLine, step: &TranscriptStep) {
        match step {
            TranscriptStep::Refuse => {
                let name = self.loose.matched.take();
                if let Some(id) = name.and_then(|name| self.names.call(&name).cloned()) {
                    let error = json!({ "code": -32603, "message": "Internal error" });
                    self.reply(json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
                }
            }
            TranscriptStep::Answered(id, true) => self.wait_for_answer(line, id).await,
            TranscriptStep::Answered(id, false) => {
                if let Some(reply) = self.loose.replies.get(&id.to_string()).cloned() {
                    self.fail(line, "the call was answered", None, Some(&reply));
                }
            }
            TranscriptStep::AtMost(limit, pattern) => {
                let log = self.played.log.iter().skip(self.loose.mark);
                let messages = log.filter(|entry| entry.from_agent).map(|entry| &entry.message);
                let count =
                    messages.filter(|got| compare::open_difference(pattern, got).is_none()).count();
                if count > *limit {
                    let reason = format!("{count} such messages, more than {limit}");
                    self.fail(line, &reason, Some(pattern), None);
                }
            }
            TranscriptStep::Closed => {
                if let Some((id, status)) = self.open_tool_call() {
                    let reason = format!("the tool call {id} is shown as {status}");
                    self.fail(line, &reason, None, None);
                }
            }
            TranscriptStep::Wrote(path, text) => self.wait_for_file(line, path, text).await,
            TranscriptStep::Absent(path) => {
                let path = self.names.real_path(path);
                if std::path::Path::new(&path).exists() {
                    self.fail(line, "the file exists", None, None);
                }
            }
            _ => {}
        }
    }

    async fn wait_for_answer(&mut self, line: &TranscriptLine, id: &Value) {
        let until = Instant::now() + self.wait;
        while !self.loose.replies.contains_key(&id.to_string()) {
            if Instant::now() >= until || self.reader.has_ended() {
                let expected = json!({ "id": id });
                return self.fail(line, "no answer was received", Some(&expected), None);
            }
            self.pass_time(LOOK).await;
        }
    }

    async fn wait_for_file(&mut self, line: &TranscriptLine, path: &str, text: &str) {
        let until = Instant::now() + self.wait;
        let path = self.names.real_path(path);
        let mut content = None;
        while Instant::now() < until {
            content = std::fs::read(&path).ok();
            let found = content.as_deref().map(String::from_utf8_lossy);
            if found.is_some_and(|found| found.contains(text)) {
                return self.check_time(line);
            }
            if self.reader.has_ended() {
                break;
            }
            self.pass_time(LOOK).await;
        }
        self.loose.within = None;
        let got = content.map(|content| Value::from(String::from_utf8_lossy(&content)));
        let expected = Value::from(text);
        self.fail(line, "the file does not contain the text", Some(&expected), got.as_ref());
    }

    /// Returns a tool call since the client last sent something that has not ended.
    fn open_tool_call(&self) -> Option<(String, String)> {
        let mut calls: HashMap<&str, &str> = HashMap::new();
        for entry in self.played.log.iter().skip(self.loose.mark).filter(|entry| entry.from_agent) {
            let update = &entry.message["params"]["update"];
            let kind = update["sessionUpdate"].as_str().unwrap_or_default();
            let Some(id) = update["toolCallId"].as_str().filter(|_| kind.starts_with("tool_call"))
            else {
                continue;
            };
            let status = update["status"].as_str();
            let default = if kind == "tool_call" { Some("pending") } else { None };
            if let Some(status) = status.or(default) {
                calls.insert(id, status);
            }
        }
        let open =
            calls.into_iter().find(|(_, status)| ["pending", "in_progress"].contains(status));
        open.map(|(id, status)| (id.to_owned(), status.to_owned()))
    }
}
