//! `session/fork`: opens a copy of a stored session.

use engine::hub::Start;
use wire::acp::{schema, tolerate};
use wire::{RequestId, RpcError};

use super::open::{self, OpenRequest, check_directories};
use crate::bridge::session_in;
use crate::connection::Connection;
use crate::mcp_servers::RequestedServers;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: tolerate::Reopen,
) -> Result<(), RpcError> {
    connection.check_login()?;
    let more_directories = request.additional_directories.unwrap_or_default();
    check_directories(request.cwd.as_deref(), &more_directories)?;
    let request = OpenRequest {
        session: connection.services.fresh_session(),
        start: Start::Fork { of: session_in(&request.session_id), cwd: request.cwd },
        mode: None,
        more_directories,
        servers: RequestedServers::new(request.mcp_servers, request.mcp_problems),
    };
    open::open(connection, id, request, |session, modes, options| {
        schema::ForkSessionResponse::new(session).modes(modes).config_options(options)
    })
}
