//! `session/cancel`: stops the turn that runs in a session.

use wire::acp::schema;

use crate::bridge::session_in;
use crate::connection::Connection;

pub(super) fn run(connection: &mut Connection, request: &schema::CancelNotification) {
    match connection.sessions.get(&session_in(&request.session_id)) {
        // Fired at once: a cancel never waits behind the prompt that it is for.
        Some(entry) => match &entry.shared {
            Some(link) => link.session.cancel(),
            None => entry.turn.iter().for_each(|turn| turn.cancel.cancel()),
        },
        None => tracing::warn!("a cancel for an unknown session is ignored"),
    }
}
