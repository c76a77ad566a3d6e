//! Turns: plays the answers of the script, and runs the tools that they call.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fake_model::Step;
use serde_json::{Value, json};

use crate::{Agent, Session};

/// How an answer ended.
enum End {
    Turn(&'static str),
    Failed,
    Tools,
}

impl Agent {
    /// Starts a turn in a thread of its own.
    pub(crate) fn prompt(
        self: &Arc<Agent>,
        text: &str,
        id: Value,
        params: &Value,
    ) -> Result<(), (i64, String)> {
        let session = self.session_for_prompt(params)?;
        *session.turn.lock().unwrap() = Some(id.clone());
        session.cancelled.store(false, Ordering::SeqCst);
        let (agent, request, params) = (Arc::clone(self), text.to_owned(), params.clone());
        std::thread::spawn(move || {
            let said = said(&params);
            session.said.lock().unwrap().push_str(&said);
            let user = json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": said } });
            agent.store(&session.id, &user);
            let reply = match agent.turn(&session) {
                Some(reason) => json!({ "id": id, "result": { "stopReason": reason } }),
                None => {
                    json!({ "id": id, "error": { "code": -32603, "message": "The model failed" } })
                }
            };
            let is_late = agent.has_fault("prompt.updates-first");
            let late = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "late" } });
            *session.turn.lock().unwrap() = None;
            agent.answer(&request, reply);
            if is_late {
                agent.update(&session.id, late);
            }
            if agent.has_fault("cancel.silent")
                && session.said.lock().unwrap().contains("check-silent")
            {
                agent.show(&session, "agent_message_chunk", "after-the-cancel");
            }
        });
        Ok(())
    }

    /// Runs a turn and returns its stop reason, or `None` if the model failed.
    fn turn(&self, session: &Session) -> Option<&'static str> {
        self.begin_turn(session);
        loop {
            let answer = self.answer_for(session);
            match self.play(session, &answer) {
                End::Turn(reason) => {
                    self.update(
                        &session.id,
                        json!({ "sessionUpdate": "session_info_update", "title": "A title" }),
                    );
                    let is_cancelled = session.cancelled.load(Ordering::SeqCst);
                    return Some(if is_cancelled { "cancelled" } else { reason });
                }
                End::Failed => {
                    if self.has_fault("isolation.failure") {
                        std::process::exit(1);
                    }
                    return None;
                }
                End::Tools => {}
            }
        }
    }

    /// Sends what only some turns have.
    fn begin_turn(&self, session: &Session) {
        let said = session.said.lock().unwrap().clone();
        let id = &session.id;
        if said.contains("check-usage") {
            self.update(id, json!({ "sessionUpdate": "usage_update", "used": 120, "size": 1000 }));
        }
        if said.contains("check-read") {
            let entry = json!({ "content": "Read it", "priority": "high", "status": "pending" });
            self.update(id, json!({ "sessionUpdate": "plan", "entries": [entry] }));
        }
        if said.starts_with('/') {
            self.show(session, "agent_message_chunk", "Unknown command. ");
        }
        let notice = json!({ "sessionUpdate": "notice", "severity": "info", "title": "A notice" });
        let compaction = json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed" });
        match self.fault.as_str() {
            "client.no-notice" => self.update(id, notice),
            "client.no-compaction" => self.update(id, compaction),
            "schema.update.other" => self.update(id, json!({ "sessionUpdate": "mutant_update" })),
            "schema.other-calls" => {
                self.send(json!({ "method": "$/cancel_request", "params": { "requestId": {} } }));
            }
            "client.no-elicitation" => {
                let schema = json!({ "type": "object", "properties": {} });
                let params = json!({ "sessionId": id, "mode": "form", "message": "?", "requestedSchema": schema });
                self.ask(session, "elicitation/create", params);
            }
            "timing.tool" if said.contains("check-command") => {
                std::thread::sleep(Duration::from_millis(5300));
            }
            "timing.prompt" if said.contains("check-time") => {
                std::thread::sleep(Duration::from_millis(2200))
            }
            "timing.read" if said.contains("check-big: read") => {
                std::thread::sleep(Duration::from_millis(1300));
            }
            "timing.write" if said.contains("check-big: write") => {
                std::thread::sleep(Duration::from_millis(2300));
            }
            _ => {}
        }
    }

    /// Takes the next answer of the script that is for this conversation.
    fn answer_for(&self, session: &Session) -> Vec<Step> {
        let said = session.said.lock().unwrap().clone();
        let mut taken = self.taken.lock().unwrap();
        let stored = std::fs::read_to_string(self.home.with_extension("taken")).unwrap_or_default();
        taken.extend(stored.lines().filter_map(|line| line.parse::<usize>().ok()));
        let is_for = |answer: &[Step]| {
            answer.iter().all(|step| match step {
                Step::When(text) => said.contains(text.as_str()),
                _ => true,
            })
        };
        let mut answers = self.script.answers.iter().enumerate();
        match answers.find(|(index, answer)| !taken.contains(index) && is_for(answer)) {
            Some((index, answer)) => {
                if !self.script.is_endless {
                    taken.insert(index);
                    // A restarted agent has the same model, which does not begin again.
                    let all: Vec<String> = taken.iter().map(ToString::to_string).collect();
                    std::fs::write(self.home.with_extension("taken"), all.join("\n")).unwrap();
                }
                answer.clone()
            }
            None => vec![Step::Text("A title".to_owned())],
        }
    }

    fn play(&self, session: &Session, answer: &[Step]) -> End {
        let mut end = End::Turn("end_turn");
        let mut answer = answer.to_vec();
        let is_mixed =
            answer.iter().any(|step| matches!(step, Step::Text(text) if text == "before-the-tool"));
        if is_mixed && self.has_fault("order.tools") {
            answer.reverse();
        }
        for step in &answer {
            if session.cancelled.load(Ordering::SeqCst) {
                return End::Turn("cancelled");
            }
            match step {
                Step::Text(text) => self.show(session, "agent_message_chunk", text),
                Step::Thought(text) => self.show(session, "agent_thought_chunk", text),
                Step::Chunks(count, text) => self.show_many(session, *count, text),
                Step::Status(_) => return End::Failed,
                Step::Stop(_) => end = End::Turn("max_tokens"),
                Step::Wait(millis) => pause(session, Duration::from_millis(*millis)),
                Step::Hang => pause(session, Duration::from_secs(600)),
                Step::Tool { name, input } => {
                    self.tool(session, name, input);
                    end = End::Tools;
                }
                _ => {}
            }
        }
        if session.cancelled.load(Ordering::SeqCst) { End::Turn("cancelled") } else { end }
    }

    /// Shows text and stores it first.
    fn show(&self, session: &Session, kind: &str, text: &str) {
        let dialect = *self.dialect.lock().unwrap();
        let thinking = dialect == "reference"
            && kind == "agent_thought_chunk"
            && !self.has_fault("reference.thinking");
        let content = json!({ "type": if thinking { "thinking" } else { "text" }, "text": text });
        let update = json!({ "sessionUpdate": kind, "content": content });
        self.store(&session.id, &update);
        if dialect == "container" && !self.has_fault("container.prompt") {
            let params = json!({ "sessionId": session.id, "content": [{ "type": "text", "content": text }], "status": "working", "update": update });
            return self.send(json!({ "method": "session/update", "params": params }));
        }
        if self.has_fault("isolation.text") && text.contains("beta") {
            // The other session's turn has ended then.
            std::thread::sleep(Duration::from_millis(300));
        }
        let other = self.sessions.lock().unwrap().keys().find(|id| **id != session.id).cloned();
        match other.filter(|_| self.has_fault("isolation.text") && text.contains("beta")) {
            Some(other) => self.update(&other, update),
            None => self.update(&session.id, update),
        }
    }

    fn show_many(&self, session: &Session, count: usize, text: &str) {
        let size = if self.has_fault("limits.update-rate") { 1 } else { 10 };
        let numbers: Vec<usize> = (0..count).collect();
        for group in numbers.chunks(size) {
            let texts: String =
                group.iter().map(|number| text.replace("{n}", &number.to_string())).collect();
            self.show(session, "agent_message_chunk", &texts);
        }
    }

    fn tool(&self, session: &Session, name: &str, input: &Value) {
        let id = match self.has_fault("tool.id-unique") {
            true => "call".to_owned(),
            false => format!("call-{}", self.next_id.fetch_add(1, Ordering::SeqCst)),
        };
        match name {
            "read" => self.read(session, &id, input),
            "write" => self.write(session, &id, input),
            "shell" => self.shell(session, &id, input),
            "mcp" => {
                self.call_update(
                    session,
                    "tool_call",
                    json!({ "toolCallId": id, "title": "Probe", "kind": "other" }),
                );
                if let Some(server) = session.servers.lock().unwrap().first_mut().filter(|server| {
                    let fault = if server.is_http() { "mcp.http-call" } else { "mcp.call" };
                    !self.has_fault(fault)
                }) {
                    server.call();
                }
                self.end(session, &id, true, "probed");
            }
            other => {
                if self.has_fault("tool.unknown") {
                    session.cancelled.store(true, Ordering::SeqCst);
                    return;
                }
                self.call_update(
                    session,
                    "tool_call",
                    json!({ "toolCallId": id, "title": other, "kind": "other" }),
                );
                self.end(session, &id, false, "unknown tool");
            }
        }
    }

    fn call_update(&self, session: &Session, kind: &str, mut update: Value) {
        update["sessionUpdate"] = json!(kind);
        self.store(&session.id, &update);
        self.update(&session.id, update);
    }

    fn end(&self, session: &Session, id: &str, is_done: bool, text: &str) {
        let status = if is_done { "completed" } else { "failed" };
        let content = json!([{ "type": "content", "content": { "type": "text", "text": text } }]);
        self.call_update(
            session,
            "tool_call_update",
            json!({ "toolCallId": id, "status": status, "content": content }),
        );
        if self.has_fault("tool.status-order") {
            self.call_update(
                session,
                "tool_call_update",
                json!({ "toolCallId": id, "status": "in_progress" }),
            );
            self.call_update(
                session,
                "tool_call_update",
                json!({ "toolCallId": id, "status": status }),
            );
        }
    }

    fn read(&self, session: &Session, id: &str, input: &Value) {
        let path = &input["path"];
        let update = json!({ "toolCallId": id, "title": "Read a file", "kind": "read", "locations": [{ "path": path, "line": 1 }] });
        self.call_update(session, "tool_call", update);
        let through_client = self.client_has("/fs/readTextFile") && !self.has_fault("client.read");
        let content = match through_client || self.has_fault("client.no-read") {
            true => {
                let reply = self.ask(
                    session,
                    "fs/read_text_file",
                    json!({ "sessionId": session.id, "path": path, "line": 1, "limit": 100 }),
                );
                if reply.is_none()
                    && self.has_fault("client.read-fails")
                    && session.said.lock().unwrap().contains("check-refused")
                {
                    pause(session, Duration::from_secs(600));
                }
                reply
            }
            false => {
                std::fs::read_to_string(path.as_str().unwrap_or_default()).ok().map(Value::from)
            }
        };
        if self.has_fault("tool.continues") && content.is_none() {
            session.cancelled.store(true, Ordering::SeqCst);
        }
        self.end(session, id, content.is_some(), "the content");
    }

    /// Asks for permission and returns whether it was granted.
    fn permit(&self, session: &Session, id: &str, skip: &str) -> bool {
        if self.has_fault(skip)
            || session.always.load(Ordering::SeqCst) && !self.has_fault("permission.always")
        {
            return true;
        }
        let options = json!([
            { "optionId": "once", "name": "Allow", "kind": "allow_once" },
            { "optionId": "always", "name": "Always allow", "kind": "allow_always" },
            { "optionId": "no", "name": "Reject", "kind": "reject_once" },
        ]);
        let tool_call = json!({ "toolCallId": id, "title": "Do it" });
        let params = json!({ "sessionId": session.id, "toolCall": tool_call, "options": options });
        let Some(reply) = self.ask(session, "session/request_permission", params) else {
            return self.has_fault("permission.error");
        };
        let chosen = reply["outcome"]["optionId"].as_str().unwrap_or_default();
        session.always.fetch_or(chosen == "always", Ordering::SeqCst);
        match chosen {
            "once" | "always" => !self.has_fault("permission.allowed"),
            "" => self.has_fault("permission.cancelled"),
            _ => self.has_fault("permission.rejected"),
        }
    }

    fn write(&self, session: &Session, id: &str, input: &Value) {
        let path = input["path"].as_str().unwrap_or_default();
        let mut diff = json!({ "type": "diff", "path": path, "newText": &input["content"].as_str().unwrap_or_default()[..1] });
        if let Ok(old) = std::fs::read_to_string(path) {
            diff["oldText"] = old.into();
        }
        let update = json!({ "toolCallId": id, "title": "Write a file", "kind": "edit", "locations": [{ "path": path }], "content": [diff] });
        self.call_update(session, "tool_call", update);
        if self.has_fault("wire.call-ids-unique") && self.client_has("/fs/readTextFile") {
            let call = json!({ "id": 77, "method": "fs/read_text_file", "params": { "sessionId": session.id, "path": path } });
            self.send(call.clone());
            self.send(call);
        }
        if !self.permit(session, id, "permission.asked") {
            return self.end(session, id, false, "rejected");
        }
        if self.has_fault("tool.create") && path.ends_with("new.txt") {
            return self.end(session, id, false, "there is no such file");
        }
        let through_client =
            self.client_has("/fs/writeTextFile") && !self.has_fault("client.write");
        match through_client || self.has_fault("client.no-write") {
            true => {
                let params =
                    json!({ "sessionId": session.id, "path": path, "content": input["content"] });
                self.ask(session, "fs/write_text_file", params);
            }
            false if self.has_fault("client.local-write") => {}
            false => std::fs::write(path, input["content"].as_str().unwrap_or_default()).unwrap(),
        }
        self.end(session, id, true, "written");
    }

    fn shell(&self, session: &Session, id: &str, input: &Value) {
        let command = input["command"].as_str().unwrap_or_default();
        let update = json!({ "toolCallId": id, "title": command, "kind": "execute", "status": "in_progress" });
        self.call_update(session, "tool_call", update);
        if !self.permit(session, id, "permission.command") {
            return self.end(session, id, false, "rejected");
        }
        let in_terminal = self.client_has("/terminal") && !self.has_fault("client.terminal");
        if in_terminal || self.has_fault("client.no-terminal") {
            self.terminal(session, id, command);
        } else {
            let cwd = match self.has_fault("session.cwd") {
                true => std::env::current_dir().unwrap(),
                false => session.cwd.clone(),
            };
            let mut child = Command::new("sh")
                .args(["-c", command])
                .current_dir(cwd)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            while child.try_wait().unwrap().is_none() {
                if session.cancelled.load(Ordering::SeqCst) && !self.has_fault("cancel.tool-ends") {
                    // The command has a child of its own, so its shell is stopped before the next part.
                    child.kill().ok();
                }
                if session.cancelled.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.end(session, id, true, "has run");
    }

    fn terminal(&self, session: &Session, id: &str, command: &str) {
        let params = json!({ "sessionId": session.id, "command": "sh", "args": ["-c", command], "cwd": session.cwd });
        let Some(created) = self.ask(session, "terminal/create", params) else { return };
        let content = json!([{ "type": "terminal", "terminalId": created["terminalId"] }]);
        self.call_update(
            session,
            "tool_call_update",
            json!({ "toolCallId": id, "content": content }),
        );
        for method in ["wait_for_exit", "output", "kill", "release"] {
            let params = json!({ "sessionId": session.id, "terminalId": created["terminalId"] });
            if !(method == "release" && self.has_fault("client.terminal-released")) {
                self.ask(session, &format!("terminal/{method}"), params);
            }
        }
    }
}

/// Waits, but not after a cancel.
fn pause(session: &Session, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && !session.cancelled.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The text of a prompt.
fn said(params: &Value) -> String {
    let blocks = params["prompt"].as_array().or(params["content"].as_array());
    let texts = blocks
        .into_iter()
        .flatten()
        .filter_map(|it| it["text"].as_str().or(it["content"].as_str()));
    texts.collect()
}
