//! The translator between the peer and the methods: methods speak v1 only.
//!
//! It decodes calls and prints replies, calls and updates in the client's dialect. It sees everything that passes, and
//! adds what the other two dialects have: facts about opened sessions, the history as one list, updates that begin and
//! end a turn. In v1 it remembers nothing. The shapes themselves are in `wire::acp::dialect`.

mod extras;
mod printer;
mod recap;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::Event;
use engine::ports::{Clock, Offers, Settings};
use engine::words::{ModeId, SessionId};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use settings::limits::{Limits, lasting};
use wire::acp::dialect::{Dialect, SessionFacts, print};
use wire::acp::schema::Meta;
use wire::acp::{AgentCall, mcp_servers, members};
use wire::{RequestId, RpcError, rpc};

pub(crate) use self::extras::SessionExtras;
pub(crate) use self::printer::NotePrinter;
use self::recap::Recap;
use crate::bridge::{check_prompt_size, session_in};
use crate::client_call::{ClientCall, TakeAnswer};
use crate::session_entry::SessionEntry;

/// Translates between a client and the methods.
pub(crate) struct Translator {
    /// The dialect to speak, whatever `initialize` looks like.
    forced: Option<Dialect>,
    /// The client's dialect; recognised at `initialize`, unless it is forced.
    dialect: Dialect,
    /// The calls that wait for their reply. Stays empty in v1.
    calls: HashMap<RequestId, CallNotes>,
    /// How long a history in one list may be, in bytes.
    history_bytes: usize,
    /// How long a prompt may be, in bytes.
    prompt_bytes: u64,
    permission_timeout: Duration,
    /// Whether the client's capabilities allow edits of the workspace, in the dialect without permission requests.
    may_edit: bool,
    /// Whether GitHub's tools would work, from `initialize`.
    has_github: bool,
    clock: Arc<dyn Clock>,
}

/// What is remembered of a call until it is answered.
#[derive(Default)]
struct CallNotes {
    method: String,
    /// The session that it is about.
    session: Option<SessionId>,
    /// The `_meta` that goes back with the answer.
    meta: Option<Meta>,
    /// What the client offers, from `initialize`.
    offers: Offers,
    /// Whether its method began the work.
    is_accepted: bool,
    /// What was shown of the session since the call, for the dialect whose answer contains the history.
    recap: Option<Recap>,
}

impl CallNotes {
    /// Tells whether it is a prompt whose turn began.
    fn is_turn(&self) -> bool {
        self.is_accepted && self.method == "session/prompt"
    }
}

/// A reply, and the line that goes before it.
pub(crate) struct Printed {
    pub(crate) before: Option<Vec<u8>>,
    pub(crate) reply: Vec<u8>,
}

impl Translator {
    pub(crate) fn new(
        forced: Option<Dialect>,
        limits: &Limits,
        clock: Arc<dyn Clock>,
    ) -> Translator {
        Translator {
            forced,
            dialect: forced.unwrap_or_default(),
            calls: HashMap::new(),
            history_bytes: usize::try_from(limits.max_update_bytes).unwrap_or(usize::MAX),
            prompt_bytes: limits.max_prompt_bytes,
            permission_timeout: lasting(limits.permission_wait_seconds),
            may_edit: false,
            has_github: false,
            clock,
        }
    }

    /// Takes whether GitHub's tools would work. Asks only if the client's dialect tells it.
    pub(crate) fn find_github(&mut self, has_github: impl FnOnce() -> bool) {
        self.has_github = self.dialect == Dialect::Container && has_github();
    }

    /// Returns what prints updates.
    pub(crate) fn note_printer(&self) -> NotePrinter {
        NotePrinter(self.dialect)
    }

    /// Decodes a call. `initialize` shows the client's dialect.
    pub(crate) fn decode(
        &mut self,
        id: &RequestId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<AgentCall, RpcError> {
        if method == "initialize" {
            let (dialect, why) = match self.forced {
                Some(dialect) => (dialect, "set by the user"),
                None => Dialect::recognise_with_reason(params),
            };
            self.dialect = dialect;
            tracing::info!(dialect = dialect.name(), why, "the client's dialect");
        }
        let call = self.dialect.decode_call(method, params)?;
        let encoded = params.map_or(0, |params| params.get().len());
        match &call {
            AgentCall::Prompt(prompt) => {
                check_prompt_size(&prompt.prompt, encoded, self.prompt_bytes)?;
            }
            AgentCall::Initialize(request) => {
                self.may_edit =
                    self.dialect == Dialect::Container && crate::bridge::offers_in(request).write;
            }
            AgentCall::Steer(message) => {
                check_prompt_size(&message.prompt.prompt, encoded, self.prompt_bytes)?;
            }
            _ => {}
        }
        if self.dialect != Dialect::V1 {
            let notes = self.notes(method, &call);
            self.calls.insert(id.clone(), notes);
        }
        Ok(call)
    }

    /// Notes what the reply to a call needs.
    fn notes(&self, method: &str, call: &AgentCall) -> CallNotes {
        let notes = CallNotes { method: method.to_owned(), ..CallNotes::default() };
        match call {
            AgentCall::Initialize(request) => CallNotes {
                meta: request.meta.clone(),
                offers: crate::bridge::offers_in(request),
                ..notes
            },
            AgentCall::NewSession(request) => {
                let mut meta = request.meta.clone();
                members::take_meta_value(&mut meta, mcp_servers::PROBLEMS);
                CallNotes { meta, recap: Some(Recap::default()), ..notes }
            }
            AgentCall::Load(request) => CallNotes {
                session: Some(session_in(&request.session_id)),
                recap: (self.dialect == Dialect::Container).then(|| Recap::new(self.history_bytes)),
                ..notes
            },
            AgentCall::Prompt(request) => CallNotes {
                session: Some(session_in(&request.session_id)),
                meta: request.meta.clone(),
                ..notes
            },
            _ => notes,
        }
    }

    /// Returns what the client can show. The other dialects show notices in the conversation.
    pub(crate) fn offers(&self, mut offers: Offers) -> Offers {
        // Both know the updates of their document.
        let is_other = self.dialect != Dialect::V1;
        offers.notices |= is_other;
        offers.later_updates |= is_other;
        offers
    }

    /// Returns the mode that a client means. The container dialect has no permission requests: there, a client that can edit
    /// the workspace allows it with the mode `development`, which is also the default.
    pub(crate) fn mode_in(&self, mode: Option<ModeId>) -> Option<ModeId> {
        let is_development = mode.as_ref().is_none_or(|mode| mode.as_str() == "development");
        if self.may_edit && is_development { Some(ModeId::new("accept_edits")) } else { mode }
    }

    /// Returns what a session that is opened now needs for the client's dialect.
    pub(crate) fn session_extras(&self) -> SessionExtras {
        SessionExtras {
            branch: (self.dialect == Dialect::Container).then(Arc::default),
            // In the message reference the request is a notification, and the container dialect has none, so an answer
            // may never come.
            permission_timeout: (self.dialect != Dialect::V1).then_some(self.permission_timeout),
        }
    }

    /// Sees an event that is about to be shown.
    pub(crate) fn observe(&mut self, session: &SessionId, event: &Event) {
        let calls = self.calls.values_mut().filter(|call| call.session.as_ref() == Some(session));
        for recap in calls.filter_map(|call| call.recap.as_mut()) {
            recap.take(session, event);
        }
    }

    /// Notes that a call is accepted. Returns what is sent then, and the session it belongs to.
    pub(crate) fn accepted(&mut self, id: &RequestId) -> Option<(SessionId, Vec<u8>)> {
        let call = self.calls.get_mut(id)?;
        call.is_accepted = true;
        let session = call.session.clone().filter(|_| call.method == "session/prompt")?;
        let line = update(self.dialect.turn_begins(session.as_str())?)?;
        Some((session, line))
    }

    /// Prints a call to the client.
    pub(crate) fn print_call(&self, call: &ClientCall) -> serde_json::Result<Vec<u8>> {
        let mut line = Vec::new();
        let id = RequestId::number(call.number);
        print::print_call(&mut line, self.dialect, &id, call.method, &call.params)?;
        Ok(line)
    }

    /// Passes the client's answer to the caller.
    pub(crate) fn read_reply(
        &self,
        method: &str,
        outcome: Result<&RawValue, RpcError>,
        take: TakeAnswer,
    ) {
        print::read_reply(self.dialect, method, outcome, take);
    }

    /// Prints the reply to a call. `opened` is known when the call opened a session.
    pub(crate) fn print_reply<T: Serialize>(
        &mut self,
        id: &RequestId,
        outcome: Result<&T, &RpcError>,
        opened: Option<(&SessionEntry, &Settings)>,
    ) -> serde_json::Result<Printed> {
        let mut reply = Vec::new();
        if self.dialect == Dialect::V1 {
            match outcome {
                Ok(result) => rpc::print_result(&mut reply, id, result)?,
                Err(error) => rpc::print_error(&mut reply, Some(id), error)?,
            }
            return Ok(Printed { before: None, reply });
        }
        let call = self.calls.remove(id).unwrap_or_default();
        let dialect = self.dialect;
        let before = self.turn_end(&call, outcome.err());
        let outcome = match outcome {
            Ok(result) => Ok(self.with_extras(&call, serde_json::to_value(result)?, opened)),
            Err(error) if call.is_turn() => dialect.turn_failed(error.clone(), call.meta),
            Err(error) => Err(error.clone()),
        };
        match outcome {
            Ok(result) => print::print_result(&mut reply, dialect, id, &call.method, &result)?,
            Err(error) => print::print_error(&mut reply, dialect, Some(id), &error)?,
        }
        Ok(Printed { before, reply })
    }

    /// Returns the update that ends the turn of a prompt.
    fn turn_end(&self, call: &CallNotes, error: Option<&RpcError>) -> Option<Vec<u8>> {
        let session = call.session.as_ref().filter(|_| call.is_turn())?;
        update(self.dialect.turn_ends(session.as_str(), error)?)
    }

    /// Adds to a result what the dialect has and v1 does not.
    fn with_extras(
        &self,
        call: &CallNotes,
        mut result: Value,
        opened: Option<(&SessionEntry, &Settings)>,
    ) -> Value {
        let facts = match opened {
            Some((session, settings)) => self.dialect.session_facts(SessionFacts {
                id: session.handle.id().as_str(),
                directory: &session.cwd.to_string_lossy(),
                may_change: settings.mode().may_change(),
                has_failed: session.has_failed,
                created_ms: milliseconds(session.created),
                now_ms: milliseconds(self.clock.now()),
                branch: session.extras.branch(),
                modified: call.recap.as_ref().map(Recap::changed),
                history: call.recap.as_ref().map(Recap::history),
            }),
            None if call.method == "initialize" => {
                // Steering is an extension of v1.
                if let Some(capabilities) = result["agentCapabilities"].as_object_mut() {
                    capabilities.remove("_meta");
                }
                self.dialect.agent_facts(call.offers.read, call.offers.write, self.has_github)
            }
            None => return result,
        };
        let Some(members) = result.as_object_mut() else { return result };
        match members::with_facts(call.meta.clone(), facts) {
            Some(meta) => members.insert("_meta".to_owned(), Value::Object(meta)),
            None => members.remove("_meta"),
        };
        result
    }
}

/// Prints an update that only a dialect has.
fn update(params: Value) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    match rpc::print_note(&mut line, "session/update", &params) {
        Ok(()) => Some(line),
        Err(err) => {
            tracing::error!("cannot write an update: {err}");
            None
        }
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
