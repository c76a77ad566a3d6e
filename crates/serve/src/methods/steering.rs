//! `_session/steering`: a message enters the turn that runs, between two requests to the model.

use engine::Error;
use engine::session::Command;
use serde_json::{Value, json};
use wire::acp::steer::Steer;
use wire::{RequestId, RpcError};

use crate::bridge::{self, session_in};
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: Steer,
) -> Result<(), RpcError> {
    connection.check_login()?;
    let (may_be_idle, request) = (request.may_be_idle, request.prompt);
    let session = session_in(&request.session_id);
    let Some(entry) = connection.sessions.get(&session) else {
        return Err(connection.error_out(&Error::NoSuchSession(session)));
    };
    if !entry.is_running() && may_be_idle {
        connection.answer(id, &idle());
        return Ok(());
    }
    if !entry.is_running() {
        return Err(connection.error_out(&Error::NoTurn(session)));
    }
    let prompt = bridge::prompt_in(request.prompt, &entry.cwd, &connection.services.limits)?;
    let permit = entry.handle.reserve().map_err(|err| connection.error_out(&err))?;
    let of = session.clone();
    let reply = connection.reply(id, move |connection, id, outcome| {
        let result = match outcome {
            Err(Error::NoTurn(_)) if may_be_idle => Ok(idle()),
            outcome => outcome.map(|()| json!({ "outcome": "injected" })),
        };
        connection.answer_in_order(&of, id, &result);
    })?;
    permit.send(Command::Steer(prompt, reply));
    Ok(())
}

/// The answer for a session without a turn, to a client that would send a prompt then.
fn idle() -> Value {
    json!({ "outcome": "promptRequired", "reason": "noRunningTurn" })
}
