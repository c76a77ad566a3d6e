//! Sessions that outlive their connections: what `purlin serve` shares between the connections of a tenant.
//!
//! [`Tenant`] knows the open sessions. A connection attaches to one; `stage` sends it events, `follow` reads the journal
//! for it, and `editor` is the client that the session sees. Nothing of this is used on stdin and stdout.

mod editor;
mod follow;
mod stage;
mod tenant_journal;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use engine::hub::{Hub, HubHandle, HubOptions};
use engine::ports::{Clock, Journal, State};
use engine::session::{Command, SessionHandle};
use engine::words::{MessageId, SessionId, TurnReport};
use engine::{Error, Reply};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tools::scope::Scope;

use crate::options::hub_limits;
use crate::rate::Window;
use crate::workspace::ServersSlot;
pub(crate) use editor::SharedEditor;
pub(crate) use follow::follow;
pub(crate) use stage::{Seat, Stage};
pub(crate) use tenant_journal::is_tenant_name;

/// What the connections of one tenant share.
pub struct Tenant {
    name: Arc<str>,
    /// Its sessions must be in this directory.
    root: Option<PathBuf>,
    pub(crate) hub: HubHandle,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) clock: Arc<dyn Clock>,
    sessions: Mutex<HashMap<SessionId, Arc<SharedSession>>>,
}

/// The directories of a session, once its workspace is open. The lock is held only to read or set them.
pub(crate) type ScopeSlot = Arc<Mutex<Option<Scope>>>;

/// A session that connections share.
pub(crate) struct SharedSession {
    pub(crate) handle: SessionHandle,
    pub(crate) stage: Arc<Stage>,
    pub(crate) cwd: PathBuf,
    pub(crate) created: SystemTime,
    /// Its directories; set when its workspace is open.
    pub(crate) scope: ScopeSlot,
    /// The MCP servers that the client requested when it was opened.
    pub(crate) requested: Vec<mcp::ServerConfig>,
    pub(crate) servers: ServersSlot,
    activity: Mutex<Activity>,
}

struct Activity {
    turn: Option<SharedTurn>,
    prompts: Window,
    /// When a connection was attached or a turn ran last.
    used: Instant,
}

struct SharedTurn {
    message: MessageId,
    cancel: CancellationToken,
    /// The connection that waits for the end of the turn, and what answers it.
    waiting: (u64, Reply<TurnReport>),
}

/// What a prompt led to.
pub(crate) enum Begun {
    /// A turn must be started.
    New(CancellationToken),
    /// It is the prompt of the running turn, sent again.
    Joined(CancellationToken),
}

impl Tenant {
    /// Makes what the connections of a tenant share. The hub must run until the tenant is dropped.
    #[must_use]
    pub fn new(
        name: &str,
        root: Option<PathBuf>,
        mut options: HubOptions,
        limits: &settings::Limits,
    ) -> (Arc<Tenant>, Hub) {
        let name: Arc<str> = name.into();
        let inner = Arc::clone(&options.journal);
        options.journal = Arc::new(tenant_journal::TenantJournal::new(inner, Arc::clone(&name)));
        let (journal, clock) = (Arc::clone(&options.journal), Arc::clone(&options.clock));
        let (hub, handle) = Hub::new(options, hub_limits(limits));
        let tenant = Tenant { name, root, hub: handle, journal, clock, sessions: Mutex::default() };
        (Arc::new(tenant), hub)
    }

    /// The lock is held only to look up, add or remove a session.
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SharedSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a new id.
    pub(crate) fn fresh_session(&self) -> SessionId {
        tenant_journal::session_id(&self.name, self.clock.fresh_id())
    }

    /// Tells whether a session may work in this directory.
    pub(crate) fn allows(&self, directory: &Path) -> bool {
        let Some(root) = &self.root else { return true };
        // The links of the directory are resolved, so that none leads out of the root.
        let real = std::fs::canonicalize(directory);
        real.is_ok_and(|real| real.starts_with(root))
    }

    pub(crate) fn find(&self, session: &SessionId) -> Option<Arc<SharedSession>> {
        let mut sessions = self.lock();
        let found = sessions.get(session)?;
        if found.handle.is_closed() {
            sessions.remove(session);
            return None;
        }
        Some(Arc::clone(found))
    }

    pub(crate) fn add(&self, session: SharedSession) -> Arc<SharedSession> {
        let session = Arc::new(session);
        self.lock().insert(session.handle.id().clone(), Arc::clone(&session));
        session
    }

    pub(crate) fn forget(&self, session: &SessionId) {
        self.lock().remove(session);
    }

    fn all(&self) -> Vec<Arc<SharedSession>> {
        self.lock().values().cloned().collect()
    }

    /// Returns how many sessions are open, run a turn, and have connections that are behind.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let sessions = self.all();
        let turns = sessions.iter().filter(|session| session.is_running()).count();
        let behind = sessions.iter().map(|session| session.stage.behind()).sum();
        [sessions.len(), turns, behind]
    }

    /// Closes the sessions that nobody is attached to and that were not used for this long. They stay stored.
    pub(crate) fn unload_idle(&self, idle: Duration) {
        for session in self.all() {
            let is_used = !session.stage.is_empty() || session.is_running();
            if is_used || session.idle_for() < idle {
                continue;
            }
            let Ok(permit) = session.handle.reserve() else { continue };
            permit.send(Command::Close(State::Paused, Reply::new(|_| ())));
            self.forget(session.handle.id());
        }
    }

    /// Tells whether a turn runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.all().iter().any(|session| session.is_running())
    }

    /// Releases all sessions whose tasks have ended, so that another process need not wait for the lease.
    pub(crate) async fn release_all(&self) {
        for session in self.all() {
            let id = session.handle.id();
            if let Err(err) = self.journal.release(id, State::Paused).await {
                tracing::warn!(session = %id, "the session could not be released: {err}");
            }
        }
    }
}

/// What a shared session is made of.
pub(crate) struct NewShared {
    pub(crate) handle: SessionHandle,
    pub(crate) stage: Arc<Stage>,
    pub(crate) cwd: PathBuf,
    pub(crate) created: SystemTime,
    pub(crate) scope: ScopeSlot,
    pub(crate) requested: Vec<mcp::ServerConfig>,
    pub(crate) servers: ServersSlot,
}

impl SharedSession {
    pub(crate) fn new(new: NewShared, prompts_per_minute: u64) -> SharedSession {
        let NewShared { handle, stage, cwd, created, scope, requested, servers } = new;
        let prompts = Window::new(prompts_per_minute);
        let activity = Mutex::new(Activity { turn: None, prompts, used: Instant::now() });
        SharedSession { handle, stage, cwd, created, scope, requested, servers, activity }
    }

    /// The lock is held only to look at the turn or change it.
    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether a turn runs.
    pub(crate) fn is_running(&self) -> bool {
        self.activity().turn.is_some()
    }

    /// Tells whether the turn of this prompt runs.
    pub(crate) fn runs(&self, key: &str) -> bool {
        self.activity().turn.as_ref().is_some_and(|turn| turn.message.as_str() == key)
    }

    fn idle_for(&self) -> Duration {
        self.activity().used.elapsed()
    }

    /// Notes that the session is used.
    pub(crate) fn touch(&self) {
        self.activity().used = Instant::now();
    }

    /// Stops the running turn.
    pub(crate) fn cancel(&self) {
        self.activity().turn.iter().for_each(|turn| turn.cancel.cancel());
    }

    /// Counts a prompt, or says how long to wait for the next.
    pub(crate) fn take_prompt(&self) -> Result<(), Duration> {
        self.activity().prompts.take(Instant::now())
    }

    /// Begins a turn for a connection, or joins the running one if this is its prompt again.
    pub(crate) fn begin_turn(
        &self,
        attachment: u64,
        message: MessageId,
        reply: Reply<TurnReport>,
    ) -> Result<Begun, Error> {
        let mut activity = self.activity();
        activity.used = Instant::now();
        if let Some(turn) = &mut activity.turn {
            if turn.message != message {
                drop(activity);
                // Answered by the caller.
                reply.discard();
                return Err(Error::Busy(self.handle.id().clone()));
            }
            let cancel = turn.cancel.clone();
            let (_, before) = std::mem::replace(&mut turn.waiting, (attachment, reply));
            drop(activity);
            before.send(Err(Error::TakenOver(self.handle.id().clone())));
            return Ok(Begun::Joined(cancel));
        }
        let cancel = CancellationToken::new();
        let waiting = (attachment, reply);
        activity.turn = Some(SharedTurn { message, cancel: cancel.clone(), waiting });
        Ok(Begun::New(cancel))
    }

    /// Ends the turn: whoever waits for it is answered, after everything that it showed.
    pub(crate) fn end_turn(&self, outcome: Result<TurnReport, Error>) {
        let mut activity = self.activity();
        activity.used = Instant::now();
        let Some(SharedTurn { waiting: (attachment, reply), .. }) = activity.turn.take() else {
            return;
        };
        drop(activity);
        self.stage.when_live(attachment, move || reply.send(outcome));
    }
}
