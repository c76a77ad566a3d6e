//! What `session/new`, `session/load`, `session/resume` and `session/fork` share: a session is opened and announced.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use engine::Error;
use engine::hub::{HubCommand, OpenWorkspace, Opened, Start, Workspace};
use engine::ports::{Editor, Offers, Settings};
use engine::session::{Change, Command, SessionHandle};
use engine::words::{Mode, ModeId, SessionId};
use futures_util::future::BoxFuture;
use serde::Serialize;
use settings::Limits;
use tokio::sync::Semaphore;
use wire::acp::models::SessionReply;
use wire::acp::{fault, schema, tolerate};
use wire::{RequestId, RpcError};

use crate::bridge::editor::AcpEditor;
use crate::bridge::{self, session_in};
use crate::connection::{Connection, SessionEntry, session_out};
use crate::dialect::{OpenedSession, SessionExtras};
use crate::mcp_servers::{ReplaceableServers, RequestedServers};
use crate::outbox::{Pace, SESSION_BUDGET};
use crate::outlet::Outlet;
use crate::rate::Window;
use crate::workspace::Workspaces;

/// How a session is to be opened.
pub(super) struct OpenRequest {
    pub(super) start: Start,
    /// The directories beside the working directory.
    pub(super) more_folders: Vec<PathBuf>,
    pub(super) servers: RequestedServers,
    /// The mode to begin in, if the client named one.
    pub(super) mode: Option<ModeId>,
}

/// Makes a method's response from the session's id, its modes and its options.
type Respond<T> =
    fn(schema::SessionId, schema::SessionModeState, Vec<schema::SessionConfigOption>) -> T;

/// Whether the client is shown the history of a stored session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    Shown,
    Hidden,
}

/// Opens a session that is not open here.
pub(super) fn open<T: Serialize + 'static>(
    connection: &mut Connection,
    id: &RequestId,
    request: OpenRequest,
    respond: Respond<T>,
) -> Result<(), RpcError> {
    let OpenRequest { start, more_folders, servers, mode } = request;
    let stored = match &start {
        Start::Load { session, .. } => Some(session.clone()),
        Start::New { .. } | Start::Fork { .. } => None,
    };
    let mut budget = Arc::new(Semaphore::new(SESSION_BUDGET));
    let (extras, slot) = (connection.translator.session_extras(), Arc::default());
    let opening = Opening {
        mode,
        requested: servers.servers.clone(),
        servers: Arc::clone(&slot),
        stored,
        extras: extras.clone(),
        respond,
    };
    let for_finish = Arc::clone(&budget);
    let stored = opening.stored.clone();
    let reply = connection.reply(id, move |connection, id, opened| {
        opening.finish(connection, id, for_finish, opened);
    })?;
    if let Some(session) = stored {
        // Its history comes before the answer, so it needs its queue now.
        budget = connection.outbox.open(session.clone(), budget, Pace::Replay);
        connection.loading.insert(session);
    }
    let workspace = WorkspaceRequest {
        workspaces: Arc::clone(&connection.services.workspaces),
        more_folders,
        requested: servers,
        servers: slot,
        outlet: connection.outlet.clone(),
        budget,
        offers: connection.offers.unwrap_or_default(),
        limits: Arc::clone(&connection.services.limits),
        extras,
    };
    connection.services.hub.send(HubCommand::Open { start, workspace: Box::new(workspace), reply });
    Ok(())
}

/// What the session's task needs to open the workspace.
struct WorkspaceRequest {
    workspaces: Arc<Workspaces>,
    more_folders: Vec<PathBuf>,
    requested: RequestedServers,
    /// Where the session's MCP servers go.
    servers: Arc<OnceLock<ReplaceableServers>>,
    outlet: Outlet,
    budget: Arc<Semaphore>,
    offers: Offers,
    limits: Arc<Limits>,
    extras: SessionExtras,
}

impl OpenWorkspace for WorkspaceRequest {
    fn open(
        self: Box<Self>,
        session: SessionId,
        cwd: PathBuf,
    ) -> BoxFuture<'static, Result<Workspace, Error>> {
        let WorkspaceRequest { workspaces, more_folders, requested, servers, outlet, .. } = *self;
        let WorkspaceRequest { budget, offers, limits, extras, .. } = *self;
        Box::pin(async move {
            extras.find(&cwd).await;
            let folders: Vec<PathBuf> = std::iter::once(cwd).chain(more_folders).collect();
            let connect = |scope| {
                let (session, timeout) = (session.clone(), extras.permission_timeout());
                let editor =
                    AcpEditor::new(session, outlet, budget, offers, limits, scope, timeout);
                Arc::new(editor) as Arc<dyn Editor>
            };
            let (workspace, opened) = workspaces.open(&session, &folders, requested, connect);
            servers.get_or_init(|| opened);
            Ok(workspace)
        })
    }
}

/// A session that is being opened: what its answer needs.
struct Opening<T> {
    mode: Option<ModeId>,
    requested: Vec<mcp::ServerConfig>,
    servers: Arc<OnceLock<ReplaceableServers>>,
    /// Which one, if it is a stored one.
    stored: Option<SessionId>,
    extras: SessionExtras,
    respond: Respond<T>,
}

impl<T: Serialize> Opening<T> {
    fn finish(
        self,
        connection: &mut Connection,
        id: &RequestId,
        budget: Arc<Semaphore>,
        opened: Result<Opened, Error>,
    ) {
        if let Some(session) = &self.stored {
            connection.loading.remove(session);
        }
        let opened = match opened {
            Ok(opened) => opened,
            Err(err) => {
                self.stored.iter().for_each(|session| connection.outbox.close(session));
                let error = connection.error_out(&err);
                return connection.refuse(id, &error);
            }
        };
        let session = opened.handle.id().clone();
        connection.outbox.open(session.clone(), budget, Pace::Replay);
        let mut settings = opened.settings;
        let mode = self.mode.and_then(|id| settings.find_mode(id.as_str()).map(Mode::mode_id));
        if let Some(mode) = &mode {
            settings.mode = mode.clone();
        }
        let entry = SessionEntry {
            handle: opened.handle,
            cwd: opened.cwd,
            created: opened.created,
            extras: self.extras,
            requested: self.requested,
            servers: self.servers,
            turn: None,
            prompts: Window::new(connection.services.limits.prompts_per_minute),
        };
        answer(connection, id, &entry, &settings, self.respond);
        if let Some(mode) = mode {
            begin_in(mode, &entry.handle);
        }
        connection.outbox.set_pace(&session, Pace::Live);
        // Clients drop updates of a session whose id they do not have yet, so it is announced only now.
        announce(&entry.handle);
        connection.sessions.insert(session, entry);
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
    let more_folders = request.additional_directories.unwrap_or_default();
    check_folders(request.cwd.as_deref(), &more_folders)?;
    let servers = RequestedServers::new(request.mcp_servers, request.mcp_problems);
    let session = session_in(&request.session_id);
    if connection.loading.contains(&session) {
        return Err(connection.error_out(&Error::Busy(session)));
    }
    let show = history == History::Shown;
    if connection.sessions.contains_key(&session) {
        return replay(connection, id, session, servers, show, respond);
    }
    let start = Start::Load { session, cwd: request.cwd, show };
    open(connection, id, OpenRequest { start, more_folders, servers, mode: None }, respond)
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
            if let Some(servers) = servers.get() {
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
fn answer<T: Serialize>(
    connection: &mut Connection,
    id: &RequestId,
    entry: &SessionEntry,
    settings: &Settings,
    respond: Respond<T>,
) {
    let session = entry.handle.id();
    let response =
        respond(session_out(session), bridge::modes_out(settings), bridge::options_out(settings));
    let reply = SessionReply { session: response, models: bridge::models_out(settings) };
    let opened = OpenedSession {
        cwd: &entry.cwd,
        created: entry.created,
        may_change: settings.mode().may_change(),
        extras: &entry.extras,
    };
    connection.answer_opened(session, id, &reply, opened);
}

/// Lets a session send its first updates and start its MCP servers.
fn announce(handle: &SessionHandle) {
    match handle.reserve() {
        Ok(permit) => permit.send(Command::Announce),
        Err(err) => tracing::error!(session = %handle.id(), "cannot announce a session: {err}"),
    }
}

/// Changes the mode of a session before anything else. The client knows it from the answer.
fn begin_in(mode: ModeId, handle: &SessionHandle) {
    let session = handle.id().clone();
    let reply = engine::Reply::new(move |outcome: Result<_, Error>| {
        if let Err(err) = outcome {
            tracing::error!(%session, "cannot set the first mode of a session: {err}");
        }
    });
    match handle.reserve() {
        Ok(permit) => permit.send(Command::SetMode(mode, reply)),
        Err(err) => reply.send(Err(err)),
    }
}

/// Checks that directories are absolute.
pub(super) fn check_folders(cwd: Option<&Path>, more: &[PathBuf]) -> Result<(), RpcError> {
    if cwd.is_some_and(|cwd| !cwd.is_absolute()) {
        return Err(fault::at("cwd", "'cwd' must be an absolute path".to_owned()));
    }
    match more.iter().position(|folder| !folder.is_absolute()) {
        Some(index) => {
            let path = format!("additionalDirectories[{index}]");
            Err(fault::at(&path, format!("'{path}' must be an absolute path")))
        }
        None => Ok(()),
    }
}
