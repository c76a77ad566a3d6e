//! `session/delete`: deletes a session, open or stored.

use engine::hub::HubCommand;
use serde_json::json;
use wire::acp::schema;
use wire::{RequestId, RpcError};

use crate::bridge::session_in;
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: &schema::DeleteSessionRequest,
) -> Result<(), RpcError> {
    let session = session_in(&request.session_id);
    let of = session.clone();
    let hub = &connection.services.hub;
    let permit = hub.reserve().map_err(|err| connection.error_out(&err))?;
    let reply = connection.reply(id, move |connection, id, deleted| {
        let is_deleted = deleted.is_ok();
        connection.answer_in_order(&of, id, &deleted.map(|()| json!({})));
        if is_deleted {
            connection.forget_session(&of);
        }
    })?;
    permit.send(HubCommand::Delete(session, reply));
    Ok(())
}
