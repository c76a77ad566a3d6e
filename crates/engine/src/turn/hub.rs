//! The hub: the task that knows which sessions live here. Opens them, and notices when one ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::permission::policy::Policy;
use crate::ports::error::Error;
use crate::ports::event::{Event, Severity};
use crate::ports::reply::Reply;
use crate::ports::{Clock, Editor, Files, Habits, Journal, Listing, Query, Remembered, Tools};
use crate::turn::TurnLimits;
use crate::turn::builtin_tools::WithOwn;
use crate::turn::instructions::Primer;
use crate::turn::session::{
    Command, Handles, ModelChoice, Parts, Session, SessionHandle, Settings, UNUSED, warnings,
};
use crate::words::agents::Agent;
use crate::words::bill::Bill;
use crate::words::modes::Mode;
use crate::words::{ModeId, SessionId};

/// What every session of a hub shares.
pub struct HubOptions {
    /// The models there are, the default first.
    pub models: Arc<[ModelChoice]>,
    /// Finds the models when a session is opened, instead of `models`.
    pub find_models: Option<FindModels>,
    /// What the user is used to; nothing if new sessions begin anew.
    pub habits: Option<Arc<dyn Habits>>,
    /// Where sessions are kept.
    pub journal: Arc<dyn Journal>,
    /// Time and ids.
    pub clock: Arc<dyn Clock>,
    /// How often one turn may ask the model.
    pub max_requests_per_turn: usize,
    /// How long a model may send nothing at all.
    pub no_progress: Duration,
    /// How many sessions may be open at once.
    pub max_sessions: usize,
    /// After how long without use a session leaves memory; zero for never.
    pub idle_pause: Duration,
}

/// Finds the models there are, the default first. Asked for each session, so it remembers what takes long.
pub type FindModels = Arc<dyn Fn() -> BoxFuture<'static, Arc<[ModelChoice]>> + Send + Sync>;

impl HubOptions {
    async fn find_models(&self) -> Arc<[ModelChoice]> {
        match &self.find_models {
            Some(find) => find().await,
            None => Arc::clone(&self.models),
        }
    }
}

/// What a hub is asked to do.
pub enum HubCommand {
    /// Open a session.
    Open {
        /// A new one, or which.
        start: Start,
        /// Makes its client and its tools, once the id and the working folder are known.
        attach: Attach,
        /// Gets the session.
        reply: Reply<Opened>,
    },
    /// List the sessions that are kept.
    List(Query, Reply<Listing>),
    /// Change the title of a session that is not open here; answers with it.
    SetTitle(SessionId, String, Reply<String>),
    /// Delete a session.
    Delete(SessionId, Reply<()>),
}

/// Makes what a session works with.
pub type Attach = Box<dyn FnOnce(SessionId, &Path) -> Attached + Send>;

/// What a session works with.
pub struct Attached {
    /// Its client.
    pub editor: Arc<dyn Editor>,
    /// Its files.
    pub files: Arc<dyn Files>,
    /// Finds what the model should know of its project.
    pub primer: Arc<dyn Primer>,
    /// Its tools.
    pub tools: Arc<dyn Tools>,
    /// Finds out which branch its folder is on, where the client is told of it.
    pub branch: Option<BoxFuture<'static, Option<String>>>,
    /// What decides about their calls.
    pub policy: Policy,
    /// What the user should know when it begins: what about, and what.
    pub notices: Vec<(&'static str, String)>,
}

/// How a session begins.
#[derive(Debug)]
pub enum Start {
    /// From nothing.
    New {
        /// The working folder.
        cwd: PathBuf,
        /// A mode that it must have, by its id or an alias; without it there is no session.
        mode: Option<ModeId>,
    },
    /// From what is kept.
    Load {
        /// Which session.
        session: SessionId,
        /// The working folder, if it is another than before.
        cwd: Option<PathBuf>,
        /// Whether the client is shown the whole history first.
        show: bool,
    },
    /// From a copy of what is kept of another.
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
    /// The branch its folder is on, where that was asked for and found.
    pub branch: Option<String>,
}

/// How others reach a hub. When its mailbox is full the caller is told so.
#[derive(Debug, Clone)]
pub struct HubHandle {
    mailbox: mpsc::Sender<HubCommand>,
}

impl HubHandle {
    /// Asks the hub for something. Never waits; a command that finds no room is answered here.
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

/// How many commands may wait: as many as a client can send before the hub has its turn, for a workspace of sessions
/// is opened at once.
const MAILBOX: usize = 1024;

/// The task that knows which sessions live here.
pub struct Hub {
    options: Arc<HubOptions>,
    mailbox: mpsc::Receiver<HubCommand>,
    handles: Handles,
    sessions: JoinSet<SessionId>,
    /// Work on what is kept that belongs to no session here.
    chores: JoinSet<()>,
}

impl Hub {
    /// Makes a hub and the handle to reach it.
    #[must_use]
    pub fn new(options: HubOptions) -> (Hub, HubHandle) {
        // Full: the caller is told to wait for some of its requests.
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

    /// Serves until nobody holds its handle any more and every session has ended.
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
            HubCommand::Open { start, attach, reply } => self.open(start, attach, reply),
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

    fn open(&mut self, start: Start, attach: Attach, reply: Reply<Opened>) {
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
        // Opening may wait for a disk, so it is the session's own work, not the hub's.
        self.sessions.spawn(async move {
            match begin(&options, &id, start, attach).await {
                Ok(Begun { parts, created, branch }) => {
                    let (settings, cwd) = (parts.settings.clone(), parts.cwd.clone());
                    let session = Session::new(parts, mailbox);
                    reply.send(Ok(Opened { handle, settings, cwd, created, branch }));
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
    parts: Parts,
    created: SystemTime,
    branch: Option<String>,
}

/// Makes the parts of a session: new, or from what is kept.
async fn begin(
    options: &HubOptions,
    id: &SessionId,
    start: Start,
    attach: Attach,
) -> Result<Begun, Error> {
    let journal = &*options.journal;
    let failed = |err| Error::of_journal(id, err);
    let mut settings = Settings::new(options.find_models().await)?;
    let (cwd, mut attached, remembered) = match start {
        Start::New { cwd, mode } => {
            let attached = attach(id.clone(), &cwd);
            let modes = Mode::with(&attached.tools.agents());
            if let Some(mode) = mode.filter(|id| !modes.iter().any(|mode| mode.is(id.as_str()))) {
                return Err(Error::NoSuchMode(mode));
            }
            journal.create(id, &cwd).await.map_err(failed)?;
            if let Some(habits) = &options.habits {
                take_up(&mut settings, &**habits);
            }
            (cwd, attached, None)
        }
        Start::Load { cwd, show, .. } => {
            let info = journal.find(id).await.map_err(failed)?;
            let cwd = cwd.unwrap_or(info.cwd);
            let attached = attach(id.clone(), &cwd);
            let shown = show.then_some(&*attached.editor);
            let remembered = journal.load(id, shown).await.map_err(failed)?;
            (cwd, attached, Some(remembered))
        }
        Start::Fork { session, cwd } => {
            let forked = journal.fork(&session, id).await;
            forked.map_err(|err| Error::of_journal(&session, err))?;
            let remembered = journal.load(id, None).await.map_err(failed)?;
            let cwd = cwd.unwrap_or_else(|| remembered.info.cwd.clone());
            let attached = attach(id.clone(), &cwd);
            (cwd, attached, Some(remembered))
        }
    };
    attached.notices.extend(without_their_model(&attached.tools.agents(), &settings));
    // Where the client shows no notices, the first turn tells.
    let untold = match attached.editor.offers().notices {
        true => Vec::new(),
        false => warnings(&attached.notices, &*options.journal)
            .into_iter()
            .map(|(title, more)| format!("{title}: {more}"))
            .collect(),
    };
    let tools = Arc::new(WithOwn::new(attached.tools, untold));
    settings.modes = Mode::with(&tools.agents());
    let mut history = crate::turn::context::History::default();
    let (mut has_title, mut spent, mut bill) = (false, 0.0, Bill::default());
    let mut created = options.clock.now();
    if let Some(remembered) = remembered {
        created = remembered.info.created;
        restore(&mut settings, &remembered);
        report(&*attached.editor, &remembered.problems).await;
        has_title = remembered.info.title.is_some();
        spent = remembered.spent;
        bill = remembered.bill;
        history = remembered.history;
    }
    let idle_pause = Some(options.idle_pause).filter(|idle| !idle.is_zero() && journal.outlives());
    let branch = match attached.branch {
        Some(find) => find.await,
        None => None,
    };
    let parts = Parts {
        id: id.clone(),
        cwd,
        settings,
        tools,
        policy: attached.policy,
        notices: attached.notices,
        editor: attached.editor,
        files: attached.files,
        primer: attached.primer,
        habits: options.habits.clone(),
        journal: Arc::clone(&options.journal),
        clock: Arc::clone(&options.clock),
        limits: TurnLimits {
            max_requests: options.max_requests_per_turn,
            no_progress: options.no_progress,
        },
        idle_pause,
        history,
        has_title,
        spent,
        bill,
    };
    Ok(Begun { parts, created, branch })
}

/// Tells of agents whose model there is not: they work with the session's.
fn without_their_model(agents: &[Arc<Agent>], settings: &Settings) -> Vec<(&'static str, String)> {
    let told = agents.iter().filter_map(|agent| {
        let problem = settings.lacks(agent.model.as_ref()?)?;
        Some((UNUSED, format!("the agent `{}` wants {problem}", agent.name)))
    });
    told.collect()
}

/// Begins with what was chosen last, as far as there still is such.
fn take_up(settings: &mut Settings, habits: &dyn Habits) {
    if let Some(model) = habits.model()
        && settings.models.iter().any(|choice| choice.id == model)
    {
        settings.model = model;
    }
    settings.thinking = habits.thinking().unwrap_or_default();
}

/// Takes over mode, model and thinking, as far as there still are such.
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

/// Tells the user what could not be read.
async fn report(editor: &dyn Editor, problems: &[String]) {
    for problem in problems {
        tracing::warn!("a part of a session could not be read: {problem}");
        let title = "A part of this session could not be read".to_owned();
        let description = Some(problem.clone());
        editor.show(Event::Notice { severity: Severity::Warning, title, description }).await;
    }
}

impl SessionHandle {
    /// Stops what runs and waits for the session to end.
    async fn close(&self) {
        let (sender, ended) = tokio::sync::oneshot::channel::<()>();
        let reply = Reply::new(move |_| drop(sender));
        match self.send(Command::Close(reply)) {
            // Nothing is sent: the answer is that the other end is dropped.
            Ok(()) => drop(ended.await),
            Err(_) => tracing::debug!("a session that is deleted had ended already"),
        }
    }
}
