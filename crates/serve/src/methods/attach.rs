//! How a connection attaches to a session that outlives it: what `session/new`, `session/load`, `session/resume` and
//! `session/fork` do in `purlin serve`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use engine::hub::{HubCommand, OpenedSession, Start};
use engine::ports::Settings;
use engine::session::Command;
use engine::{Error, Reply};
use serde::Serialize;
use tokio::sync::Semaphore;
use wire::acp::{fault, tolerate};
use wire::{RequestId, RpcError};

use super::open::{
    ClientOf, History, OpenRequest, Respond, WorkspaceRequest, announce, answer, check_directories,
};
use crate::bridge::editor::{AcpEditor, Paths};
use crate::bridge::session_in;
use crate::connection::Connection;
use crate::mcp_servers::RequestedServers;
use crate::outbox::{Pace, SESSION_BUDGET};
use crate::rate::Window;
use crate::session_entry::{SessionEntry, SharedLink};
use crate::shared::{NewShared, ScopeSlot, Seat, SharedSession, Stage, Tenant, follow};
use crate::workspace::ServersSlot;

/// How a connection attaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attach {
    /// The number of the last record that the client has; `None` if it wants only what comes now.
    pub(super) after: Option<u64>,
    /// Whether it never prompts and is never asked.
    pub(super) only_watches: bool,
    /// Whether the session was opened for it.
    pub(super) is_new: bool,
}

/// Opens a session that no connection has open, and attaches to it.
pub(super) fn open<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    request: OpenRequest,
    attach: Attach,
    tenant: &Arc<Tenant>,
    respond: Respond<T>,
) -> Result<(), RpcError> {
    let OpenRequest { session, start, mode, more_directories, servers } = request;
    check_roots(tenant, start.cwd())?;
    check_roots(tenant, more_directories.iter().map(PathBuf::as_path))?;
    let hub = tenant.hub.clone();
    let permit = hub.reserve().map_err(|err| connection.error_out(&err))?;
    let extras = connection.translator.session_extras();
    let opened_servers = ServersSlot::default();
    let stage = Stage::new(session.clone(), connection.offers.unwrap_or_default());
    let scope = ScopeSlot::default();

    let (of, requested) = (session.clone(), servers.servers.clone());
    let (tenant, stage_of, scope_of) = (Arc::clone(tenant), Arc::clone(&stage), Arc::clone(&scope));
    let servers_of = Arc::clone(&opened_servers);
    let reply = connection.reply(id, move |connection, id, opened| match opened {
        Ok(OpenedSession { handle, settings, cwd, created, .. }) => {
            let (stage, scope, servers) = (stage_of, scope_of, servers_of);
            let new = NewShared { handle, stage, cwd, created, scope, requested, servers };
            let prompts_per_minute = connection.services.limits.prompts_per_minute;
            let shared = tenant.add(SharedSession::new(new, prompts_per_minute));
            take_seat(connection, id, shared, settings, attach, respond);
        }
        Err(err) => {
            connection.loading.remove(&of);
            connection.refuse(id, &connection.error_out(&err));
        }
    })?;
    connection.loading.insert(session.clone());
    let workspace = Box::new(WorkspaceRequest {
        workspaces: Arc::clone(&connection.services.workspaces),
        must_exist: matches!(start, Start::New { .. }),
        more_directories,
        requested: servers,
        servers: opened_servers,
        client: ClientOf::Shared { stage, scope },
        extras,
        tape: None,
    });
    permit.send(HubCommand::Open { session, start, mode, workspace, reply });
    Ok(())
}

/// Attaches to a stored session, which may be open already.
pub(super) fn reopen<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    request: tolerate::Reopen,
    history: History,
    tenant: &Arc<Tenant>,
    respond: Respond<T>,
) -> Result<(), RpcError> {
    let more_directories = request.additional_directories.unwrap_or_default();
    check_directories(request.cwd.as_deref(), &more_directories)?;
    let session = session_in(&request.session_id);
    let member = |name: &str| request.meta.as_ref().and_then(|meta| meta.get(name));
    let is_set = |name: &str| member(name) == Some(&true.into());
    let last = member("lastSeq").and_then(serde_json::Value::as_u64);
    let mut attach = Attach {
        after: last.or((history == History::Shown).then_some(0)),
        only_watches: is_set("watch"),
        is_new: false,
    };
    let takes_over = is_set("takeOver");
    if let Some(shared) = tenant.find(&session) {
        return join(connection, id, shared, attach, respond);
    }
    attach.is_new = true;
    let start = Start::Load { cwd: request.cwd, show: false, takes_over };
    let servers = RequestedServers::new(request.mcp_servers, request.mcp_problems);
    let request = OpenRequest { session, start, mode: None, more_directories, servers };
    open(connection, id, request, attach, tenant, respond)
}

/// Attaches to a session that is open.
fn join<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    shared: Arc<SharedSession>,
    attach: Attach,
    respond: Respond<T>,
) -> Result<(), RpcError> {
    let handle = shared.handle.clone();
    let permit = handle.reserve().map_err(|err| connection.error_out(&err))?;
    let of = handle.id().clone();
    let reply = connection.reply(id, move |connection, id, settings| match settings {
        Ok(settings) => take_seat(connection, id, shared, settings, attach, respond),
        Err(err) => {
            connection.loading.remove(&of);
            connection.refuse(id, &connection.error_out(&err));
        }
    })?;
    connection.loading.insert(handle.id().clone());
    permit.send(Command::Describe(reply));
    Ok(())
}

/// Attaches a connection. The call is answered when its client has seen what it asked for.
fn take_seat<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    shared: Arc<SharedSession>,
    settings: Settings,
    attach: Attach,
    respond: Respond<T>,
) {
    let session = shared.handle.id().clone();
    let (stage, offers) = (Arc::clone(&shared.stage), connection.offers.unwrap_or_default());
    let extras = connection.translator.session_extras();
    connection.leave_session(&session);
    let budget = Arc::new(Semaphore::new(SESSION_BUDGET));
    let budget = connection.outbox.open(session.clone(), budget, Pace::Replay, connection.now);
    let scope = shared.scope.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(scope) = scope else {
        connection.loading.remove(&session);
        return connection.refuse(id, &connection.error_out(&Error::Broken));
    };
    let (outlet, limits) = (connection.outlet.clone(), Arc::clone(&connection.services.limits));
    let timeout = extras.permission_timeout();
    let editor = AcpEditor::new(
        session.clone(),
        outlet.clone(),
        Arc::clone(&budget),
        offers,
        limits,
        Paths { scope, tape: None },
        timeout,
    );
    let editor = Arc::new(editor);
    let seat = Seat { outlet, budget, offers, editor, only_watches: attach.only_watches };
    let (attachment, following) = stage.attach(seat, attach.after.unwrap_or(0));
    shared.touch();
    connection.attached.insert(session.clone(), Arc::clone(&stage), attachment);

    let link = SharedLink { session: Arc::clone(&shared), attachment };
    let of = session.clone();
    let reply = connection.reply(id, move |connection, id, ready: Result<(), Error>| {
        connection.loading.remove(&of);
        match ready {
            Ok(()) => {
                let entry = entry(connection, link, extras);
                seated(connection, id, entry, &settings, attach, respond);
            }
            Err(err) => connection.refuse(id, &connection.error_out(&err)),
        }
    });
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => {
            connection.loading.remove(&session);
            connection.leave_session(&session);
            return connection.refuse(id, &error);
        }
    };
    let Some(tenant) = &connection.services.tenant else { return };
    let journal = Arc::clone(&tenant.journal);
    let ready = move || reply.send(Ok(()));
    // Followers that ended are forgotten now and then.
    while connection.followers.try_join_next().is_some() {}
    let caught_up = follow(stage, attachment, following, journal, attach.after, ready);
    connection.followers.spawn(caught_up);
}

fn entry(
    connection: &Connection,
    link: SharedLink,
    extras: crate::dialect::SessionExtras,
) -> SessionEntry {
    let shared = &link.session;
    SessionEntry {
        handle: shared.handle.clone(),
        cwd: shared.cwd.clone(),
        created: shared.created,
        extras,
        requested: shared.requested.clone(),
        servers: Arc::clone(&shared.servers),
        turn: None,
        // Known once a turn of this connection fails.
        has_failed: false,
        prompts: Window::new(connection.services.limits.prompts_per_minute),
        shared: Some(link),
    }
}

/// Answers a call that attached the client.
fn seated<T: Serialize>(
    connection: &mut Connection,
    id: &RequestId,
    entry: SessionEntry,
    settings: &Settings,
    attach: Attach,
    respond: Respond<T>,
) {
    let session = entry.handle.id().clone();
    answer(connection, id, &entry, settings, respond);
    connection.outbox.set_pace(&session, Pace::Live);
    if attach.is_new {
        announce(&entry.handle);
    } else if let Ok(permit) = entry.handle.reserve() {
        permit.send(Command::Describe(Reply::new(|_| ())));
    }
    connection.sessions.insert(session, entry);
}

/// Checks that the directories of a session are within what the tenant may use.
fn check_roots<'a>(
    tenant: &Tenant,
    directories: impl IntoIterator<Item = &'a Path>,
) -> Result<(), RpcError> {
    match directories.into_iter().find(|directory| !tenant.allows(directory)) {
        None => Ok(()),
        Some(directory) => Err(outside(directory)),
    }
}

fn outside(directory: &Path) -> RpcError {
    let shown = directory.display();
    fault::at("cwd", format!("{shown} is not in the directory that the server gives you"))
}

/// Returns how a session that is made now is attached.
pub(super) fn fresh(start: &Start) -> Attach {
    let after = matches!(start, Start::New { .. }).then_some(0);
    Attach { after, only_watches: false, is_new: true }
}

/// The error for a prompt of a connection that only watches.
pub(super) fn only_watches() -> RpcError {
    let why =
        "this connection only watches the session; load it without `_meta.watch` to send prompts";
    fault::at("sessionId", why.to_owned())
}
