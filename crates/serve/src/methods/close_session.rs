//! `session/close`: ends a session here; what is stored of it stays.

use engine::session::Command;
use serde_json::json;
use wire::acp::schema;
use wire::{RequestId, RpcError};

use crate::bridge::session_in;
use crate::connection::Connection;
use crate::error_table::session_crowded;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: &schema::CloseSessionRequest,
) -> Result<(), RpcError> {
    let session = session_in(&request.session_id);
    let handle = connection.handle(&session)?;
    let permit = handle.reserve().map_err(|_| session_crowded())?;
    let reply = connection.reply(id, move |connection, id, outcome| {
        connection.answer_in_order(&session, id, &outcome.map(|()| json!({})));
        connection.forget_session(&session);
    })?;
    permit.send(Command::Close(reply));
    Ok(())
}
