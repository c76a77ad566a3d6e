//! The methods: the handshake, sessions, and what is stored of them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Agent, Session, mcp};

impl Agent {
    pub(crate) fn call(self: &Arc<Agent>, text: &str, method: &str, id: Value, params: &Value) {
        let is_ready = self.capabilities.lock().unwrap().is_some();
        let limit = match method {
            "initialize" => 10 * 1024,
            "session/new" => 50 * 1024,
            "session/prompt" => 1024 * 1024,
            _ => usize::MAX,
        };
        let done = match method {
            _ if text.len() > limit => Err((-32600, "too large".to_owned())),
            "initialize" => Ok(self.initialize(params)),
            _ if !is_ready => Err((-32600, "call initialize first".to_owned())),
            "session/prompt" => match self.prompt(text, id.clone(), params) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            _ => self.method(method, params),
        };
        let mut reply = match done {
            Ok(result) => json!({ "id": id, "result": result }),
            Err((code, details)) => {
                json!({ "id": id, "error": { "code": code, "message": "Failed", "data": { "details": details } } })
            }
        };
        if reply["error"]["code"] == -32003 {
            reply["error"]["data"]["retryAfterMs"] = json!(1000);
        }
        let opened = reply["result"]["sessionId"].as_str().filter(|_| method == "session/new");
        let opened = opened.map(str::to_owned);
        if self.has_fault("order.new-first")
            && let Some(session) = &opened
        {
            self.commands(session);
        }
        let is_result = self.answer(text, reply);
        if let Some(session) = opened.filter(|_| is_result) {
            self.commands(&session);
        }
    }

    fn commands(&self, session: &str) {
        let commands = json!([{ "name": "init", "description": "Begins" }, { "name": "end", "description": "Ends" }]);
        self.update(
            session,
            json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }),
        );
    }

    pub(crate) fn update(&self, session: &str, update: Value) {
        self.send(json!({ "method": "session/update", "params": { "sessionId": session, "update": update } }));
    }

    fn method(self: &Arc<Agent>, method: &str, params: &Value) -> Result<Value, (i64, String)> {
        match method {
            "authenticate" if params["methodId"] == "login" => Ok(json!({})),
            "authenticate" => Err((-32602, "unknown method".to_owned())),
            "logout" => Ok(json!({})),
            "session/new" => self.new_session(params),
            "session/list" => Ok(self.list(params)),
            "session/delete" => {
                let id = params["sessionId"].as_str().unwrap_or_default();
                if !self.has_fault("session.delete-unlisted") {
                    std::fs::remove_file(self.journal(id)).ok();
                }
                Ok(json!({}))
            }
            "session/load" | "session/resume" => self.load(method, params),
            "session/close" => {
                let session = self.session(params)?;
                session.cancelled.store(true, Ordering::SeqCst);
                self.sessions.lock().unwrap().remove(&session.id);
                Ok(json!({}))
            }
            "session/set_mode" => {
                let session = self.session(params)?;
                let mode = params["modeId"].as_str().unwrap_or_default();
                self.set_mode(&session, mode)?;
                let update =
                    json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode });
                self.update(&session.id, update);
                let options = self.options(&session);
                self.update(
                    &session.id,
                    json!({ "sessionUpdate": "config_option_update", "configOptions": options }),
                );
                Ok(json!({}))
            }
            "session/set_config_option" => {
                let session = self.session(params)?;
                if params["configId"] != "mode" {
                    return Err((-32602, "unknown option".to_owned()));
                }
                self.set_mode(&session, params["value"].as_str().unwrap_or_default())?;
                Ok(json!({ "configOptions": self.options(&session) }))
            }
            "session/set_model" => match params["modelId"] == "model-a" {
                true => Ok(json!({})),
                false => Err((-32602, "unknown model".to_owned())),
            },
            _ => Err((-32601, "Method not found".to_owned())),
        }
    }

    fn initialize(&self, params: &Value) -> Value {
        let capabilities = params.get("clientCapabilities").cloned().unwrap_or_else(|| json!({}));
        let dialect = match params["protocolVersion"].is_string() {
            true => "container",
            false if capabilities["filesystem"].is_object() => "reference",
            false => "v1",
        };
        *self.dialect.lock().unwrap() = dialect;
        *self.capabilities.lock().unwrap() = Some(capabilities);
        let mut announced = json!({
            "loadSession": true,
            "promptCapabilities": { "image": true, "audio": true, "embeddedContext": true },
            "mcpCapabilities": { "http": true, "sse": false },
            "sessionCapabilities": { "list": {}, "delete": {}, "resume": {}, "close": {}, "additionalDirectories": {} },
            "auth": { "logout": {} },
        });
        let mut version = json!(1);
        if dialect == "reference" {
            announced["promptTypes"] = json!(["text"]);
            announced["sessionLoad"] = json!(true);
            announced["mcp"] = json!({});
        } else if dialect == "container" {
            announced["editWorkspace"] = json!(true);
            version = params["protocolVersion"].clone();
        }
        let methods = json!([{ "id": "login", "name": "Log in" }, { "id": "other", "name": "Log in otherwise" }]);
        json!({ "protocolVersion": version, "agentCapabilities": announced, "authMethods": methods,
            "agentInfo": { "name": "mutant", "version": "1.0.0" } })
    }

    fn session(&self, params: &Value) -> Result<Arc<Session>, (i64, String)> {
        let id = params["sessionId"]
            .as_str()
            .ok_or((-32602, "Missing required field 'sessionId'".to_owned()))?;
        let sessions = self.sessions.lock().unwrap();
        sessions.get(id).cloned().ok_or_else(|| (-31900, "Session not found".to_owned()))
    }

    pub(crate) fn session_for_prompt(&self, params: &Value) -> Result<Arc<Session>, (i64, String)> {
        let session = self.session(params)?;
        let blocks = params["prompt"].as_array().or(params["content"].as_array());
        let blocks = blocks.ok_or((-32602, "Missing required field 'prompt'".to_owned()))?;
        let known = ["text", "image", "audio", "resource", "resource_link"];
        if let Some(bad) =
            blocks.iter().find(|it| !known.contains(&it["type"].as_str().unwrap_or_default()))
        {
            return Err((-32602, format!("unknown block {}", bad["type"])));
        }
        if session.turn.lock().unwrap().is_some() {
            return Err((-31902, "Session locked".to_owned()));
        }
        let mut prompts = session.prompts.lock().unwrap();
        prompts.retain(|at| at.elapsed() < Duration::from_secs(60));
        if prompts.len() >= 10 {
            return Err((-32003, "too many prompts".to_owned()));
        }
        prompts.push(Instant::now());
        drop(prompts);
        Ok(session)
    }

    fn new_session(self: &Arc<Agent>, params: &Value) -> Result<Value, (i64, String)> {
        let directory = params["cwd"]
            .as_str()
            .or_else(|| params["workspaceUri"].as_str()?.strip_prefix("file://"));
        let cwd = directory.ok_or((-32602, "Missing required field 'cwd'".to_owned()))?;
        if !Path::new(cwd).is_absolute() {
            return Err((-32602, "cwd must be absolute".to_owned()));
        }
        let number = self.next_id.fetch_add(1, Ordering::SeqCst);
        let mut id = format!("{:08x}-0000-4000-8000-{:012x}", std::process::id(), number);
        if self.has_fault("session.uuid") {
            id = format!("session-{number}-of-process-{}", std::process::id());
        }
        let first = self.sessions.lock().unwrap().keys().next().cloned();
        if let Some(first) = first
            .filter(|_| self.has_fault("session.distinct") && params.get("mcpServers").is_some())
        {
            id = first;
        }
        let session = self.open(&id, cwd);
        self.store(&id, &json!({ "cwd": cwd }));
        self.start_servers(&session, params);
        let mut result = json!({ "sessionId": id, "configOptions": self.options(&session) });
        result["modes"] = json!({ "currentModeId": "build", "availableModes": [{ "id": "build", "name": "Build" }, { "id": "plan", "name": "Plan" }] });
        result["models"] = json!({ "currentModelId": "model-a", "availableModels": [{ "modelId": "model-a", "name": "A" }] });
        Ok(result)
    }

    fn start_servers(&self, session: &Session, params: &Value) {
        for server in params["mcpServers"].as_array().into_iter().flatten() {
            let is_http = server["type"] == "http";
            if self.has_fault(if is_http { "mcp.http" } else { "mcp.stdio" }) {
                return;
            }
            if self.has_fault("timing.mcp") {
                std::thread::sleep(Duration::from_millis(5200));
            }
            let is_bare = self.has_fault(if is_http { "mcp.http-headers" } else { "mcp.env" });
            let lists = !self.has_fault("mcp.tools") || is_http;
            let Some(mut started) = mcp::Server::start(server, is_bare) else { continue };
            started.begin(lists);
            session.servers.lock().unwrap().push(started);
        }
    }

    fn open(&self, id: &str, cwd: &str) -> Arc<Session> {
        let session = Arc::new(Session {
            id: id.to_owned(),
            cwd: PathBuf::from(cwd),
            mode: std::sync::Mutex::new("build".to_owned()),
            turn: std::sync::Mutex::default(),
            cancelled: false.into(),
            said: std::sync::Mutex::default(),
            prompts: std::sync::Mutex::default(),
            always: false.into(),
            servers: std::sync::Mutex::default(),
        });
        self.sessions.lock().unwrap().insert(id.to_owned(), Arc::clone(&session));
        session
    }

    fn set_mode(&self, session: &Session, mode: &str) -> Result<(), (i64, String)> {
        if !["build", "plan"].contains(&mode) {
            return Err((-32602, "unknown mode".to_owned()));
        }
        *session.mode.lock().unwrap() = mode.to_owned();
        Ok(())
    }

    fn options(&self, session: &Session) -> Value {
        let choices =
            json!([{ "value": "build", "name": "Build" }, { "value": "plan", "name": "Plan" }]);
        json!([
            { "id": "mode", "name": "Mode", "type": "select", "currentValue": *session.mode.lock().unwrap(), "options": choices },
            { "id": "size", "name": "Size", "type": "select", "currentValue": "s", "options": [{ "value": "s", "name": "Small" }] },
        ])
    }

    fn journal(&self, id: &str) -> PathBuf {
        self.home.join(format!("{id}.jsonl"))
    }

    /// Stores one line of a session. After a crash, it is what is left.
    pub(crate) fn store(&self, id: &str, line: &Value) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.journal(id));
        writeln!(file.unwrap(), "{line}").unwrap();
    }

    fn stored(&self, id: &str) -> Option<Vec<Value>> {
        let text = std::fs::read_to_string(self.journal(id)).ok()?;
        Some(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    fn list(&self, params: &Value) -> Value {
        let mut sessions = Vec::new();
        for file in std::fs::read_dir(&self.home).unwrap().flatten() {
            let id = file.path().file_stem().unwrap().to_string_lossy().into_owned();
            let cwd = self
                .stored(&id)
                .and_then(|lines| Some(lines.first()?["cwd"].clone()))
                .unwrap_or_default();
            if params["cwd"].is_null() || params["cwd"] == cwd || self.has_fault("session.list-cwd")
            {
                sessions.push(json!({ "sessionId": id, "cwd": cwd }));
            }
        }
        json!({ "sessions": sessions })
    }

    fn load(self: &Arc<Agent>, method: &str, params: &Value) -> Result<Value, (i64, String)> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let chunk = |kind: &str, text: &str| json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
        if self.has_fault("load.no-error-history") {
            self.update(id, chunk("user_message_chunk", "what was never said"));
        }
        let lines = self.stored(id).ok_or((-32002, "no such session".to_owned()))?;
        if self.has_fault("isolation.history") {
            self.update(id, chunk("agent_message_chunk", "beta-answer"));
        }
        if self.has_fault("load.first") {
            let (agent, id, late) =
                (Arc::clone(self), id.to_owned(), chunk("agent_message_chunk", "late"));
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(60));
                agent.update(&id, late);
            });
        }
        let cwd = lines.first().and_then(|line| line["cwd"].as_str()).unwrap_or("/").to_owned();
        let session = self.open(id, &cwd);
        if !self.has_fault("mcp.load") {
            self.start_servers(&session, params);
        }
        let replays = method == "session/load" || self.has_fault("resume.silent");
        for line in lines.iter().filter(|line| replays && line.get("sessionUpdate").is_some()) {
            let shown = if self.has_fault("load.session") { "another-session" } else { id };
            if !crate::faults::forgets(&self.fault, line) {
                self.update(shown, line.clone());
            }
        }
        let ended = |id: &Value| {
            lines.iter().any(|line| {
                line["toolCallId"] == *id
                    && ["completed", "failed"].iter().any(|status| line["status"] == *status)
            })
        };
        let open = lines
            .iter()
            .filter(|line| line["sessionUpdate"] == "tool_call" && !ended(&line["toolCallId"]));
        for line in open.filter(|_| replays && !self.has_fault("crash.tool-ends")) {
            self.update(id, json!({ "sessionUpdate": "tool_call_update", "toolCallId": line["toolCallId"], "status": "failed" }));
        }
        Ok(json!({}))
    }
}
