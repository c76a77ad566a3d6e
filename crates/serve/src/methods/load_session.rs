//! `session/load`: opens a stored session and shows its history.

use wire::acp::{schema, tolerate};
use wire::{RequestId, RpcError};

use super::open::{self, History};
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: tolerate::Reopen,
) -> Result<(), RpcError> {
    open::reopen(connection, id, request, History::Shown, |_, modes, options| {
        schema::LoadSessionResponse::new().modes(modes).config_options(options)
    })
}
