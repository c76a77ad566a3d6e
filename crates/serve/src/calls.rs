//! What each method of the protocol does: one arm per method, nothing that waits.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::hub::{HubCommand, OpenWorkspace, Start, Workspace};
use engine::ports::{Editor, Error, Offers, Query, Reply, Settings};
use engine::session::{Command, SessionHandle};
use engine::words::{ModeId, ModelId, SessionId, Thinking};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::acp::authenticate::Authenticate;
use wire::acp::dialect::Dialect;
use wire::acp::{
    AgentCall, AgentNote, ProtocolVersion, fault, mcp_servers, members, schema, tolerate,
};
use wire::{Code, RequestId, RpcError};

use crate::bridge::editor::{AcpEditor, Outlet};
use crate::bridge::recap::Recap;
use crate::dispatcher::{Dispatcher, Turn};
use crate::mcp_servers::{self as servers, RequestedServers};
use crate::opened::{Pending, Wish};
use crate::outbox::{Pace, SESSION_BUDGET};
use crate::steer::steering_offer;
use crate::wake::{Answer, FromSession, Opening, Shape};
use crate::workspace::Workspaces;
use crate::{branch, bridge};
use settings::limits::{Limits, lasting};

/// Goes on with the keys that are set, or with none.
const LOGIN: &str = "local";
/// Runs `purlin acp --login` in a terminal of the client.
const TERMINAL_LOGIN: &str = "terminal";
/// Takes a key along, as older clients do.
const KEY_LOGIN: &str = "api_key";

impl Dispatcher {
    pub(super) fn on_call(&mut self, id: RequestId, call: AgentCall) {
        let done = match call {
            AgentCall::Initialize(request) => {
                let reply = self.initialize(&request);
                self.answer(&id, "initialize", &reply);
                Ok(())
            }
            AgentCall::Authenticate(request) => self.authenticate(&id, &request),
            AgentCall::Logout => {
                self.is_logged_in = false;
                self.keys.iter().for_each(|keys| keys.forget());
                self.answer(&id, "logout", &json!({}));
                Ok(())
            }
            AgentCall::NewSession(request) => self.new_session(&id, request),
            AgentCall::Load(request) => self.reopen(&id, request, Opening::Load),
            AgentCall::Resume(request) => self.reopen(&id, request, Opening::Resume),
            AgentCall::Fork(request) => self.reopen(&id, request, Opening::Fork),
            AgentCall::List(request) => self.list(&id, request),
            AgentCall::Prompt(request) => self.prompt(&id, request),
            AgentCall::Steer(request) => self.steer(&id, request),
            AgentCall::SetMode(request) => {
                let mode = ModeId::new(request.mode_id.0);
                self.set(&id, &request.session_id, Shape::Empty, |reply| {
                    Command::SetMode(mode, reply)
                })
            }
            AgentCall::SetModel(request) => {
                let model = ModelId::new(request.model_id);
                self.set(&id, &request.session_id, Shape::Empty, |reply| {
                    Command::SetModel(model, reply)
                })
            }
            AgentCall::SetConfigOption(request) => self.set_config_option(&id, &request),
            AgentCall::SetTitle(request) => self.set_title(&id, &request),
            AgentCall::Close(request) => self.close(&id, &request.session_id),
            AgentCall::Delete(request) => self.delete(&id, &request.session_id),
        };
        if let Err(error) = done {
            self.refuse(&id, &error);
        }
    }

    pub(super) fn on_note(&mut self, note: AgentNote) {
        match note {
            AgentNote::Cancel(cancel) => match self.sessions.get(&session_in(&cancel.session_id)) {
                // Fired here and now: a cancel never waits behind the prompt it is for.
                Some(entry) => entry.turn.iter().for_each(|turn| turn.cancel.cancel()),
                None => tracing::warn!("a cancel for no session is ignored"),
            },
            AgentNote::CancelRequest(call) => {
                let turns = self.sessions.values().filter_map(|entry| entry.turn.as_ref());
                turns.filter(|turn| turn.call == call).for_each(|turn| turn.cancel.cancel());
            }
        }
    }

    fn initialize(&mut self, request: &schema::InitializeRequest) -> schema::InitializeResponse {
        let mut offers = bridge::offers_in(&request.client_capabilities);
        // The other dialects read notices in the conversation.
        offers.notices |= self.dialect != Dialect::V1;
        let dialect = self.dialect.name();
        self.outbox.speak(self.dialect);
        let client =
            request.client_info.as_ref().map_or("a client without a name", |info| &*info.name);
        tracing::info!(client = %printable(client), dialect, ?offers, "initialize");
        if request.protocol_version != ProtocolVersion::V1 {
            tracing::warn!(asked = ?request.protocol_version, "answered with version 1, the one spoken here");
        }
        self.client = Some(offers);
        let keeps = self.journal.is_persistent();
        let mut session = schema::SessionCapabilities::new()
            .close(schema::SessionCloseCapabilities::new())
            .additional_directories(schema::SessionAdditionalDirectoriesCapabilities::new());
        if keeps {
            session = session
                .list(schema::SessionListCapabilities::new())
                .resume(schema::SessionResumeCapabilities::new())
                .fork(schema::SessionForkCapabilities::new())
                .delete(schema::SessionDeleteCapabilities::new())
                .title(schema::SessionTitleCapabilities::new());
        }
        let capabilities = schema::AgentCapabilities::new()
            .load_session(keeps)
            .prompt_capabilities(
                schema::PromptCapabilities::new().image(true).embedded_context(true),
            )
            .mcp_capabilities(schema::McpCapabilities::new().http(true).sse(true))
            .session_capabilities(session)
            .auth(schema::AgentAuthCapabilities::new().logout(schema::LogoutCapabilities::new()))
            .meta((self.dialect == Dialect::V1).then(steering_offer));
        let login = schema::AuthMethodAgent::new(LOGIN, "Use what is set up").description(
            "Keys of the environment or of `purlin auth login`, and models on this machine"
                .to_owned(),
        );
        let mut methods = vec![schema::AuthMethod::Agent(login)];
        if request.client_capabilities.auth.terminal {
            let login = schema::AuthMethodTerminal::new(TERMINAL_LOGIN, "Enter a key")
                .description("Asks for a provider and its key in a terminal".to_owned())
                .args(vec!["--login".to_owned()]);
            methods.push(schema::AuthMethod::Terminal(login));
        }
        let meta = match self.dialect {
            Dialect::V1 => Some(steering_offer()),
            Dialect::MessageReference | Dialect::Container => request.meta.clone(),
        };
        let facts = self.dialect.agent_facts(offers.read, offers.write);
        schema::InitializeResponse::new(ProtocolVersion::V1)
            .meta(members::with_facts(meta, facts))
            .agent_capabilities(capabilities)
            .auth_methods(methods)
            .agent_info(
                schema::Implementation::new("purlin", env!("CARGO_PKG_VERSION"))
                    .title("Purlin".to_owned()),
            )
    }

    fn authenticate(&mut self, id: &RequestId, request: &Authenticate) -> Result<(), RpcError> {
        let key = request.credentials.as_ref().and_then(|given| given.key.as_deref());
        match (request.method_id.as_str(), key) {
            (LOGIN | TERMINAL_LOGIN, _) => {
                // Somebody may have logged in outside: look again when the next session is opened.
                self.keys.iter().for_each(|keys| keys.forget());
            }
            (KEY_LOGIN, Some(key)) => {
                let named =
                    request.credentials.as_ref().and_then(|given| given.provider.as_deref());
                let Some(provider) = named.or_else(|| provider_of_key(key)) else {
                    return Err(fault::at(
                        "credentials.provider",
                        "'credentials.provider' must say whose key this is".to_owned(),
                    ));
                };
                self.keys.iter().for_each(|keys| keys.give(provider, key));
            }
            _ => {
                return Err(fault::at(
                    "methodId",
                    "'methodId' is none of the methods that initialize listed".to_owned(),
                ));
            }
        }
        self.is_logged_in = true;
        self.answer(id, "authenticate", &json!({}));
        Ok(())
    }

    fn new_session(
        &mut self,
        id: &RequestId,
        request: schema::NewSessionRequest,
    ) -> Result<(), RpcError> {
        self.check_login()?;
        let is_here = request.cwd == Path::new(".");
        let cwd = if is_here { self.place.cwd.clone() } else { request.cwd };
        check_folders(Some(&cwd), &request.additional_directories)?;
        check_is_there("cwd", &cwd)?;
        for (index, folder) in request.additional_directories.iter().enumerate() {
            check_is_there(&format!("additionalDirectories[{index}]"), folder)?;
        }
        let mode = members::meta_value(request.meta.as_ref(), "mode")
            .and_then(serde_json::Value::as_str)
            .map(ModeId::new);
        let mut meta = request.meta;
        let problems = members::take_meta_value(&mut meta, mcp_servers::PROBLEMS);
        let servers = RequestedServers::new(request.mcp_servers, servers::problems_in(problems));
        let meta = meta.filter(|_| self.dialect != Dialect::V1);
        let wish = Wish { mode: mode.clone(), meta };
        let more = request.additional_directories;
        self.open(id, Opening::New, Start::New { cwd, mode }, more, servers, wish)
    }

    /// Opens a session from what is kept: with its history shown, without, or as a copy.
    fn reopen(
        &mut self,
        id: &RequestId,
        request: tolerate::Reopen,
        opening: Opening,
    ) -> Result<(), RpcError> {
        self.check_login()?;
        let more = request.additional_directories.unwrap_or_default();
        check_folders(request.cwd.as_deref(), &more)?;
        let servers = RequestedServers::new(request.mcp_servers, request.mcp_problems);
        let session = session_in(&request.session_id);
        let cwd = request.cwd;
        if opening == Opening::Fork {
            let start = Start::Fork { session, cwd };
            return self.open(id, opening, start, more, servers, Wish::default());
        }
        let show = opening == Opening::Load;
        let busy = self.error_out(&Error::Busy(session.clone()));
        if self.opening.values().any(|pending| pending.session.as_ref() == Some(&session)) {
            return Err(busy);
        }
        if let Some(entry) = self.sessions.get_mut(&session) {
            let handle = entry.handle.clone();
            let mut toolbox = None;
            if !servers.servers.is_empty() && servers.servers != entry.servers {
                entry.servers.clone_from(&servers.servers);
                entry.has_other_tools = true;
                let folders: Vec<PathBuf> =
                    std::iter::once(entry.cwd.clone()).chain(more).collect();
                let workspaces = &self.place.workspaces;
                toolbox = Some(workspaces.open_toolbox(&session, &folders, servers));
            }
            let of = session.clone();
            let permit = handle.reserve().map_err(|_| crowded())?;
            let reply = self.reply(id, move |outcome| Answer::Reopened(of, opening, outcome))?;
            permit.send(Command::Replay { show, toolbox, reply });
            self.outbox.set_pace(&session, Pace::Replay);
        } else {
            let start = Start::Load { session: session.clone(), cwd, show };
            self.open(id, opening, start, more, servers, Wish::default())?;
        }
        if show && self.dialect == Dialect::Container {
            let room = usize::try_from(self.limits.max_update_bytes).unwrap_or(usize::MAX);
            self.recaps.insert(session, Recap::new(room));
        }
        Ok(())
    }

    fn open(
        &mut self,
        id: &RequestId,
        opening: Opening,
        start: Start,
        more_folders: Vec<PathBuf>,
        requested: RequestedServers,
        wish: Wish,
    ) -> Result<(), RpcError> {
        let reply = self.reply(id, move |opened| Answer::Opened(opening, opened))?;
        let mut budget = Arc::new(Semaphore::new(SESSION_BUDGET));
        let branch: Arc<OnceLock<String>> = Arc::default();
        let mut session = None;
        if let Start::Load { session: id, .. } = &start {
            // Its history comes before its answer, so there must be room for it now.
            budget = self.outbox.open(id.clone(), budget, Pace::Replay);
            session = Some(id.clone());
        }
        self.opening.insert(
            id.clone(),
            Pending {
                budget: Arc::clone(&budget),
                session,
                wish,
                servers: requested.servers.clone(),
                branch: Arc::clone(&branch),
            },
        );
        let workspace = OpenRequest {
            workspaces: Arc::clone(&self.place.workspaces),
            more_folders,
            requested,
            outlet: self.outlet.clone(),
            budget,
            offers: self.client.unwrap_or_default(),
            limits: Arc::clone(&self.limits),
            // Its document has permission as a note: a client may never answer.
            patience: (self.dialect == Dialect::MessageReference)
                .then(|| lasting(self.limits.permission_wait_seconds)),
            branch: (self.dialect == Dialect::Container).then_some(branch),
        };
        self.hub.send(HubCommand::Open { start, workspace: Box::new(workspace), reply });
        Ok(())
    }

    fn list(&self, id: &RequestId, request: schema::ListSessionsRequest) -> Result<(), RpcError> {
        self.check_login()?;
        check_folders(request.cwd.as_deref(), &[])?;
        let query = Query { cwd: request.cwd, cursor: request.cursor };
        let reply = self.reply(id, Answer::Listed)?;
        self.hub.send(HubCommand::List(query, reply));
        Ok(())
    }

    fn set_title(
        &mut self,
        id: &RequestId,
        request: &schema::SetSessionTitleRequest,
    ) -> Result<(), RpcError> {
        let title: String = request.title.trim().chars().take(MAX_TITLE).collect();
        if title.is_empty() || title.contains(char::is_control) {
            return Err(fault::at("title", "'title' must be one line of text".to_owned()));
        }
        let session = session_in(&request.session_id);
        let of = session.clone();
        let answer = move |outcome| Answer::Titled(of, outcome);
        let Some(entry) = self.sessions.get(&session) else {
            let reply = self.reply(id, answer)?;
            self.hub.send(HubCommand::SetTitle(session, title, reply));
            return Ok(());
        };
        let permit = entry.handle.reserve().map_err(|_| crowded())?;
        let reply = self.reply(id, answer)?;
        permit.send(Command::SetTitle(title, reply));
        Ok(())
    }

    fn delete(&mut self, id: &RequestId, session: &schema::SessionId) -> Result<(), RpcError> {
        let session = session_in(session);
        let of = session.clone();
        let reply = self.reply(id, move |outcome| Answer::Deleted(of, outcome))?;
        self.hub.send(HubCommand::Delete(session, reply));
        Ok(())
    }

    fn prompt(&mut self, id: &RequestId, request: schema::PromptRequest) -> Result<(), RpcError> {
        self.check_login()?;
        let session = session_in(&request.session_id);
        let busy = self.error_out(&Error::Busy(session.clone()));
        let unknown = self.error_out(&Error::NoSuchSession(session.clone()));
        let Some(entry) = self.sessions.get(&session) else {
            return Err(unknown);
        };
        if entry.turn.is_some() {
            return Err(busy);
        }
        let prompt = bridge::prompt_in(request.prompt, &entry.cwd, &self.limits)?;
        let Some(entry) = self.sessions.get_mut(&session) else {
            return Err(unknown);
        };
        if let Err(wait) = entry.prompts.take(Instant::now()) {
            let limit = self.limits.prompts_per_minute;
            return Err(RpcError::of(Code::RATE_LIMITED)
                .with("kind", json!("too_many_prompts"))
                .details(format!("A session takes {limit} prompts a minute"))
                .with("limit", json!(limit))
                .with("retryAfterMs", json!(wait.as_millis() as u64)));
        }
        let (handle, of) = (entry.handle.clone(), session.clone());
        let permit = handle.reserve().map_err(|_| crowded())?;
        let reply = self.reply(id, move |outcome| Answer::Prompt(of, outcome))?;
        let (cancel, call) = (CancellationToken::new(), id.clone());
        permit.send(Command::Prompt { prompt, cancel: cancel.clone(), reply });
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.turn = Some(Turn { call, cancel, meta: request.meta, is_stalled: false });
        }
        self.tell(&session, self.dialect.turn_begins(session.as_str()));
        Ok(())
    }

    /// Changes a setting: the session announces the change and answers.
    fn set(
        &mut self,
        id: &RequestId,
        session: &schema::SessionId,
        shape: Shape,
        command: impl FnOnce(Reply<Settings>) -> Command,
    ) -> Result<(), RpcError> {
        let session = session_in(session);
        let handle = self.handle(&session)?;
        let permit = handle.reserve().map_err(|_| crowded())?;
        let reply = self.reply(id, move |outcome| Answer::Set(session, shape, outcome))?;
        permit.send(command(reply));
        Ok(())
    }

    fn set_config_option(
        &mut self,
        id: &RequestId,
        request: &schema::SetSessionConfigOptionRequest,
    ) -> Result<(), RpcError> {
        let Some(value) = request.value.as_value_id() else {
            return Err(fault::at(
                "value",
                "'value' must be the id of one of the option's values".to_owned(),
            ));
        };
        let value = Arc::clone(&value.0);
        let session = &request.session_id;
        match &*request.config_id.0 {
            "mode" => self.set(id, session, Shape::Options, |reply| {
                Command::SetMode(ModeId::new(value), reply)
            }),
            "model" => self.set(id, session, Shape::Options, |reply| {
                Command::SetModel(ModelId::new(value), reply)
            }),
            "thinking" => {
                let Some(thinking) = Thinking::find(&value) else {
                    return Err(fault::at(
                        "value",
                        "'value' must be the id of one of the option's values".to_owned(),
                    ));
                };
                self.set(id, session, Shape::Options, |reply| Command::SetThinking(thinking, reply))
            }
            _ => {
                self.handle(&session_in(&request.session_id))?;
                Err(fault::at("configId", "'configId' is none of the session's options".to_owned()))
            }
        }
    }

    fn close(&mut self, id: &RequestId, session: &schema::SessionId) -> Result<(), RpcError> {
        let session = session_in(session);
        let handle = self.handle(&session)?;
        let permit = handle.reserve().map_err(|_| crowded())?;
        let reply = self.reply(id, move |outcome| Answer::Closed(session, outcome))?;
        permit.send(Command::Close(reply));
        Ok(())
    }

    fn handle(&self, session: &SessionId) -> Result<SessionHandle, RpcError> {
        match self.sessions.get(session) {
            Some(entry) => Ok(entry.handle.clone()),
            None => Err(self.error_out(&Error::NoSuchSession(session.clone()))),
        }
    }

    pub(super) fn check_login(&self) -> Result<(), RpcError> {
        if self.is_logged_in { Ok(()) } else { Err(self.error_out(&Error::AuthNeeded)) }
    }

    /// Makes the reply to a call. Its place on the way back is reserved now, so that giving it never waits.
    pub(super) fn reply<T: Send + 'static>(
        &self,
        id: &RequestId,
        answer: impl FnOnce(Result<T, Error>) -> Answer + Send + 'static,
    ) -> Result<Reply<T>, RpcError> {
        let permit: mpsc::OwnedPermit<FromSession> =
            self.outlet.to_dispatcher.clone().try_reserve_owned().map_err(|_| {
                RpcError::of(Code::SESSION_LOCKED)
                    .with("kind", json!("too_many_requests"))
                    .details("Too many requests are under way; wait for some of them")
            })?;
        let id = id.clone();
        Ok(Reply::new(move |outcome| {
            permit.send(FromSession::Answer { id, answer: answer(outcome) });
        }))
    }
}

/// Opens the workspace of a session for one call.
struct OpenRequest {
    workspaces: Arc<Workspaces>,
    more_folders: Vec<PathBuf>,
    requested: RequestedServers,
    outlet: Outlet,
    budget: Arc<Semaphore>,
    offers: Offers,
    limits: Arc<Limits>,
    /// How long the client has to answer a permission request.
    patience: Option<Duration>,
    /// Where the branch of the folder goes, if the answer names it.
    branch: Option<Arc<OnceLock<String>>>,
}

impl OpenWorkspace for OpenRequest {
    fn open(
        self: Box<Self>,
        session: SessionId,
        cwd: PathBuf,
    ) -> BoxFuture<'static, Result<Workspace, Error>> {
        let OpenRequest { workspaces, more_folders, requested, outlet, .. } = *self;
        let OpenRequest { budget, offers, limits, patience, branch: slot, .. } = *self;
        Box::pin(async move {
            if let Some(slot) = slot
                && let Some(branch) = branch::find(cwd.clone()).await
            {
                slot.get_or_init(|| branch);
            }
            let folders: Vec<PathBuf> = std::iter::once(cwd).chain(more_folders).collect();
            let connect = |scope| {
                let session = session.clone();
                let editor =
                    AcpEditor::new(session, outlet, budget, offers, limits, scope, patience);
                Arc::new(editor) as Arc<dyn Editor>
            };
            Ok(workspaces.open(&session, &folders, requested, connect))
        })
    }
}

/// Answers a call that found the session's mailbox full.
pub(super) fn crowded() -> RpcError {
    RpcError::of(Code::SESSION_LOCKED)
        .details("Too many requests are under way for this session; wait for some of them")
        .with("kind", json!("too_many_requests"))
}

/// How long a title may be, in characters.
const MAX_TITLE: usize = 200;

fn check_folders(cwd: Option<&Path>, more: &[PathBuf]) -> Result<(), RpcError> {
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

/// A new session needs its folder. One that is kept opens without: its history can still be read.
fn check_is_there(field: &str, folder: &Path) -> Result<(), RpcError> {
    let wrong = match folder.metadata() {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "what is at this path is no folder",
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => "there is no folder at this path",
        Err(_) => "the folder at this path cannot be looked at",
    };
    Err(fault::at(field, format!("'{field}' must be a folder: {wrong}")))
}

pub(super) fn session_in(id: &schema::SessionId) -> SessionId {
    SessionId::new(Arc::clone(&id.0))
}

/// Tells whose key this is by how it begins.
fn provider_of_key(key: &str) -> Option<&'static str> {
    const BEGINNINGS: [(&str, &str); 4] =
        [("sk-ant-", "anthropic"), ("sk-or-", "openrouter"), ("AIza", "google"), ("sk-", "openai")];
    BEGINNINGS.iter().find(|(front, _)| key.starts_with(front)).map(|(_, provider)| *provider)
}

/// A name for the log, without anything that could steer a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_is_recognised_by_its_key() {
        assert_eq!(provider_of_key("sk-ant-api03-x"), Some("anthropic"));
        assert_eq!(provider_of_key("sk-or-v1-x"), Some("openrouter"));
        assert_eq!(provider_of_key("AIzaSy"), Some("google"));
        assert_eq!(provider_of_key("sk-proj-x"), Some("openai"));
        assert_eq!(provider_of_key("hf_x"), None);
    }
}
