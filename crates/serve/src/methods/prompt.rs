//! `session/prompt`: begins a turn; the answer comes when the turn ends.

use std::time::Duration;

use engine::Error;
use engine::session::Command;
use engine::words::{SessionId, StopReason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::acp::schema;
use wire::{RequestId, RpcError};

use crate::bridge::{self, session_in};
use crate::connection::Connection;
use crate::error_table::too_many_prompts;
use crate::session_entry::RunningTurn;

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
    let reply = connection.reply(id, move |connection, id, outcome| {
        finish(connection, id, &of, meta, outcome);
    })?;
    let cancel = CancellationToken::new();
    if let Some(entry) = connection.sessions.get_mut(&session) {
        let (call, cancel) = (id.clone(), cancel.clone());
        entry.turn = Some(RunningTurn { call, cancel, is_stalled: false });
    }
    permit.send(Command::Prompt { prompt, cancel, reply });
    Ok(())
}

/// Counts a prompt, or says how long to wait for the next.
fn take_prompt(connection: &mut Connection, session: &SessionId) -> Option<Result<(), Duration>> {
    Some(connection.sessions.get_mut(session)?.prompts.take(Instant::now()))
}

fn finish(
    connection: &mut Connection,
    id: &RequestId,
    session: &SessionId,
    meta: Option<schema::Meta>,
    outcome: Result<StopReason, Error>,
) {
    let turn = connection.sessions.get_mut(session).and_then(|entry| entry.turn.take());
    let outcome = match (outcome, turn) {
        (Ok(_), Some(turn)) if turn.is_stalled => {
            Err(Error::ClientStalled(connection.services.limits.unread()))
        }
        (outcome, _) => outcome,
    };
    let response =
        outcome.map(|stop| schema::PromptResponse::new(bridge::stop_out(stop)).meta(meta));
    connection.answer_in_order(session, id, &response);
}
