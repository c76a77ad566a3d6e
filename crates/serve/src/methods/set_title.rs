//! `session/set_title`: changes the title of a session, open or stored.

use engine::Error;
use engine::hub::HubCommand;
use engine::session::Command;
use wire::acp::{fault, schema};
use wire::{RequestId, RpcError};

use crate::bridge::session_in;
use crate::connection::Connection;

/// How long a title may be, in characters.
const MAX_TITLE: usize = 200;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: &schema::SetSessionTitleRequest,
) -> Result<(), RpcError> {
    let title: String = request.title.trim().chars().take(MAX_TITLE).collect();
    if title.is_empty() || title.contains(char::is_control) {
        return Err(fault::at("title", "'title' must be one line of text".to_owned()));
    }
    let session = session_in(&request.session_id);
    let of = session.clone();
    let finish =
        move |connection: &mut Connection, id: &RequestId, title: Result<String, Error>| {
            let result = title.map(schema::SetSessionTitleResponse::new);
            connection.answer_in_order(&of, id, &result);
        };
    match connection.sessions.get(&session) {
        Some(entry) => {
            let permit = entry.handle.reserve().map_err(|err| connection.error_out(&err))?;
            permit.send(Command::SetTitle(title, connection.reply(id, finish)?));
        }
        None => {
            let hub = &connection.services.hub;
            let permit = hub.reserve().map_err(|err| connection.error_out(&err))?;
            let reply = connection.reply(id, finish)?;
            permit.send(HubCommand::SetTitle(session, title, reply));
        }
    }
    Ok(())
}
