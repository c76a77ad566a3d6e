//! The hub: the task that knows which sessions live here. Opens them, and notices when one ends.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::ports::{AnyTool, Clock, Editor, Journal};
use crate::reply::Reply;
use crate::session::{Handles, ModelChoice, Parts, Session, SessionHandle, Settings};
use crate::turn::TurnLimits;
use crate::words::SessionId;

/// What every session of a hub shares.
pub struct HubOptions {
    /// The models there are, the default first.
    pub models: Arc<[ModelChoice]>,
    /// The tools there are.
    pub tools: Arc<[Arc<dyn AnyTool>]>,
    /// Where sessions are kept.
    pub journal: Arc<dyn Journal>,
    /// Time and ids.
    pub clock: Arc<dyn Clock>,
    /// How often one turn may ask the model.
    pub max_requests_per_turn: usize,
    /// How long a model may send nothing at all.
    pub no_progress: std::time::Duration,
    /// How many sessions may be open at once.
    pub max_sessions: usize,
}

/// What a hub is asked to do.
pub enum HubCommand {
    /// Open a new session.
    Open {
        /// Its working folder.
        cwd: PathBuf,
        /// Makes its client, once the id is known.
        editor: Box<dyn FnOnce(SessionId) -> Arc<dyn Editor> + Send>,
        /// Gets the session.
        reply: Reply<Opened>,
    },
}

/// A session that was opened.
#[derive(Debug)]
pub struct Opened {
    /// How to reach it.
    pub handle: SessionHandle,
    /// Mode and model to begin with.
    pub settings: Settings,
}

/// How others reach a hub. When its mailbox is full the caller is told that there are too many sessions.
#[derive(Debug, Clone)]
pub struct HubHandle {
    mailbox: mpsc::Sender<HubCommand>,
}

impl HubHandle {
    /// Asks the hub for something. Never waits; a command that finds no room answers itself by being dropped.
    pub fn send(&self, command: HubCommand) {
        if let Err(err) = self.mailbox.try_send(command) {
            let (mpsc::error::TrySendError::Full(HubCommand::Open { reply, .. })
            | mpsc::error::TrySendError::Closed(HubCommand::Open { reply, .. })) = err;
            reply.send(Err(Error::TooManySessions(MAILBOX)));
        }
    }
}

/// How many sessions may be waiting to be opened.
const MAILBOX: usize = 64;

/// The task that knows which sessions live here.
pub struct Hub {
    options: HubOptions,
    mailbox: mpsc::Receiver<HubCommand>,
    handles: Handles,
    sessions: JoinSet<SessionId>,
}

impl Hub {
    /// Makes a hub and the handle to reach it.
    #[must_use]
    pub fn new(options: HubOptions) -> (Hub, HubHandle) {
        // Full: the caller is told that there are too many sessions.
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        let hub = Hub { options, mailbox, handles: Handles::new(), sessions: JoinSet::new() };
        (hub, HubHandle { mailbox: sender })
    }

    /// Serves until nobody holds its handle any more and every session has ended.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    Some(HubCommand::Open { cwd, editor, reply }) => reply.send(self.open(cwd, editor)),
                    None => break,
                },
                Some(ended) = self.sessions.join_next() => self.ended(ended),
            }
        }
        self.handles.clear();
        while let Some(ended) = self.sessions.join_next().await {
            self.ended(ended);
        }
    }

    fn open(
        &mut self,
        cwd: PathBuf,
        editor: Box<dyn FnOnce(SessionId) -> Arc<dyn Editor> + Send>,
    ) -> Result<Opened, Error> {
        if self.handles.len() >= self.options.max_sessions {
            return Err(Error::TooManySessions(self.handles.len()));
        }
        let id = SessionId::new(self.options.clock.fresh_id());
        let settings = Settings::new(Arc::clone(&self.options.models))?;
        let (session, handle) = Session::new(Parts {
            id: id.clone(),
            cwd,
            settings: settings.clone(),
            tools: Arc::clone(&self.options.tools),
            editor: editor(id.clone()),
            journal: Arc::clone(&self.options.journal),
            clock: Arc::clone(&self.options.clock),
            limits: TurnLimits {
                max_requests: self.options.max_requests_per_turn,
                no_progress: self.options.no_progress,
            },
        });
        self.handles.insert(id.clone(), handle.clone());
        self.sessions.spawn(async move {
            session.run().await;
            id
        });
        Ok(Opened { handle, settings })
    }

    fn ended(&mut self, ended: Result<SessionId, tokio::task::JoinError>) {
        match ended {
            Ok(id) => {
                self.handles.remove(&id);
            }
            // Its open calls were answered when their replies were dropped.
            Err(err) => tracing::error!("a session's task broke: {err}"),
        }
    }
}
