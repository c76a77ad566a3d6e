//! One client's connection: what the methods work with, and how replies, calls and events reach the client.
//!
//! Nothing here waits. What each method does is in `methods`; the loop that reads and writes is the dispatcher.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::hub::HubHandle;
use engine::ports::{Clock, Journal, Offers, Settings};
use engine::session::SessionHandle;
use engine::words::SessionId;
use engine::{Error, Reply};
use recording::Tape;
use serde::Serialize;
use serde_json::json;
use settings::Limits;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wire::acp::schema;
use wire::{Peer, RequestId, RpcError, rpc};

use crate::client_call::TakeAnswer;
use crate::dialect::{Printed, Translator};
use crate::error_table::error_out;
use crate::options::ClientKeys;
use crate::outbox::Outbox;
use crate::outlet::{FromSession, Outlet};
use crate::session_entry::SessionEntry;
use crate::shared::{Stage, Tenant};
use crate::workspace::Workspaces;

/// One client's connection.
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    pub(crate) outbox: Outbox,
    pub(crate) translator: Translator,
    pub(crate) outlet: Outlet,
    pub(crate) services: Services,
    pub(crate) sessions: HashMap<SessionId, SessionEntry>,
    /// Stored sessions that are being opened.
    pub(crate) loading: HashSet<SessionId>,
    /// What the client offers; `None` before `initialize`.
    pub(crate) offers: Option<Offers>,
    pub(crate) is_logged_in: bool,
    /// Our calls that wait for an answer.
    pub(crate) waiting: HashMap<u64, (SessionId, TakeAnswer)>,
    /// The client's calls that are not answered: as many as the peer leaves open.
    pub(crate) asked: HashMap<RequestId, Asked>,
    /// When the dispatcher woke: the time of everything that it does until it waits again.
    pub(crate) now: Instant,
    /// Sessions that outlive this connection, and its place in each.
    pub(crate) attached: Attached,
    /// Read the journal for this connection; they end with it.
    pub(crate) followers: JoinSet<()>,
}

/// A call of the client, for the log.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) session: Option<String>,
    pub(crate) since: Instant,
}

/// Logs that a call was refused, and why.
pub(crate) fn log_refusal(
    method: &str,
    id: &RequestId,
    session: Option<&str>,
    took: Duration,
    error: &RpcError,
) {
    let (session, request) = (session.unwrap_or_default(), id.to_string());
    let (code, details) = (error.code.0, error.data.as_ref().map(ToString::to_string));
    let details = details.unwrap_or_default();
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::warn!(
        session,
        request,
        operation = method,
        duration_ms,
        code,
        details,
        "refused: {}",
        error.message
    );
}

/// The places of a connection in sessions that outlive it. Dropped with the connection, which leaves them all.
#[derive(Default)]
pub(crate) struct Attached(HashMap<SessionId, (Arc<Stage>, u64)>);

impl Attached {
    pub(crate) fn insert(&mut self, session: SessionId, stage: Arc<Stage>, attachment: u64) {
        self.0.insert(session, (stage, attachment));
    }

    fn leave(&mut self, session: &SessionId) {
        if let Some((stage, attachment)) = self.0.remove(session) {
            stage.detach(attachment);
        }
    }

    fn is_current(&self, session: &SessionId, attachment: u64) -> bool {
        self.0.get(session).is_some_and(|(_, current)| *current == attachment)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.drain().for_each(|(_, (stage, attachment))| stage.detach(attachment));
    }
}

/// What a connection was started with.
pub(crate) struct Services {
    pub(crate) hub: HubHandle,
    pub(crate) clock: Arc<dyn Clock>,
    /// Asked only whether sessions can be stored.
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) workspaces: Arc<Workspaces>,
    /// Takes the API keys that the client gives.
    pub(crate) keys: Option<Arc<dyn ClientKeys>>,
    /// The directory that a client means by `.`.
    pub(crate) cwd: PathBuf,
    /// Records the connection, or plays a recording.
    pub(crate) tape: Option<Tape>,
    /// What outlives the connection; `None` on stdin and stdout, where nothing does.
    pub(crate) tenant: Option<Arc<Tenant>>,
}

impl Services {
    /// Returns the id of a new session.
    pub(crate) fn fresh_session(&self) -> SessionId {
        match &self.tenant {
            Some(tenant) => tenant.fresh_session(),
            None => SessionId::new(self.clock.fresh_id()),
        }
    }
}

impl Connection {
    /// Makes the reply to a call, whose `finish` answers it. Its place in the queue is reserved now, so that sending it
    /// never waits.
    pub(crate) fn reply<T: Send + 'static>(
        &self,
        id: &RequestId,
        finish: impl FnOnce(&mut Connection, &RequestId, Result<T, Error>) + Send + 'static,
    ) -> Result<Reply<T>, RpcError> {
        let permit = self.outlet.to_dispatcher.clone().try_reserve_owned();
        let permit = permit.map_err(|_| self.error_out(&Error::Crowded))?;
        let id = id.clone();
        Ok(Reply::new(move |outcome| {
            let of = id.clone();
            let finish = Box::new(move |connection: &mut Connection| {
                finish(connection, &id, outcome);
            });
            permit.send(FromSession::Finish(of, finish));
        }))
    }

    /// Returns the handle of a session that is open.
    pub(crate) fn handle(&self, session: &SessionId) -> Result<SessionHandle, RpcError> {
        match self.sessions.get(session) {
            Some(entry) => Ok(entry.handle.clone()),
            None => Err(self.error_out(&Error::NoSuchSession(session.clone()))),
        }
    }

    /// Refuses calls of a client that logged out.
    pub(crate) fn check_login(&self) -> Result<(), RpcError> {
        if self.is_logged_in { Ok(()) } else { Err(self.error_out(&Error::AuthNeeded)) }
    }

    /// Gives an error of the engine its code, and a reference that finds it in the log.
    pub(crate) fn error_out(&self, err: &Error) -> RpcError {
        let id = self.services.clock.fresh_id();
        let reference = id.rsplit('-').next().unwrap_or(&id);
        if matches!(err, Error::Broken | Error::Journal(_)) {
            tracing::error!(reference, "{err}");
        }
        error_out(err, reference)
    }

    /// Answers a call at once, before everything that waits.
    pub(crate) fn answer(&mut self, id: &RequestId, result: &impl Serialize) {
        if let Some(Printed { reply, .. }) = self.print_reply(id, Ok(result), None) {
            self.outbox.push_urgent(reply);
        }
    }

    /// Refuses a call at once, before everything that waits.
    pub(crate) fn refuse(&mut self, id: &RequestId, error: &RpcError) {
        if let Some(Printed { reply, .. }) = self.print_reply::<()>(id, Err(error), None) {
            self.outbox.push_urgent(reply);
        }
    }

    /// Answers a call behind earlier messages of its session.
    pub(crate) fn answer_in_order(
        &mut self,
        session: &SessionId,
        id: &RequestId,
        result: &Result<impl Serialize, Error>,
    ) {
        let printed = match result {
            Ok(result) => self.print_reply(id, Ok(result), None),
            Err(err) => {
                let error = self.error_out(err);
                self.print_reply::<()>(id, Err(&error), None)
            }
        };
        self.push_in_order(session, printed);
    }

    /// Answers a call that opened a session, behind the history that was shown.
    pub(crate) fn answer_opened(
        &mut self,
        id: &RequestId,
        result: &impl Serialize,
        entry: &SessionEntry,
        settings: &Settings,
    ) {
        let printed = self.print_reply(id, Ok(result), Some((entry, settings)));
        self.push_in_order(entry.handle.id(), printed);
    }

    fn push_in_order(&mut self, session: &SessionId, printed: Option<Printed>) {
        let Some(Printed { before, reply }) = printed else { return };
        for line in before.into_iter().chain([reply]) {
            self.outbox.push_line(session, line, 0);
        }
    }

    /// Prints a reply; `None` if the call was answered before.
    fn print_reply<T: Serialize>(
        &mut self,
        id: &RequestId,
        outcome: Result<&T, &RpcError>,
        opened: Option<(&SessionEntry, &Settings)>,
    ) -> Option<Printed> {
        let asked = self.asked.remove(id);
        if !self.peer.close(id) {
            return None;
        }
        if let (Err(error), Some(asked)) = (outcome, asked) {
            let took = self.now.saturating_duration_since(asked.since);
            log_refusal(&asked.method, id, asked.session.as_deref(), took, error);
        }
        match self.translator.print_reply(id, outcome, opened) {
            Ok(mut printed) => {
                if let Err(error) = self.outbox.check_answer(&printed.reply) {
                    tracing::error!("{}", error.message);
                    printed.reply.clear();
                    rpc::print_error(&mut printed.reply, Some(id), &error).ok()?;
                }
                Some(printed)
            }
            Err(err) => {
                tracing::error!("cannot write an answer: {err}");
                None
            }
        }
    }

    /// Takes what a session or the hub sent.
    pub(crate) fn on_session(&mut self, from: FromSession) {
        match from {
            FromSession::Event { session, cost, attachment: Some(attachment), .. }
                if !self.attached.is_current(&session, attachment) =>
            {
                // The client has attached again since, and gets it by number.
                self.outbox.give_back(&session, cost);
            }
            FromSession::Event { session, event, cost, seq, .. } => {
                self.translator.observe(&session, &event);
                self.outbox.push_event(&session, event, cost, seq);
            }
            FromSession::Line { session, line, cost } => {
                self.outbox.push_line(&session, line, cost);
            }
            FromSession::Call { session, call, cost } => match self.translator.print_call(&call) {
                Ok(line) => match self.outbox.push_call(&session, call.method, line, cost) {
                    Ok(()) => {
                        self.peer.call_as(call.number, call.method);
                        self.waiting.insert(call.number, (session, call.answer));
                    }
                    Err(error) => (call.answer)(Err(error)),
                },
                Err(err) => tracing::error!("cannot write a call: {err}"),
            },
            FromSession::Finish(_, finish) => finish(self),
        }
    }

    /// Cancels a call of ours at the client: its answer is not needed any more.
    pub(crate) fn on_abandoned(&mut self, number: u64) {
        let Some((session, _)) = self.waiting.remove(&number) else {
            return;
        };
        self.peer.forget(number);
        let mut line = Vec::new();
        match rpc::print_note(&mut line, "$/cancel_request", &json!({ "requestId": number })) {
            Ok(()) => self.outbox.push_line(&session, line, 0),
            Err(err) => tracing::error!("cannot write a notification: {err}"),
        }
    }

    /// Leaves a session that outlives the connection. Its updates that still wait are dropped: they are read again.
    pub(crate) fn leave_session(&mut self, session: &SessionId) {
        self.attached.leave(session);
        self.sessions.remove(session);
        self.outbox.drop_updates(session);
    }

    /// Closes what the client sees of a session that ended.
    pub(crate) fn forget_session(&mut self, session: &SessionId) {
        self.attached.leave(session);
        if let Some(tenant) = &self.services.tenant {
            tenant.forget(session);
        }
        self.sessions.remove(session);
        self.outbox.close(session);
    }
}

/// Converts the id of a session.
pub(crate) fn session_out(session: &SessionId) -> schema::SessionId {
    schema::SessionId::new(session.to_shared())
}
