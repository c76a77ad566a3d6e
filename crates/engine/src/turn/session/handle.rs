//! How others reach a session: its commands, and the handle that sends them.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ports::{Error, Reply, Settings, State};
use crate::words::{MessageId, ModeId, ModelId, Prompt, SessionId, Thinking, TurnReport};

/// Where a prompt comes from: what the span of its turn shares with the wire.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The id of the call, as JSON.
    pub request: Option<String>,
    /// The context of the client's own trace.
    pub traceparent: Option<Arc<str>>,
    /// The id that the prompt is stored under, if the client gave it one. A prompt that is sent again under its id is not
    /// answered twice: its turn is continued if a crash interrupted it, otherwise its result is returned.
    pub message: Option<MessageId>,
}

/// What a session is asked to do.
#[derive(Debug)]
pub enum Command {
    /// Show what the client needs to know first: the slash commands and warnings.
    Announce,
    /// Run a turn.
    Prompt {
        /// What the user sent.
        prompt: Prompt,
        /// What is known about it on the wire, for the span of its turn.
        origin: Origin,
        /// Fires when the turn must stop.
        cancel: CancellationToken,
        /// Sent when the turn ended, after its last event.
        reply: Reply<TurnReport>,
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
    /// Show the slash commands again, and reply with the settings. Served at any time.
    Describe(Reply<Settings>),
    /// Change the thinking level.
    SetThinking(Thinking, Reply<Settings>),
    /// Another process has taken the session over: stop what runs, inform the client and refuse what follows.
    Lose,
    /// Stop what runs and end, in this state.
    Close(State, Reply<()>),
}

impl Command {
    /// Tells whether it loads a session that is not loaded, even one that was used elsewhere since.
    pub(super) fn is_load(&self) -> bool {
        matches!(self, Command::Replay { .. } | Command::Describe(_))
    }

    /// Answers a command that cannot be served.
    pub(super) fn refuse(self, err: Error) {
        match self {
            Command::Prompt { reply, .. } => reply.send(Err(err)),
            Command::SetMode(_, reply)
            | Command::SetModel(_, reply)
            | Command::SetThinking(_, reply)
            | Command::Describe(reply)
            | Command::Replay { reply, .. } => reply.send(Err(err)),
            Command::SetTitle(_, reply) => reply.send(Err(err)),
            Command::Steer(_, reply) => reply.send(Err(err)),
            Command::Close(_, reply) => reply.send(Err(err)),
            Command::Announce => tracing::warn!("a session cannot be resumed: {err}"),
            Command::Lose => {}
        }
    }
}

/// A change to a session's extensions. It is made by the session's task, so never during a turn.
pub struct Change(Box<dyn FnOnce() + Send>);

impl Change {
    /// Makes a change from what it does, which must not block.
    #[must_use]
    pub fn new(make: impl FnOnce() + Send + 'static) -> Change {
        Change(Box::new(make))
    }

    pub(super) fn make(self) {
        (self.0)();
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
    #[must_use]
    pub fn is_closed(&self) -> bool {
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

    /// Stops what runs and waits for the session to end.
    pub(crate) async fn close(&self) {
        let (sender, ended) = tokio::sync::oneshot::channel::<()>();
        let reply = Reply::new(move |_| drop(sender));
        match self.reserve() {
            Ok(permit) => {
                permit.send(Command::Close(State::Completed, reply));
                // Nothing is sent: the answer is that the other end is dropped.
                drop(ended.await);
            }
            Err(_) => tracing::debug!("a session that is deleted had already ended"),
        }
    }
}
