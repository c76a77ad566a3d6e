//! `session/prompt`: begins a turn; the answer comes when the turn ends.

use std::sync::Arc;
use std::time::Duration;

use engine::session::{Command, Origin};
use engine::words::{MessageId, SessionId, TurnReport};
use engine::{Error, Reply};
use tokio_util::sync::CancellationToken;
use wire::acp::schema;
use wire::{RequestId, RpcError};

use super::attach::only_watches;
use crate::bridge::{self, session_in};
use crate::connection::Connection;
use crate::error_table::too_many_prompts;
use crate::session_entry::{RunningTurn, SharedLink};
use crate::shared::Begun;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: schema::PromptRequest,
) -> Result<(), RpcError> {
    connection.check_login()?;
    let session = session_in(&request.session_id);
    let Some(entry) = connection.sessions.get(&session) else {
        return Err(connection.error_out(&Error::NoSuchSession(session)));
    };
    if let Some(link) = entry.shared.clone() {
        return run_shared(connection, id, request, session, &link);
    }
    if entry.turn.is_some() {
        return Err(connection.error_out(&Error::Busy(session)));
    }
    let prompt = bridge::prompt_in(request.prompt, &entry.cwd, &connection.services.limits)?;
    let handle = entry.handle.clone();
    let permit = handle.reserve().map_err(|err| connection.error_out(&err))?;
    if let Some(Err(wait)) = take_prompt(connection, &session) {
        return Err(too_many_prompts(connection.services.limits.prompts_per_minute, wait));
    }
    let (of, meta) = (session.clone(), request.meta);
    let origin = origin(id, meta.as_ref());
    let reply = connection.reply(id, move |connection, id, outcome| {
        finish(connection, id, &of, meta, outcome);
    })?;
    let cancel = CancellationToken::new();
    if let Some(entry) = connection.sessions.get_mut(&session) {
        let (call, cancel) = (id.clone(), cancel.clone());
        entry.turn = Some(RunningTurn { call, cancel, is_stalled: false });
    }
    permit.send(Command::Prompt { prompt, origin, cancel, reply });
    Ok(())
}

/// The longest key of a prompt.
const MAX_KEY: usize = 128;

/// Begins a turn that outlives the connection. A prompt that is sent again under its key joins its turn.
fn run_shared(
    connection: &mut Connection,
    id: &RequestId,
    request: schema::PromptRequest,
    session: SessionId,
    link: &SharedLink,
) -> Result<(), RpcError> {
    let (shared, attachment) = (Arc::clone(&link.session), link.attachment);
    let prompt = bridge::prompt_in(request.prompt, &shared.cwd, &connection.services.limits)?;
    let key = request.meta.as_ref().and_then(|meta| meta.get("reqKey")?.as_str());
    let key = key.filter(|key| key.len() <= MAX_KEY).map(str::to_owned);
    let is_again = key.as_ref().is_some_and(|key| shared.runs(key));
    if !is_again && let Err(wait) = shared.take_prompt() {
        return Err(too_many_prompts(connection.services.limits.prompts_per_minute, wait));
    }
    let message = MessageId::new(key.unwrap_or_else(|| connection.services.clock.fresh_id()));
    let handle = shared.handle.clone();
    let permit = handle.reserve().map_err(|err| connection.error_out(&err))?;
    if !shared.stage.begin_prompt(attachment, &message) {
        return Err(only_watches());
    }
    let mut origin = origin(id, request.meta.as_ref());
    origin.message = Some(message.clone());
    let (of, meta) = (session.clone(), request.meta);
    let reply = connection.reply(id, move |connection, id, outcome| {
        finish(connection, id, &of, meta, outcome);
    })?;
    let begun = shared.begin_turn(attachment, message, reply);
    let cancel = match begun.map_err(|err| connection.error_out(&err))? {
        Begun::New(cancel) => {
            let (tenant, of, shared) =
                (connection.services.tenant.clone(), session.clone(), Arc::clone(&shared));
            let reply = Reply::new(move |outcome: Result<TurnReport, Error>| {
                // Another process continues the session: the next client that attaches must open it again.
                if let (Err(Error::TakenOver(_)), Some(tenant)) = (&outcome, tenant) {
                    tenant.forget(&of);
                }
                shared.end_turn(outcome);
            });
            let cancelled = cancel.clone();
            permit.send(Command::Prompt { prompt, origin, cancel: cancelled, reply });
            cancel
        }
        Begun::Joined(cancel) => cancel,
    };
    if let Some(entry) = connection.sessions.get_mut(&session) {
        entry.turn = Some(RunningTurn { call: id.clone(), cancel, is_stalled: false });
    }
    Ok(())
}

/// Returns what the span of the turn shares with the wire. Only a valid context of a trace is passed on.
fn origin(id: &RequestId, meta: Option<&schema::Meta>) -> Origin {
    let traceparent = meta.and_then(|meta| meta.get("traceparent")?.as_str());
    Origin {
        request: Some(id.to_string()),
        traceparent: traceparent.filter(|value| is_traceparent(value)).map(Into::into),
        message: None,
    }
}

/// Tells whether this is a context of a trace as W3C defines it: version, trace, span and flags, in hexadecimal.
fn is_traceparent(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let is_hex = |part: &&str| {
        part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [2, 32, 16, 2] && parts.iter().all(is_hex) && parts[0] == "00"
}

/// Counts a prompt, or says how long to wait for the next.
fn take_prompt(connection: &mut Connection, session: &SessionId) -> Option<Result<(), Duration>> {
    Some(connection.sessions.get_mut(session)?.prompts.take(connection.now))
}

fn finish(
    connection: &mut Connection,
    id: &RequestId,
    session: &SessionId,
    meta: Option<schema::Meta>,
    outcome: Result<TurnReport, Error>,
) {
    let turn = connection.sessions.get_mut(session).and_then(|entry| {
        entry.has_failed = outcome.is_err();
        entry.turn.take()
    });
    let outcome = match (outcome, turn) {
        (Ok(_), Some(turn)) if turn.is_stalled => {
            Err(Error::ClientStalled(connection.services.limits.unread()))
        }
        (outcome, _) => outcome,
    };
    let is_known = connection.offers.is_some_and(|offers| offers.later_updates);
    let response = outcome.map(|TurnReport { stop, usage }| {
        let usage = bridge::usage_out(&usage).filter(|_| is_known);
        schema::PromptResponse::new(bridge::stop_out(stop)).usage(usage).meta(meta)
    });
    connection.answer_in_order(session, id, &response);
}
