//! `session/close`: ends a session here; what is stored of it stays.

use engine::ports::State;
use engine::session::Command;
use serde_json::json;
use wire::acp::schema;
use wire::{RequestId, RpcError};

use crate::bridge::session_in;
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: &schema::CloseSessionRequest,
) -> Result<(), RpcError> {
    let session = session_in(&request.session_id);
    let handle = connection.handle(&session)?;
    let permit = handle.reserve().map_err(|err| connection.error_out(&err))?;
    let reply = connection.reply(id, move |connection, id, outcome| {
        connection.answer_in_order(&session, id, &outcome.map(|()| json!({})));
        connection.forget_session(&session);
    })?;
    permit.send(Command::Close(State::Completed, reply));
    Ok(())
}
