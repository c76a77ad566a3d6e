//! The commands that a session serves at any time, also while a turn runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, watch};

use super::{Command, Origin, Shared, Workspace, warnings};
use crate::ports::{
    Error, Event, OpenSpan, Reply, Settings, Severity, SpanFacts, SpanKind, SpanScope, Toolbox,
};
use crate::turn::cx::Ports;
use crate::turn::emit;
use crate::turn::meter::Meter;
use crate::turn::steering::Steering;
use crate::turn::title::Titler;
use crate::words::{MessageId, SessionId, iso_8601};

/// The parts of a session that a turn shares with the commands that arrive while it runs.
pub(super) struct Controls {
    pub(super) id: SessionId,
    pub(super) cwd: PathBuf,
    pub(super) workspace: Workspace,
    /// The workspace's tools, with the built-in ones.
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) shared: Shared,
    pub(super) settings: watch::Sender<Settings>,
    /// Whether the session began in another mode than the default, which the client is not shown yet.
    pub(super) has_new_mode: AtomicBool,
    pub(super) has_title: AtomicBool,
    pub(super) titler: Option<Titler>,
    pub(super) meter: Arc<Meter>,
    /// Locked while the user is asked: one question at a time.
    pub(super) asking: Mutex<()>,
    pub(super) steering: Steering,
}

impl Controls {
    pub(super) fn ports(&self) -> Ports<'_> {
        Ports {
            toolbox: &self.toolbox,
            policy: &self.workspace.policy,
            editor: &*self.workspace.editor,
            files: &*self.workspace.files,
            instructions: &*self.workspace.instructions,
            journal: &*self.shared.journal,
            clock: &*self.shared.clock,
        }
    }

    /// Begins the span of a turn. Also returns the scope of what happens in it.
    pub(super) fn begin_turn(&self, origin: &Origin) -> (OpenSpan, SpanScope) {
        let scope = SpanScope::new(self.shared.spans.clone(), Some(self.id.clone()));
        let settings = self.settings.borrow();
        let facts = SpanFacts {
            request: origin.request.as_deref().map(Into::into),
            traceparent: origin.traceparent.clone(),
            cwd: Some(self.cwd.display().to_string()),
            mode: Some(settings.mode.as_str().to_owned()),
            model: Some(settings.model.clone()),
            ..SpanFacts::default()
        };
        let span = scope.begin(SpanKind::Turn, "turn", facts);
        let inside = scope.inside(&span);
        (span, inside)
    }

    /// Serves a command that needs no turn. A change is applied, shown, and only then answered.
    pub(super) async fn apply(&self, command: Command) {
        match command {
            Command::Announce => self.announce().await,
            Command::Describe(reply) => {
                self.emit(Event::Commands(self.toolbox.commands())).await;
                let settings = self.settings.borrow().clone();
                reply.send(Ok(settings));
            }
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
            | Command::Lose
            | Command::Close(..) => {
                // Served by the callers. Dropping the reply answers it with an internal error.
                tracing::error!("a command of a turn or of the whole session was not served");
            }
        }
    }

    pub(super) async fn announce(&self) {
        if self.has_new_mode.swap(false, Ordering::Relaxed) {
            let settings = self.settings.borrow().clone();
            self.emit(Event::Mode(settings.mode.clone())).await;
            self.emit(Event::Settings(settings)).await;
        }
        self.emit(Event::Commands(self.toolbox.commands())).await;
        for (title, more) in warnings(&self.workspace.notices, &*self.shared.journal) {
            let (title, description) = (title.to_owned(), Some(more));
            self.emit(Event::Notice { severity: Severity::Warning, title, description }).await;
        }
        self.toolbox.start(&self.workspace.editor);
    }

    async fn set_title(&self, title: String) -> Result<String, Error> {
        let written = self.shared.journal.set_title(&self.id, &title).await;
        written.map_err(|err| Error::of_journal(&self.id, err))?;
        self.has_title.store(true, Ordering::Relaxed);
        if let Some(titler) = &self.titler {
            titler.is_fixed.store(true, Ordering::Relaxed);
        }
        let updated_at = Some(iso_8601(self.shared.clock.now()));
        self.emit(Event::Info { title: Some(title.clone()), updated_at }).await;
        Ok(title)
    }

    /// Tells the client that the session was continued in another window. Not journalled: the session is the other's.
    pub(super) async fn show_loss(&self) {
        let editor = &self.workspace.editor;
        let (title, more) =
            ("Continued in another window", "Load the session again to continue here.");
        let event = if editor.offers().notices {
            let (title, description) = (title.to_owned(), Some(more.to_owned()));
            Event::Notice { severity: Severity::Warning, title, description }
        } else {
            let message = MessageId::new(self.shared.clock.fresh_id());
            Event::Text { message, text: format!("{title}. {more}") }
        };
        editor.show(event).await;
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
        if let Err(err) = emit::emit(&self.id, journal, editor, event).await {
            tracing::error!(session = %self.id, "an event was not shown: {err}");
        }
    }
}
