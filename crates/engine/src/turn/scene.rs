//! A scene: a turn on another stage. It has a folder, a model, tools and a policy of its own.
//!
//! What it shows is journalled and shown like any turn, but the session's own model never sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::permission::policy::Policy;
use crate::permission::{Answer, Question};
use crate::ports::event::Event;
use crate::ports::{
    Editor, EditorError, ExitStatus, Form, FormAnswer, Offers, Page, PromptKind, Record, Show,
    TerminalCommand, TerminalOutput, Tools,
};
use crate::turn::context::{History, Mind};
use crate::turn::instructions::NoPrimer;
use crate::turn::session::{ModelChoice, Settings};
use crate::turn::{TurnCx, TurnError, converse};
use crate::words::{Message, MessageId, Prompt, StopReason, TerminalId};

/// What a scene is played with.
pub struct Scene {
    /// The folder it plays in.
    pub cwd: PathBuf,
    /// The tools; dropped when the scene is over.
    pub tools: Arc<dyn Tools>,
    /// Who asks for them.
    pub model: ModelChoice,
    /// What decides about their calls.
    pub policy: Policy,
    /// Stops what runs, as the user's cancel would.
    pub stop: BoxFuture<'static, ()>,
    /// Said behind such a stop.
    pub last_words: String,
}

/// Plays a scene as the turn of this prompt.
pub(crate) async fn play(
    cx: &mut TurnCx<'_>,
    prompt: &Prompt,
    scene: Result<Scene, String>,
) -> Result<StopReason, TurnError> {
    let message = MessageId::new(cx.clock.fresh_id());
    cx.record(Record::Prompt { message: &message, prompt, kind: PromptKind::Command }).await?;
    let scene = match scene {
        Ok(scene) => scene,
        Err(why) => return say(cx, why).await,
    };
    let mut history = History::default();
    history.push(Message::User(prompt.blocks.clone().into()));
    let Scene { cwd, tools, model, policy, stop, last_words } = scene;
    let settings = watch::Sender::new(Settings::new(vec![model].into())?);
    let editor = OnDisk(cx.editor);
    let cancel = cx.cancel.child_token();
    let mut stage = TurnCx {
        session: cx.session,
        cwd: &cwd,
        settings: &settings,
        history: &mut history,
        mind: &mut Mind::default(),
        primer: &NoPrimer,
        policy: &policy,
        asking: cx.asking,
        has_title: cx.has_title,
        titler: None,
        keeping: None,
        waits: 0,
        meter: cx.meter,
        steering: cx.steering,
        tools: &*tools,
        editor: &editor,
        files: cx.files,
        journal: cx.journal,
        clock: cx.clock,
        limits: cx.limits,
        cancel: cancel.clone(),
        child: None,
    };
    let ended = {
        let mut playing = Box::pin(converse(&mut stage));
        tokio::select! {
            biased;
            ended = &mut playing => ended,
            () = stop => {
                cancel.cancel();
                playing.await
            }
        }
    };
    match ended {
        Err(TurnError::Cancelled) if !cx.cancel.is_cancelled() => say(cx, last_words).await,
        ended => ended,
    }
}

async fn say(cx: &TurnCx<'_>, text: String) -> Result<StopReason, TurnError> {
    let message = MessageId::new(cx.clock.fresh_id());
    cx.emit(Event::Text { message, text }).await?;
    Ok(StopReason::EndTurn)
}

/// The client, which shows and answers as ever; files and commands are ours, for the folder is none of the client's.
struct OnDisk<'a>(&'a dyn Editor);

impl Editor for OnDisk<'_> {
    fn make_room<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Option<Show>> {
        self.0.make_room(event)
    }

    fn offers(&self) -> Offers {
        Offers { read: false, write: false, terminal: false, ..self.0.offers() }
    }

    fn ask_permission(&self, question: Question) -> BoxFuture<'_, Result<Answer, EditorError>> {
        self.0.ask_permission(question)
    }

    fn read_text_file(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, EditorError>> {
        self.0.read_text_file(path, line, limit)
    }

    fn write_text_file<'a>(
        &'a self,
        path: &'a Path,
        content: &'a str,
    ) -> BoxFuture<'a, Result<(), EditorError>> {
        self.0.write_text_file(path, content)
    }

    fn create_terminal(
        &self,
        command: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>> {
        self.0.create_terminal(command)
    }

    fn terminal_output(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<TerminalOutput, EditorError>> {
        self.0.terminal_output(terminal)
    }

    fn wait_for_exit(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<ExitStatus, EditorError>> {
        self.0.wait_for_exit(terminal)
    }

    fn kill_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        self.0.kill_terminal(terminal)
    }

    fn release_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        self.0.release_terminal(terminal)
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>> {
        self.0.elicit(form)
    }

    fn page_done(&self, page: &Page) -> BoxFuture<'_, ()> {
        self.0.page_done(page)
    }
}
