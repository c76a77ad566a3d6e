//! The session: the task that owns one conversation. Others talk to it through its [`SessionHandle`].

mod controls;
mod handle;
mod run_prompt;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, watch};

use self::controls::Controls;
use self::run_prompt::End;
use super::builtin_tools::with_builtin_tools;
use super::context_state::ContextState;
use super::cx::TurnLimits;
use super::meter::Meter;
use super::steering::Steering;
use super::title::Titler;
use crate::permission::policy::Policy;
use crate::ports::{
    Clock, Editor, Error, Files, InstructionSource, Journal, JournalError, Preferences, PromptEnd,
    Reply, SessionInfo, Settings, SpanScope, Spans, State, StoredSession, Toolbox,
};
use crate::words::{History, MessageId, ModelId, Thinking};

pub use self::handle::{Change, Command, Origin, Permit, SessionHandle};

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
    /// The working directory, if it is another than the one the client named.
    pub cwd: Option<PathBuf>,
    /// Where an extension puts another workspace. The session moves there when the turn has ended.
    pub next: NextWorkspace,
}

/// The workspace that a session moves to, if any.
pub type NextWorkspace = Arc<std::sync::Mutex<Option<Box<Workspace>>>>;

/// What a session shares with the other sessions of its hub.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The user's preferences.
    pub(crate) preferences: Option<Arc<dyn Preferences>>,
    /// Where sessions are stored.
    pub(crate) journal: Arc<dyn Journal>,
    /// Time and ids.
    pub(crate) clock: Arc<dyn Clock>,
    /// Records spans.
    pub(crate) spans: Option<Arc<dyn Spans>>,
    /// What bounds its turns.
    pub(crate) limits: TurnLimits,
    /// After how long without use a session is unloaded; `None` for never.
    pub(crate) idle_pause: Option<Duration>,
}

/// Whether a session is loaded here.
#[derive(Debug, Clone, PartialEq)]
enum Presence {
    /// It is.
    Loaded,
    /// Released after a time without use. What was known of it then.
    Paused(Option<SessionInfo>),
    /// Another process has taken it over. Only an explicit load brings it back.
    Lost,
}

/// The task that owns one conversation.
pub(crate) struct Session {
    controls: Controls,
    history: History,
    context: ContextState,
    /// The model and the thinking level that were saved last.
    saved: (ModelId, Thinking),
    /// Whether it is loaded here.
    presence: Presence,
    /// What became of the last prompts, for those that are sent again.
    prompts: VecDeque<(MessageId, PromptEnd)>,
    mailbox: mpsc::Receiver<Command>,
}

impl Session {
    /// Makes a session from what is stored of it. It works in `cwd`, which may have changed since; `has_new_mode` says
    /// that its mode has changed too.
    pub(crate) fn new(
        stored: StoredSession,
        cwd: PathBuf,
        mut workspace: Workspace,
        settings: Settings,
        has_new_mode: bool,
        shared: Shared,
        mailbox: mpsc::Receiver<Command>,
    ) -> Session {
        let id = stored.info.id;
        // A client that shows no notices gets them in the first turn.
        let unseen = match workspace.editor.offers().notices {
            true => Vec::new(),
            false => warnings(&workspace.notices, &*shared.journal)
                .into_iter()
                .map(|(title, more)| format!("{title}: {more}"))
                .collect(),
        };
        let toolbox = with_builtin_tools(std::mem::take(&mut workspace.toolbox), unseen);
        let meter = Arc::new(Meter::new(stored.spent, stored.bill));
        let titler = shared.preferences.as_ref().map(|preferences| Titler {
            preferences: Arc::clone(preferences),
            session: id.clone(),
            journal: Arc::clone(&shared.journal),
            editor: Arc::clone(&workspace.editor),
            clock: Arc::clone(&shared.clock),
            meter: Arc::clone(&meter),
            spans: SpanScope::new(shared.spans.clone(), Some(id.clone())),
            is_fixed: Arc::default(),
            tasks: std::sync::Mutex::default(),
        });
        Session {
            saved: (settings.model.clone(), settings.thinking),
            controls: Controls {
                id,
                cwd,
                workspace,
                toolbox,
                shared,
                has_new_mode: AtomicBool::new(has_new_mode),
                settings: watch::Sender::new(settings),
                has_title: AtomicBool::new(stored.info.title.is_some()),
                titler,
                meter,
                asking: Mutex::default(),
                steering: Steering::default(),
            },
            history: stored.history,
            context: ContextState::default(),
            presence: Presence::Loaded,
            prompts: stored.prompts.into(),
            mailbox,
        }
    }

    /// Serves the session until it is closed or its last handle is dropped.
    pub(crate) async fn run(mut self) {
        while let Some(command) = self.next_command().await {
            if !matches!(command, Command::Close(..) | Command::Lose)
                && let Err(err) = self.be_loaded(command.is_load()).await
            {
                command.refuse(err);
                continue;
            }
            match command {
                Command::Prompt { prompt, origin, cancel, reply } => {
                    match self.run_prompt(prompt, origin, cancel, reply).await {
                        Some(End::Closed(state, reply)) => return self.close(state, reply).await,
                        Some(End::Dropped) => break,
                        Some(End::Lost) => self.lose().await,
                        None => self.move_on().await,
                    }
                }
                Command::Steer(_, reply) => {
                    reply.send(Err(Error::NoTurn(self.controls.id.clone())));
                }
                Command::Replay { show, change, reply } => {
                    let replayed = self.replay(show).await;
                    if let (Ok(_), Some(change)) = (&replayed, change) {
                        change.make();
                    }
                    reply.send(replayed);
                }
                Command::Close(state, reply) => return self.close(state, reply).await,
                Command::Lose => self.lose().await,
                other => self.controls.apply(other).await,
            }
            self.save_choices();
        }
        self.release(State::Paused).await;
    }

    /// Moves to the workspace that the last turn prepared, if it did.
    async fn move_on(&mut self) {
        let next = &self.controls.workspace.next;
        let next = next.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut next) = next else { return };
        self.controls.toolbox.pause();
        let unseen = match next.editor.offers().notices {
            true => Vec::new(),
            false => next.notices.iter().map(|(title, more)| format!("{title}: {more}")).collect(),
        };
        self.controls.toolbox = with_builtin_tools(std::mem::take(&mut next.toolbox), unseen);
        if let Some(cwd) = next.cwd.take() {
            self.controls.cwd = cwd;
        }
        self.controls.workspace = *next;
        self.context.refresh();
        self.controls.announce().await;
    }

    /// Saves a new choice of model or thinking level for later sessions.
    fn save_choices(&mut self) {
        let now = {
            let settings = self.controls.settings.borrow();
            (settings.model.clone(), settings.thinking)
        };
        if now == self.saved {
            return;
        }
        if let Some(preferences) = &self.controls.shared.preferences {
            preferences.save(&now.0, now.1);
        }
        self.saved = now;
    }

    /// Waits for the next command. After a time without one, the session is unloaded first.
    async fn next_command(&mut self) -> Option<Command> {
        let idle = self.controls.shared.idle_pause.filter(|_| self.presence == Presence::Loaded);
        if let Some(idle) = idle {
            match tokio::time::timeout(idle, self.mailbox.recv()).await {
                Ok(command) => return command,
                Err(_) => {
                    self.release(State::Paused).await;
                    self.unload();
                    let Controls { id, shared, .. } = &self.controls;
                    self.presence = Presence::Paused(shared.journal.find(id).await.ok());
                }
            }
        }
        self.mailbox.recv().await
    }

    fn unload(&mut self) {
        self.history = History::default();
        self.context.refresh();
        self.controls.toolbox.pause();
    }

    /// Stops using a session that another process has taken over, and informs the client.
    async fn lose(&mut self) {
        if self.presence == Presence::Lost {
            return;
        }
        tracing::info!(session = %self.controls.id, "continued in another process");
        // Nothing of it is written any more: the other process has raised the epoch.
        self.release(State::Paused).await;
        self.unload();
        self.presence = Presence::Lost;
        self.controls.show_loss().await;
    }

    /// Loads the session again, if it is not loaded. One that was used elsewhere since is loaded if the client asks for it.
    async fn be_loaded(&mut self, is_load: bool) -> Result<(), Error> {
        let Controls { id, shared, toolbox, workspace, .. } = &self.controls;
        match &self.presence {
            Presence::Loaded => return Ok(()),
            Presence::Lost if is_load => {}
            Presence::Lost => return Err(Error::TakenOver(id.clone())),
            // The client does not show what another process has added since.
            Presence::Paused(before) if !is_load => {
                let now =
                    shared.journal.find(id).await.map_err(|err| Error::of_journal(id, err))?;
                if now.state == State::Active || before.as_ref().is_some_and(|info| *info != now) {
                    self.lose().await;
                    return Err(Error::TakenOver(self.controls.id.clone()));
                }
            }
            Presence::Paused(_) => {}
        }
        let loaded = shared.journal.load(id, None).await;
        let loaded = loaded.map_err(|err| Error::of_journal(id, err))?;
        self.history = loaded.history;
        self.prompts = loaded.prompts.into();
        toolbox.start(&workspace.editor);
        self.presence = Presence::Loaded;
        Ok(())
    }

    async fn replay(&mut self, show: bool) -> Result<Settings, Error> {
        let Controls { id, shared, workspace, settings, .. } = &self.controls;
        let failed = |err| Error::of_journal(id, err);
        if show {
            match shared.journal.load(id, Some(&*workspace.editor)).await {
                // Another process took it over since the last check; this load takes it back.
                Err(JournalError::TakenOver) => {
                    self.release(State::Paused).await;
                    let stored = shared.journal.load(id, Some(&*workspace.editor)).await;
                    self.history = stored.map_err(failed)?.history;
                }
                shown => drop(shown.map_err(failed)?),
            }
        }
        Ok(settings.borrow().clone())
    }

    /// Ends a session that the client closes.
    async fn close(mut self, state: State, reply: Reply<()>) {
        self.release(state).await;
        self.mailbox.close();
        reply.send(Ok(()));
        // Commands that arrived after the close get a proper error; dropped, they would look like an internal one.
        while let Ok(command) = self.mailbox.try_recv() {
            command.refuse(Error::NoSuchSession(self.controls.id.clone()));
        }
    }

    async fn release(&self, state: State) {
        let Controls { id, shared, .. } = &self.controls;
        if let Err(err) = shared.journal.release(id, state).await {
            tracing::warn!(session = %id, "the session could not be released: {err}");
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
    let recovery = journal.recovery().map(|recovery| ("Sessions were recovered", recovery));
    notices.iter().cloned().chain(problem).chain(recovery).collect()
}
