//! `session/set_config_option`: changes the mode, the model or the thinking level of a session.

use std::sync::Arc;

use engine::ports::Settings;
use engine::session::Command;
use engine::words::{ModeId, ModelId, Thinking};
use wire::acp::{fault, schema};
use wire::{RequestId, RpcError};

use super::settings_change::change;
use crate::bridge::options::options_out;
use crate::bridge::session_in;
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: &schema::SetSessionConfigOptionRequest,
) -> Result<(), RpcError> {
    let Some(value) = request.value.as_value_id() else {
        return Err(bad_value());
    };
    let value = Arc::clone(&value.0);
    let session = &request.session_id;
    match &*request.config_id.0 {
        "mode" => {
            let command = |reply| Command::SetMode(ModeId::new(value), reply);
            change(connection, id, session, command, respond)
        }
        "model" => {
            let command = |reply| Command::SetModel(ModelId::new(value), reply);
            change(connection, id, session, command, respond)
        }
        "thinking" => {
            let thinking = Thinking::find(&value).ok_or_else(bad_value)?;
            let command = |reply| Command::SetThinking(thinking, reply);
            change(connection, id, session, command, respond)
        }
        _ => {
            connection.handle(&session_in(session))?;
            Err(fault::at("configId", "'configId' must be one of the session's options".to_owned()))
        }
    }
}

fn respond(settings: Settings, most: usize) -> schema::SetSessionConfigOptionResponse {
    schema::SetSessionConfigOptionResponse::new(options_out(&settings, most))
}

fn bad_value() -> RpcError {
    fault::at("value", "'value' must be the id of one of the option's values".to_owned())
}
