//! `session/resume`: opens a stored session without showing its history.

use wire::acp::{schema, tolerate};
use wire::{RequestId, RpcError};

use super::open::{self, History};
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: tolerate::Reopen,
) -> Result<(), RpcError> {
    open::reopen(connection, id, request, History::Hidden, |_, modes, options| {
        schema::ResumeSessionResponse::new().modes(modes).config_options(options)
    })
}
