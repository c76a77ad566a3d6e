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

use crate::permission::policy::Policy;
use crate::ports::error::Error;
use crate::ports::event::{Event, Severity};
use crate::ports::reply::Reply;
use crate::ports::{Clock, Editor, Files, Habits, Journal, Record, State, Tools};
use crate::turn::builtin_tools::WithOwn;
use crate::turn::commands;
use crate::turn::context::{History, Mind};
use crate::turn::instructions::Primer;
use crate::turn::meter::Meter;
use crate::turn::steering::Steering;
use crate::turn::title::Titler;
use crate::turn::{self, TurnCx, TurnError, TurnLimits};
use crate::words::bill::Bill;
use crate::words::stamp;
use crate::words::{ModeId, ModelId, Prompt, SessionId, StopReason, Thinking};

pub use crate::ports::settings::{ModelChoice, Settings};

/// What a session is asked to do.
#[derive(Debug)]
pub enum Command {
    /// Say what the client needs to know first: the slash commands.
    Announce,
    /// Run a turn.
    Prompt {
        /// What the user sent.
        prompt: Prompt,
        /// Fires when the turn must stop.
        cancel: CancellationToken,
        /// Answered when the turn ended, behind its last event.
        reply: Reply<StopReason>,
    },
    /// Say something in the turn that runs; answered when the turn has it.
    Steer(Prompt, Reply<()>),
    /// Change the mode.
    SetMode(ModeId, Reply<Settings>),
    /// Change the model.
    SetModel(ModelId, Reply<Settings>),
    /// Change the title; answers with it.
    SetTitle(String, Reply<String>),
    /// Show the whole history again if asked to, then answer with the settings.
    Replay {
        /// Whether to show it.
        show: bool,
        /// Other tools to go on with, if the client wants others. They are started when the session is announced.
        tools: Option<Arc<dyn Tools>>,
        /// Answered behind the last event.
        reply: Reply<Settings>,
    },
    /// Change how much the model thinks.
    SetThinking(Thinking, Reply<Settings>),
    /// Stop what runs and end.
    Close(Reply<()>),
}

/// How others reach a session. When its mailbox is full the caller is told that the session is busy.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    id: SessionId,
    mailbox: mpsc::Sender<Command>,
}

/// How many commands may wait. A client has no reason to have more than a few under way.
const MAILBOX: usize = 16;

impl SessionHandle {
    /// Makes the handle of a session and the mailbox that the session reads.
    pub(crate) fn new(id: SessionId) -> (SessionHandle, mpsc::Receiver<Command>) {
        // Full: the sender is told that the session is busy.
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

    /// Asks the session for something. Never waits.
    ///
    /// # Errors
    /// Returns the command if the mailbox is full or the session has ended.
    pub fn send(&self, command: Command) -> Result<(), Command> {
        self.mailbox.try_send(command).map_err(|err| match err {
            mpsc::error::TrySendError::Full(command)
            | mpsc::error::TrySendError::Closed(command) => command,
        })
    }
}

/// What a session is made of.
pub struct Parts {
    /// Its id.
    pub id: SessionId,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Mode and model to begin with.
    pub settings: Settings,
    /// The tools it may use.
    pub tools: Arc<dyn Tools>,
    /// What decides about their calls.
    pub policy: Policy,
    /// What the user should know when it begins.
    pub notices: Vec<(&'static str, String)>,
    /// Its client.
    pub editor: Arc<dyn Editor>,
    /// Its files.
    pub files: Arc<dyn Files>,
    /// Finds what the model should know of its project.
    pub primer: Arc<dyn Primer>,
    /// What its user is used to.
    pub habits: Option<Arc<dyn Habits>>,
    /// Where it is kept.
    pub journal: Arc<dyn Journal>,
    /// Time and ids.
    pub clock: Arc<dyn Clock>,
    /// What bounds its turns.
    pub limits: TurnLimits,
    /// After how long without use it leaves memory; `None` for never.
    pub idle_pause: Option<Duration>,
    /// What was said before.
    pub history: History,
    /// Whether it has a title.
    pub has_title: bool,
    /// What it has cost, in US dollars.
    pub spent: f64,
    /// What it has used, by model.
    pub bill: Bill,
}

/// The task that owns one conversation.
pub(crate) struct Session {
    parts: Parts,
    settings: watch::Sender<Settings>,
    history: History,
    mind: Mind,
    policy: Policy,
    has_title: AtomicBool,
    titler: Option<Titler>,
    /// The model and the thinking that were chosen when this was last looked at.
    chosen: (ModelId, Thinking),
    /// Given back to the journal after a time without use, with nothing of it in memory.
    is_paused: bool,
    meter: Arc<Meter>,
    /// Held while the user is asked: one question at a time.
    asking: Mutex<()>,
    steering: Steering,
    mailbox: mpsc::Receiver<Command>,
}

impl Session {
    pub(crate) fn new(mut parts: Parts, mailbox: mpsc::Receiver<Command>) -> Session {
        let history = std::mem::take(&mut parts.history);
        let policy = std::mem::take(&mut parts.policy);
        let settings = watch::Sender::new(parts.settings.clone());
        let meter = Arc::new(Meter::new(parts.spent, std::mem::take(&mut parts.bill)));
        let has_title = AtomicBool::new(parts.has_title);
        let (asking, steering, is_paused) = (Mutex::default(), Steering::default(), false);
        let mind = Mind::default();
        let titler = parts.habits.as_ref().map(|habits| Titler {
            habits: Arc::clone(habits),
            session: parts.id.clone(),
            journal: Arc::clone(&parts.journal),
            editor: Arc::clone(&parts.editor),
            clock: Arc::clone(&parts.clock),
            meter: Arc::clone(&meter),
            is_fixed: Arc::default(),
            tasks: std::sync::Mutex::default(),
        });
        let chosen = (parts.settings.model.clone(), parts.settings.thinking);
        Session {
            parts,
            settings,
            history,
            mind,
            policy,
            has_title,
            meter,
            asking,
            steering,
            titler,
            chosen,
            is_paused,
            mailbox,
        }
    }

    /// Serves the session until it is closed or nobody holds its handle any more.
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
                Command::Steer(_, reply) => reply.send(Err(Error::NoTurn(self.parts.id.clone()))),
                Command::Replay { show, tools, reply } => {
                    if let Some(tools) = tools {
                        self.parts.tools.rest();
                        self.parts.tools = Arc::new(WithOwn::new(tools, Vec::new()));
                    }
                    reply.send(self.replay(show).await);
                }
                Command::Close(reply) => {
                    self.close(Some(reply)).await;
                    return;
                }
                other => self.settle(other).await,
            }
            self.keep_choices();
        }
        self.leave(State::Paused).await;
    }

    async fn settle(&self, command: Command) {
        settle(&self.parts, &self.settings, &self.has_title, self.titler.as_ref(), command).await;
    }

    /// Remembers a new choice of model or thinking for the sessions to come.
    fn keep_choices(&mut self) {
        let now = {
            let settings = self.settings.borrow();
            (settings.model.clone(), settings.thinking)
        };
        if now == self.chosen {
            return;
        }
        if let Some(habits) = &self.parts.habits {
            habits.keep(&now.0, now.1);
        }
        self.chosen = now;
    }

    /// Waits for the next command; after a time without one the session leaves memory first.
    async fn next_command(&mut self) -> Option<Command> {
        if let Some(idle) = self.parts.idle_pause.filter(|_| !self.is_paused) {
            match tokio::time::timeout(idle, self.mailbox.recv()).await {
                Ok(command) => return command,
                Err(_) => {
                    self.leave(State::Paused).await;
                    self.history = History::default();
                    self.mind.refresh();
                    self.parts.tools.rest();
                    self.is_paused = true;
                }
            }
        }
        self.mailbox.recv().await
    }

    /// Takes the session from the journal again.
    async fn wake(&mut self) -> Result<(), Error> {
        let remembered = self.parts.journal.load(&self.parts.id, None).await;
        self.history = remembered.map_err(|err| Error::of_journal(&self.parts.id, err))?.history;
        self.parts.tools.start(&self.parts.editor);
        self.is_paused = false;
        Ok(())
    }

    async fn replay(&mut self, show: bool) -> Result<Settings, Error> {
        if !show {
            return Ok(self.settings.borrow().clone());
        }
        let shown = self.parts.journal.load(&self.parts.id, Some(&*self.parts.editor)).await;
        shown.map_err(|err| Error::of_journal(&self.parts.id, err))?;
        Ok(self.settings.borrow().clone())
    }

    /// Ends the session: as done if the client closed it, else to be gone on with later.
    async fn close(mut self, reply: Option<Reply<()>>) {
        let state = if reply.is_some() { State::Completed } else { State::Paused };
        self.leave(state).await;
        self.mailbox.close();
        if let Some(reply) = reply {
            reply.send(Ok(()));
        }
        // What was asked behind the close is answered; dropped, it would look like a fault of ours.
        while let Ok(command) = self.mailbox.try_recv() {
            refuse(command, Error::NoSuchSession(self.parts.id.clone()));
        }
    }

    async fn leave(&self, state: State) {
        if let Err(err) = self.parts.journal.leave(&self.parts.id, state).await {
            tracing::warn!(session = %self.parts.id, "the session could not be given back: {err}");
        }
    }

    /// Runs a turn and goes on reading the mailbox. Returns the reply of a close that came meanwhile, or of none if
    /// nobody holds the handle any more.
    async fn prompt(
        &mut self,
        prompt: Prompt,
        cancel: CancellationToken,
        reply: Reply<StopReason>,
    ) -> Option<Option<Reply<()>>> {
        let before = self.history.len();
        let mut close = None;
        let outcome = {
            let mut cx = TurnCx {
                session: &self.parts.id,
                cwd: &self.parts.cwd,
                settings: &self.settings,
                history: &mut self.history,
                mind: &mut self.mind,
                primer: &*self.parts.primer,
                policy: &self.policy,
                asking: &self.asking,
                has_title: &self.has_title,
                meter: &self.meter,
                steering: &self.steering,
                titler: self.titler.as_ref(),
                keeping: None,
                waits: 0,
                tools: &*self.parts.tools,
                editor: &*self.parts.editor,
                files: &*self.parts.files,
                journal: &*self.parts.journal,
                clock: &*self.parts.clock,
                limits: self.parts.limits,
                cancel: cancel.clone(),
                child: None,
            };
            let turn = AssertUnwindSafe(turn::run_turn(&mut cx, prompt)).catch_unwind();
            tokio::pin!(turn);
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut turn => break outcome,
                    command = self.mailbox.recv(), if close.is_none() => match command {
                        Some(Command::Prompt { reply, .. }) => reply.send(Err(Error::Busy(self.parts.id.clone()))),
                        Some(Command::Steer(prompt, reply)) => self.steering.push(prompt, reply),
                        Some(Command::Close(reply)) => {
                            cancel.cancel();
                            close = Some(Some(reply));
                        }
                        Some(Command::Replay { reply, .. }) => reply.send(Err(Error::Busy(self.parts.id.clone()))),
                        Some(other) => settle(&self.parts, &self.settings, &self.has_title, self.titler.as_ref(), other).await,
                        None => {
                            cancel.cancel();
                            close = Some(None);
                        }
                    },
                }
            }
        };
        let answer = match outcome {
            Ok(Ok(stop)) => Ok(stop),
            Ok(Err(TurnError::Cancelled)) => Ok(StopReason::Cancelled),
            Ok(Err(TurnError::Failed(err))) => Err(err),
            Err(_panic) => {
                // A turn that broke may have left the history half written: take all of it back.
                self.history.truncate(before);
                Err(Error::Broken)
            }
        };
        self.steering.refuse_all(&self.parts.id);
        self.history.close_open_calls("cancelled before it ended");
        let stop = answer.as_ref().ok().copied();
        let kept = self.parts.journal.append(&self.parts.id, Record::TurnEnd(stop)).await;
        reply.send(match kept {
            Ok(()) => answer,
            Err(err) => answer.and(Err(Error::of_journal(&self.parts.id, err))),
        });
        close
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
        Command::Announce => tracing::warn!("a session cannot go on: {err}"),
    }
}

/// Does what takes no turn. A change happens whole, is announced, and only then answered.
async fn settle(
    parts: &Parts,
    settings: &watch::Sender<Settings>,
    has_title: &AtomicBool,
    titler: Option<&Titler>,
    command: Command,
) {
    match command {
        Command::Announce => {
            emit(parts, Event::Commands(commands::all(&*parts.tools))).await;
            for (title, more) in warnings(&parts.notices, &*parts.journal) {
                let (title, description) = (title.to_owned(), Some(more));
                emit(parts, Event::Notice { severity: Severity::Warning, title, description })
                    .await;
            }
            parts.tools.start(&parts.editor);
        }
        Command::SetTitle(title, reply) => {
            if let Err(err) = parts.journal.set_title(&parts.id, &title).await {
                reply.send(Err(Error::of_journal(&parts.id, err)));
                return;
            }
            has_title.store(true, Ordering::Relaxed);
            if let Some(titler) = titler {
                titler.is_fixed.store(true, Ordering::Relaxed);
            }
            let updated_at = Some(stamp::iso_8601(parts.clock.now()));
            emit(parts, Event::Info { title: Some(title.clone()), updated_at }).await;
            reply.send(Ok(title));
        }
        Command::SetMode(mode, reply) => {
            let found = settings.borrow().find_mode(mode.as_str()).cloned();
            let Some(known) = found else {
                reply.send(Err(Error::NoSuchMode(mode)));
                return;
            };
            let changed = settings.send_if_modified(|settings| settings.begin(&known));
            if changed {
                emit(parts, Event::Mode(known.mode_id())).await;
            }
            announce(parts, settings, reply, changed).await;
        }
        Command::SetModel(model, reply) => {
            if !settings.borrow().models.iter().any(|choice| choice.id == model) {
                reply.send(Err(Error::NoSuchModel(model)));
                return;
            }
            let changed = settings.send_if_modified(|settings| {
                std::mem::replace(&mut settings.model, model.clone()) != model
            });
            announce(parts, settings, reply, changed).await;
        }
        Command::SetThinking(thinking, reply) => {
            let changed = settings.send_if_modified(|settings| {
                std::mem::replace(&mut settings.thinking, thinking) != thinking
            });
            announce(parts, settings, reply, changed).await;
        }
        Command::Prompt { .. }
        | Command::Steer(..)
        | Command::Replay { .. }
        | Command::Close(_) => {
            // Served by the callers; dropping the reply would answer it as broken.
            tracing::error!("a command of a turn or of the whole session reached settle");
        }
    }
}

/// What a notice is about that says what of the configuration does not count.
pub const UNUSED: &str = "A part of the configuration is not used";

/// What the user is warned of when a session begins: what about, and what.
pub(crate) fn warnings(
    notices: &[(&'static str, String)],
    journal: &dyn Journal,
) -> Vec<(&'static str, String)> {
    let problem = journal.problem().map(|problem| ("Sessions are not kept", problem));
    notices.iter().cloned().chain(problem).collect()
}

async fn announce(
    parts: &Parts,
    settings: &watch::Sender<Settings>,
    reply: Reply<Settings>,
    changed: bool,
) {
    let now = settings.borrow().clone();
    if changed {
        emit(parts, Event::Settings(now.clone())).await;
    }
    reply.send(Ok(now));
}

async fn emit(parts: &Parts, event: Event) {
    if let Err(err) = turn::emit(&parts.id, &*parts.journal, &*parts.editor, event).await {
        tracing::error!(session = %parts.id, "an event was not shown: {err}");
    }
}

/// The sessions of a hub, by id.
pub(crate) type Handles = BTreeMap<SessionId, SessionHandle>;
