//! The session: the task that owns one conversation. Others talk to it through its [`SessionHandle`].

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::builtin_tools::with_builtin_tools;
use super::context_state::ContextState;
use super::cx::{Conversation, Ports, Turn, TurnCx, TurnError, TurnLimits};
use super::emit;
use super::meter::Meter;
use super::prompt::{self, Naming};
use super::steering::Steering;
use super::title::Titler;
use crate::permission::policy::Policy;
use crate::ports::{
    Clock, Editor, Error, Event, Files, InstructionSource, Journal, Preferences, Record, Reply,
    Settings, Severity, State, Toolbox,
};
use crate::words::{
    Bill, History, ModeId, ModelId, Prompt, SessionId, StopReason, Thinking, iso_8601,
};

/// What a session is asked to do.
#[derive(Debug)]
pub enum Command {
    /// Show what the client needs to know first: the slash commands and warnings.
    Announce,
    /// Run a turn.
    Prompt {
        /// What the user sent.
        prompt: Prompt,
        /// Fires when the turn must stop.
        cancel: CancellationToken,
        /// Sent when the turn ended, after its last event.
        reply: Reply<StopReason>,
    },
    /// Send a message to the running turn; the reply is sent when the turn has taken it.
    Steer(Prompt, Reply<()>),
    /// Change the mode.
    SetMode(ModeId, Reply<Settings>),
    /// Change the model.
    SetModel(ModelId, Reply<Settings>),
    /// Change the title; the reply contains it.
    SetTitle(String, Reply<String>),
    /// Reply with the settings, after showing the whole history if asked to.
    Replay {
        /// Whether to show the history.
        show: bool,
        /// What to change then, if the client wants other MCP servers. They are started by [`Command::Announce`].
        change: Option<Change>,
        /// Sent after the last event.
        reply: Reply<Settings>,
    },
    /// Change the thinking level.
    SetThinking(Thinking, Reply<Settings>),
    /// Stop what runs and end.
    Close(Reply<()>),
}

/// A change to a session's extensions. It is made by the session's task, so never during a turn.
pub struct Change(Box<dyn FnOnce() + Send>);

impl Change {
    /// Makes a change from what it does, which must not block.
    #[must_use]
    pub fn new(make: impl FnOnce() + Send + 'static) -> Change {
        Change(Box::new(make))
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Change")
    }
}

/// How others reach a session.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    id: SessionId,
    mailbox: mpsc::Sender<Command>,
}

/// How many commands may wait. A client has no reason to have more than a few open requests.
const MAILBOX: usize = 16;

/// A reserved place in a session's mailbox.
#[derive(Debug)]
pub struct Permit<'a>(mpsc::Permit<'a, Command>);

impl Permit<'_> {
    /// Sends the command. Never waits and never fails.
    pub fn send(self, command: Command) {
        self.0.send(command);
    }
}

impl SessionHandle {
    /// Makes the handle of a session and the mailbox that the session reads.
    pub(crate) fn new(id: SessionId) -> (SessionHandle, mpsc::Receiver<Command>) {
        // Full: `reserve` returns `Error::Crowded`.
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        (SessionHandle { id, mailbox: sender }, mailbox)
    }

    /// Tells whether the session has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Reserves a place in the mailbox. Never waits. Do this before you make the command, so that its reply is always
    /// sent by the session.
    ///
    /// # Errors
    /// [`Error::Crowded`] if the mailbox is full, [`Error::NoSuchSession`] if the session has ended.
    pub fn reserve(&self) -> Result<Permit<'_>, Error> {
        self.mailbox.try_reserve().map(Permit).map_err(|err| match err {
            mpsc::error::TrySendError::Full(()) => Error::Crowded,
            mpsc::error::TrySendError::Closed(()) => Error::NoSuchSession(self.id.clone()),
        })
    }
}

/// What a session works with: its client, files and tools, and who decides about them.
pub struct Workspace {
    /// Its client.
    pub editor: Arc<dyn Editor>,
    /// Its files.
    pub files: Arc<dyn Files>,
    /// Finds the instructions of the user and the project.
    pub instructions: Arc<dyn InstructionSource>,
    /// Its tools and extensions.
    pub toolbox: Toolbox,
    /// Decides about tool calls.
    pub policy: Arc<Policy>,
    /// What the user should know when the session begins: a title and a description each.
    pub notices: Vec<(&'static str, String)>,
}

/// What a session shares with the other sessions of its hub.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The user's preferences.
    pub(crate) preferences: Option<Arc<dyn Preferences>>,
    /// Where sessions are stored.
    pub(crate) journal: Arc<dyn Journal>,
    /// Time and ids.
    pub(crate) clock: Arc<dyn Clock>,
    /// What bounds its turns.
    pub(crate) limits: TurnLimits,
    /// After how long without use a session is unloaded; `None` for never.
    pub(crate) idle_pause: Option<Duration>,
}

/// What a session starts from.
pub(crate) struct Beginning {
    pub(crate) settings: Settings,
    pub(crate) history: History,
    pub(crate) has_title: bool,
    /// What the session has cost, in US dollars.
    pub(crate) spent: f64,
    /// What it has used, by model.
    pub(crate) bill: Bill,
}

/// The task that owns one conversation.
pub(crate) struct Session {
    id: SessionId,
    cwd: PathBuf,
    workspace: Workspace,
    /// The workspace's tools, with the built-in ones.
    toolbox: Arc<Toolbox>,
    shared: Shared,
    settings: watch::Sender<Settings>,
    history: History,
    context: ContextState,
    has_title: AtomicBool,
    titler: Option<Titler>,
    /// The model and the thinking level that were saved last.
    saved: (ModelId, Thinking),
    /// Released after a time without use, with its history unloaded.
    is_paused: bool,
    meter: Arc<Meter>,
    /// Locked while the user is asked: one question at a time.
    asking: Mutex<()>,
    steering: Steering,
    mailbox: mpsc::Receiver<Command>,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        cwd: PathBuf,
        mut workspace: Workspace,
        shared: Shared,
        beginning: Beginning,
        mailbox: mpsc::Receiver<Command>,
    ) -> Session {
        let Beginning { settings, history, has_title, spent, bill } = beginning;
        // A client that shows no notices gets them in the first turn.
        let unseen = match workspace.editor.offers().notices {
            true => Vec::new(),
            false => warnings(&workspace.notices, &*shared.journal)
                .into_iter()
                .map(|(title, more)| format!("{title}: {more}"))
                .collect(),
        };
        let toolbox = with_builtin_tools(std::mem::take(&mut workspace.toolbox), unseen);
        let meter = Arc::new(Meter::new(spent, bill));
        let titler = shared.preferences.as_ref().map(|preferences| Titler {
            preferences: Arc::clone(preferences),
            session: id.clone(),
            journal: Arc::clone(&shared.journal),
            editor: Arc::clone(&workspace.editor),
            clock: Arc::clone(&shared.clock),
            meter: Arc::clone(&meter),
            is_fixed: Arc::default(),
            tasks: std::sync::Mutex::default(),
        });
        Session {
            id,
            cwd,
            workspace,
            toolbox,
            shared,
            saved: (settings.model.clone(), settings.thinking),
            settings: watch::Sender::new(settings),
            history,
            context: ContextState::default(),
            has_title: AtomicBool::new(has_title),
            titler,
            is_paused: false,
            meter,
            asking: Mutex::default(),
            steering: Steering::default(),
            mailbox,
        }
    }

    /// Serves the session until it is closed or its last handle is dropped.
    pub(crate) async fn run(mut self) {
        while let Some(command) = self.next_command().await {
            if self.is_paused && !matches!(command, Command::Close(_)) {
                match self.wake().await {
                    Ok(()) => {}
                    Err(err) => {
                        refuse(command, err);
                        continue;
                    }
                }
            }
            match command {
                Command::Prompt { prompt, cancel, reply } => {
                    if let Some(close) = self.prompt(prompt, cancel, reply).await {
                        self.close(close).await;
                        return;
                    }
                }
                Command::Steer(_, reply) => reply.send(Err(Error::NoTurn(self.id.clone()))),
                Command::Replay { show, change, reply } => {
                    let replayed = self.replay(show).await;
                    if let (Ok(_), Some(Change(make))) = (&replayed, change) {
                        make();
                    }
                    reply.send(replayed);
                }
                Command::Close(reply) => {
                    self.close(Some(reply)).await;
                    return;
                }
                other => self.desk().apply(other).await,
            }
            self.save_choices();
        }
        self.release(State::Paused).await;
    }

    /// What commands need that can be served during a turn.
    fn desk(&self) -> Desk<'_> {
        Desk {
            id: &self.id,
            workspace: &self.workspace,
            toolbox: &self.toolbox,
            shared: &self.shared,
            settings: &self.settings,
            has_title: &self.has_title,
            titler: self.titler.as_ref(),
        }
    }

    /// Saves a new choice of model or thinking level for later sessions.
    fn save_choices(&mut self) {
        let now = {
            let settings = self.settings.borrow();
            (settings.model.clone(), settings.thinking)
        };
        if now == self.saved {
            return;
        }
        if let Some(preferences) = &self.shared.preferences {
            preferences.save(&now.0, now.1);
        }
        self.saved = now;
    }

    /// Waits for the next command. After a time without one, the session is unloaded first.
    async fn next_command(&mut self) -> Option<Command> {
        if let Some(idle) = self.shared.idle_pause.filter(|_| !self.is_paused) {
            match tokio::time::timeout(idle, self.mailbox.recv()).await {
                Ok(command) => return command,
                Err(_) => {
                    self.release(State::Paused).await;
                    self.history = History::default();
                    self.context.refresh();
                    self.toolbox.rest();
                    self.is_paused = true;
                }
            }
        }
        self.mailbox.recv().await
    }

    /// Loads the session from the journal again.
    async fn wake(&mut self) -> Result<(), Error> {
        let loaded = self.shared.journal.load(&self.id, None).await;
        self.history = loaded.map_err(|err| Error::of_journal(&self.id, err))?.history;
        self.toolbox.start(&self.workspace.editor);
        self.is_paused = false;
        Ok(())
    }

    async fn replay(&mut self, show: bool) -> Result<Settings, Error> {
        if show {
            let shown = self.shared.journal.load(&self.id, Some(&*self.workspace.editor)).await;
            shown.map_err(|err| Error::of_journal(&self.id, err))?;
        }
        Ok(self.settings.borrow().clone())
    }

    /// Ends the session: as completed if the client closed it, else to be resumed later.
    async fn close(mut self, reply: Option<Reply<()>>) {
        let state = if reply.is_some() { State::Completed } else { State::Paused };
        self.release(state).await;
        self.mailbox.close();
        if let Some(reply) = reply {
            reply.send(Ok(()));
        }
        // Commands that arrived after the close get a proper error; dropped, they would look like an internal one.
        while let Ok(command) = self.mailbox.try_recv() {
            refuse(command, Error::NoSuchSession(self.id.clone()));
        }
    }

    async fn release(&self, state: State) {
        if let Err(err) = self.shared.journal.release(&self.id, state).await {
            tracing::warn!(session = %self.id, "the session could not be released: {err}");
        }
    }

    /// Runs a turn and keeps reading the mailbox. Returns the reply of a close that arrived meanwhile, or `Some(None)` if
    /// the last handle was dropped.
    async fn prompt(
        &mut self,
        prompt: Prompt,
        cancel: CancellationToken,
        reply: Reply<StopReason>,
    ) -> Option<Option<Reply<()>>> {
        let before = self.history.len();
        let mut close = None;
        let outcome = {
            // Not through `desk`, which would borrow the whole session.
            let desk = Desk {
                id: &self.id,
                workspace: &self.workspace,
                toolbox: &self.toolbox,
                shared: &self.shared,
                settings: &self.settings,
                has_title: &self.has_title,
                titler: self.titler.as_ref(),
            };
            let mut cx = TurnCx {
                ports: desk.ports(),
                conversation: Conversation {
                    session: &self.id,
                    cwd: &self.cwd,
                    settings: &self.settings,
                    history: &mut self.history,
                    context: &mut self.context,
                    meter: &self.meter,
                    steering: &self.steering,
                    asking: &self.asking,
                },
                turn: Turn::new(self.shared.limits, cancel.clone()),
            };
            let naming = Naming { has_title: &self.has_title, titler: self.titler.as_ref() };
            let turn = AssertUnwindSafe(prompt::answer(&mut cx, prompt, naming)).catch_unwind();
            tokio::pin!(turn);
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut turn => break outcome,
                    command = self.mailbox.recv(), if close.is_none() => match command {
                        Some(Command::Prompt { reply, .. }) => reply.send(Err(Error::Busy(self.id.clone()))),
                        Some(Command::Steer(prompt, reply)) => self.steering.push(prompt, reply),
                        Some(Command::Close(reply)) => {
                            cancel.cancel();
                            close = Some(Some(reply));
                        }
                        Some(Command::Replay { reply, .. }) => reply.send(Err(Error::Busy(self.id.clone()))),
                        Some(other) => desk.apply(other).await,
                        None => {
                            cancel.cancel();
                            close = Some(None);
                        }
                    },
                }
            }
        };
        self.finish(before, outcome, reply).await;
        close
    }

    /// Ends a turn: in the history, which had `before` messages when it started, in the journal, and for the client.
    async fn finish(
        &mut self,
        before: usize,
        outcome: std::thread::Result<Result<StopReason, TurnError>>,
        reply: Reply<StopReason>,
    ) {
        let answer = match outcome {
            Ok(Ok(stop)) => Ok(stop),
            Ok(Err(TurnError::Cancelled)) => Ok(StopReason::Cancelled),
            Ok(Err(TurnError::Failed(err))) => Err(err),
            Err(_panic) => {
                // A turn that panicked may have left the history half written, so all of it is removed.
                self.history.truncate(before);
                Err(Error::Broken)
            }
        };
        self.steering.refuse_all(&self.id);
        self.history.close_open_calls("cancelled before it ended");
        let stop = answer.as_ref().ok().copied();
        let written = self.shared.journal.append(&self.id, Record::TurnEnd(stop)).await;
        reply.send(match written {
            Ok(()) => answer,
            Err(err) => answer.and(Err(Error::of_journal(&self.id, err))),
        });
    }
}

/// Answers a command that cannot be served.
fn refuse(command: Command, err: Error) {
    match command {
        Command::Prompt { reply, .. } => reply.send(Err(err)),
        Command::SetMode(_, reply)
        | Command::SetModel(_, reply)
        | Command::SetThinking(_, reply)
        | Command::Replay { reply, .. } => reply.send(Err(err)),
        Command::SetTitle(_, reply) => reply.send(Err(err)),
        Command::Steer(_, reply) => reply.send(Err(err)),
        Command::Close(reply) => reply.send(Err(err)),
        Command::Announce => tracing::warn!("a session cannot be resumed: {err}"),
    }
}

/// The parts of a session that a turn shares with commands that arrive while it runs.
struct Desk<'a> {
    id: &'a SessionId,
    workspace: &'a Workspace,
    toolbox: &'a Arc<Toolbox>,
    shared: &'a Shared,
    settings: &'a watch::Sender<Settings>,
    has_title: &'a AtomicBool,
    titler: Option<&'a Titler>,
}

impl<'a> Desk<'a> {
    fn ports(&self) -> Ports<'a> {
        Ports {
            toolbox: self.toolbox,
            policy: &self.workspace.policy,
            editor: &*self.workspace.editor,
            files: &*self.workspace.files,
            instructions: &*self.workspace.instructions,
            journal: &*self.shared.journal,
            clock: &*self.shared.clock,
        }
    }

    /// Serves a command that needs no turn. A change is applied, shown, and only then answered.
    async fn apply(&self, command: Command) {
        match command {
            Command::Announce => self.announce().await,
            Command::SetTitle(title, reply) => reply.send(self.set_title(title).await),
            Command::SetMode(mode, reply) => {
                let found = self.settings.borrow().find_mode(mode.as_str()).cloned();
                let Some(known) = found else {
                    reply.send(Err(Error::NoSuchMode(mode)));
                    return;
                };
                let changed = self.settings.send_if_modified(|settings| settings.begin(&known));
                if changed {
                    self.emit(Event::Mode(known.mode_id())).await;
                }
                self.show_settings(reply, changed).await;
            }
            Command::SetModel(model, reply) => {
                if !self.settings.borrow().models.iter().any(|choice| choice.id == model) {
                    reply.send(Err(Error::NoSuchModel(model)));
                    return;
                }
                let changed = self.settings.send_if_modified(|settings| {
                    std::mem::replace(&mut settings.model, model.clone()) != model
                });
                self.show_settings(reply, changed).await;
            }
            Command::SetThinking(thinking, reply) => {
                let changed = self.settings.send_if_modified(|settings| {
                    std::mem::replace(&mut settings.thinking, thinking) != thinking
                });
                self.show_settings(reply, changed).await;
            }
            Command::Prompt { .. }
            | Command::Steer(..)
            | Command::Replay { .. }
            | Command::Close(_) => {
                // Served by the callers. Dropping the reply answers it with an internal error.
                tracing::error!("a command of a turn or of the whole session was not served");
            }
        }
    }

    async fn announce(&self) {
        self.emit(Event::Commands(self.toolbox.commands())).await;
        for (title, more) in warnings(&self.workspace.notices, &*self.shared.journal) {
            let (title, description) = (title.to_owned(), Some(more));
            self.emit(Event::Notice { severity: Severity::Warning, title, description }).await;
        }
        self.toolbox.start(&self.workspace.editor);
    }

    async fn set_title(&self, title: String) -> Result<String, Error> {
        let written = self.shared.journal.set_title(self.id, &title).await;
        written.map_err(|err| Error::of_journal(self.id, err))?;
        self.has_title.store(true, Ordering::Relaxed);
        if let Some(titler) = self.titler {
            titler.is_fixed.store(true, Ordering::Relaxed);
        }
        let updated_at = Some(iso_8601(self.shared.clock.now()));
        self.emit(Event::Info { title: Some(title.clone()), updated_at }).await;
        Ok(title)
    }

    async fn show_settings(&self, reply: Reply<Settings>, changed: bool) {
        let now = self.settings.borrow().clone();
        if changed {
            self.emit(Event::Settings(now.clone())).await;
        }
        reply.send(Ok(now));
    }

    async fn emit(&self, event: Event) {
        let (journal, editor) = (&*self.shared.journal, &*self.workspace.editor);
        if let Err(err) = emit::emit(self.id, journal, editor, event).await {
            tracing::error!(session = %self.id, "an event was not shown: {err}");
        }
    }
}

/// The title of a notice about settings that are not used.
pub const IGNORED_SETTINGS: &str = "Ignored settings";

/// Returns the warnings for the beginning of a session: a title and a description each.
pub(crate) fn warnings(
    notices: &[(&'static str, String)],
    journal: &dyn Journal,
) -> Vec<(&'static str, String)> {
    let problem = journal.problem().map(|problem| ("Sessions are not saved", problem));
    notices.iter().cloned().chain(problem).collect()
}

/// The sessions of a hub, by id.
pub(crate) type Handles = BTreeMap<SessionId, SessionHandle>;
