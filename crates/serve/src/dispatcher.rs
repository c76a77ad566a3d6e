//! The dispatcher: the loop of a connection, which awaits nothing but its next wake.
//!
//! What a connection consists of is in `connection`, what each method does in `methods`. Long work belongs to the
//! session's task.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use settings::Limits;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use wire::acp::{AgentCall, AgentNote};
use wire::peer::Incoming;
use wire::{RequestId, RpcError, rpc};

use crate::connection::{Connection, log_refusal};
use crate::error_table::not_initialized;
use crate::methods;
use crate::options::{Pipes, Watcher};
use crate::outlet::FromSession;
use crate::rate::Window;
use crate::taped_wakes::TapedWakes;
use crate::wake::Wake;

/// How long running turns may take to end after the connection.
pub(super) const GRACE: Duration = Duration::from_millis(2_200);
/// How long writing the last lines may take then.
const FLUSH: Duration = Duration::from_millis(500);
/// How many messages of sessions are handled at once, before input is checked again.
const AT_ONCE: usize = 64;

/// Where wakes come from.
pub(super) struct Channels {
    pub(super) pipes: Pipes,
    pub(super) from_sessions: mpsc::Receiver<FromSession>,
    pub(super) abandoned_calls: mpsc::Receiver<u64>,
    pub(super) stop: CancellationToken,
}

/// Reads and writes for one connection.
pub(super) struct Dispatcher {
    pub(super) connection: Connection,
    watcher: Option<Arc<dyn Watcher>>,
    limits: Arc<Limits>,
    /// Limits the answers to lines without a readable id.
    errors: Window,
    unanswered_errors: u64,
    /// The buffer to fill next; `None` while the writer has it.
    batch: Option<Vec<u8>>,
    /// Since when the writer has had its batch, or last made progress with it.
    writing_since: Option<Instant>,
    /// How far the writer was then.
    progress: u64,
    /// When text that was delayed may be sent.
    retry: Option<Instant>,
    /// Records the wakes, or plays recorded ones.
    tape: Option<TapedWakes>,
}

/// A decoded line, which does not borrow from the peer.
enum Act {
    Call(RequestId, String, Result<AgentCall, RpcError>),
    Note(Result<Option<AgentNote>, RpcError>),
    Refuse(Option<RequestId>, RpcError),
    Nothing,
}

impl Dispatcher {
    pub(super) fn new(connection: Connection, watcher: Option<Arc<dyn Watcher>>) -> Dispatcher {
        let limits = Arc::clone(&connection.services.limits);
        let tape = connection.services.tape.clone().map(TapedWakes::new);
        Dispatcher {
            connection,
            watcher,
            errors: Window::new(limits.errors_per_minute),
            unanswered_errors: 0,
            batch: Some(Vec::new()),
            writing_since: None,
            progress: 0,
            retry: None,
            tape,
            limits,
        }
    }

    /// Serves until the client is gone, then ends running turns and writes their last messages.
    pub(super) async fn run(self, channels: Channels) {
        let begun = Instant::now();
        self.serve(channels).await;
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(operation = "connection", duration_ms, "ended");
    }

    async fn serve(mut self, mut channels: Channels) {
        let mut events = Vec::with_capacity(AT_ONCE);
        loop {
            match self.next_wake(&mut channels, &mut events, None).await {
                Wake::Bytes(bytes) => self.on_bytes(&bytes),
                Wake::Stop => break,
                Wake::Written(Err(_)) => return,
                Wake::Time(progress) => {
                    if self.on_time(progress) {
                        break;
                    }
                }
                wake => self.on_wake(wake, &mut events),
            }
            self.write(&channels.pipes.output);
        }
        // The watchdog starts now, if it has not.
        channels.stop.cancel();
        self.connection.peer.finish();
        self.on_lines();
        self.wind_down(channels, events).await;
    }

    /// Cancels running turns, and writes what the sessions still send.
    async fn wind_down(mut self, mut channels: Channels, mut events: Vec<FromSession>) {
        let is_shared = self.connection.services.tenant.is_some();
        for entry in self.connection.sessions.values().filter_map(|entry| entry.turn.as_ref()) {
            if !is_shared {
                entry.cancel.cancel();
            }
        }
        let end = self.connection.now + GRACE;
        while self.connection.now < end && self.connection.peer.open_calls() > 0 && !is_shared {
            match self.next_wake(&mut channels, &mut events, Some(end)).await {
                Wake::Written(Err(_)) => return,
                wake => self.on_wake(wake, &mut events),
            }
            self.write(&channels.pipes.output);
        }
        self.connection.sessions.clear();
        let end = self.connection.now + FLUSH;
        self.write(&channels.pipes.output);
        while self.connection.now < end
            && (!self.connection.outbox.is_empty() || self.batch.is_none())
        {
            match self.next_wake(&mut channels, &mut events, Some(end)).await {
                Wake::Written(Err(_)) => return,
                wake => self.on_wake(wake, &mut events),
            }
            self.write(&channels.pipes.output);
        }
    }

    /// Waits for the next wake: the only await of the dispatcher.
    async fn next_wake(
        &mut self,
        channels: &mut Channels,
        events: &mut Vec<FromSession>,
        end: Option<Instant>,
    ) -> Wake {
        match self.tape.take() {
            None => {
                let wake = self.real_wake(channels, events, end).await;
                self.connection.now = Instant::now();
                wake
            }
            Some(mut tape) => {
                let wake = tape.next_wake(self, channels, events, end).await;
                self.tape = Some(tape);
                wake
            }
        }
    }

    /// Waits for what really happens next.
    pub(super) async fn real_wake(
        &mut self,
        channels: &mut Channels,
        events: &mut Vec<FromSession>,
        end: Option<Instant>,
    ) -> Wake {
        // While too many answers are unread, no input is read: the client's pipe fills, and the client waits.
        let may_read = !self.connection.outbox.is_flooded() && end.is_none();
        let since = self.writing_since.filter(|_| end.is_none());
        let stalled = since.map(|since| since + self.limits.unread());
        let time =
            [self.retry.filter(|_| self.batch.is_some()), stalled, end].into_iter().flatten().min();
        tokio::select! {
            Some(written) = channels.pipes.written.recv() => Wake::Written(written),
            Some(number) = channels.abandoned_calls.recv() => Wake::Abandoned(number),
            _ = channels.from_sessions.recv_many(events, AT_ONCE) => {
                // A call is abandoned before its session reports the result; the client gets both in that order.
                let mut abandoned = Vec::new();
                while let Ok(number) = channels.abandoned_calls.try_recv() {
                    abandoned.push(number);
                }
                Wake::Sessions(abandoned)
            }
            bytes = channels.pipes.input.recv(), if may_read => bytes.map_or(Wake::Stop, Wake::Bytes),
            () = channels.stop.cancelled(), if end.is_none() => Wake::Stop,
            () = sleep_until(time.unwrap_or_else(Instant::now)), if time.is_some() => {
                Wake::Time(channels.pipes.progress.load(Ordering::Relaxed))
            }
        }
    }

    fn on_wake(&mut self, wake: Wake, events: &mut Vec<FromSession>) {
        match wake {
            Wake::Sessions(abandoned) => {
                abandoned.into_iter().for_each(|number| self.connection.on_abandoned(number));
                events.drain(..).for_each(|event| self.connection.on_session(event));
            }
            Wake::Abandoned(number) => self.connection.on_abandoned(number),
            Wake::Written(Ok(buffer)) => {
                self.batch = Some(buffer);
                self.writing_since = None;
            }
            Wake::Time(_) | Wake::Bytes(_) | Wake::Stop | Wake::Written(Err(_)) => {}
        }
    }

    fn on_bytes(&mut self, bytes: &[u8]) {
        if let Some(watcher) = &self.watcher {
            watcher.received(bytes);
        }
        self.connection.peer.feed(bytes);
        self.on_lines();
    }

    fn on_lines(&mut self) {
        while let Some(act) = self.next_act() {
            match act {
                Act::Call(id, method, Ok(call)) => {
                    methods::on_call(&mut self.connection, &id, method, call);
                }
                Act::Call(id, method, Err(error)) => {
                    log_refusal(&method, &id, None, Duration::ZERO, &error);
                    self.connection.refuse(&id, &error);
                }
                Act::Note(Ok(Some(note))) => methods::on_note(&mut self.connection, note),
                Act::Note(Ok(None)) => tracing::debug!("ignored an unknown notification"),
                Act::Note(Err(error)) => {
                    tracing::warn!(data = ?error.data, "ignored an invalid notification")
                }
                Act::Refuse(id, error) => self.on_malformed(id.as_ref(), error),
                Act::Nothing => {}
            }
        }
    }

    /// Decodes the next line. Large parameters are read from the line directly into their type.
    fn next_act(&mut self) -> Option<Act> {
        let Connection { peer, translator, waiting, offers, .. } = &mut self.connection;
        Some(match peer.poll_event()? {
            Incoming::Call { id, method, .. } if offers.is_none() && method != "initialize" => {
                Act::Call(id, method.into_owned(), Err(not_initialized()))
            }
            Incoming::Call { id, method, params } => {
                let call = translator.decode(&id, &method, params);
                Act::Call(id, method.into_owned(), call)
            }
            Incoming::Note { method, params } => Act::Note(AgentNote::decode(&method, params)),
            Incoming::Reply { number, method, outcome } => {
                if let Some((_, answer)) = waiting.remove(&number) {
                    translator.read_reply(method, outcome, answer);
                }
                Act::Nothing
            }
            Incoming::Refused { id, error } => Act::Refuse(id, error),
            Incoming::Ignored(what) => {
                tracing::warn!("ignored: {what}");
                Act::Nothing
            }
        })
    }

    /// Answers a line that is not a message. Answers without an id are limited, since such lines may come in a flood.
    fn on_malformed(&mut self, id: Option<&RequestId>, error: RpcError) {
        let request = id.map(ToString::to_string).unwrap_or_default();
        tracing::warn!(
            request,
            operation = "invalid line",
            code = error.code.0,
            "refused: {}",
            error.message
        );
        if id.is_none() && self.errors.take(self.connection.now).is_err() {
            self.unanswered_errors += 1;
            return;
        }
        let unanswered = std::mem::take(&mut self.unanswered_errors);
        let error =
            if unanswered > 0 { error.with("unanswered", json!(unanswered)) } else { error };
        let mut line = Vec::new();
        match rpc::print_error(&mut line, id, &error) {
            Ok(()) => self.connection.outbox.push_urgent(line),
            Err(err) => tracing::error!("cannot write an answer: {err}"),
        }
    }

    /// Gives the next batch to the writer, if it is free.
    fn write(&mut self, output: &mpsc::Sender<Vec<u8>>) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        batch.clear();
        let Connection { outbox, translator, now, .. } = &mut self.connection;
        self.retry = outbox.fill(&mut batch, translator.note_printer(), *now);
        if batch.is_empty() {
            self.batch = Some(batch);
            return;
        }
        if let Some(watcher) = &self.watcher {
            watcher.sent(&batch);
        }
        if let Some(tape) = &self.tape {
            tape.sent(&batch);
        }
        match output.try_send(batch) {
            Ok(()) => self.writing_since = Some(self.connection.now),
            // Cannot happen: the writer returned its batch.
            Err(_) => tracing::error!("the writer accepted no batch"),
        }
    }

    /// Stops the turns of a client that reads nothing. Their events are stored, and wait in the outbox. Returns whether the
    /// connection must end instead, because its turns outlive it.
    fn on_time(&mut self, progress: u64) -> bool {
        let Some(since) = self.writing_since else { return false };
        if self.connection.now.saturating_duration_since(since) < self.limits.unread() {
            return false;
        }
        self.writing_since = Some(self.connection.now);
        if std::mem::replace(&mut self.progress, progress) != progress {
            return false;
        }
        if self.connection.services.tenant.is_some() {
            tracing::warn!("ended a connection: its client does not read");
            return true;
        }
        for (session, entry) in &mut self.connection.sessions {
            if let Some(turn) = &mut entry.turn {
                tracing::warn!(%session, "stopped a turn: the client does not read");
                turn.is_stalled = true;
                turn.cancel.cancel();
            }
        }
        false
    }
}
