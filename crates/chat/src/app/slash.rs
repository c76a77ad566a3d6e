//! The client's own commands: selectors, sessions, help. Everything else goes to the agent.

use wire::acp::schema::{
    self, SessionConfigKind, SessionConfigOptionCategory, SessionConfigSelectOptions,
};

use super::link::Failure;
use super::{App, Command, Dialog, OpenHow};
use crate::clean::one_line;
use crate::picker::{Choice, Picker};
use crate::style::{Line, Span, Style};

/// The client's commands, each with what it does.
const COMMANDS: [(&str, &str); 11] = [
    ("sessions", "Open, fork or delete a session"),
    ("new", "Start a new session"),
    ("fork", "Continue in a copy of this session"),
    ("rename", "Give this session a title"),
    ("model", "Choose the model"),
    ("mode", "Choose the mode"),
    ("config", "Choose any option of the agent"),
    ("login", "Log in to the agent"),
    ("expand", "Show what was cut, the last first"),
    ("keys", "Show the keys"),
    ("quit", "End the client"),
];

impl App {
    /// Returns all commands: the agent's and the client's.
    pub(super) fn all_commands(&self) -> Vec<(String, String)> {
        let theirs =
            self.session.iter().flat_map(|session| session.commands.iter()).map(|command| {
                let hint = match &command.input {
                    Some(schema::AvailableCommandInput::Unstructured(input)) => {
                        format!(" <{}>", one_line(&input.hint))
                    }
                    _ => String::new(),
                };
                (one_line(&command.name), format!("{}{hint}", one_line(&command.description)))
            });
        let mut commands: Vec<(String, String)> = theirs.collect();
        for (name, more) in COMMANDS {
            if !commands.iter().any(|(known, _)| known == name) {
                commands.push((name.to_owned(), more.to_owned()));
            }
        }
        commands
    }

    pub(super) fn takes_argument(&self, name: &str) -> bool {
        let ours = COMMANDS.iter().any(|(command, _)| *command == name && name != "rename");
        let commands = self.session.iter().flat_map(|session| session.commands.iter());
        let has_input =
            commands.into_iter().any(|command| command.name == name && command.input.is_some());
        name == "rename" || has_input && !ours
    }

    pub(super) fn is_client_command(&self) -> bool {
        let text = self.editor.text().trim();
        text.strip_prefix('/')
            .is_some_and(|name| COMMANDS.iter().any(|(command, _)| *command == name))
    }

    /// Runs a command of the client; returns false for everything else.
    pub(super) fn run_slash(&mut self, text: &str) -> bool {
        let Some(line) = text.trim().strip_prefix('/') else { return false };
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (name, argument.trim()) {
            ("quit" | "exit", "") => self.commands.push(Command::Quit),
            ("keys", "") => self.show_keys(),
            ("expand", "") => self.unfold(),
            ("new" | "clear", "") => self.open(OpenHow::New),
            ("sessions" | "resume", "") => self.list_sessions(),
            ("fork", "") => self.fork(),
            ("rename", title) if !title.is_empty() => self.rename(title),
            ("login", "") => self.show_login(),
            ("model" | "mode" | "config", "") if self.session.is_none() => {
                self.say("No session is open.");
            }
            ("model", "") => return self.pick_category(&SessionConfigOptionCategory::Model),
            ("mode", "") => return self.pick_mode(),
            ("config", "") => self.pick_any_option(),
            ("rewind", "") => return self.ask_for_messages(),
            _ => return false,
        }
        true
    }

    pub(super) fn show_keys(&mut self) {
        let keys = self.key_map.list();
        let width = keys.iter().map(|(key, _)| key.len()).max().unwrap_or(0).min(self.columns / 2);
        let line = |key: &str, what: &str| {
            Line::of(format!("{key:width$}  "), Style::BOLD).then(Span::plain(what))
        };
        let mut lines: Vec<Line> = keys.iter().map(|(key, what)| line(key, what)).collect();
        lines.push(line("\\ enter", "new line, in every terminal"));
        self.conversation.notes(lines);
    }

    fn list_sessions(&mut self) {
        let can = self
            .agent
            .as_ref()
            .is_some_and(|agent| agent.capabilities.session_capabilities.list.is_some());
        if can {
            self.commands.push(Command::List);
        } else {
            self.say("The agent cannot list sessions.");
        }
    }

    pub(super) fn show_sessions(&mut self, outcome: Result<Vec<schema::SessionInfo>, Failure>) {
        let sessions = match outcome {
            Ok(sessions) => sessions,
            Err(failure) => return self.fail(&failure.text),
        };
        if sessions.is_empty() {
            return self.say("No sessions yet.");
        }
        let titled = |session: &schema::SessionInfo| {
            Some((session.session_id.clone(), one_line(session.title.as_deref()?)))
        };
        self.titles = sessions.iter().filter_map(titled).collect();
        let choice = |session: schema::SessionInfo| {
            let title = session.title.unwrap_or_else(|| "Untitled".to_owned());
            let when = session.updated_at.unwrap_or_default();
            let when = when.get(..16).unwrap_or(&when).replace('T', " ");
            Choice::new(&title, &when, session.session_id)
        };
        let picker = Picker::new("Sessions", sessions.into_iter().map(choice).collect(), 0);
        let hint = "Enter loads, Alt-Enter resumes without the history, Ctrl-F forks, Ctrl-R renames, Ctrl-D deletes, Esc closes, type to search";
        self.dialog = Some(Dialog::Sessions(picker.hint(hint)));
    }

    fn fork(&mut self) {
        match &self.session {
            Some(session) => {
                let id = session.id.clone();
                self.open(OpenHow::Fork(id));
            }
            None => self.say("No session is open."),
        }
    }

    fn rename(&mut self, title: &str) {
        if let Some(session) = &self.session {
            self.commands.push(Command::Rename(session.id.clone(), title.to_owned()));
        }
    }

    /// The title of a session was typed.
    pub(super) fn renamed(
        &mut self,
        session: schema::SessionId,
        response: &schema::CreateElicitationResponse,
    ) {
        let schema::ElicitationAction::Accept(accept) = &response.action else { return };
        let content = accept.content.as_ref();
        if let Some(schema::ElicitationContentValue::String(title)) =
            content.and_then(|content| content.get("text"))
        {
            self.commands.push(Command::Rename(session, title.clone()));
        }
    }

    /// Opens the list of an option's values.
    fn pick_category(&mut self, category: &SessionConfigOptionCategory) -> bool {
        let options = self.session.iter().flat_map(|session| session.options.iter());
        let option = options.into_iter().find(|option| option.category.as_ref() == Some(category));
        let Some(id) = option.map(|option| option.id.clone()) else { return false };
        self.pick_option(&id);
        true
    }

    pub(super) fn pick_option(&mut self, id: &schema::SessionConfigId) {
        let options = self.session.iter().flat_map(|session| session.options.iter());
        let Some(option) = options.into_iter().find(|option| option.id == *id) else { return };
        match &option.kind {
            SessionConfigKind::Select(select) => {
                let values = values_of(&select.options);
                let current = values.iter().position(|value| value.value == select.current_value);
                let choices = values
                    .iter()
                    .map(|value| {
                        let more = value.description.as_deref().unwrap_or_default();
                        Choice::new(&value.name, more, (id.clone(), value.value.clone()))
                    })
                    .collect();
                let picker = Picker::new(&option.name, choices, current.unwrap_or(0));
                self.dialog = Some(Dialog::Option(picker));
            }
            SessionConfigKind::Boolean(state) => {
                let value =
                    schema::SessionConfigOptionValue::Boolean { value: !state.current_value };
                self.commands.push(Command::SetOption(id.clone(), value));
            }
            _ => self.say("This option has a type that this client does not know."),
        }
    }

    fn pick_any_option(&mut self) {
        let options = self.session.iter().flat_map(|session| session.options.iter());
        let choices: Vec<_> = options
            .map(|option| Choice::new(&option.name, &current_of(option), option.id.clone()))
            .collect();
        if choices.is_empty() {
            return self.say("The agent has no options.");
        }
        self.dialog = Some(Dialog::Options(Picker::new("Options", choices, 0)));
    }

    fn pick_mode(&mut self) -> bool {
        if self.pick_category(&SessionConfigOptionCategory::Mode) {
            return true;
        }
        let Some(modes) = self.session.as_ref().and_then(|session| session.modes.as_ref()) else {
            return false;
        };
        let current =
            modes.available_modes.iter().position(|mode| mode.id == modes.current_mode_id);
        let choices = modes
            .available_modes
            .iter()
            .map(|mode| {
                Choice::new(
                    &mode.name,
                    mode.description.as_deref().unwrap_or_default(),
                    mode.id.clone(),
                )
            })
            .collect();
        self.dialog = Some(Dialog::Mode(Picker::new("Mode", choices, current.unwrap_or(0))));
        true
    }

    pub(super) fn set_mode(&mut self, mode: schema::SessionModeId) {
        if let Some(modes) = self.session.as_mut().and_then(|session| session.modes.as_mut()) {
            modes.current_mode_id = mode.clone();
        }
        self.commands.push(Command::SetMode(mode));
    }

    /// Shift-Tab: the next mode.
    pub(super) fn next_mode(&mut self) {
        let Some(session) = &self.session else { return };
        if let Some(modes) = &session.modes {
            let current =
                modes.available_modes.iter().position(|mode| mode.id == modes.current_mode_id);
            let next = current.map_or(0, |at| at + 1) % modes.available_modes.len().max(1);
            if let Some(mode) = modes.available_modes.get(next) {
                let id = mode.id.clone();
                self.set_mode(id);
            }
            return;
        }
        let is_mode = |option: &&schema::SessionConfigOption| {
            option.category == Some(SessionConfigOptionCategory::Mode)
        };
        let Some(option) = session.options.iter().find(is_mode) else { return };
        if let SessionConfigKind::Select(select) = &option.kind {
            let values = values_of(&select.options);
            let current = values.iter().position(|value| value.value == select.current_value);
            let next = current.map_or(0, |at| at + 1) % values.len().max(1);
            if let Some(value) = values.get(next) {
                let value =
                    schema::SessionConfigOptionValue::ValueId { value: value.value.clone() };
                self.commands.push(Command::SetOption(option.id.clone(), value));
            }
        }
    }
}

/// Returns the values of a selection, without its groups.
fn values_of(options: &SessionConfigSelectOptions) -> Vec<schema::SessionConfigSelectOption> {
    match options {
        SessionConfigSelectOptions::Ungrouped(values) => values.clone(),
        SessionConfigSelectOptions::Grouped(groups) => {
            groups.iter().flat_map(|group| group.options.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the name of an option's current value.
pub(super) fn current_of(option: &schema::SessionConfigOption) -> String {
    match &option.kind {
        SessionConfigKind::Select(select) => {
            let values = values_of(&select.options);
            let current = values.iter().find(|value| value.value == select.current_value);
            one_line(current.map_or(&select.current_value.0, |value| &value.name))
        }
        SessionConfigKind::Boolean(state) => {
            if state.current_value { "on" } else { "off" }.to_owned()
        }
        _ => String::new(),
    }
}
