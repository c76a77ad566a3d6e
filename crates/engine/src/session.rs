//! The session: the task that owns one conversation. Others talk to it through its [`SessionHandle`].

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::commands::COMMANDS;
use crate::context::History;
use crate::error::Error;
use crate::event::Event;
use crate::modes::{MODES, Mode};
use crate::permission::Memory;
use crate::ports::{AnyTool, Clock, Editor, Journal, Model, Record};
use crate::reply::Reply;
use crate::turn::{self, TurnCx, TurnError, TurnLimits};
use crate::words::{ModeId, ModelId, Prompt, SessionId, StopReason};

/// What can be changed in a session, as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The mode in use.
    pub mode: ModeId,
    /// The model in use.
    pub model: ModelId,
    /// The models there are.
    pub models: Arc<[ModelChoice]>,
}

/// A model that a session can use.
#[derive(Clone)]
pub struct ModelChoice {
    /// Its id.
    pub id: ModelId,
    /// What people call it.
    pub name: String,
    /// How many tokens it can hold.
    pub context_size: u64,
    /// The model itself.
    pub model: Arc<dyn Model>,
}

impl PartialEq for ModelChoice {
    fn eq(&self, other: &ModelChoice) -> bool {
        self.id == other.id
    }
}

impl std::fmt::Debug for ModelChoice {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ModelChoice({})", self.id)
    }
}

impl Settings {
    /// Returns the settings of a new session: the default mode and the first model.
    ///
    /// # Errors
    /// Fails if there is no model at all.
    pub fn new(models: Arc<[ModelChoice]>) -> Result<Settings, Error> {
        let Some(first) = models.first() else {
            return Err(Error::NoSuchModel(ModelId::new("(none configured)")));
        };
        Ok(Settings { mode: MODES[0].mode_id(), model: first.id.clone(), models })
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Settings {
        let model = ModelChoice {
            id: ModelId::new("script/test"),
            name: "Test".to_owned(),
            context_size: 1000,
            model: Arc::new(crate::script::ScriptedModel::parse("").unwrap()),
        };
        Settings::new(vec![model].into()).unwrap()
    }
}

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
    /// Change the mode.
    SetMode(ModeId, Reply<Settings>),
    /// Change the model.
    SetModel(ModelId, Reply<Settings>),
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
    pub tools: Arc<[Arc<dyn AnyTool>]>,
    /// Its client.
    pub editor: Arc<dyn Editor>,
    /// Where it is kept.
    pub journal: Arc<dyn Journal>,
    /// Time and ids.
    pub clock: Arc<dyn Clock>,
    /// What bounds its turns.
    pub limits: TurnLimits,
}

/// The task that owns one conversation.
pub(crate) struct Session {
    parts: Parts,
    settings: watch::Sender<Settings>,
    history: History,
    memory: Memory,
    mailbox: mpsc::Receiver<Command>,
}

impl Session {
    pub(crate) fn new(parts: Parts) -> (Session, SessionHandle) {
        // Full: the sender is told that the session is busy.
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        let handle = SessionHandle { id: parts.id.clone(), mailbox: sender };
        let settings = watch::Sender::new(parts.settings.clone());
        (
            Session {
                parts,
                settings,
                history: History::default(),
                memory: Memory::default(),
                mailbox,
            },
            handle,
        )
    }

    /// Serves the session until it is closed or nobody holds its handle any more.
    pub(crate) async fn run(mut self) {
        while let Some(command) = self.mailbox.recv().await {
            let close = match command {
                Command::Prompt { prompt, cancel, reply } => {
                    self.prompt(prompt, cancel, reply).await
                }
                Command::Close(reply) => Some(reply),
                other => {
                    settle(&self.parts, &self.settings, other).await;
                    None
                }
            };
            if let Some(close) = close {
                close.send(Ok(()));
                self.refuse_rest();
                return;
            }
        }
    }

    /// Answers what was asked behind the close; dropped, it would look like a fault of ours.
    fn refuse_rest(mut self) {
        self.mailbox.close();
        while let Ok(command) = self.mailbox.try_recv() {
            let gone = Error::NoSuchSession(self.parts.id.clone());
            match command {
                Command::Prompt { reply, .. } => reply.send(Err(gone)),
                Command::SetMode(_, reply) | Command::SetModel(_, reply) => reply.send(Err(gone)),
                Command::Close(reply) => reply.send(Err(gone)),
                Command::Announce => {}
            }
        }
    }

    /// Runs a turn and goes on reading the mailbox. Returns the reply of a close that came meanwhile.
    async fn prompt(
        &mut self,
        prompt: Prompt,
        cancel: CancellationToken,
        reply: Reply<StopReason>,
    ) -> Option<Reply<()>> {
        let before = self.history.len();
        let mut close = None;
        let outcome = {
            let mut cx = TurnCx {
                session: &self.parts.id,
                cwd: &self.parts.cwd,
                settings: &self.settings,
                history: &mut self.history,
                memory: &mut self.memory,
                tools: &self.parts.tools,
                editor: &*self.parts.editor,
                journal: &*self.parts.journal,
                clock: &*self.parts.clock,
                limits: self.parts.limits,
                cancel: cancel.clone(),
            };
            let turn = AssertUnwindSafe(turn::run_turn(&mut cx, prompt)).catch_unwind();
            tokio::pin!(turn);
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut turn => break outcome,
                    command = self.mailbox.recv(), if close.is_none() => match command {
                        Some(Command::Prompt { reply, .. }) => reply.send(Err(Error::Busy(self.parts.id.clone()))),
                        Some(Command::Close(reply)) => {
                            cancel.cancel();
                            close = Some(Some(reply));
                        }
                        Some(other) => settle(&self.parts, &self.settings, other).await,
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
        self.history.close_open_calls("cancelled before it ended");
        let stop = answer.as_ref().ok().copied();
        let kept = self.parts.journal.append(&self.parts.id, Record::TurnEnd(stop)).await;
        reply.send(match kept {
            Ok(()) => answer,
            Err(err) => answer.and(Err(Error::Journal(err.0))),
        });
        close.flatten()
    }
}

/// Does what takes no turn. A change happens whole, is announced, and only then answered.
async fn settle(parts: &Parts, settings: &watch::Sender<Settings>, command: Command) {
    match command {
        Command::Announce => {
            emit(parts, Event::Commands(COMMANDS.to_vec())).await;
        }
        Command::SetMode(mode, reply) => {
            let Some(known) = Mode::find(mode.as_str()) else {
                reply.send(Err(Error::NoSuchMode(mode)));
                return;
            };
            let changed = settings.send_if_modified(|settings| {
                std::mem::replace(&mut settings.mode, known.mode_id()) != known.mode_id()
            });
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
        Command::Prompt { .. } | Command::Close(_) => {
            // Served by the callers; dropping the reply would answer it as broken.
            tracing::error!("a prompt or close reached settle");
        }
    }
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
