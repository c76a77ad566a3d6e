//! The hub: the task that knows which sessions are open here. Opens them, and notices when one ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::cx::TurnLimits;
use super::opening;
use super::session::{Command, SessionHandle, Shared};
use crate::ports::{Clock, Error, Journal, Listing, ModelChoice, Preferences, Query, Reply, Spans};
use crate::words::{ModeId, SessionId};

pub use super::opening::{OpenWorkspace, OpenedSession, Start};
pub use super::session::{NextWorkspace, Workspace};

/// What every session of a hub shares.
pub struct HubOptions {
    /// The available models, the default first.
    pub models: Arc<[ModelChoice]>,
    /// Finds the models when a session is opened, instead of `models`.
    pub find_models: Option<FindModels>,
    /// The user's preferences; `None` if new sessions start with the defaults.
    pub preferences: Option<Arc<dyn Preferences>>,
    /// Where sessions are stored.
    pub journal: Arc<dyn Journal>,
    /// Time and ids.
    pub clock: Arc<dyn Clock>,
    /// Records spans; `None` if nobody does.
    pub spans: Option<Arc<dyn Spans>>,
}

/// What bounds the sessions of a hub.
#[derive(Debug, Clone, Copy)]
pub struct HubLimits {
    /// How many requests one turn may make.
    pub max_requests_per_turn: usize,
    /// How long a model may send nothing at all.
    pub no_progress: Duration,
    /// How many sessions may be open at once.
    pub max_sessions: usize,
    /// After how long without use a session is unloaded; zero for never.
    pub idle_pause: Duration,
}

/// Finds the available models, the default first. Called for each session, so it caches what takes long.
pub type FindModels = Arc<dyn Fn() -> BoxFuture<'static, Arc<[ModelChoice]>> + Send + Sync>;

impl HubOptions {
    pub(super) async fn find_models(&self) -> Arc<[ModelChoice]> {
        match &self.find_models {
            Some(find) => find().await,
            None => Arc::clone(&self.models),
        }
    }

    pub(super) fn shared(&self, limits: HubLimits) -> Shared {
        let is_unloaded = !limits.idle_pause.is_zero() && self.journal.is_persistent();
        Shared {
            preferences: self.preferences.clone(),
            journal: Arc::clone(&self.journal),
            clock: Arc::clone(&self.clock),
            spans: self.spans.clone(),
            limits: TurnLimits {
                max_requests: limits.max_requests_per_turn,
                no_progress: limits.no_progress,
            },
            idle_pause: is_unloaded.then_some(limits.idle_pause),
        }
    }
}

/// What a hub is asked to do.
pub enum HubCommand {
    /// Open a session.
    Open {
        /// Its id; a new one, or that of a stored session.
        session: SessionId,
        /// How it begins.
        start: Start,
        /// The mode to begin in, by id or alias. If it is unknown, the session is not opened.
        mode: Option<ModeId>,
        /// Opens its workspace.
        workspace: Box<dyn OpenWorkspace>,
        /// Gets the session.
        reply: Reply<OpenedSession>,
    },
    /// List the stored sessions.
    List(Query, Reply<Listing>),
    /// Change the title of a session that is not open here; the reply contains it.
    SetTitle(SessionId, String, Reply<String>),
    /// Delete a session.
    Delete(SessionId, Reply<()>),
}

/// How others reach a hub.
#[derive(Debug, Clone)]
pub struct HubHandle {
    mailbox: mpsc::Sender<HubCommand>,
}

impl HubHandle {
    /// Reserves a place in the mailbox. Never waits. Do this before you make the command, so that its reply is always sent
    /// by the hub.
    ///
    /// # Errors
    /// [`Error::Crowded`] if the mailbox is full or the hub has ended.
    pub fn reserve(&self) -> Result<HubPermit<'_>, Error> {
        self.mailbox.try_reserve().map(HubPermit).map_err(|_| Error::Crowded)
    }
}

/// A reserved place in a hub's mailbox.
#[derive(Debug)]
pub struct HubPermit<'a>(mpsc::Permit<'a, HubCommand>);

impl HubPermit<'_> {
    /// Sends the command. Never waits and never fails.
    pub fn send(self, command: HubCommand) {
        self.0.send(command);
    }
}

/// How often the hub checks that no other process has taken over a session.
const OWNER_CHECK: Duration = Duration::from_secs(2);

/// How many commands may wait. Large, because an editor may open many sessions at once.
const MAILBOX: usize = 1024;

/// The task that knows which sessions are open here.
pub struct Hub {
    options: Arc<HubOptions>,
    limits: HubLimits,
    mailbox: mpsc::Receiver<HubCommand>,
    handles: BTreeMap<SessionId, SessionHandle>,
    sessions: JoinSet<SessionId>,
    /// Work on the journal that belongs to no open session. Each returns the sessions that it found lost.
    chores: JoinSet<Vec<SessionId>>,
}

impl Hub {
    /// Makes a hub and the handle to reach it.
    #[must_use]
    pub fn new(options: HubOptions, limits: HubLimits) -> (Hub, HubHandle) {
        // Full: `reserve` returns `Error::Crowded`.
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        let hub = Hub {
            options: Arc::new(options),
            limits,
            mailbox,
            handles: BTreeMap::new(),
            sessions: JoinSet::new(),
            chores: JoinSet::new(),
        };
        (hub, HubHandle { mailbox: sender })
    }

    /// Serves until its last handle is dropped and every session has ended.
    pub async fn run(mut self) {
        let is_shared = self.options.journal.is_persistent();
        let mut checks = tokio::time::interval(OWNER_CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => break,
                },
                Some(ended) = self.sessions.join_next() => self.ended(ended),
                Some(lost) = self.chores.join_next() => self.lose(lost.unwrap_or_default()),
                _ = checks.tick(), if is_shared && !self.handles.is_empty() => {
                    let journal = Arc::clone(&self.options.journal);
                    self.chores.spawn(async move { journal.lost_sessions().await });
                }
            }
        }
        self.handles.clear();
        while let Some(ended) = self.sessions.join_next().await {
            self.ended(ended);
        }
        while self.chores.join_next().await.is_some() {}
    }

    fn on_command(&mut self, command: HubCommand) {
        let journal = Arc::clone(&self.options.journal);
        match command {
            HubCommand::Open { session, start, mode, workspace, reply } => {
                self.open(session, start, mode, workspace, reply);
            }
            HubCommand::List(query, reply) => {
                self.chores.spawn(async move {
                    let listing = journal.list(query).await;
                    reply.send(listing.map_err(|err| Error::of_journal(&SessionId::new(""), err)));
                    Vec::new()
                });
            }
            HubCommand::SetTitle(session, title, reply) => {
                self.chores.spawn(async move {
                    let set = journal.set_title(&session, &title).await;
                    let set = set.map_err(|err| Error::of_journal(&session, err));
                    reply.send(set.map(|()| title));
                    Vec::new()
                });
            }
            HubCommand::Delete(session, reply) => {
                let open = self.handles.get(&session).cloned();
                self.chores.spawn(async move {
                    if let Some(handle) = open {
                        handle.close().await;
                    }
                    let deleted = journal.delete(&session).await;
                    reply.send(deleted.map_err(|err| Error::of_journal(&session, err)));
                    Vec::new()
                });
            }
        }
    }

    /// Informs sessions that another process has taken over. One whose mailbox is full is informed by the next check.
    fn lose(&self, lost: Vec<SessionId>) {
        for handle in lost.iter().filter_map(|id| self.handles.get(id)) {
            if let Ok(permit) = handle.reserve() {
                permit.send(Command::Lose);
            }
        }
    }

    fn open(
        &mut self,
        id: SessionId,
        start: Start,
        mode: Option<ModeId>,
        workspace: Box<dyn OpenWorkspace>,
        reply: Reply<OpenedSession>,
    ) {
        if self.handles.len() >= self.limits.max_sessions {
            return reply.send(Err(Error::TooManySessions(self.handles.len())));
        }
        if self.handles.get(&id).is_some_and(|handle| !handle.is_closed()) {
            return reply.send(Err(Error::Busy(id)));
        }
        let ends = SessionHandle::new(id.clone());
        self.handles.insert(id.clone(), ends.0.clone());
        let (options, limits) = (Arc::clone(&self.options), self.limits);
        let (how, begun) = (start.name(), Instant::now());
        let passed = move || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Opening may wait for a disk, so the session's task does it, not the hub's.
        self.sessions.spawn(async move {
            match opening::open(&options, limits, ends, start, mode, workspace).await {
                Ok((session, opened)) => {
                    let session_id = id.as_str();
                    tracing::info!(
                        session = session_id,
                        operation = "session",
                        duration_ms = passed(),
                        "opened: {how}"
                    );
                    reply.send(Ok(opened));
                    session.run().await;
                    tracing::info!(
                        session = session_id,
                        operation = "session",
                        duration_ms = passed(),
                        "closed"
                    );
                }
                Err(err) => reply.send(Err(err)),
            }
            id
        });
    }

    fn ended(&mut self, ended: Result<SessionId, tokio::task::JoinError>) {
        match ended {
            // The id may have been opened again by now.
            Ok(id) => {
                if self.handles.get(&id).is_some_and(SessionHandle::is_closed) {
                    self.handles.remove(&id);
                }
            }
            // Its open calls were answered when their replies were dropped.
            Err(err) => {
                tracing::error!("a session's task broke: {err}");
                self.handles.retain(|_, handle| !handle.is_closed());
            }
        }
    }
}
