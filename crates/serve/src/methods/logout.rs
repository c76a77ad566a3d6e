//! `logout`: forgets the keys that the client gave. Calls that need a model are refused until the next `authenticate`.

use serde_json::json;
use wire::{RequestId, RpcError};

use crate::connection::Connection;

pub(super) fn run(connection: &mut Connection, id: &RequestId) -> Result<(), RpcError> {
    connection.is_logged_in = false;
    connection.services.keys.iter().for_each(|keys| keys.forget());
    connection.answer(id, &json!({}));
    Ok(())
}
