//! `session/list`: lists stored sessions, a page at a time.

use engine::Error;
use engine::hub::HubCommand;
use engine::ports::{Listing, Query};
use wire::acp::schema;
use wire::{RequestId, RpcError};

use super::open::check_directories;
use crate::bridge;
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: schema::ListSessionsRequest,
) -> Result<(), RpcError> {
    connection.check_login()?;
    check_directories(request.cwd.as_deref(), &[])?;
    let query = Query { cwd: request.cwd, cursor: request.cursor };
    let hub = &connection.services.hub;
    let permit = hub.reserve().map_err(|err| connection.error_out(&err))?;
    let reply = connection.reply(id, finish)?;
    permit.send(HubCommand::List(query, reply));
    Ok(())
}

fn finish(connection: &mut Connection, id: &RequestId, listing: Result<Listing, Error>) {
    match listing {
        Ok(listing) => connection.answer(id, &bridge::listing_out(listing)),
        Err(err) => connection.refuse(id, &connection.error_out(&err)),
    }
}
