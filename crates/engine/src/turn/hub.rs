//! The hub: the task that knows which sessions are open here. Opens them, and notices when one ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::cx::TurnLimits;
use super::session::{
    Beginning, Command, Handles, IGNORED_SETTINGS, Session, SessionHandle, Shared,
};
use crate::ports::{
    Clock, Editor, Error, Event, Journal, Listing, ModelChoice, Preferences, Query, Remembered,
    Reply, Settings, Severity,
};
use crate::words::{Agent, Bill, History, Mode, ModeId, SessionId};

pub use super::session::Workspace;

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
    async fn find_models(&self) -> Arc<[ModelChoice]> {
        match &self.find_models {
            Some(find) => find().await,
            None => Arc::clone(&self.models),
        }
    }

    fn shared(&self) -> Shared {
        let is_unloaded = !self.idle_pause.is_zero() && self.journal.is_persistent();
        Shared {
            preferences: self.preferences.clone(),
            journal: Arc::clone(&self.journal),
            clock: Arc::clone(&self.clock),
            limits: TurnLimits {
                max_requests: self.max_requests_per_turn,
                no_progress: self.no_progress,
            },
            idle_pause: is_unloaded.then_some(self.idle_pause),
        }
    }
}

/// What a hub is asked to do.
pub enum HubCommand {
    /// Open a session.
    Open {
        /// A new one, or which.
        start: Start,
        /// Opens its workspace.
        workspace: Box<dyn OpenWorkspace>,
        /// Gets the session.
        reply: Reply<Opened>,
    },
    /// List the stored sessions.
    List(Query, Reply<Listing>),
    /// Change the title of a session that is not open here; the reply contains it.
    SetTitle(SessionId, String, Reply<String>),
    /// Delete a session.
    Delete(SessionId, Reply<()>),
}

/// Opens the workspace of a session. Made for one request, so it opens one workspace.
pub trait OpenWorkspace: Send {
    /// Opens it, once the id and the working folder are known.
    fn open(
        self: Box<Self>,
        session: SessionId,
        cwd: PathBuf,
    ) -> BoxFuture<'static, Result<Workspace, Error>>;
}

/// A workspace that is already open.
impl OpenWorkspace for Workspace {
    fn open(
        self: Box<Self>,
        _: SessionId,
        _: PathBuf,
    ) -> BoxFuture<'static, Result<Workspace, Error>> {
        Box::pin(std::future::ready(Ok(*self)))
    }
}

/// How a session begins.
#[derive(Debug)]
pub enum Start {
    /// From nothing.
    New {
        /// The working folder.
        cwd: PathBuf,
        /// A mode that it must have, by id or alias; otherwise it is not opened.
        mode: Option<ModeId>,
    },
    /// From the journal.
    Load {
        /// Which session.
        session: SessionId,
        /// The working folder, if it is another than before.
        cwd: Option<PathBuf>,
        /// Whether the client is shown the whole history first.
        show: bool,
    },
    /// From a copy of another one.
    Fork {
        /// Which session.
        session: SessionId,
        /// The working folder, if it is another than before.
        cwd: Option<PathBuf>,
    },
}

/// A session that was opened.
#[derive(Debug)]
pub struct Opened {
    /// How to reach it.
    pub handle: SessionHandle,
    /// Mode and model to begin with.
    pub settings: Settings,
    /// Its working folder.
    pub cwd: PathBuf,
    /// When it began.
    pub created: SystemTime,
}

/// How others reach a hub.
#[derive(Debug, Clone)]
pub struct HubHandle {
    mailbox: mpsc::Sender<HubCommand>,
}

impl HubHandle {
    /// Sends a command. Never waits; if the mailbox is full, the command is refused here.
    pub fn send(&self, command: HubCommand) {
        let Err(
            mpsc::error::TrySendError::Full(command) | mpsc::error::TrySendError::Closed(command),
        ) = self.mailbox.try_send(command)
        else {
            return;
        };
        match command {
            HubCommand::Open { reply, .. } => reply.send(Err(Error::Crowded)),
            HubCommand::List(_, reply) => reply.send(Err(Error::Crowded)),
            HubCommand::SetTitle(_, _, reply) => reply.send(Err(Error::Crowded)),
            HubCommand::Delete(_, reply) => reply.send(Err(Error::Crowded)),
        }
    }
}

/// How many commands may wait. Large, because an editor may open many sessions at once.
const MAILBOX: usize = 1024;

/// The task that knows which sessions are open here.
pub struct Hub {
    options: Arc<HubOptions>,
    mailbox: mpsc::Receiver<HubCommand>,
    handles: Handles,
    sessions: JoinSet<SessionId>,
    /// Work on the journal that belongs to no open session.
    chores: JoinSet<()>,
}

impl Hub {
    /// Makes a hub and the handle to reach it.
    #[must_use]
    pub fn new(options: HubOptions) -> (Hub, HubHandle) {
        // Full: `send` refuses the command.
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        let hub = Hub {
            options: Arc::new(options),
            mailbox,
            handles: Handles::new(),
            sessions: JoinSet::new(),
            chores: JoinSet::new(),
        };
        (hub, HubHandle { mailbox: sender })
    }

    /// Serves until its last handle is dropped and every session has ended.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => break,
                },
                Some(ended) = self.sessions.join_next() => self.ended(ended),
                Some(_) = self.chores.join_next() => {}
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
            HubCommand::Open { start, workspace, reply } => self.open(start, workspace, reply),
            HubCommand::List(query, reply) => {
                self.chores.spawn(async move {
                    let listing = journal.list(query).await;
                    reply.send(listing.map_err(|err| Error::of_journal(&SessionId::new(""), err)));
                });
            }
            HubCommand::SetTitle(session, title, reply) => {
                self.chores.spawn(async move {
                    let set = journal.set_title(&session, &title).await;
                    let set = set.map_err(|err| Error::of_journal(&session, err));
                    reply.send(set.map(|()| title));
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
                });
            }
        }
    }

    fn open(&mut self, start: Start, workspace: Box<dyn OpenWorkspace>, reply: Reply<Opened>) {
        if self.handles.len() >= self.options.max_sessions {
            return reply.send(Err(Error::TooManySessions(self.handles.len())));
        }
        let id = match &start {
            Start::Load { session, .. } => session.clone(),
            Start::New { .. } | Start::Fork { .. } => SessionId::new(self.options.clock.fresh_id()),
        };
        if self.handles.get(&id).is_some_and(|handle| !handle.is_closed()) {
            return reply.send(Err(Error::Busy(id)));
        }
        let (handle, mailbox) = SessionHandle::new(id.clone());
        self.handles.insert(id.clone(), handle.clone());
        let options = Arc::clone(&self.options);
        // Opening may wait for a disk, so the session's task does it, not the hub's.
        self.sessions.spawn(async move {
            match begin(&options, &id, start, workspace).await {
                Ok(Begun { cwd, workspace, beginning, created }) => {
                    let opened = Opened {
                        handle,
                        settings: beginning.settings.clone(),
                        cwd: cwd.clone(),
                        created,
                    };
                    let shared = options.shared();
                    let session =
                        Session::new(id.clone(), cwd, workspace, shared, beginning, mailbox);
                    reply.send(Ok(opened));
                    session.run().await;
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

/// A session that is about to run.
struct Begun {
    cwd: PathBuf,
    workspace: Workspace,
    beginning: Beginning,
    created: SystemTime,
}

/// Prepares a session: a new one, or one from the journal.
async fn begin(
    options: &HubOptions,
    id: &SessionId,
    start: Start,
    workspace: Box<dyn OpenWorkspace>,
) -> Result<Begun, Error> {
    let journal = &*options.journal;
    let failed = |err| Error::of_journal(id, err);
    let mut settings = Settings::new(options.find_models().await)?;
    let (cwd, mut workspace, remembered) = match start {
        Start::New { cwd, mode } => {
            let workspace = workspace.open(id.clone(), cwd.clone()).await?;
            let modes = Mode::with(&workspace.toolbox.agents());
            if let Some(mode) = mode.filter(|id| !modes.iter().any(|mode| mode.is(id.as_str()))) {
                return Err(Error::NoSuchMode(mode));
            }
            journal.create(id, &cwd).await.map_err(failed)?;
            if let Some(preferences) = &options.preferences {
                prefer(&mut settings, &**preferences);
            }
            (cwd, workspace, None)
        }
        Start::Load { cwd, show, .. } => {
            let info = journal.find(id).await.map_err(failed)?;
            let cwd = cwd.unwrap_or(info.cwd);
            let workspace = workspace.open(id.clone(), cwd.clone()).await?;
            let shown = show.then_some(&*workspace.editor);
            let remembered = journal.load(id, shown).await.map_err(failed)?;
            (cwd, workspace, Some(remembered))
        }
        Start::Fork { session, cwd } => {
            let forked = journal.fork(&session, id).await;
            forked.map_err(|err| Error::of_journal(&session, err))?;
            let remembered = journal.load(id, None).await.map_err(failed)?;
            let cwd = cwd.unwrap_or_else(|| remembered.info.cwd.clone());
            let workspace = workspace.open(id.clone(), cwd.clone()).await?;
            (cwd, workspace, Some(remembered))
        }
    };
    let agents = workspace.toolbox.agents();
    workspace.notices.extend(missing_models(&agents, &settings));
    settings.modes = Mode::with(&agents);
    let mut created = options.clock.now();
    let (mut history, mut has_title) = (History::default(), false);
    let (mut spent, mut bill) = (0.0, Bill::default());
    if let Some(remembered) = remembered {
        created = remembered.info.created;
        restore(&mut settings, &remembered);
        report(&*workspace.editor, &remembered.problems).await;
        has_title = remembered.info.title.is_some();
        (spent, bill, history) = (remembered.spent, remembered.bill, remembered.history);
    }
    let beginning = Beginning { settings, history, has_title, spent, bill };
    Ok(Begun { cwd, workspace, beginning, created })
}

/// Warns about agents whose model is not available: they use the session's.
fn missing_models(agents: &[Arc<Agent>], settings: &Settings) -> Vec<(&'static str, String)> {
    let warnings = agents.iter().filter_map(|agent| {
        let problem = settings.lacks(agent.model.as_ref()?)?;
        Some((IGNORED_SETTINGS, format!("the agent `{}` asks for {problem}", agent.name)))
    });
    warnings.collect()
}

/// Starts with what the user chose last, if it is still available.
fn prefer(settings: &mut Settings, preferences: &dyn Preferences) {
    if let Some(model) = preferences.model()
        && settings.models.iter().any(|choice| choice.id == model)
    {
        settings.model = model;
    }
    settings.thinking = preferences.thinking().unwrap_or_default();
}

/// Restores mode, model and thinking level, if they are still available.
fn restore(settings: &mut Settings, remembered: &Remembered) {
    let mode = remembered.mode.as_ref().and_then(|mode| settings.find_mode(mode.as_str()));
    if let Some(mode) = mode.map(Mode::mode_id) {
        settings.mode = mode;
    }
    if let Some(model) = &remembered.model
        && settings.models.iter().any(|choice| choice.id == *model)
    {
        settings.model = model.clone();
    }
    settings.thinking = remembered.thinking.unwrap_or_default();
}

/// Warns the user about what could not be read.
async fn report(editor: &dyn Editor, problems: &[String]) {
    for problem in problems {
        tracing::warn!("a part of a session could not be read: {problem}");
        let title = "Part of this session could not be read".to_owned();
        let description = Some(problem.clone());
        editor.show(Event::Notice { severity: Severity::Warning, title, description }).await;
    }
}

impl SessionHandle {
    /// Stops what runs and waits for the session to end.
    async fn close(&self) {
        let (sender, ended) = tokio::sync::oneshot::channel::<()>();
        let reply = Reply::new(move |_| drop(sender));
        match self.reserve() {
            Ok(permit) => {
                permit.send(Command::Close(reply));
                // Nothing is sent: the answer is that the other end is dropped.
                drop(ended.await);
            }
            Err(_) => tracing::debug!("a session that is deleted had already ended"),
        }
    }
}
