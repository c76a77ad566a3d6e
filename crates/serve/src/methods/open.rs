//! What `session/new`, `session/load`, `session/resume` and `session/fork` share: a session is opened and announced.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use engine::Error;
use engine::hub::{HubCommand, OpenWorkspace, OpenedSession, Start, Workspace};
use engine::ports::{Editor, Offers, Settings};
use engine::session::{Change, Command, SessionHandle};
use engine::words::{ModeId, SessionId};
use futures_util::future::BoxFuture;
use recording::Tape;
use serde::Serialize;
use settings::Limits;
use tokio::sync::Semaphore;
use tools::scope::Scope;
use wire::acp::models::SessionReply;
use wire::acp::{fault, schema, tolerate};
use wire::{RequestId, RpcError};

use super::attach;
use crate::bridge::editor::{AcpEditor, Paths};
use crate::bridge::options::{models_out, modes_out, options_out};
use crate::bridge::session_in;
use crate::connection::{Connection, session_out};
use crate::dialect::SessionExtras;
use crate::mcp_servers::RequestedServers;
use crate::outbox::{Pace, SESSION_BUDGET};
use crate::outlet::Outlet;
use crate::rate::Window;
use crate::session_entry::SessionEntry;
use crate::shared::{ScopeSlot, SharedEditor, Stage};
use crate::workspace::{OpenSpec, ServersSlot, Workspaces};

/// How a session is to be opened.
pub(super) struct OpenRequest {
    /// Its id; a new one, or that of a stored session.
    pub(super) session: SessionId,
    pub(super) start: Start,
    /// The mode to begin in, if the client named one.
    pub(super) mode: Option<ModeId>,
    /// The directories beside the working directory.
    pub(super) more_directories: Vec<PathBuf>,
    pub(super) servers: RequestedServers,
}

/// Makes a method's response from the session's id, its modes and its options.
pub(super) type Respond<T> =
    fn(schema::SessionId, schema::SessionModeState, Vec<schema::SessionConfigOption>) -> T;

/// Whether the client is shown the history of a stored session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    Shown,
    Hidden,
}

/// Opens a session that is not open here. Its task opens it; the answer is sent when it is done.
pub(super) fn open<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    request: OpenRequest,
    respond: Respond<T>,
) -> Result<(), RpcError> {
    if let Some(tenant) = connection.services.tenant.clone() {
        let attach = attach::fresh(&request.start);
        return attach::open(connection, id, request, attach, &tenant, respond);
    }
    let OpenRequest { session, start, mode, more_directories, servers } = request;
    let hub = connection.services.hub.clone();
    let permit = hub.reserve().map_err(|err| connection.error_out(&err))?;
    let extras = connection.translator.session_extras();
    let opened_servers = ServersSlot::default();

    let (of, requested) = (session.clone(), servers.servers.clone());
    let (for_entry, servers_of_entry) = (extras.clone(), Arc::clone(&opened_servers));
    let reply = connection.reply(id, move |connection, id, opened| {
        connection.loading.remove(&of);
        match opened {
            Ok(OpenedSession { handle, settings, cwd, created, has_failed }) => {
                let entry = SessionEntry {
                    handle,
                    cwd,
                    created,
                    extras: for_entry,
                    requested,
                    servers: servers_of_entry,
                    turn: None,
                    has_failed,
                    prompts: Window::new(connection.services.limits.prompts_per_minute),
                    shared: None,
                };
                add_session(connection, id, entry, &settings, respond);
            }
            Err(err) => {
                connection.outbox.close(&of);
                connection.refuse(id, &connection.error_out(&err));
            }
        }
    })?;

    // A history is shown before the answer, so the session needs its queue now.
    let budget = Arc::new(Semaphore::new(SESSION_BUDGET));
    let budget = connection.outbox.open(session.clone(), budget, Pace::Replay, connection.now);
    connection.loading.insert(session.clone());
    let workspace = Box::new(WorkspaceRequest {
        workspaces: Arc::clone(&connection.services.workspaces),
        must_exist: matches!(start, Start::New { .. }),
        more_directories,
        requested: servers,
        servers: opened_servers,
        client: ClientOf::Connection {
            outlet: connection.outlet.clone(),
            budget,
            offers: connection.offers.unwrap_or_default(),
            limits: Arc::clone(&connection.services.limits),
        },
        extras,
        tape: connection.services.tape.clone(),
    });
    permit.send(HubCommand::Open { session, start, mode, workspace, reply });
    Ok(())
}

/// Answers a call that opened a session, then lets the session begin.
fn add_session<T: Serialize>(
    connection: &mut Connection,
    id: &RequestId,
    entry: SessionEntry,
    settings: &Settings,
    respond: Respond<T>,
) {
    let session = entry.handle.id().clone();
    answer(connection, id, &entry, settings, respond);
    connection.outbox.set_pace(&session, Pace::Live);
    // Clients drop updates of a session whose id they do not have yet, so it is announced only now.
    announce(&entry.handle);
    connection.sessions.insert(session, entry);
}

/// What the session's task needs to open the workspace.
pub(super) struct WorkspaceRequest {
    pub(super) workspaces: Arc<Workspaces>,
    /// Whether the directories must exist. A stored session opens without: its history can still be read.
    pub(super) must_exist: bool,
    pub(super) more_directories: Vec<PathBuf>,
    pub(super) requested: RequestedServers,
    /// Where the session's MCP servers go.
    pub(super) servers: ServersSlot,
    pub(super) client: ClientOf,
    pub(super) extras: SessionExtras,
    /// Records the session, or plays a recording.
    pub(super) tape: Option<Tape>,
}

/// Who the client of a session is.
pub(super) enum ClientOf {
    /// The connection that opens it.
    Connection { outlet: Outlet, budget: Arc<Semaphore>, offers: Offers, limits: Arc<Limits> },
    /// Whoever is attached to it.
    Shared { stage: Arc<Stage>, scope: ScopeSlot },
}

impl ClientOf {
    fn connect(
        &self,
        session: SessionId,
        paths: Paths,
        permission_timeout: Option<Duration>,
    ) -> Arc<dyn Editor> {
        match self {
            ClientOf::Connection { outlet, budget, offers, limits } => Arc::new(AcpEditor::new(
                session,
                outlet.clone(),
                Arc::clone(budget),
                *offers,
                Arc::clone(limits),
                paths,
                permission_timeout,
            )),
            ClientOf::Shared { stage, scope: slot } => {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(paths.scope);
                Arc::new(SharedEditor::new(Arc::clone(stage)))
            }
        }
    }
}

impl OpenWorkspace for WorkspaceRequest {
    fn open(
        self: Box<Self>,
        session: SessionId,
        cwd: PathBuf,
    ) -> BoxFuture<'static, Result<Workspace, Error>> {
        let WorkspaceRequest { workspaces, must_exist, more_directories, requested, .. } = *self;
        let WorkspaceRequest { servers, client, extras, tape, .. } = *self;
        Box::pin(async move {
            let directories = std::iter::once(cwd.clone()).chain(more_directories).collect();
            let (of, timeout) = (session.clone(), extras.permission_timeout());
            let editor_tape = tape.clone();
            let connect = move |scope| {
                let paths = Paths { scope, tape: editor_tape.clone() };
                client.connect(of.clone(), paths, timeout)
            };
            let of = session.clone();
            let workspace = match &tape {
                Some(tape) if tape.is_played() => {
                    tape.open(&session, connect(Scope::new(Vec::new()))).await?
                }
                _ => {
                    let connect = Arc::new(connect);
                    let spec =
                        OpenSpec { session, directories, must_exist, requested, connect, servers };
                    let opened = workspaces.open(spec).await;
                    match &tape {
                        Some(tape) => tape.opened(&of, opened)?,
                        None => opened?,
                    }
                }
            };
            let cwd = workspace.cwd.as_deref().unwrap_or(&cwd);
            extras.find(&of, cwd, tape.as_ref()).await;
            Ok(workspace)
        })
    }
}

/// Opens a stored session, or shows one that is open already.
pub(super) fn reopen<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    request: tolerate::Reopen,
    history: History,
    respond: Respond<T>,
) -> Result<(), RpcError> {
    connection.check_login()?;
    if connection.loading.contains(&session_in(&request.session_id)) {
        return Err(connection.error_out(&Error::Busy(session_in(&request.session_id))));
    }
    if let Some(tenant) = connection.services.tenant.clone() {
        return attach::reopen(connection, id, request, history, &tenant, respond);
    }
    let more_directories = request.additional_directories.unwrap_or_default();
    check_directories(request.cwd.as_deref(), &more_directories)?;
    let servers = RequestedServers::new(request.mcp_servers, request.mcp_problems);
    let session = session_in(&request.session_id);
    let show = history == History::Shown;
    if connection.sessions.contains_key(&session) {
        return replay(connection, id, session, servers, show, respond);
    }
    let takes_over =
        request.meta.as_ref().and_then(|meta| meta.get("takeOver")) == Some(&true.into());
    let start = Start::Load { cwd: request.cwd, show, takes_over };
    let request = OpenRequest { session, start, mode: None, more_directories, servers };
    open(connection, id, request, respond)
}

/// Shows a session that is open, with other MCP servers if the client requests them.
fn replay<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    session: SessionId,
    requested: RequestedServers,
    show: bool,
    respond: Respond<T>,
) -> Result<(), RpcError> {
    let handle = connection.handle(&session)?;
    let permit = handle.reserve().map_err(|err| connection.error_out(&err))?;
    let entry = connection.sessions.get(&session);
    let (mut new_servers, mut change) = (None, None);
    if let Some(entry) =
        entry.filter(|entry| !requested.servers.is_empty() && requested.servers != entry.requested)
    {
        new_servers = Some(requested.servers.clone());
        let servers = Arc::clone(&entry.servers);
        change = Some(Change::new(move || {
            let servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(servers) = &*servers {
                servers.replace(requested);
            }
        }));
    }
    let of = session.clone();
    let reply = connection.reply(id, move |connection, id, settings| {
        finish_replay(connection, id, &of, new_servers, settings, respond);
    })?;
    connection.outbox.set_pace(&session, Pace::Replay);
    permit.send(Command::Replay { show, change, reply });
    Ok(())
}

fn finish_replay<T: Serialize>(
    connection: &mut Connection,
    id: &RequestId,
    session: &SessionId,
    new_servers: Option<Vec<mcp::ServerConfig>>,
    settings: Result<Settings, Error>,
    respond: Respond<T>,
) {
    let Some(mut entry) = connection.sessions.remove(session) else {
        let gone = Err::<(), _>(Error::NoSuchSession(session.clone()));
        return connection.answer_in_order(session, id, &gone);
    };
    match settings {
        Ok(settings) => {
            if let Some(servers) = new_servers {
                entry.requested = servers;
                announce(&entry.handle);
            }
            answer(connection, id, &entry, &settings, respond);
        }
        Err(err) => connection.answer_in_order(session, id, &Err::<(), _>(err)),
    }
    connection.sessions.insert(session.clone(), entry);
    connection.outbox.set_pace(session, Pace::Live);
}

/// Answers with the modes, options and models of a session, behind the history that was shown.
pub(super) fn answer<T: Serialize>(
    connection: &mut Connection,
    id: &RequestId,
    entry: &SessionEntry,
    settings: &Settings,
    respond: Respond<T>,
) {
    let session = session_out(entry.handle.id());
    let most = connection.outbox.max_update();
    let (modes, options) = (modes_out(settings, most), options_out(settings, most));
    let response = respond(session, modes, options);
    let reply = SessionReply { session: response, models: models_out(settings, most) };
    connection.answer_opened(id, &reply, entry, settings);
}

/// Lets a session send its first updates and start its MCP servers.
pub(super) fn announce(handle: &SessionHandle) {
    match handle.reserve() {
        Ok(permit) => permit.send(Command::Announce),
        Err(err) => tracing::error!(session = %handle.id(), "cannot announce a session: {err}"),
    }
}

/// Checks that directories are absolute.
pub(super) fn check_directories(cwd: Option<&Path>, more: &[PathBuf]) -> Result<(), RpcError> {
    if cwd.is_some_and(|cwd| !cwd.is_absolute()) {
        return Err(fault::at("cwd", "'cwd' must be an absolute path".to_owned()));
    }
    match more.iter().position(|directory| !directory.is_absolute()) {
        Some(index) => {
            let path = format!("additionalDirectories[{index}]");
            Err(fault::at(&path, format!("'{path}' must be an absolute path")))
        }
        None => Ok(()),
    }
}
