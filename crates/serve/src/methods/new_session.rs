//! `session/new`: opens a new session in a directory.

use std::path::Path;

use engine::hub::Start;
use engine::words::ModeId;
use serde_json::Value;
use wire::acp::{fault, mcp_servers, members, schema};
use wire::{RequestId, RpcError};

use super::open::{self, OpenRequest, check_folders};
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
    check_folders(Some(&cwd), &request.additional_directories)?;
    check_exists("cwd", &cwd)?;
    for (index, folder) in request.additional_directories.iter().enumerate() {
        check_exists(&format!("additionalDirectories[{index}]"), folder)?;
    }
    let mut meta = request.meta;
    let mode = members::meta_value(meta.as_ref(), "mode").and_then(Value::as_str).map(ModeId::new);
    let problems = members::take_meta_value(&mut meta, mcp_servers::PROBLEMS);
    let request = OpenRequest {
        start: Start::New { cwd, mode: mode.clone() },
        more_folders: request.additional_directories,
        servers: RequestedServers::new(request.mcp_servers, problems_in(problems)),
        mode,
    };
    open::open(connection, id, request, |session, modes, options| {
        schema::NewSessionResponse::new(session).modes(modes).config_options(options)
    })
}

/// A new session needs its directories. A stored one opens without: its history can still be read.
fn check_exists(field: &str, folder: &Path) -> Result<(), RpcError> {
    let wrong = match folder.metadata() {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "not a folder",
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => "not found",
        Err(_) => "not accessible",
    };
    Err(fault::at(field, format!("'{field}' must be an existing folder: {wrong}")))
}
