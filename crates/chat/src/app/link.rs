//! The connection and the session: opening, losing and restoring them, and the turn.

use std::collections::HashSet;
use std::time::Duration;

use wire::acp::schema::{self, SessionUpdate};

use super::{App, Command, Continued, Dialog, Link, OpenHow, Turn, Waiting};
use crate::clean::one_line;
use crate::picker::{Choice, Picker};
use crate::style::{Line, Span, Style};
use crate::tool_view::block_text;

/// How often a lost connection is restored without the user.
const MAX_ATTEMPTS: u32 = 3;

/// A turn that took longer ends with a bell.
const LONG_TURN: u64 = 10_000;

/// How many updates are stored until their session is open.
const MAX_EARLY: usize = 256;

/// The code of "authentication required".
const AUTH_REQUIRED: i32 = -32000;

/// What the agent said about itself.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it can do.
    pub capabilities: schema::AgentCapabilities,
    /// How one can log in.
    pub auth_methods: Vec<schema::AuthMethod>,
    /// Whether a message can be added to a running turn.
    pub can_steer: bool,
    /// Whether it is on a server, where a turn continues without us.
    pub is_remote: bool,
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// One sentence.
    pub text: String,
    /// The agent's code, if it answered.
    pub code: Option<i32>,
}

/// A session that was opened.
#[derive(Debug)]
pub struct Opened {
    /// Its id.
    pub id: schema::SessionId,
    /// Its modes.
    pub modes: Option<schema::SessionModeState>,
    /// Its options.
    pub options: Vec<schema::SessionConfigOption>,
    /// Whether it has a history.
    pub is_old: bool,
}

/// The open session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: schema::SessionId,
    pub(super) title: Option<String>,
    pub(super) modes: Option<schema::SessionModeState>,
    pub(super) options: Vec<schema::SessionConfigOption>,
    pub(super) commands: Vec<schema::AvailableCommand>,
    pub(super) usage: Option<schema::UsageUpdate>,
    /// The number of the last update, if the agent numbers them.
    pub(super) last_seq: Option<u64>,
}

/// What was shown of the session, so that a history that is sent again after a lost connection is not shown again.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// How many bytes of the agent's messages were shown.
    shown_text: usize,
    shown_calls: HashSet<schema::ToolCallId>,
    /// How many bytes are still to be skipped; `None` if no history is being repeated.
    skip: Option<usize>,
}

impl Replay {
    /// Returns what of an update is new.
    fn filter(&mut self, update: SessionUpdate) -> Option<SessionUpdate> {
        match update {
            SessionUpdate::AgentMessageChunk(mut chunk) => {
                let text = block_text(&chunk.content);
                if let Some(skip) = &mut self.skip {
                    if *skip >= text.len() {
                        *skip -= text.len();
                        return None;
                    }
                    let rest = text.get(*skip..).unwrap_or_default().to_owned();
                    *skip = 0;
                    self.shown_text += rest.len();
                    chunk.content = rest.into();
                    return Some(SessionUpdate::AgentMessageChunk(chunk));
                }
                self.shown_text += text.len();
                Some(SessionUpdate::AgentMessageChunk(chunk))
            }
            SessionUpdate::ToolCall(call) => {
                let is_new = self.shown_calls.insert(call.tool_call_id.clone());
                (is_new || self.skip.is_none()).then_some(SessionUpdate::ToolCall(call))
            }
            SessionUpdate::ToolCallUpdate(update) if self.skip.is_some() => {
                // Of a call that was shown, the end is already known or was printed as open.
                (!self.shown_calls.contains(&update.tool_call_id))
                    .then_some(SessionUpdate::ToolCallUpdate(update))
            }
            SessionUpdate::UserMessageChunk(_)
            | SessionUpdate::AgentThoughtChunk(_)
            | SessionUpdate::Plan(_)
            | SessionUpdate::Notice(_)
                if self.skip.is_some() =>
            {
                None
            }
            other => Some(other),
        }
    }
}

/// Returns whether an update says something about its session instead of continuing the conversation.
fn is_about_the_session(update: &SessionUpdate) -> bool {
    matches!(
        update,
        SessionUpdate::AvailableCommandsUpdate(_)
            | SessionUpdate::CurrentModeUpdate(_)
            | SessionUpdate::ConfigOptionUpdate(_)
            | SessionUpdate::UsageUpdate(_)
            | SessionUpdate::SessionInfoUpdate(_)
    )
}

impl App {
    pub(super) fn connected(&mut self, agent: Agent) {
        let is_first = self.agent.is_none();
        if is_first {
            let name = format!("{} {}", one_line(&agent.name), one_line(&agent.version));
            let line = Line::of(name.trim().to_owned(), Style::BOLD)
                .then(Span::new(format!("  {}", self.cwd.display()), Style::DIM));
            let hint = match self.is_linear {
                true => "Type a prompt, or a command: /sessions, /model, /mode, /quit",
                false => "? shows keys, / commands, @ files",
            };
            self.conversation.notes(vec![line, Line::of(hint, Style::DIM)]);
        }
        self.agent = Some(agent);
    }

    pub(super) fn opened(&mut self, opened: Opened) {
        self.conversation.end_turn();
        let had_session = self.session.is_some();
        let is_same = self.session.as_ref().is_some_and(|session| session.id == opened.id);
        let old = self.session.take().filter(|_| is_same);
        let (title, commands, usage, last_seq) = match old {
            Some(old) => (old.title, old.commands, old.usage, old.last_seq),
            None => {
                if !opened.is_old {
                    self.replay = Replay::default();
                }
                let listed = self.titles.iter().find(|(id, _)| *id == opened.id);
                (listed.map(|(_, title)| title.clone()), Vec::new(), None, None)
            }
        };
        self.replay.skip = None;
        self.loading = None;
        let Opened { id, modes, options, .. } = opened;
        self.session = Some(Session { id, title, modes, options, commands, usage, last_seq });
        let was_lost = matches!(self.link, Link::Connecting(attempts) if attempts > 0);
        self.link = Link::Ready;
        self.say_what_is_open(was_lost, is_same, had_session);
        self.opening = None;
        for update in std::mem::take(&mut self.early) {
            self.update(update);
        }
        let is_numbered = last_seq.is_some() && self.agent.as_ref().is_some_and(|it| it.is_remote);
        if self.was_interrupted && is_same && is_numbered {
            // The turn went on without us, and what was missed has arrived.
            self.turn = Some(Turn { started: self.now, cancelled: None, heard: self.now });
            self.commands.push(Command::PromptAgain);
        } else if self.was_interrupted && is_same {
            self.offer_to_continue();
        } else {
            self.next_prompt();
        }
        self.was_interrupted = false;
    }

    fn say_what_is_open(&mut self, was_lost: bool, is_same: bool, had_session: bool) {
        match (was_lost, is_same) {
            (true, true) => self.say("Connected again. The session continues."),
            (true, false) if had_session => self
                .say("Connected again. The agent cannot restore sessions, so this is a new one."),
            (true, false) => self.say("Connected."),
            (false, _) if had_session => self.say(match self.opening {
                Some(OpenHow::Fork(_)) => "This is a copy of the session.",
                Some(OpenHow::Load(_)) => "The session continues.",
                Some(OpenHow::Resume(_)) => "The session continues; its history is not shown.",
                Some(OpenHow::New) | None => "This is a new session.",
            }),
            (false, _) => {}
        }
    }

    fn offer_to_continue(&mut self) {
        let choices =
            vec![Choice::new("Continue the turn", "", true), Choice::new("Leave it", "", false)];
        let picker = Picker::new("The connection was lost during a turn", choices, 0);
        self.dialog = Some(Dialog::Continue(picker.hint("Enter chooses, Esc leaves it")));
    }

    pub(super) fn continue_turn(&mut self) {
        let has_command = self.session.as_ref().is_some_and(|session| {
            session.commands.iter().any(|command| command.name == "continue")
        });
        let text = if has_command { "/continue" } else { "Continue where you were interrupted." };
        self.send_prompt(text.to_owned());
    }

    pub(super) fn not_opened(&mut self, failure: &Failure) {
        (self.loading, self.opening) = (None, None);
        self.replay.skip = None;
        if failure.code == Some(AUTH_REQUIRED) {
            self.link = Link::NoSession;
            self.say(&failure.text);
            self.show_login();
            return;
        }
        if self.session.is_some() && self.link == Link::Ready {
            self.fail(&failure.text);
            return;
        }
        self.fail(&failure.text);
        // The session that was to be continued cannot be; the conversation on the screen stays.
        self.session = None;
        self.link = Link::NoSession;
        self.say("No session is open. Press Enter for a new one, or choose one with /sessions.");
    }

    pub(super) fn show_login(&mut self) {
        let methods = self.agent.iter().flat_map(|agent| agent.auth_methods.clone());
        let choices: Vec<_> = methods
            .map(|method| {
                let (id, name, more) = match &method {
                    schema::AuthMethod::Terminal(method) => {
                        (&method.id, &method.name, &method.description)
                    }
                    schema::AuthMethod::Agent(method) => {
                        (&method.id, &method.name, &method.description)
                    }
                    _ => return Choice::new("Unknown method", "", schema::AuthMethodId::new("")),
                };
                Choice::new(name, more.as_deref().unwrap_or_default(), id.clone())
            })
            .collect();
        if choices.is_empty() {
            self.say("The agent offers no way to log in from here. Log in with its own program, then press Enter.");
            return;
        }
        self.dialog = Some(Dialog::Login(Picker::new("Log in", choices, 0)));
    }

    pub(super) fn log_in(&mut self, id: &schema::AuthMethodId) {
        let method = self.agent.iter().flat_map(|agent| agent.auth_methods.iter());
        let terminal = method.into_iter().find_map(|method| match method {
            schema::AuthMethod::Terminal(method) if method.id == *id => Some(method.clone()),
            _ => None,
        });
        self.commands.push(match terminal {
            Some(method) => Command::Login(method.args, method.env.into_iter().collect()),
            None => Command::Authenticate(id.clone()),
        });
    }

    pub(super) fn lost(&mut self, reason: &str, can_retry: bool) {
        let attempts = match self.link {
            Link::Connecting(attempts) => attempts,
            Link::Ready | Link::NoSession | Link::Down => 0,
        };
        self.conversation.end_turn();
        if self.turn.take().is_some() && self.listing.take().is_none() {
            self.was_interrupted = true;
        }
        self.waiting.clear();
        self.steered.clear();
        self.early.clear();
        if matches!(self.dialog, Some(Dialog::Permission(_) | Dialog::Form(_))) {
            self.dialog = None;
        }
        let reason = reason.trim();
        if self.trouble != reason || attempts == 0 {
            self.fail(reason);
        }
        reason.clone_into(&mut self.trouble);
        if attempts >= MAX_ATTEMPTS || !can_retry {
            self.link = Link::Down;
            let tried = if can_retry { "Could not reconnect. " } else { "" };
            self.fail(&format!("{tried}Press Enter to try again."));
            return;
        }
        let after = Duration::from_millis(500 << attempts);
        self.link = Link::Connecting(attempts + 1);
        self.say(&format!("Reconnecting, attempt {} of {MAX_ATTEMPTS}…", attempts + 1));
        self.connect(after);
    }

    /// Starts the agent and continues the session. A history that the agent repeats is not shown again.
    pub(super) fn connect(&mut self, after: Duration) {
        let continued = |session: &Session| Continued {
            id: session.id.clone(),
            is_shown: true,
            last_seq: session.last_seq,
        };
        let session = self.session.as_ref().map(continued).or_else(|| {
            let id = self.loading.clone()?;
            Some(Continued { id, is_shown: false, last_seq: None })
        });
        let is_numbered = session.as_ref().is_some_and(|session| session.last_seq.is_some());
        if self.session.is_some() && !is_numbered {
            self.replay.skip = Some(self.replay.shown_text);
        }
        self.loading = session.as_ref().map(|session| session.id.clone());
        self.commands.push(Command::Connect { after, session });
    }

    /// The user wants to go on after a failure.
    pub(super) fn try_again(&mut self) {
        match self.link {
            Link::Down => {
                self.link = Link::Connecting(1);
                self.connect(Duration::ZERO);
            }
            Link::NoSession => self.open(OpenHow::New),
            Link::Connecting(_) | Link::Ready => {}
        }
    }

    pub(super) fn open(&mut self, how: OpenHow) {
        if self.turn.is_some() {
            return self
                .say("A turn is running. Esc cancels it; then another session can be opened.");
        }
        self.opening = Some(how.clone());
        if let OpenHow::Load(id) | OpenHow::Resume(id) = &how {
            self.loading = Some(id.clone());
            self.replay = Replay::default();
            // All updates come again.
            if let Some(session) = self.session.as_mut().filter(|session| session.id == *id) {
                session.last_seq = None;
            }
        }
        self.commands.push(Command::Open(how));
    }

    pub(super) fn update(&mut self, notification: schema::SessionNotification) {
        let id = &notification.session_id;
        let is_current = self.session.as_ref().is_some_and(|session| session.id == *id);
        let is_loading = self.loading.as_ref() == Some(id);
        let is_awaited = self.session.is_none() || self.opening.is_some();
        let is_history = is_loading && !is_about_the_session(&notification.update);
        if !is_current && !is_history {
            // An agent may write about a session before the answer that opens it has been handled.
            if is_awaited && self.early.len() < MAX_EARLY {
                self.early.push(notification);
            }
            return;
        }
        if let Some(turn) = &mut self.turn {
            turn.heard = self.now;
        }
        if !self.is_new(&notification) {
            return;
        }
        let Some(update) = self.replay.filter(notification.update) else { return };
        if let SessionUpdate::AgentMessageChunk(chunk) = &update
            && self.take_listing(&block_text(&chunk.content))
        {
            return;
        }
        if let SessionUpdate::UserMessageChunk(chunk) = &update {
            let text = block_text(&chunk.content);
            let added = self.steered.iter_mut().find(|(added, _)| *added == text);
            if added.is_some_and(|(_, is_shown)| std::mem::replace(is_shown, true)) {
                return;
            }
        }
        let Some(session) = &mut self.session else { return self.conversation.update(update) };
        match update {
            SessionUpdate::AvailableCommandsUpdate(update) => {
                session.commands = update.available_commands
            }
            SessionUpdate::CurrentModeUpdate(update) => {
                if let Some(modes) = &mut session.modes {
                    modes.current_mode_id = update.current_mode_id;
                }
            }
            SessionUpdate::ConfigOptionUpdate(update) => session.options = update.config_options,
            SessionUpdate::UsageUpdate(update) => session.usage = Some(update),
            SessionUpdate::SessionInfoUpdate(update) => {
                if let Some(title) = update.title.value() {
                    let title = one_line(title);
                    self.commands.push(Command::Title(title.clone()));
                    session.title = Some(title);
                }
            }
            update => self.conversation.update(update),
        }
    }

    /// Returns whether an update is new; an agent that numbers its updates may repeat some.
    fn is_new(&mut self, notification: &schema::SessionNotification) -> bool {
        let seq = notification.meta.as_ref().and_then(|meta| meta.get("seq")?.as_u64());
        let (Some(seq), Some(session)) = (seq, &mut self.session) else { return true };
        if session.id != notification.session_id {
            return true;
        }
        if session.last_seq.is_some_and(|last| seq <= last) {
            return false;
        }
        session.last_seq = Some(seq);
        true
    }

    /// Sends a prompt, or keeps it until it can be sent.
    pub(super) fn send_prompt(&mut self, text: String) {
        if self.link != Link::Ready || self.turn.is_some() {
            if self.queued.len() < super::MAX_QUEUED {
                self.queued.push_back(text);
            } else {
                self.say("Too many prompts are waiting.");
                self.editor.set(&text);
            }
            return;
        }
        if !self.is_echoed {
            self.conversation.user(&text);
        }
        self.turn = Some(Turn { started: self.now, cancelled: None, heard: self.now });
        self.commands.push(Command::Prompt(text));
    }

    pub(super) fn next_prompt(&mut self) {
        if self.turn.is_none()
            && self.link == Link::Ready
            && let Some(text) = self.queued.pop_front()
        {
            self.send_prompt(text);
        }
    }

    pub(super) fn turn_ended(&mut self, ended: Result<schema::StopReason, Failure>) {
        let Some(turn) = self.turn.take() else { return };
        self.steered.clear();
        self.conversation.end_turn();
        match ended {
            Ok(schema::StopReason::EndTurn) => {}
            Ok(schema::StopReason::MaxTokens) => self.fail("Stopped: token limit reached."),
            Ok(schema::StopReason::MaxTurnRequests) => {
                self.fail("Stopped: request limit of a turn reached.");
            }
            Ok(schema::StopReason::Refusal) => self.fail("The agent refused."),
            Ok(schema::StopReason::Cancelled) => self.say("Cancelled."),
            Ok(_) => self.say("The turn has ended."),
            Err(failure) if failure.code == Some(AUTH_REQUIRED) => {
                self.fail(&failure.text);
                self.show_login();
            }
            Err(failure) => self.fail(&failure.text),
        }
        if self.now.saturating_sub(turn.started) > LONG_TURN {
            self.commands.push(Command::Bell("The turn has ended".to_owned()));
        }
        self.show_listing();
        if self.dialog.is_none() {
            self.next_prompt();
        }
    }

    /// Cancels the turn. Open questions are answered as the protocol wants it.
    pub(super) fn cancel(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        if turn.cancelled.is_some() {
            return;
        }
        turn.cancelled = Some(self.now);
        self.commands.push(Command::Cancel);
        let open = match self.dialog.take() {
            Some(Dialog::Permission(dialog)) => {
                Some(Command::Answer(dialog.id, schema::RequestPermissionOutcome::Cancelled))
            }
            Some(Dialog::Form(dialog)) => Some(Command::AnswerForm(
                dialog.id,
                schema::CreateElicitationResponse::new(schema::ElicitationAction::Cancel),
            )),
            other => {
                self.dialog = other;
                None
            }
        };
        self.commands.extend(open);
        let waiting: Vec<Waiting> = self.waiting.drain(..).collect();
        waiting.into_iter().for_each(|question| self.refuse(question));
    }

    /// Notes what is being added to the turn.
    pub(super) fn note_steering(&mut self, text: &str) {
        self.steered.truncate(super::MAX_QUEUED);
        self.steered.push_front((text.to_owned(), false));
    }

    pub(super) fn steered(&mut self, outcome: Result<bool, Failure>, text: String) {
        let at = self.steered.iter().position(|(added, _)| *added == text);
        match outcome {
            Ok(true) => {
                let is_shown = at.and_then(|at| self.steered.get_mut(at));
                if !is_shown.is_some_and(|(_, is_shown)| std::mem::replace(is_shown, true)) {
                    self.conversation.user(&text);
                }
            }
            Ok(false) => self.send_prompt(text),
            Err(failure) => {
                self.fail(&failure.text);
                self.send_prompt(text);
            }
        }
    }

    pub(super) fn changed(
        &mut self,
        outcome: Result<Option<Vec<schema::SessionConfigOption>>, Failure>,
    ) {
        match outcome {
            Ok(Some(options)) => {
                if let Some(session) = &mut self.session {
                    session.options = options;
                }
            }
            Ok(None) => {}
            Err(failure) => self.fail(&failure.text),
        }
    }
}
