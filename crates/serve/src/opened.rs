//! Sessions that were opened: the answer to the call, and then the session's first words.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::Error;
use engine::ports::Settings;
use engine::session::SessionHandle;
use engine::words::Mode;
use engine::words::{ModeId, SessionId};
use tokio::sync::Semaphore;
use wire::RequestId;
use wire::acp::dialect::SessionFacts;
use wire::acp::members;
use wire::acp::models::SessionReply;
use wire::acp::schema;

use crate::bridge;
use crate::bridge::recap::Recap;
use crate::dispatcher::{Dispatcher, Entry};
use crate::outbox::Pace;
use crate::rate::Window;
use crate::wake::Opening;

/// A session that is being opened.
pub(super) struct Pending {
    /// The room that was made for it.
    pub(super) budget: Arc<Semaphore>,
    /// Which one, if it is one that is kept.
    pub(super) session: Option<SessionId>,
    pub(super) wish: Wish,
    /// The MCP servers that the client wants.
    pub(super) servers: Vec<mcp::ServerConfig>,
    /// The branch of its folder, if its answer names it.
    pub(super) branch: Arc<OnceLock<String>>,
}

/// How a client wants a new session.
#[derive(Default)]
pub(super) struct Wish {
    /// The mode to begin with, if the client named one.
    pub(super) mode: Option<ModeId>,
    /// What came with the call and goes back with its answer, in dialects that have more to say than v1.
    pub(super) meta: Option<schema::Meta>,
}

/// What its answer tells of a session that was opened.
pub(super) struct About {
    pub(super) cwd: PathBuf,
    pub(super) created: SystemTime,
    pub(super) branch: Option<String>,
}

impl Dispatcher {
    pub(super) fn on_opened(
        &mut self,
        id: &RequestId,
        opening: Opening,
        opened: Result<engine::hub::Opened, Error>,
    ) {
        let Some(pending) = self.opening.remove(id) else {
            return;
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(err) => {
                if let Some(session) = pending.session {
                    self.outbox.close(&session);
                    self.recaps.remove(&session);
                }
                let error = self.error_out(&err);
                self.refuse(id, &error);
                return;
            }
        };
        let session = opened.handle.id().clone();
        self.outbox.open(session.clone(), pending.budget, Pace::Replay);
        let mut settings = opened.settings;
        let (cwd, created) = (opened.cwd, opened.created);
        let branch = pending.branch.get().cloned();
        let about = About { cwd: cwd.clone(), created, branch: branch.clone() };
        let wanted = pending.wish.mode;
        let mode = wanted.and_then(|id| settings.find_mode(id.as_str()).map(Mode::mode_id));
        if let Some(mode) = &mode {
            settings.mode = mode.clone();
        }
        self.answer_opened(id, opening, &session, Ok(settings), about, pending.wish.meta);
        if let Some(mode) = mode {
            begin_in(mode, &opened.handle);
        }
        self.outbox.set_pace(&session, Pace::Live);
        // Clients drop what comes for a session before they have its id, so it speaks only now.
        match opened.handle.reserve() {
            Ok(permit) => permit.send(engine::session::Command::Announce),
            Err(err) => tracing::error!(%session, "a new session takes no commands: {err}"),
        }
        let prompts = Window::new(self.limits.prompts_per_minute);
        let entry = Entry {
            handle: opened.handle,
            cwd,
            created,
            branch,
            servers: pending.servers,
            has_other_tools: false,
            turn: None,
            prompts,
        };
        self.sessions.insert(session, entry);
    }

    /// Answers with the modes and options of a session, behind the history that was shown.
    pub(super) fn answer_opened(
        &mut self,
        id: &RequestId,
        opening: Opening,
        session: &SessionId,
        settings: Result<Settings, Error>,
        about: About,
        meta: Option<schema::Meta>,
    ) {
        let recap = match opening {
            Opening::New => Some(Recap::default()),
            Opening::Load | Opening::Resume | Opening::Fork => self.recaps.remove(session),
        };
        let settings = match settings {
            Ok(settings) => settings,
            Err(err) => return self.answer_in_order(session, id, &Err::<(), _>(err)),
        };
        let facts = self.dialect.session_facts(SessionFacts {
            id: session.as_str(),
            folder: &about.cwd.to_string_lossy(),
            may_change: settings.mode().may_change(),
            created_ms: milliseconds(about.created),
            now_ms: milliseconds(self.clock.now()),
            branch: about.branch,
            modified: recap.as_ref().map(Recap::changed),
            history: recap.map(Recap::history),
        });
        let meta = members::with_facts(meta, facts);
        let session_id = schema::SessionId::new(session.to_shared());
        let modes = bridge::modes_out(&settings);
        let options = bridge::options_out(&settings);
        let models = bridge::models_out(&settings);
        match opening {
            Opening::New => {
                let reply = schema::NewSessionResponse::new(session_id);
                let reply = reply.modes(modes).config_options(options).meta(meta);
                self.line_in_order(
                    session,
                    id,
                    "session/new",
                    Ok(&SessionReply { session: reply, models }),
                );
            }
            Opening::Load => {
                let reply = schema::LoadSessionResponse::new();
                let reply = reply.modes(modes).config_options(options).meta(meta);
                self.line_in_order(
                    session,
                    id,
                    "session/load",
                    Ok(&SessionReply { session: reply, models }),
                );
            }
            Opening::Resume => {
                let reply = schema::ResumeSessionResponse::new();
                let reply = reply.modes(modes).config_options(options).meta(meta);
                self.line_in_order(
                    session,
                    id,
                    "session/resume",
                    Ok(&SessionReply { session: reply, models }),
                );
            }
            Opening::Fork => {
                let reply = schema::ForkSessionResponse::new(session_id);
                let reply = reply.modes(modes).config_options(options).meta(meta);
                self.line_in_order(
                    session,
                    id,
                    "session/fork",
                    Ok(&SessionReply { session: reply, models }),
                );
            }
        }
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Changes the mode of a session before it hears of anything else. The client knows from its answer.
fn begin_in(mode: ModeId, handle: &SessionHandle) {
    let session = handle.id().clone();
    let reply = engine::Reply::new(move |outcome: Result<_, Error>| {
        if let Err(err) = outcome {
            tracing::error!(%session, "a session does not begin in its mode: {err}");
        }
    });
    // Without room the reply is dropped, which is logged above.
    if let Ok(permit) = handle.reserve() {
        permit.send(engine::session::Command::SetMode(mode, reply));
    }
}
