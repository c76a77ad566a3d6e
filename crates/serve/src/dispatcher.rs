//! The dispatcher: owns the peer and the outbox, awaits nothing but its next wake.
//!
//! What each method does is in `serve::calls`. Long work belongs to the session's task.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use engine::Error;
use engine::hub::HubHandle;
use engine::ports::{Clock, Journal, Offers};
use engine::session::SessionHandle;
use engine::words::SessionId;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use wire::acp::dialect::Dialect;
use wire::acp::dialect::print::{print_call, print_error, print_result, read_reply};
use wire::acp::{AgentCall, AgentNote, schema};
use wire::peer::Incoming;
use wire::{Code, Peer, RequestId, RpcError, rpc};

use crate::Pipes;
use crate::bridge;
use crate::bridge::editor::Outlet;
use crate::bridge::recap::Recap;
use crate::error_table::error_out;
use crate::opened::{About, Pending};
use crate::outbox::{Outbox, Pace};
use crate::rate::Window;
use crate::steer::steering_idle;
use crate::wake::{Answer, FromSession, Shape, TakeAnswer, Wake};
use crate::workspace::Workspaces;
use crate::{ClientKeys, size_limits};
use settings::Limits;

/// How long running turns may take to end when the connection does.
pub(super) const GRACE: Duration = Duration::from_millis(2_200);
/// How long the last lines may take to be written then.
const FLUSH: Duration = Duration::from_millis(500);
/// How many things of the sessions are taken at once, so that input is looked at in between.
const AT_ONCE: usize = 64;

/// Where wakes come from.
pub(super) struct Channels {
    pub(super) pipes: Pipes,
    pub(super) from_sessions: mpsc::Receiver<FromSession>,
    pub(super) abandoned_calls: mpsc::Receiver<u64>,
    pub(super) stop: CancellationToken,
}

/// One client's connection.
pub(super) struct Dispatcher {
    pub(super) peer: Peer,
    pub(super) outbox: Outbox,
    pub(super) outlet: Outlet,
    pub(super) hub: HubHandle,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Arc<Limits>,
    pub(super) sessions: HashMap<SessionId, Entry>,
    /// Where sessions are kept; asked only whether it can.
    pub(super) journal: Arc<dyn Journal>,
    /// Sessions that are being opened, by the call that asked for it.
    pub(super) opening: HashMap<RequestId, Pending>,
    /// What is shown of sessions that are being loaded, for the dialect that tells it once more.
    pub(super) recaps: HashMap<SessionId, Recap>,
    /// What the client offers; `None` before `initialize`.
    pub(super) client: Option<Offers>,
    /// How the client speaks; recognised at `initialize`, unless it is forced.
    pub(super) dialect: Dialect,
    pub(super) place: Place,
    pub(super) is_logged_in: bool,
    /// Takes the API keys that the client gives.
    pub(super) keys: Option<Arc<dyn ClientKeys>>,
    /// Our calls that wait for an answer.
    waiting: HashMap<u64, (SessionId, TakeAnswer)>,
    /// Answers to lines without a readable id.
    errors: Window,
    unanswered_errors: u64,
    /// The buffer to fill next; `None` while the writer has it.
    batch: Option<Vec<u8>>,
    /// Since when the writer has had its batch, or was last seen to get on with it.
    writing_since: Option<Instant>,
    /// How far the writer was then.
    progress: u64,
    /// When text that had to wait may go.
    retry: Option<Instant>,
}

/// What a connection was started with.
pub(super) struct Place {
    /// The dialect to speak, whatever `initialize` looks like.
    pub(super) forced: Option<Dialect>,
    /// The folder that a client means by `.`.
    pub(super) cwd: PathBuf,
    /// Opens what sessions work with.
    pub(super) workspaces: Arc<Workspaces>,
}

/// A session as its connection knows it.
pub(super) struct Entry {
    pub(super) handle: SessionHandle,
    /// Its working folder.
    pub(super) cwd: PathBuf,
    pub(super) created: SystemTime,
    /// The branch its folder was on when it was opened, where the client is told.
    pub(super) branch: Option<String>,
    /// The MCP servers that the client wanted last.
    pub(super) servers: Vec<mcp::ServerConfig>,
    /// Set while other tools are on their way to it, which are to be started behind the answer.
    pub(super) has_other_tools: bool,
    /// The turn that runs: the call to answer, and how to stop it.
    pub(super) turn: Option<Turn>,
    pub(super) prompts: Window,
}

/// A turn that runs.
pub(super) struct Turn {
    pub(super) call: RequestId,
    pub(super) cancel: CancellationToken,
    /// What came with the prompt and goes back with its answer.
    pub(super) meta: Option<schema::Meta>,
    /// Set when we stopped the turn because the client reads nothing.
    pub(super) is_stalled: bool,
}

/// A line, read into its type, so that nothing borrows from the peer any more.
enum Act {
    Call(RequestId, Result<AgentCall, RpcError>),
    Note(Result<Option<AgentNote>, RpcError>),
    Refuse(Option<RequestId>, RpcError),
    Nothing,
}

impl Dispatcher {
    pub(super) fn new(
        limits: Arc<Limits>,
        outbox: Outbox,
        outlet: Outlet,
        hub: HubHandle,
        clock: Arc<dyn Clock>,
        journal: Arc<dyn Journal>,
        place: Place,
    ) -> Dispatcher {
        Dispatcher {
            peer: Peer::new(size_limits(&limits)),
            outbox,
            outlet,
            hub,
            clock,
            sessions: HashMap::new(),
            journal,
            opening: HashMap::new(),
            recaps: HashMap::new(),
            client: None,
            dialect: place.forced.unwrap_or_default(),
            place,
            is_logged_in: true,
            keys: None,
            waiting: HashMap::new(),
            errors: Window::new(limits.errors_per_minute),
            unanswered_errors: 0,
            batch: Some(Vec::new()),
            writing_since: None,
            progress: 0,
            retry: None,
            limits,
        }
    }

    /// Serves until the client is gone, then lets running turns end and their last words out.
    pub(super) async fn run(mut self, mut channels: Channels) {
        let mut events = Vec::with_capacity(AT_ONCE);
        loop {
            match self.next_wake(&mut channels, &mut events, None).await {
                Wake::Bytes(bytes) => self.on_bytes(&bytes),
                Wake::Stop => break,
                Wake::Written(Err(_)) => return,
                Wake::Time => self.on_time(channels.pipes.progress.load(Ordering::Relaxed)),
                wake => self.on_wake(wake, &mut events),
            }
            self.write(&channels.pipes.output);
        }
        // Whoever waits for the end, such as a watchdog, is told that it began.
        channels.stop.cancel();
        self.peer.finish();
        self.on_lines();
        self.wind_down(channels, events).await;
    }

    /// Cancels what runs, takes what the sessions still say, and writes it.
    async fn wind_down(mut self, mut channels: Channels, mut events: Vec<FromSession>) {
        for entry in self.sessions.values().filter_map(|entry| entry.turn.as_ref()) {
            entry.cancel.cancel();
        }
        let end = Instant::now() + GRACE;
        while Instant::now() < end && self.peer.open_calls() > 0 {
            match self.next_wake(&mut channels, &mut events, Some(end)).await {
                Wake::Written(Err(_)) => return,
                wake => self.on_wake(wake, &mut events),
            }
            self.write(&channels.pipes.output);
        }
        self.sessions.clear();
        let end = Instant::now() + FLUSH;
        self.write(&channels.pipes.output);
        while Instant::now() < end && (!self.outbox.is_empty() || self.batch.is_none()) {
            match self.next_wake(&mut channels, &mut events, Some(end)).await {
                Wake::Written(Err(_)) => return,
                wake => self.on_wake(wake, &mut events),
            }
            self.write(&channels.pipes.output);
        }
    }

    /// Waits for the next reason to do something: the only await of the dispatcher.
    async fn next_wake(
        &mut self,
        channels: &mut Channels,
        events: &mut Vec<FromSession>,
        end: Option<Instant>,
    ) -> Wake {
        // While answers pile up unread nothing further is read: the client's own pipe fills, and it waits.
        let may_read = !self.outbox.is_flooded() && end.is_none();
        let since = self.writing_since.filter(|_| end.is_none());
        let stalled = since.map(|since| since + self.limits.unread());
        let time =
            [self.retry.filter(|_| self.batch.is_some()), stalled, end].into_iter().flatten().min();
        tokio::select! {
            Some(written) = channels.pipes.written.recv() => Wake::Written(written),
            Some(number) = channels.abandoned_calls.recv() => Wake::Abandoned(number),
            _ = channels.from_sessions.recv_many(events, AT_ONCE) => {
                // A call is given up before its session says what came of it, and is told in that order.
                while let Ok(number) = channels.abandoned_calls.try_recv() {
                    self.on_abandoned(number);
                }
                Wake::Sessions
            }
            bytes = channels.pipes.input.recv(), if may_read => bytes.map_or(Wake::Stop, Wake::Bytes),
            () = channels.stop.cancelled(), if end.is_none() => Wake::Stop,
            () = sleep_until(time.unwrap_or_else(Instant::now)), if time.is_some() => Wake::Time,
        }
    }

    fn on_wake(&mut self, wake: Wake, events: &mut Vec<FromSession>) {
        match wake {
            Wake::Sessions => events.drain(..).for_each(|event| self.on_session(event)),
            Wake::Abandoned(number) => self.on_abandoned(number),
            Wake::Written(Ok(buffer)) => {
                self.batch = Some(buffer);
                self.writing_since = None;
            }
            Wake::Time | Wake::Bytes(_) | Wake::Stop | Wake::Written(Err(_)) => {}
        }
    }

    fn on_bytes(&mut self, bytes: &[u8]) {
        self.peer.feed(bytes);
        self.on_lines();
    }

    fn on_lines(&mut self) {
        while let Some(act) = self.next_act() {
            match act {
                Act::Call(id, Ok(call)) => self.on_call(id, call),
                Act::Call(id, Err(error)) => self.refuse(&id, &error),
                Act::Note(Ok(Some(note))) => self.on_note(note),
                Act::Note(Ok(None)) => tracing::debug!("an unknown note is ignored"),
                Act::Note(Err(error)) => {
                    tracing::warn!(data = ?error.data, "a note does not fit and is ignored")
                }
                Act::Refuse(id, error) => self.on_malformed(id.as_ref(), error),
                Act::Nothing => {}
            }
        }
    }

    /// Reads the next line into its type. Large parameters go from the line straight into it.
    fn next_act(&mut self) -> Option<Act> {
        let is_ready = self.client.is_some();
        Some(match self.peer.poll_event()? {
            Incoming::Call { id, method, .. } if !is_ready && method != "initialize" => {
                let error = RpcError::of(Code::INVALID_REQUEST)
                    .details("The first request must be initialize");
                Act::Call(id, Err(error))
            }
            Incoming::Call { id, method, params } => {
                if method == "initialize" {
                    let (recognised, why) = match self.place.forced {
                        Some(dialect) => (dialect, "it was asked for"),
                        None => Dialect::recognise_with_reason(params),
                    };
                    self.dialect = recognised;
                    tracing::info!(dialect = recognised.name(), why, "the client's dialect");
                }
                Act::Call(id, self.dialect.decode_call(&method, params))
            }
            Incoming::Note { method, params } => Act::Note(AgentNote::decode(&method, params)),
            Incoming::Reply { number, method, outcome } => {
                if let Some((_, answer)) = self.waiting.remove(&number) {
                    read_reply(self.dialect, method, outcome, answer);
                }
                Act::Nothing
            }
            Incoming::Refused { id, error } => Act::Refuse(id, error),
            Incoming::Ignored(what) => {
                tracing::warn!("{what} is ignored");
                Act::Nothing
            }
        })
    }

    /// Answers a line that is no message. Without an id the answers are limited: such lines may come as a flood.
    fn on_malformed(&mut self, id: Option<&RequestId>, error: RpcError) {
        tracing::warn!(code = error.code.0, data = ?error.data, "a line is refused");
        if id.is_none() && self.errors.take(Instant::now()).is_err() {
            self.unanswered_errors += 1;
            return;
        }
        let unanswered = std::mem::take(&mut self.unanswered_errors);
        let error =
            if unanswered > 0 { error.with("unanswered", json!(unanswered)) } else { error };
        self.print(|line| rpc::print_error(line, id, &error));
    }

    /// Answers a call at once, past everything that waits.
    pub(super) fn answer(&mut self, id: &RequestId, method: &str, result: &impl Serialize) {
        if self.peer.close(id) {
            let dialect = self.dialect;
            self.print(|line| print_result(line, dialect, id, method, result));
        }
    }

    /// Refuses a call at once, past everything that waits.
    pub(super) fn refuse(&mut self, id: &RequestId, error: &RpcError) {
        tracing::info!(code = error.code.0, data = ?error.data, "a call is refused");
        if self.peer.close(id) {
            let dialect = self.dialect;
            self.print(|line| print_error(line, dialect, Some(id), error));
        }
    }

    fn print(&mut self, print: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) {
        let mut line = Vec::new();
        match print(&mut line) {
            Ok(()) => self.outbox.push_urgent(line),
            Err(err) => tracing::error!("an answer could not be written: {err}"),
        }
    }

    /// Gives an error of the engine its code, and a reference that finds it in the log.
    pub(super) fn error_out(&self, err: &Error) -> RpcError {
        let id = self.clock.fresh_id();
        let reference = id.rsplit('-').next().unwrap_or(&id);
        if matches!(err, Error::Broken | Error::Journal(_)) {
            tracing::error!(reference, "{err}");
        }
        error_out(err, reference)
    }

    fn on_session(&mut self, from: FromSession) {
        match from {
            FromSession::Event { session, event, cost } => {
                if let Some(recap) = self.recaps.get_mut(&session) {
                    recap.take(&session, &event);
                }
                self.outbox.push_event(&session, event, cost)
            }
            FromSession::Line { session, line, cost } => {
                self.outbox.push_line(&session, line, cost)
            }
            FromSession::Call { session, call, cost } => {
                let mut line = Vec::new();
                let id = RequestId::number(call.number);
                match print_call(&mut line, self.dialect, &id, call.method, &call.params) {
                    Ok(()) => {
                        self.peer.call_as(call.number, call.method);
                        self.waiting.insert(call.number, (session.clone(), call.answer));
                        self.outbox.push_line(&session, line, cost);
                    }
                    Err(err) => tracing::error!("a call could not be written: {err}"),
                }
            }
            FromSession::Answer { id, answer } => self.on_answer(&id, answer),
        }
    }

    /// Tells the client that a call of ours needs no answer any more.
    fn on_abandoned(&mut self, number: u64) {
        let Some((session, _)) = self.waiting.remove(&number) else {
            return;
        };
        self.peer.forget(number);
        let mut line = Vec::new();
        match rpc::print_note(&mut line, "$/cancel_request", &json!({ "requestId": number })) {
            Ok(()) => self.outbox.push_line(&session, line, 0),
            Err(err) => tracing::error!("a note could not be written: {err}"),
        }
    }

    /// Answers what a session or the hub finished, behind everything the session said before.
    fn on_answer(&mut self, id: &RequestId, answer: Answer) {
        match answer {
            Answer::Opened(opening, opened) => self.on_opened(id, opening, opened),
            Answer::Reopened(session, opening, settings) => {
                let Some(entry) = self.sessions.get_mut(&session) else {
                    self.recaps.remove(&session);
                    let gone = Err::<(), _>(Error::NoSuchSession(session.clone()));
                    return self.answer_in_order(&session, id, &gone);
                };
                let (cwd, created, branch) =
                    (entry.cwd.clone(), entry.created, entry.branch.clone());
                let is_other = std::mem::take(&mut entry.has_other_tools);
                if settings.is_err() {
                    // It has the old ones still.
                    entry.servers.clear();
                } else if is_other {
                    match entry.handle.reserve() {
                        Ok(permit) => permit.send(engine::session::Command::Announce),
                        Err(err) => {
                            tracing::error!(%session, "other servers are not started: {err}")
                        }
                    }
                }
                let about = About { cwd, created, branch };
                self.answer_opened(id, opening, &session, settings, about, None);
                self.outbox.set_pace(&session, Pace::Live);
            }
            Answer::Listed(listing) => match listing {
                Ok(listing) => self.answer(id, "session/list", &bridge::listing_out(listing)),
                Err(err) => self.refuse(id, &self.error_out(&err)),
            },
            Answer::Titled(session, title) => {
                let result = title.map(schema::SetSessionTitleResponse::new);
                self.answer_in_order(&session, id, &result);
            }
            Answer::Deleted(session, deleted) => {
                let is_gone = deleted.is_ok();
                self.answer_in_order(&session, id, &deleted.map(|()| json!({})));
                if is_gone {
                    self.sessions.remove(&session);
                    self.outbox.close(&session);
                }
            }
            Answer::Prompt(session, outcome) => {
                let turn = self.sessions.get_mut(&session).and_then(|entry| entry.turn.take());
                let outcome = match (outcome, &turn) {
                    (Ok(_), Some(turn)) if turn.is_stalled => {
                        Err(Error::ClientStalled(self.limits.unread()))
                    }
                    (outcome, _) => outcome,
                };
                let meta = turn.and_then(|turn| turn.meta);
                self.end_turn(&session, id, outcome.map(bridge::stop_out), meta);
            }
            Answer::Steered(session, may_be_idle, outcome) => {
                let result = match outcome {
                    Err(Error::NoTurn(_)) if may_be_idle => Ok(steering_idle()),
                    outcome => outcome.map(|()| json!({ "outcome": "injected" })),
                };
                self.answer_in_order(&session, id, &result);
            }
            Answer::Set(session, Shape::Empty, outcome) => {
                self.answer_in_order(&session, id, &outcome.map(|_| json!({})));
            }
            Answer::Set(session, Shape::Options, outcome) => {
                let result = outcome.map(|settings| {
                    schema::SetSessionConfigOptionResponse::new(bridge::options_out(&settings))
                });
                self.answer_in_order(&session, id, &result);
            }
            Answer::Closed(session, outcome) => {
                self.answer_in_order(&session, id, &outcome.map(|()| json!({})));
                self.sessions.remove(&session);
                self.outbox.close(&session);
            }
        }
    }

    /// Answers a prompt, after what the dialect has to say about the end of a turn.
    fn end_turn(
        &mut self,
        session: &SessionId,
        id: &RequestId,
        outcome: Result<schema::StopReason, Error>,
        meta: Option<schema::Meta>,
    ) {
        let outcome = outcome.map_err(|err| self.error_out(&err));
        self.tell(session, self.dialect.turn_ends(session.as_str(), outcome.as_ref().err()));
        match outcome {
            Ok(stop) => {
                let answer = schema::PromptResponse::new(stop).meta(meta);
                self.line_in_order(session, id, "session/prompt", Ok(&answer));
            }
            Err(error) => {
                let answer = self.dialect.turn_failed(error, meta);
                let answer = answer.as_ref().map_err(Clone::clone);
                self.line_in_order(session, id, "session/prompt", answer);
            }
        }
    }

    /// Sends an update that only a dialect has, behind everything its session said before.
    pub(super) fn tell(&mut self, session: &SessionId, params: Option<serde_json::Value>) {
        let Some(params) = params else { return };
        let mut line = Vec::new();
        match rpc::print_note(&mut line, "session/update", &params) {
            Ok(()) => self.outbox.push_line(session, line, 0),
            Err(err) => tracing::error!("a note could not be written: {err}"),
        }
    }

    /// Answers a call whose result is the same in every dialect.
    pub(super) fn answer_in_order(
        &mut self,
        session: &SessionId,
        id: &RequestId,
        result: &Result<impl Serialize, Error>,
    ) {
        match result {
            Ok(result) => self.line_in_order(session, id, "", Ok(result)),
            Err(err) => self.line_in_order::<()>(session, id, "", Err(self.error_out(err))),
        }
    }

    pub(super) fn line_in_order<T: Serialize>(
        &mut self,
        session: &SessionId,
        id: &RequestId,
        method: &str,
        result: Result<&T, RpcError>,
    ) {
        if !self.peer.close(id) {
            return;
        }
        let mut line = Vec::new();
        let printed = match result {
            Ok(result) => print_result(&mut line, self.dialect, id, method, result),
            Err(error) => print_error(&mut line, self.dialect, Some(id), &error),
        };
        match printed {
            Ok(()) if self.outbox.has(session) => self.outbox.push_line(session, line, 0),
            Ok(()) => self.outbox.push_urgent(line),
            Err(err) => tracing::error!("an answer could not be written: {err}"),
        }
    }

    /// Hands the next batch to the writer if it is free.
    fn write(&mut self, output: &mpsc::Sender<Vec<u8>>) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        batch.clear();
        self.retry = self.outbox.fill(&mut batch, Instant::now());
        if batch.is_empty() {
            self.batch = Some(batch);
            return;
        }
        match output.try_send(batch) {
            Ok(()) => self.writing_since = Some(Instant::now()),
            // Cannot be: the writer gave its batch back. Were it so, nothing is lost but this.
            Err(_) => tracing::error!("the writer took no batch although it was free"),
        }
    }

    /// Stops the turns of a client that reads nothing. What they did is kept; what was said waits in the outbox.
    fn on_time(&mut self, progress: u64) {
        let Some(since) = self.writing_since else { return };
        if since.elapsed() < self.limits.unread() {
            return;
        }
        self.writing_since = Some(Instant::now());
        if std::mem::replace(&mut self.progress, progress) != progress {
            return;
        }
        for (session, entry) in &mut self.sessions {
            if let Some(turn) = &mut entry.turn {
                tracing::warn!(%session, "the client reads nothing; its turn is stopped");
                turn.is_stalled = true;
                turn.cancel.cancel();
            }
        }
    }
}
