//! `session/new`: opens a new session in a directory.

use std::path::Path;

use engine::hub::Start;
use engine::words::ModeId;
use serde_json::Value;
use wire::acp::{mcp_servers, members, schema};
use wire::{RequestId, RpcError};

use super::open::{self, OpenRequest, check_directories};
use crate::connection::Connection;
use crate::mcp_servers::{RequestedServers, problems_in};

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: schema::NewSessionRequest,
) -> Result<(), RpcError> {
    connection.check_login()?;
    let is_here = request.cwd == Path::new(".");
    let cwd = if is_here { connection.services.cwd.clone() } else { request.cwd };
    check_directories(Some(&cwd), &request.additional_directories)?;
    let mut meta = request.meta;
    let mode = members::meta_value(meta.as_ref(), "mode").and_then(Value::as_str).map(ModeId::new);
    let mode = connection.translator.mode_in(mode);
    let problems = members::take_meta_value(&mut meta, mcp_servers::PROBLEMS);
    let request = OpenRequest {
        session: connection.services.fresh_session(),
        start: Start::New { cwd },
        mode,
        more_directories: request.additional_directories,
        servers: RequestedServers::new(request.mcp_servers, problems_in(problems)),
    };
    open::open(connection, id, request, |session, modes, options| {
        schema::NewSessionResponse::new(session).modes(modes).config_options(options)
    })
}
