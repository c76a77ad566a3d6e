//! What `session/set_mode`, `session/set_model` and `session/set_config_option` share: a session changes a setting.

use engine::ports::Settings;
use engine::session::Command;
use engine::{Error, Reply};
use serde::Serialize;
use wire::acp::schema;
use wire::{RequestId, RpcError};

use crate::bridge::session_in;
use crate::connection::Connection;

/// Changes a setting: the session announces the change, and the call is answered with `respond`, within the
/// size of an update.
pub(super) fn change<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    session: &schema::SessionId,
    command: impl FnOnce(Reply<Settings>) -> Command,
    respond: fn(Settings, usize) -> T,
) -> Result<(), RpcError> {
    let session = session_in(session);
    let handle = connection.handle(&session)?;
    let permit = handle.reserve().map_err(|err| connection.error_out(&err))?;
    let reply = connection.reply(id, move |connection, id, outcome: Result<Settings, Error>| {
        let most = connection.outbox.max_update();
        let outcome = outcome.map(|settings| respond(settings, most));
        connection.answer_in_order(&session, id, &outcome);
    })?;
    permit.send(command(reply));
    Ok(())
}
