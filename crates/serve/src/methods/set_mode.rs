//! `session/set_mode`: changes the mode of a session.

use engine::session::Command;
use engine::words::ModeId;
use serde_json::json;
use wire::acp::schema;
use wire::{RequestId, RpcError};

use super::settings_change::change;
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: schema::SetSessionModeRequest,
) -> Result<(), RpcError> {
    let mode = ModeId::new(request.mode_id.0);
    let mode = connection.translator.mode_in(Some(mode.clone())).unwrap_or(mode);
    let command = |reply| Command::SetMode(mode, reply);
    change(connection, id, &request.session_id, command, |_, _| json!({}))
}
