//! What the shim needs to continue after a lost connection. Does no IO.
//!
//! The ids of the editor's requests are passed on as they are. The server's calls get numbers of our own: a new connection
//! counts from the beginning, and a late answer of the editor must not meet another call.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// The code for a session that another process has open.
pub(super) const BUSY: i64 = -31902;
/// The code for requests that fail because the server cannot be reached.
const UNREACHABLE: i64 = -32000;
/// Begins the ids of our own requests.
const OWN: &str = "purlin-shim-";
/// How many requests of the editor may be unanswered.
const MAX_OPEN: usize = 4096;

/// A JSON object whose members are not read.
type Object = BTreeMap<String, Box<RawValue>>;

/// What to do with a message of the server.
#[derive(Debug, PartialEq)]
pub(super) enum FromServer {
    /// Pass this on to the editor.
    Pass(String),
    /// It answers our own request, perhaps with the code of an error.
    Own(Option<i64>),
    /// The editor must not see it, or has it already.
    Drop,
}

/// What is needed to continue.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The editor's `initialize`, once it was answered.
    initialize: Option<Object>,
    sessions: BTreeMap<String, Session>,
    /// Unanswered requests, in the order in which they were sent.
    open: Vec<Request>,
    /// The server's calls that the editor has not answered, by our number.
    calls: HashMap<u64, Box<RawValue>>,
    last_call: u64,
    last_own: u64,
    /// The keys of prompts, whose text the editor shows by itself.
    keys: HashSet<String>,
}

#[derive(Debug)]
struct Session {
    /// The number of the last update that the editor has.
    last: u64,
    /// Whether the request that opened it was answered.
    is_open: bool,
    /// The members with which it is opened again.
    params: Object,
}

#[derive(Debug)]
struct Request {
    id: String,
    method: String,
    session: Option<String>,
    /// The parameters of a request that opens a session.
    params: Option<Object>,
    line: String,
}

impl State {
    /// Takes a line of the editor, and returns what the server gets; `None` for an answer that nobody waits for.
    pub(super) fn take_from_editor(
        &mut self,
        line: &str,
        fresh_key: impl FnOnce() -> String,
    ) -> Option<String> {
        let Ok(mut message) = serde_json::from_str::<Object>(line) else {
            return Some(line.to_owned());
        };
        let Some(method) = text(&message, "method") else {
            return self.answer_of_editor(message);
        };
        let Some(id) = message.get("id").map(|id| id.get().to_owned()) else {
            return Some(line.to_owned());
        };
        let mut params = object(&message, "params").unwrap_or_default();
        let session = text(&params, "sessionId");
        match method.as_str() {
            "session/prompt" => {
                self.add_key(&mut params, fresh_key);
                message.insert("params".to_owned(), raw(&params));
            }
            "session/load" | "session/resume" => {
                let session = session.clone().unwrap_or_default();
                let opened = Session { last: 0, is_open: false, params: reopening(&params) };
                self.sessions.insert(session, opened);
            }
            _ => {}
        }
        let line = serde_json::to_string(&message).unwrap_or_else(|_| line.to_owned());
        if self.open.len() < MAX_OPEN {
            let params = matches!(method.as_str(), "session/new" | "session/fork" | "initialize");
            let params = params.then(|| match method.as_str() {
                "initialize" => message.clone(),
                _ => reopening(&params_of(&message)),
            });
            self.open.push(Request { id, method, session, params, line: line.clone() });
        }
        Some(line)
    }

    /// Gives a prompt a key, unless it has one.
    fn add_key(&mut self, params: &mut Object, fresh_key: impl FnOnce() -> String) {
        let mut meta = object(params, "_meta").unwrap_or_default();
        let key = text(&meta, "reqKey").unwrap_or_else(|| {
            let key = fresh_key();
            meta.insert("reqKey".to_owned(), raw(&key));
            key
        });
        self.keys.insert(key);
        params.insert("_meta".to_owned(), raw(&meta));
    }

    fn answer_of_editor(&mut self, mut message: Object) -> Option<String> {
        let number = message.get("id")?.get().parse().ok()?;
        let id = self.calls.remove(&number)?;
        message.insert("id".to_owned(), id);
        serde_json::to_string(&message).ok()
    }

    /// Takes a message of the server.
    pub(super) fn take_from_server(&mut self, line: &str) -> FromServer {
        let Ok(mut message) = serde_json::from_str::<Object>(line) else {
            return FromServer::Drop;
        };
        match (text(&message, "method"), message.get("id")) {
            (None, Some(id)) => {
                let id = id.get().to_owned();
                if id.starts_with(&format!("\"{OWN}")) {
                    let error = object(&message, "error");
                    let code = error.and_then(|error| error.get("code")?.get().parse().ok());
                    return FromServer::Own(code);
                }
                self.answered(&id, &message)
            }
            (Some(_), Some(id)) => {
                self.last_call += 1;
                self.calls.insert(self.last_call, id.clone());
                message.insert("id".to_owned(), raw(&self.last_call));
                match serde_json::to_string(&message) {
                    Ok(line) => FromServer::Pass(line),
                    Err(_) => FromServer::Drop,
                }
            }
            (Some(method), None) if method == "session/update" => self.update(line, &message),
            (Some(method), None) if method == "$/cancel_request" => self.cancelled(&message),
            _ => FromServer::Pass(line.to_owned()),
        }
        .or_line(line)
    }

    /// Drops what the editor has already: updates up to the last number, and its own prompts.
    fn update(&mut self, line: &str, message: &Object) -> FromServer {
        let params = params_of(message);
        let session = text(&params, "sessionId").unwrap_or_default();
        let seq = object(&params, "_meta").and_then(|meta| meta.get("seq")?.get().parse().ok());
        if let (Some(seq), Some(session)) = (seq, self.sessions.get_mut(&session)) {
            if seq <= session.last {
                return FromServer::Drop;
            }
            session.last = seq;
        }
        let update = object(&params, "update").unwrap_or_default();
        let is_own = text(&update, "sessionUpdate").as_deref() == Some("user_message_chunk")
            && text(&update, "messageId").is_some_and(|id| self.keys.contains(&id));
        if is_own { FromServer::Drop } else { FromServer::Pass(line.to_owned()) }
    }

    /// Translates the number of a call that the server cancels.
    fn cancelled(&mut self, message: &Object) -> FromServer {
        let params = params_of(message);
        let Some(id) = params.get("requestId") else { return FromServer::Drop };
        let found = self.calls.iter().find(|(_, call)| call.get() == id.get());
        let Some(number) = found.map(|(number, _)| *number) else { return FromServer::Drop };
        self.calls.remove(&number);
        FromServer::Pass(cancel(number))
    }

    /// Notes that a request was answered.
    fn answered(&mut self, id: &str, message: &Object) -> FromServer {
        let Some(index) = self.open.iter().position(|request| request.id == id) else {
            return FromServer::Drop;
        };
        let Request { method, session, params, .. } = self.open.remove(index);
        let result = object(message, "result");
        match (method.as_str(), result, params) {
            ("initialize", Some(_), params) => self.initialize = params,
            ("session/new" | "session/fork", Some(result), Some(params)) => {
                let opened = Session { last: 0, is_open: true, params };
                self.sessions.insert(text(&result, "sessionId").unwrap_or_default(), opened);
            }
            ("session/load" | "session/resume", result, _) => {
                let session = session.unwrap_or_default();
                match (result, self.sessions.get_mut(&session)) {
                    (Some(_), Some(opened)) => opened.is_open = true,
                    _ => self.forget(&session),
                }
            }
            ("session/close" | "session/delete", Some(_), _) => {
                self.forget(&session.unwrap_or_default());
            }
            _ => {}
        }
        FromServer::Pass(String::new())
    }

    /// The connection is lost. Returns what the editor gets: its open calls are withdrawn.
    pub(super) fn lost(&mut self) -> Vec<String> {
        self.calls.drain().map(|(number, _)| cancel(number)).collect()
    }

    /// Returns our own `initialize`; `None` if the editor's was not answered yet, and is sent again itself.
    pub(super) fn initialize(&mut self) -> Option<String> {
        let mut message = self.initialize.clone()?;
        message.insert("id".to_owned(), raw(&self.own_id()));
        serde_json::to_string(&message).ok()
    }

    pub(super) fn open_sessions(&self) -> Vec<String> {
        let open = self.sessions.iter().filter(|(_, session)| session.is_open);
        open.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the request that attaches to a session after the last update that the editor has. With `takes_over`, a turn
    /// that runs elsewhere is continued here.
    pub(super) fn resume(&mut self, session: &str, takes_over: bool) -> Option<String> {
        let id = self.own_id();
        let Session { last, params, .. } = self.sessions.get(session)?;
        let mut params = params.clone();
        params.insert("sessionId".to_owned(), raw(&session));
        params.insert("_meta".to_owned(), raw(&json!({ "lastSeq": last, "takeOver": takes_over })));
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": "session/resume", "params": params });
        Some(message.to_string())
    }

    pub(super) fn forget(&mut self, session: &str) {
        self.sessions.remove(session);
    }

    /// Returns the unanswered requests, in their order.
    pub(super) fn unanswered(&self) -> Vec<String> {
        self.open.iter().map(|request| request.line.clone()).collect()
    }

    /// Fails all open requests. Returns the answers, and a notice for each session if the editor shows notices.
    pub(super) fn fail(&mut self, why: &str) -> Vec<String> {
        let message = "The connection to the server was lost. The next request tries again.";
        let error = json!({ "code": UNREACHABLE, "message": message, "data": { "reason": why } });
        let mut lines: Vec<String> = Vec::new();
        if self.shows_notices() {
            for session in self.sessions.keys() {
                let update = json!({
                    "sessionUpdate": "notice", "severity": "error", "title": message, "description": why,
                });
                let params = json!({ "sessionId": session, "update": update });
                let note =
                    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
                lines.push(note.to_string());
            }
        }
        for request in self.open.drain(..) {
            let id: Value = serde_json::from_str(&request.id).unwrap_or(Value::Null);
            lines.push(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
        }
        lines
    }

    fn shows_notices(&self) -> bool {
        let params = self.initialize.as_ref().and_then(|message| object(message, "params"));
        let offers = params.and_then(|params| object(&params, "clientCapabilities"));
        let session = offers.and_then(|offers| object(&offers, "session"));
        session.is_some_and(|session| session.contains_key("notices"))
    }

    fn own_id(&mut self) -> String {
        self.last_own += 1;
        format!("{OWN}{}", self.last_own)
    }
}

impl FromServer {
    /// Fills in the line itself where it is passed on unchanged.
    fn or_line(self, line: &str) -> FromServer {
        match self {
            FromServer::Pass(changed) if changed.is_empty() => FromServer::Pass(line.to_owned()),
            other => other,
        }
    }
}

fn cancel(number: u64) -> String {
    let params = json!({ "requestId": number });
    json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": params }).to_string()
}

/// Returns the members of a request that open its session again elsewhere.
fn reopening(params: &Object) -> Object {
    let names = ["cwd", "mcpServers", "additionalDirectories"];
    let members =
        names.iter().filter_map(|name| Some(((*name).to_owned(), params.get(*name)?.clone())));
    members.collect()
}

fn params_of(message: &Object) -> Object {
    object(message, "params").unwrap_or_default()
}

fn object(message: &Object, name: &str) -> Option<Object> {
    serde_json::from_str(message.get(name)?.get()).ok()
}

fn text(message: &Object, name: &str) -> Option<String> {
    serde_json::from_str(message.get(name)?.get()).ok()
}

fn raw(value: &impl serde::Serialize) -> Box<RawValue> {
    // Values of our own can always be printed.
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(state: &mut State, message: Value) -> Option<Value> {
        let line = state.take_from_editor(&message.to_string(), || "key".to_owned())?;
        Some(serde_json::from_str(&line).unwrap())
    }

    fn hear(state: &mut State, message: Value) -> Option<Value> {
        match state.take_from_server(&message.to_string()) {
            FromServer::Pass(line) => Some(serde_json::from_str(&line).unwrap()),
            FromServer::Own(_) | FromServer::Drop => None,
        }
    }

    fn update(seq: u64) -> Value {
        let update = json!({ "sessionUpdate": "agent_message_chunk" });
        let params = json!({ "sessionId": "s", "update": update, "_meta": { "seq": seq } });
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
    }

    fn with_session() -> State {
        let mut state = State::default();
        say(&mut state, json!({ "id": 0, "method": "initialize", "params": {} }));
        hear(&mut state, json!({ "id": 0, "result": {} }));
        let params = json!({ "cwd": "/w", "mcpServers": [], "_meta": { "x": 1 } });
        say(&mut state, json!({ "id": 1, "method": "session/new", "params": params }));
        hear(&mut state, json!({ "id": 1, "result": { "sessionId": "s" } }));
        state
    }

    // R: C2, S9
    #[test]
    fn session_is_resumed_after_the_last_update_and_repeated_updates_are_dropped() {
        let mut state = with_session();
        assert!(hear(&mut state, update(4)).is_some());
        assert!(hear(&mut state, update(7)).is_some());
        assert_eq!(state.open_sessions(), ["s"]);
        let resume: Value = serde_json::from_str(&state.resume("s", false).unwrap()).unwrap();
        assert_eq!(resume["params"]["_meta"]["lastSeq"], 7);
        assert_eq!(resume["params"]["cwd"], "/w");
        assert!(hear(&mut state, update(7)).is_none());
        assert!(hear(&mut state, update(8)).is_some());
        assert!(state.initialize().unwrap().contains("purlin-shim-"));
    }

    // R: C2
    #[test]
    fn unanswered_prompt_is_sent_again_under_its_key() {
        let mut state = with_session();
        let params = json!({ "sessionId": "s", "prompt": [], "_meta": { "mine": true } });
        let sent =
            say(&mut state, json!({ "id": "p", "method": "session/prompt", "params": params }))
                .unwrap();
        assert_eq!(sent["params"]["_meta"], json!({ "mine": true, "reqKey": "key" }));
        assert_eq!(state.unanswered(), [serde_json::to_string(&sent).unwrap()]);
        hear(&mut state, json!({ "id": "p", "result": { "stopReason": "end_turn" } })).unwrap();
        assert!(state.unanswered().is_empty());
        // A second answer would be one too many.
        assert!(hear(&mut state, json!({ "id": "p", "result": {} })).is_none());
    }

    // R: C2
    #[test]
    fn late_answer_to_a_call_of_a_lost_connection_reaches_nobody() {
        let mut state = with_session();
        let call = json!({ "id": 1, "method": "session/request_permission", "params": {} });
        let first = hear(&mut state, call.clone()).unwrap();
        let withdrawn = state.lost();
        assert_eq!(withdrawn.len(), 1);
        assert!(withdrawn[0].contains("$/cancel_request"));
        let second = hear(&mut state, call).unwrap();
        assert_ne!(first["id"], second["id"]);
        assert!(say(&mut state, json!({ "id": first["id"], "result": {} })).is_none());
        let answer = say(&mut state, json!({ "id": second["id"], "result": {} })).unwrap();
        assert_eq!(answer["id"], 1);
    }

    // R: C2
    #[test]
    fn open_requests_fail_when_no_try_succeeds() {
        let mut state = with_session();
        let params = json!({ "sessionId": "s", "prompt": [] });
        say(&mut state, json!({ "id": 5, "method": "session/prompt", "params": params }));
        let lines = state.fail("refused");
        let failed: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(5), &json!(-32000)));
        assert!(state.unanswered().is_empty());
        assert_eq!(state.open_sessions(), ["s"]);
    }
}
