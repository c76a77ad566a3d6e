//! The client's state: events come in, commands and lines go out. Pure: no IO, no clock, no tasks.
//!
//! `app::typing` handles keys, `app::link` the connection and the session, `app::slash` the client's own commands, `app::view`
//! draws the live area. `talk` carries out the commands and `run` moves events and frames.

mod linear;
mod link;
mod rewind;
mod slash;
mod typing;
mod vi;
mod view;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use wire::acp::schema;

use crate::conversation::Conversation;
use crate::editor::Editor;
use crate::form::FormDialog;
use crate::history::History;
use crate::image::ImageProtocol;
use crate::keymap::KeyMap;
use crate::keys::Input;
use crate::permission::PermissionDialog;
use crate::picker::Picker;
use crate::style::{Line, Style, Theme};

pub use link::{Agent, Failure, Opened};

/// How many questions wait for an answer; more are answered with no.
const MAX_QUESTIONS: usize = 64;

/// How many prompts wait for the end of the turn.
const MAX_QUEUED: usize = 32;

/// What the client starts with.
#[derive(Debug)]
pub struct AppOptions {
    /// The terminal's columns.
    pub columns: usize,
    /// The terminal's rows.
    pub rows: usize,
    /// The project.
    pub cwd: PathBuf,
    /// The branch that is checked out.
    pub branch: Option<String>,
    /// Past prompts, as the file has them.
    pub history: String,
    /// The session to load, if not a new one.
    pub session: Option<String>,
    /// Whether lines are typed and printed, and nothing moves: for screen readers, and for terminals without a cursor.
    pub is_linear: bool,
    /// Whether the input has the keys of vi.
    pub has_vi_keys: bool,
    /// How images are shown, as far as the environment says.
    pub images: ImageProtocol,
    /// Which key does what.
    pub key_map: KeyMap,
    /// What to say at the start, such as mistakes in the configuration.
    pub notices: Vec<String>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The terminal sent something.
    Input(Input),
    /// A line was typed on a terminal without a cursor.
    Line(String),
    /// The terminal has so many columns and rows.
    Resize(usize, usize),
    /// Time has passed.
    Tick,
    /// The agent answered `initialize`.
    Connected(Box<Agent>),
    /// The session is open.
    Opened(Box<Opened>),
    /// The session could not be opened.
    NotOpened(Failure),
    /// The agent has ended, does not answer, or could not be started.
    Lost {
        /// What happened.
        reason: String,
        /// Whether another attempt may succeed.
        can_retry: bool,
    },
    /// The agent has not answered `initialize` for five seconds.
    Slow,
    /// An update of a session.
    Update(Box<schema::SessionNotification>),
    /// A command in one of our terminals has written this.
    Written(schema::TerminalId, String),
    /// The agent asks for permission.
    Asked(u64, Box<schema::RequestPermissionRequest>),
    /// The agent asks the user something else.
    Elicited(u64, Box<schema::CreateElicitationRequest>),
    /// The agent no longer wants the answer.
    Withdrawn(u64),
    /// The turn has ended.
    TurnEnded(Result<schema::StopReason, Failure>),
    /// A message was added to the turn (`Ok(true)`), or the turn had ended already.
    Steered(Result<bool, Failure>, String),
    /// A mode or an option was set; the complete list of options, if the agent sends it.
    Changed(Result<Option<Vec<schema::SessionConfigOption>>, Failure>),
    /// The sessions of this project.
    Sessions(Result<Vec<schema::SessionInfo>, Failure>),
    /// Something was done that has no result; `Ok` has what to say about it.
    Done(Result<String, Failure>),
    /// The files of the project.
    Files(Vec<String>),
    /// The user's editor has ended with this text.
    Edited(String),
    /// The driver has something to say.
    Notice(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Start the agent after this time, initialize it, and open this session or a new one.
    Connect {
        /// How long to wait before.
        after: Duration,
        /// The session to continue.
        session: Option<Continued>,
    },
    /// Kill the agent; a `Lost` follows.
    Kill,
    /// Send a prompt.
    Prompt(String),
    /// Send the last prompt again, to join its turn.
    PromptAgain,
    /// Add a message to the turn.
    Steer(String),
    /// Cancel the turn.
    Cancel,
    /// Answer a question about permission.
    Answer(u64, schema::RequestPermissionOutcome),
    /// The same, and add this message to the turn, so that the model has it before it continues.
    AnswerWithReason(u64, schema::RequestPermissionOutcome, String),
    /// Answer another question.
    AnswerForm(u64, schema::CreateElicitationResponse),
    /// Change the mode.
    SetMode(schema::SessionModeId),
    /// Change an option.
    SetOption(schema::SessionConfigId, schema::SessionConfigOptionValue),
    /// List the sessions.
    List,
    /// Open another session.
    Open(OpenHow),
    /// Give a session a title.
    Rename(schema::SessionId, String),
    /// Delete a session.
    Delete(schema::SessionId),
    /// Log in with a method of the agent.
    Authenticate(schema::AuthMethodId),
    /// Log in by running the agent with these arguments and variables on the terminal.
    Login(Vec<String>, Vec<(String, String)>),
    /// List the project's files.
    FindFiles,
    /// Store the past prompts.
    SaveHistory(String),
    /// Edit this text in the user's editor.
    Edit(String),
    /// Suspend the program.
    Suspend,
    /// Clear the screen.
    Clear,
    /// Get the user's attention.
    Bell(String),
    /// Set the window's title.
    Title(String),
    /// End the program.
    Quit,
}

/// The session that a new connection continues.
#[derive(Debug, Clone, PartialEq)]
pub struct Continued {
    /// Its id.
    pub id: schema::SessionId,
    /// Whether its history is on the screen.
    pub is_shown: bool,
    /// The number of the last update that was shown, if the agent numbers them.
    pub last_seq: Option<u64>,
}

/// How a session is opened.
#[derive(Debug, Clone, PartialEq)]
pub enum OpenHow {
    /// A new one.
    New,
    /// With its history.
    Load(schema::SessionId),
    /// Without its history.
    Resume(schema::SessionId),
    /// As a copy.
    Fork(schema::SessionId),
}

/// What the connection is like.
#[derive(Debug, PartialEq)]
enum Link {
    /// The agent starts, or a lost connection is restored; how many attempts were made.
    Connecting(u32),
    Ready,
    /// No further attempt is made until the user wants one.
    Down,
    /// The agent runs but has no session.
    NoSession,
}

/// What is open in front of the input.
#[derive(Debug)]
enum Dialog {
    Permission(PermissionDialog),
    Form(FormDialog),
    Option(Picker<(schema::SessionConfigId, schema::SessionConfigValueId)>),
    Options(Picker<schema::SessionConfigId>),
    Mode(Picker<schema::SessionModeId>),
    Sessions(Picker<schema::SessionId>),
    /// A new title for a session.
    Rename(schema::SessionId, FormDialog),
    Login(Picker<schema::AuthMethodId>),
    History(Picker<String>),
    /// Continue the turn that was interrupted?
    Continue(Picker<bool>),
    /// Delete this session?
    Delete(Picker<Option<schema::SessionId>>),
    /// Undo this message and everything after it.
    Rewind(Picker<usize>),
}

/// A question that waits until the one before it is answered.
#[derive(Debug)]
enum Waiting {
    Permission(u64, Box<schema::RequestPermissionRequest>),
    Form(u64, Box<schema::CreateElicitationRequest>),
}

#[derive(Debug)]
struct Turn {
    started: u64,
    /// When it was cancelled.
    cancelled: Option<u64>,
    /// When the agent last sent something.
    heard: u64,
}

/// The client's state.
#[derive(Debug)]
pub struct App {
    columns: usize,
    rows: usize,
    theme: Theme,
    cwd: PathBuf,
    branch: Option<String>,
    is_linear: bool,
    /// The open dialog was printed.
    is_announced: bool,
    /// The terminal shows what is being sent.
    is_echoed: bool,
    has_vi_keys: bool,
    key_map: KeyMap,
    /// The input takes commands of vi instead of text.
    is_vi_normal: bool,
    /// The operator of vi that waits for a motion.
    vi_operator: Option<char>,
    now: u64,
    last_key: u64,
    /// When Ctrl-C or Esc was pressed that needs a second one.
    warned: Option<u64>,
    conversation: Conversation,
    editor: Editor,
    history: History,
    dialog: Option<Dialog>,
    waiting: VecDeque<Waiting>,
    /// What is being added to the turn, and whether it is on the screen: the agent may repeat it.
    steered: VecDeque<(String, bool)>,
    link: Link,
    /// Why the connection was lost.
    trouble: String,
    agent: Option<Agent>,
    session: Option<link::Session>,
    /// The titles of the sessions that were listed.
    titles: Vec<(schema::SessionId, String)>,
    /// The session whose history is arriving.
    loading: Option<schema::SessionId>,
    replay: link::Replay,
    /// Updates of sessions that are not open yet.
    early: Vec<schema::SessionNotification>,
    /// How a session is being opened.
    opening: Option<OpenHow>,
    turn: Option<Turn>,
    was_interrupted: bool,
    /// The list of messages that is arriving for `/rewind`.
    listing: Option<String>,
    queued: VecDeque<String>,
    files: Vec<String>,
    has_asked_for_files: bool,
    /// What completes the word at the cursor, with explanations.
    offers: Vec<(String, String)>,
    /// The word that files were searched for, and among how many.
    searched: Option<(String, usize)>,
    /// The selected entry of the completion; `None` while it is closed by Esc.
    completion: Option<usize>,
    commands: Vec<Command>,
}

impl App {
    /// Starts the client: the first command connects.
    #[must_use]
    pub fn new(options: AppOptions) -> App {
        let mut app = App {
            columns: options.columns,
            rows: options.rows,
            theme: Theme::Dark,
            cwd: options.cwd,
            branch: options.branch,
            is_linear: options.is_linear,
            is_announced: false,
            is_echoed: false,
            has_vi_keys: options.has_vi_keys,
            key_map: options.key_map,
            is_vi_normal: false,
            vi_operator: None,
            now: 0,
            last_key: 0,
            warned: None,
            conversation: Conversation::new(options.columns, Theme::Dark),
            editor: Editor::default(),
            history: History::parse(&options.history),
            dialog: None,
            waiting: VecDeque::new(),
            steered: VecDeque::new(),
            link: Link::Connecting(0),
            trouble: String::new(),
            agent: None,
            session: None,
            titles: Vec::new(),
            loading: None,
            replay: link::Replay::default(),
            early: Vec::new(),
            opening: None,
            turn: None,
            was_interrupted: false,
            listing: None,
            queued: VecDeque::new(),
            files: Vec::new(),
            has_asked_for_files: false,
            offers: Vec::new(),
            searched: None,
            completion: Some(0),
            commands: Vec::new(),
        };
        app.conversation.set_images(options.images);
        app.conversation.set_linear(options.is_linear);
        options.notices.iter().for_each(|notice| app.say(notice));
        app.loading = options.session.map(schema::SessionId::new);
        app.connect(Duration::ZERO);
        app
    }

    /// Returns the commands since the last call.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Returns the finished lines since the last call.
    pub fn take_lines(&mut self) -> Vec<Line> {
        self.conversation.take_lines()
    }

    /// Returns whether a question or a list is open.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.dialog.is_some()
    }

    /// Returns whether the next line is a prompt that is sent at once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.dialog.is_none() && self.turn.is_none() && self.link != Link::Connecting(0)
    }

    /// Returns whether something moves, so that frames are needed without events.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        // While a question waits, nothing moves that somebody would want to see.
        let is_still = self.is_linear || self.dialog.is_some();
        !is_still && (self.turn.is_some() || matches!(self.link, Link::Connecting(_)))
    }

    /// Returns the past prompts with the text that was not sent, if there is such text: it is never lost.
    #[must_use]
    pub fn history_with_draft(&mut self) -> Option<String> {
        let drafts: Vec<String> = self.queued.drain(..).chain([self.editor.full_text()]).collect();
        let mut is_changed = false;
        for draft in drafts.iter().filter(|draft| !draft.trim().is_empty()) {
            self.history.add(draft);
            is_changed = true;
        }
        is_changed.then(|| self.history.print())
    }

    /// Handles an event. `now` is in milliseconds since the client started.
    pub fn handle(&mut self, event: Event, now: u64) {
        self.now = now;
        self.conversation.set_now(now);
        match event {
            Event::Input(Input::Key(key)) => self.key(key),
            Event::Line(line) => self.line(&line),
            Event::Input(Input::Paste(text)) => self.paste(&text),
            Event::Input(Input::Background(red, green, blue)) => {
                let light = u32::from(red) * 2 + u32::from(green) * 5 + u32::from(blue) > 8 * 128;
                self.theme = if light { Theme::Light } else { Theme::Dark };
                self.conversation.set_theme(self.theme);
            }
            Event::Input(Input::Sixel) => self.conversation.set_images(ImageProtocol::Sixel),
            // The driver asked for it.
            Event::Input(Input::Position(..)) => {}
            Event::Resize(columns, rows) => {
                (self.columns, self.rows) = (columns, rows);
                self.conversation.set_columns(columns);
            }
            Event::Tick => {}
            Event::Connected(agent) => self.connected(*agent),
            Event::Opened(opened) => self.opened(*opened),
            Event::NotOpened(failure) => self.not_opened(&failure),
            Event::Lost { reason, can_retry } => self.lost(&reason, can_retry),
            Event::Slow => self.say("The agent has not answered `initialize` within 5 s. Still waiting; Ctrl-C twice quits."),
            Event::Update(update) => self.update(*update),
            Event::Written(terminal, text) => self.conversation.terminal_output(terminal, &text),
            Event::Asked(id, request) => self.question(Waiting::Permission(id, request)),
            Event::Elicited(id, request) => self.question(Waiting::Form(id, request)),
            Event::Withdrawn(id) => self.withdraw(id),
            Event::TurnEnded(ended) => self.turn_ended(ended),
            Event::Steered(outcome, text) => self.steered(outcome, text),
            Event::Changed(outcome) => self.changed(outcome),
            Event::Sessions(outcome) => self.show_sessions(outcome),
            Event::Done(Ok(text)) if text.is_empty() => {}
            Event::Done(Ok(text)) => self.say(&text),
            Event::Done(Err(failure)) => self.fail(&failure.text),
            Event::Files(files) => self.files = files,
            Event::Edited(text) => self.editor.set(text.trim_end_matches('\n')),
            Event::Notice(text) => self.say(&text),
        }
        match self.is_linear {
            true => self.announce(),
            false => self.find_offers(),
        }
    }

    /// Says something that is not part of the session.
    fn say(&mut self, text: &str) {
        let lines = text.lines().map(|line| Line::of(line, Style::DIM)).collect();
        self.conversation.notes(lines);
    }

    fn fail(&mut self, text: &str) {
        let clean = crate::clean::clean(text);
        let lines = clean.lines().enumerate().map(|(index, line)| {
            Line::of(
                if index == 0 { format!("✗ {line}") } else { format!("  {line}") },
                Style::ansi(1),
            )
        });
        self.conversation.notes(lines.collect());
    }

    fn question(&mut self, question: Waiting) {
        if self.waiting.len() >= MAX_QUESTIONS {
            self.refuse(question);
            return;
        }
        self.waiting.push_back(question);
        self.next_question();
    }

    /// Answers a question with no, without a person.
    fn refuse(&mut self, question: Waiting) {
        self.commands.push(match question {
            Waiting::Permission(id, _) => {
                Command::Answer(id, schema::RequestPermissionOutcome::Cancelled)
            }
            Waiting::Form(id, _) => Command::AnswerForm(
                id,
                schema::CreateElicitationResponse::new(schema::ElicitationAction::Cancel),
            ),
        });
    }

    /// Shows the next question if none is open. A list that the user opened stays.
    fn next_question(&mut self) {
        if self.dialog.is_some() {
            return;
        }
        let Some(question) = self.waiting.pop_front() else { return };
        let (dialog, title) = match question {
            Waiting::Permission(id, request) => {
                let view = self.conversation.call_with(request.tool_call);
                let title = view.call.title.clone();
                let dialog = PermissionDialog::new(id, &view, &request.options, self.theme);
                (Dialog::Permission(dialog), title)
            }
            Waiting::Form(id, request) => {
                let title = request.message.clone();
                match FormDialog::new(id, *request) {
                    Ok(form) => (Dialog::Form(form), title),
                    Err(response) => {
                        self.commands.push(Command::AnswerForm(id, response));
                        return self.next_question();
                    }
                }
            }
        };
        self.commands.push(Command::Bell(format!("Question: {}", crate::clean::one_line(&title))));
        self.dialog = Some(dialog);
        self.is_announced = false;
    }

    fn withdraw(&mut self, id: u64) {
        let is_it = |waiting: &Waiting| match waiting {
            Waiting::Permission(other, _) | Waiting::Form(other, _) => *other == id,
        };
        self.waiting.retain(|waiting| !is_it(waiting));
        let is_shown = match &self.dialog {
            Some(Dialog::Permission(dialog)) => dialog.id == id,
            Some(Dialog::Form(dialog)) => dialog.id == id,
            _ => false,
        };
        if is_shown {
            self.dialog = None;
            self.say("The agent withdrew the question.");
        }
        self.next_question();
    }
}

#[cfg(test)]
mod tests;
