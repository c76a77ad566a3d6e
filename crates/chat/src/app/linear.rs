//! The client on a terminal without a cursor, and for screen readers: lines are typed, lines are printed, nothing moves.
//!
//! A line is a prompt, or the answer to the question that was printed last. `plain` reads and writes them.

use super::{App, Command, Dialog};
use crate::form::FormAnswer;
use crate::keys::{Key, KeyCode};
use crate::permission::Permitted;
use crate::picker::NumberedList;
use crate::style::{Line, Style};

impl App {
    /// Takes a line that was typed.
    pub(super) fn line(&mut self, line: &str) {
        self.last_key = self.now;
        self.warned = None;
        // What is still open is printed again.
        self.is_announced = false;
        match self.dialog.take() {
            None => self.prompt_line(line),
            Some(Dialog::Permission(dialog)) => match dialog.line(line, self.now) {
                Permitted::Chosen(option, reason) => self.permit(dialog.id, option, reason),
                Permitted::Rejected => self.reject(&dialog),
                Permitted::TooEarly => {
                    self.dialog = Some(Dialog::Permission(dialog));
                    self.say("This line was typed before the question could be read. Please answer again.");
                }
                Permitted::Open | Permitted::Scrolled => {
                    let keys = dialog.keys();
                    self.dialog = Some(Dialog::Permission(dialog));
                    self.say(&format!("Not an answer. Type {keys}, or n and a reason."));
                }
            },
            Some(Dialog::Form(mut form)) => {
                match form.line(line) {
                    FormAnswer::Open => self.dialog = Some(Dialog::Form(form)),
                    FormAnswer::Done(response) => {
                        self.commands.push(Command::AnswerForm(form.id, response));
                    }
                }
                self.next_question();
            }
            Some(Dialog::Rename(session, mut form)) => match form.line(line) {
                FormAnswer::Open => self.dialog = Some(Dialog::Rename(session, form)),
                FormAnswer::Done(response) => self.renamed(session, &response),
            },
            Some(mut dialog) => match Choice::of(line) {
                Choice::Close => self.dialog_key(dialog, Key::plain(KeyCode::Esc)),
                Choice::Entry(number, key) if selects(&mut dialog, number) => {
                    self.dialog_key(dialog, key);
                }
                Choice::Entry(..) | Choice::Search => {
                    if let Some(list) = dialog.list() {
                        list.narrow(line);
                    }
                    self.dialog = Some(dialog);
                }
            },
        }
    }

    fn prompt_line(&mut self, line: &str) {
        // The terminal shows what was typed.
        self.is_echoed = true;
        let text = self.editor.full_text();
        self.editor.set(&format!("{text}{line}"));
        self.submit();
        self.is_echoed = false;
        // Without a connection, a prompt waits with the others; only a line that is continued stays.
        if !self.editor.text().is_empty() && !self.editor.text().ends_with('\n') {
            let text = self.editor.take();
            self.send_prompt(text);
        }
    }

    /// Prints the question that is open, once.
    pub(super) fn announce(&mut self) {
        if self.dialog.is_none() {
            self.is_announced = false;
        } else if !self.is_announced {
            self.is_announced = true;
            let lines = self.announcement();
            self.conversation.notes(lines);
        }
    }

    fn announcement(&mut self) -> Vec<Line> {
        let (columns, now) = (self.columns, self.now);
        match &mut self.dialog {
            None => Vec::new(),
            Some(Dialog::Permission(dialog)) => {
                dialog.set_shown(now);
                let mut lines = dialog.lines(columns, usize::MAX);
                // Keys are of no use here.
                lines.pop();
                let text = format!("Type {}, or n and a reason, then Enter.", dialog.keys());
                lines.push(Line::of(text, Style::DIM));
                lines
            }
            Some(Dialog::Form(form) | Dialog::Rename(_, form)) => form.plain_lines(columns),
            Some(dialog) => dialog.list().map(|list| list.numbered(columns)).unwrap_or_default(),
        }
    }
}

/// What a line means for a list.
enum Choice {
    Close,
    /// The entry with this number, and the key to press on it.
    Entry(usize, Key),
    Search,
}

impl Choice {
    fn of(line: &str) -> Choice {
        let line = line.trim();
        let (key, number) = match line.split_once(' ') {
            Some(("delete", number)) => (Key::ctrl('d'), number),
            Some(("fork", number)) => (Key::ctrl('f'), number),
            Some(("rename", number)) => (Key::ctrl('r'), number),
            _ => (Key::plain(KeyCode::Enter), line),
        };
        match number.trim().parse() {
            _ if line.is_empty() => Choice::Close,
            Ok(number) => Choice::Entry(number, key),
            Err(_) => Choice::Search,
        }
    }
}

fn selects(dialog: &mut Dialog, number: usize) -> bool {
    dialog.list().is_some_and(|list| list.select(number))
}

impl Dialog {
    /// Returns the list of a dialog that is one.
    fn list(&mut self) -> Option<&mut dyn NumberedList> {
        match self {
            Dialog::Permission(_) | Dialog::Form(_) | Dialog::Rename(..) => None,
            Dialog::Option(list) => Some(list),
            Dialog::Options(list) => Some(list),
            Dialog::Mode(list) => Some(list),
            Dialog::Sessions(list) => Some(list),
            Dialog::Login(list) => Some(list),
            Dialog::History(list) => Some(list),
            Dialog::Continue(list) => Some(list),
            Dialog::Delete(list) => Some(list),
            Dialog::Rewind(list) => Some(list),
        }
    }
}
