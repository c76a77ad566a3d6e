//! `session/set_model`: changes the model of a session, as clients did before config options.

use engine::session::Command;
use engine::words::ModelId;
use serde_json::json;
use wire::acp::models::SetModelRequest;
use wire::{RequestId, RpcError};

use super::settings_change::change;
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: SetModelRequest,
) -> Result<(), RpcError> {
    let model = ModelId::new(request.model_id);
    let command = |reply| Command::SetModel(model, reply);
    change(connection, id, &request.session_id, command, |_, _| json!({}))
}
