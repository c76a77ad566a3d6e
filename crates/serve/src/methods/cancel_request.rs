//! `$/cancel_request`: stops the turn of a prompt, which the client names by its call.

use wire::RequestId;

use crate::connection::Connection;

pub(super) fn run(connection: &mut Connection, call: &RequestId) {
    let turns = connection.sessions.values().filter_map(|entry| entry.turn.as_ref());
    turns.filter(|turn| turn.call == *call).for_each(|turn| turn.cancel.cancel());
}
