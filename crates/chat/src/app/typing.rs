//! Keys: what they do in a dialog and in the input.

use wire::acp::schema;

use super::{App, Command, Dialog, Link, OpenHow};
use crate::complete::{OFFERED, Wanted, best, wanted};
use crate::form::{FormAnswer, FormDialog};
use crate::keys::{Key, KeyCode};
use crate::permission::Permitted;
use crate::picker::{Choice, Picked, Picker};

/// How long a second Ctrl-C or Esc may take, in milliseconds.
const SECOND_PRESS: u64 = 2000;

/// A cancelled turn that still runs after so many milliseconds belongs to an agent that hangs.
pub(super) const HANGS_AFTER: u64 = 10_000;

impl App {
    pub(super) fn paste(&mut self, text: &str) {
        self.last_key = self.now;
        match &mut self.dialog {
            Some(Dialog::Form(form) | Dialog::Rename(_, form)) => form.paste(text),
            Some(Dialog::History(picker)) => picker.paste(text),
            Some(Dialog::Sessions(picker)) => picker.paste(text),
            // Pasted text never answers a question.
            Some(_) | None => self.editor.paste(text),
        }
        self.completion = Some(0);
    }

    pub(super) fn key(&mut self, key: Key) {
        let last_key = std::mem::replace(&mut self.last_key, self.now);
        let key = match self.dialog {
            Some(_) => key,
            None => {
                let Some(key) = self.key_map.resolve(key) else { return };
                key
            }
        };
        if !self.is_interrupt(key) {
            self.warned = None;
        }
        if key == Key::ctrl('z') {
            return self.commands.push(Command::Suspend);
        }
        if key == Key::ctrl('l') {
            return self.commands.push(Command::Clear);
        }
        match self.dialog.take() {
            Some(Dialog::Permission(mut dialog)) => match dialog.key(key, self.now, last_key) {
                Permitted::Open => self.dialog = Some(Dialog::Permission(dialog)),
                Permitted::TooEarly => {
                    self.dialog = Some(Dialog::Permission(dialog));
                    self.input_key(key);
                }
                Permitted::Scrolled => {
                    self.dialog = Some(Dialog::Permission(dialog));
                    // Nobody scrolls by accident.
                    self.last_key = last_key;
                }
                Permitted::Chosen(option, reason) => self.permit(dialog.id, option, reason),
                Permitted::Rejected => self.reject(&dialog),
            },
            Some(dialog) => self.dialog_key(dialog, key),
            None => self.input_key(key),
        }
    }

    fn is_interrupt(&self, key: Key) -> bool {
        key == Key::ctrl('c') || key.code == KeyCode::Esc
    }

    pub(super) fn permit(
        &mut self,
        id: u64,
        option: schema::PermissionOptionId,
        reason: Option<String>,
    ) {
        let selected = schema::SelectedPermissionOutcome::new(option);
        let outcome = schema::RequestPermissionOutcome::Selected(selected);
        match reason {
            Some(reason) if self.can_steer(&reason) => {
                self.note_steering(&reason);
                self.commands.push(Command::AnswerWithReason(id, outcome, reason));
            }
            reason => {
                self.commands.push(Command::Answer(id, outcome));
                reason.into_iter().for_each(|reason| self.send_prompt(reason));
            }
        }
        self.next_question();
    }

    pub(super) fn reject(&mut self, dialog: &crate::permission::PermissionDialog) {
        let outcome = match dialog.no_option() {
            Some(option) => schema::RequestPermissionOutcome::Selected(
                schema::SelectedPermissionOutcome::new(option),
            ),
            None => schema::RequestPermissionOutcome::Cancelled,
        };
        self.commands.push(Command::Answer(dialog.id, outcome));
        self.next_question();
    }

    pub(super) fn dialog_key(&mut self, dialog: Dialog, key: Key) {
        match dialog {
            Dialog::Permission(_) => {}
            Dialog::Form(mut form) => match form.key(key) {
                FormAnswer::Open => self.dialog = Some(Dialog::Form(form)),
                FormAnswer::Done(response) => {
                    self.commands.push(Command::AnswerForm(form.id, response))
                }
            },
            Dialog::Option(mut picker) => match picker.key(key) {
                Picked::Chosen((option, value)) => {
                    let value = schema::SessionConfigOptionValue::ValueId { value };
                    self.commands.push(Command::SetOption(option, value));
                }
                Picked::Closed => {}
                _ => self.dialog = Some(Dialog::Option(picker)),
            },
            Dialog::Options(mut picker) => match picker.key(key) {
                Picked::Chosen(option) => self.pick_option(&option),
                Picked::Closed => {}
                _ => self.dialog = Some(Dialog::Options(picker)),
            },
            Dialog::Mode(mut picker) => match picker.key(key) {
                Picked::Chosen(mode) => self.set_mode(mode),
                Picked::Closed => {}
                _ => self.dialog = Some(Dialog::Mode(picker)),
            },
            Dialog::Sessions(picker) => self.sessions_key(picker, key),
            Dialog::Rename(session, mut form) => match form.key(key) {
                FormAnswer::Open => self.dialog = Some(Dialog::Rename(session, form)),
                FormAnswer::Done(response) => self.renamed(session, &response),
            },
            Dialog::Login(mut picker) => match picker.key(key) {
                Picked::Chosen(method) => self.log_in(&method),
                Picked::Closed => self.say("Not logged in. Press Enter to try again."),
                _ => self.dialog = Some(Dialog::Login(picker)),
            },
            Dialog::History(mut picker) => match picker.key(key) {
                Picked::Chosen(prompt) => self.editor.set(&prompt),
                Picked::Closed => {}
                _ => self.dialog = Some(Dialog::History(picker)),
            },
            Dialog::Continue(mut picker) => match picker.key(key) {
                Picked::Chosen(true) => self.continue_turn(),
                Picked::Chosen(false) | Picked::Closed => self.next_prompt(),
                _ => self.dialog = Some(Dialog::Continue(picker)),
            },
            Dialog::Delete(mut picker) => match picker.key(key) {
                Picked::Chosen(Some(session)) => self.commands.push(Command::Delete(session)),
                Picked::Chosen(None) | Picked::Closed => {}
                _ => self.dialog = Some(Dialog::Delete(picker)),
            },
            Dialog::Rewind(mut picker) => match picker.key(key) {
                Picked::Chosen(number) => self.rewind_to(number),
                Picked::Closed => self.next_prompt(),
                _ => self.dialog = Some(Dialog::Rewind(picker)),
            },
        }
        self.next_question();
    }

    fn sessions_key(&mut self, mut picker: Picker<schema::SessionId>, key: Key) {
        match picker.key(key) {
            Picked::Chosen(session) if key.alt => self.open(OpenHow::Resume(session)),
            Picked::Chosen(session) => self.open(OpenHow::Load(session)),
            Picked::Closed => {}
            Picked::Other(Key { code: KeyCode::Char('d'), ctrl: true, .. }, session) => {
                let choices = vec![
                    Choice::new("Keep it", "", None),
                    Choice::new("Delete it", "This cannot be undone", Some(session)),
                ];
                self.dialog = Some(Dialog::Delete(Picker::new("Delete the session?", choices, 0)));
            }
            Picked::Other(Key { code: KeyCode::Char('f'), ctrl: true, .. }, session) => {
                self.open(OpenHow::Fork(session));
            }
            Picked::Other(Key { code: KeyCode::Char('r'), ctrl: true, .. }, session) => {
                let titles = self.titles.iter();
                let title = titles.into_iter().find(|(id, _)| *id == session);
                let title = title.map(|(_, title)| title.clone()).unwrap_or_default();
                self.dialog = Some(Dialog::Rename(session, FormDialog::text("Title", &title)));
            }
            Picked::Open | Picked::Other(..) => self.dialog = Some(Dialog::Sessions(picker)),
        }
    }

    fn input_key(&mut self, key: Key) {
        if self.has_vi_keys && self.vi_key(key) {
            return;
        }
        let offered = !self.offers.is_empty();
        let (ctrl, alt) = (key.ctrl, key.alt);
        match key.code {
            KeyCode::Esc => self.escape(offered),
            KeyCode::Char('c') if ctrl => self.interrupt(),
            KeyCode::Char('d') if ctrl && self.editor.text().is_empty() => {
                self.commands.push(Command::Quit);
            }
            KeyCode::Enter if alt || key.shift || ctrl => self.editor.insert("\n"),
            KeyCode::Char('j') if ctrl => self.editor.insert("\n"),
            KeyCode::Enter if offered => self.accept(true),
            KeyCode::Enter => self.submit(),
            KeyCode::Tab if key.shift => self.next_mode(),
            KeyCode::Tab if offered => self.accept(false),
            KeyCode::Tab => self.queue(),
            KeyCode::Up if offered => self.move_offer(-1),
            KeyCode::Down if offered => self.move_offer(1),
            KeyCode::Up => self.up(),
            KeyCode::Down => self.down(),
            KeyCode::Char('p') if ctrl => self.up(),
            KeyCode::Char('n') if ctrl => self.down(),
            KeyCode::Char('o') if ctrl => self.unfold(),
            KeyCode::Char('g') if ctrl => {
                let text = self.editor.full_text();
                self.commands.push(Command::Edit(text));
            }
            KeyCode::Char('r') if ctrl => self.search_history(),
            KeyCode::Char('?') if self.editor.text().is_empty() && !ctrl && !alt => {
                self.show_keys()
            }
            _ => self.edit_key(key),
        }
        self.ask_for_files();
    }

    /// The keys that only edit, as in a shell.
    fn edit_key(&mut self, key: Key) {
        let (ctrl, alt) = (key.ctrl, key.alt);
        let is_word = ctrl || alt;
        let editor = &mut self.editor;
        match key.code {
            KeyCode::Char('a') if ctrl => editor.home(),
            KeyCode::Char('e') if ctrl => editor.end(),
            KeyCode::Char('b') if ctrl => editor.left(),
            KeyCode::Char('f') if ctrl => editor.right(),
            KeyCode::Char('b') if alt => editor.word_left(),
            KeyCode::Char('f') if alt => editor.word_right(),
            KeyCode::Char('d') if ctrl => editor.delete(),
            KeyCode::Char('h') if ctrl => editor.backspace(),
            KeyCode::Char('w') if ctrl => editor.kill_word(),
            KeyCode::Char('u') if ctrl => editor.kill_to_start(),
            KeyCode::Char('k') if ctrl => editor.kill_line(),
            KeyCode::Char('y') if ctrl => editor.yank(),
            KeyCode::Char('_' | '7') if ctrl => editor.undo(),
            KeyCode::Char('_') if alt => editor.redo(),
            KeyCode::Left if is_word => editor.word_left(),
            KeyCode::Right if is_word => editor.word_right(),
            KeyCode::Backspace if is_word => editor.kill_word(),
            KeyCode::Left => editor.left(),
            KeyCode::Right => editor.right(),
            KeyCode::Home => editor.home(),
            KeyCode::End => editor.end(),
            KeyCode::Backspace => editor.backspace(),
            KeyCode::Delete => editor.delete(),
            KeyCode::Char(char) if !ctrl && !alt => editor.insert(char.encode_utf8(&mut [0; 4])),
            _ => return,
        }
        self.completion = Some(0);
    }

    fn escape(&mut self, offered: bool) {
        if offered {
            self.completion = None;
        } else if self.turn.is_some() {
            self.cancel();
        } else if !self.editor.text().is_empty() && self.is_second_press() {
            self.history.add(&self.editor.full_text());
            self.editor.take();
            self.warned = None;
        } else {
            self.warned = Some(self.now);
        }
    }

    fn interrupt(&mut self) {
        if let Some(turn) = &self.turn {
            let hangs = |at: u64| self.now.saturating_sub(at) > HANGS_AFTER;
            match turn.cancelled {
                None => self.cancel(),
                Some(at) if hangs(at) => self.commands.push(Command::Kill),
                Some(_) if self.is_second_press() => self.commands.push(Command::Quit),
                Some(_) => {}
            }
        } else if !self.editor.text().is_empty() {
            // Cleared text can be had again with the arrow up.
            self.history.add(&self.editor.full_text());
            self.editor.take();
        } else if self.is_second_press() {
            self.commands.push(Command::Quit);
        } else if self.is_linear {
            self.say("Press Ctrl-C again to quit.");
        }
        self.warned = Some(self.now);
    }

    fn is_second_press(&self) -> bool {
        self.warned.is_some_and(|at| self.now.saturating_sub(at) < SECOND_PRESS)
    }

    pub(super) fn submit(&mut self) {
        if self.editor.text().ends_with('\\') && self.editor.cursor() == self.editor.text().len() {
            self.editor.backspace();
            return self.editor.insert("\n");
        }
        // The text stays until there is an agent that can take it. While one starts, it waits with the others.
        if matches!(self.link, Link::Down | Link::NoSession) && !self.is_client_command() {
            return self.try_again();
        }
        if self.editor.text().trim().is_empty() {
            return;
        }
        let text = self.editor.take();
        self.history.add(&text);
        self.commands.push(Command::SaveHistory(self.history.print()));
        self.is_vi_normal = false;
        if self.run_slash(&text) {
            return;
        }
        if self.turn.is_some() {
            return self.steer_or_queue(text);
        }
        self.send_prompt(text);
    }

    /// Adds a message to the turn if the agent can do that, otherwise after it.
    fn steer_or_queue(&mut self, text: String) {
        if self.can_steer(&text) {
            self.note_steering(&text);
            self.commands.push(Command::Steer(text));
        } else {
            self.send_prompt(text);
        }
    }

    /// Returns whether a message can be added to the turn.
    fn can_steer(&self, text: &str) -> bool {
        let is_running = self.turn.as_ref().is_some_and(|turn| turn.cancelled.is_none());
        is_running && !text.starts_with('/') && self.agent.as_ref().is_some_and(|it| it.can_steer)
    }

    /// Tab during a turn: the prompt waits for its end.
    fn queue(&mut self) {
        if self.turn.is_some() && !self.editor.text().trim().is_empty() {
            let text = self.editor.take();
            self.history.add(&text);
            self.send_prompt(text);
        }
    }

    pub(super) fn up(&mut self) {
        if self.editor.up(self.input_columns()) {
            return;
        }
        // A prompt that waits can be changed again.
        if self.editor.text().is_empty()
            && let Some(text) = self.queued.pop_back()
        {
            return self.editor.set(&text);
        }
        let current = self.editor.full_text();
        if let Some(prompt) = self.history.older(&current).map(str::to_owned) {
            self.editor.set(&prompt);
        }
    }

    pub(super) fn down(&mut self) {
        if !self.editor.down(self.input_columns())
            && let Some(prompt) = self.history.newer()
        {
            self.editor.set(&prompt);
        }
    }

    fn search_history(&mut self) {
        let choices: Vec<Choice<String>> = self
            .history
            .newest()
            .map(|prompt| Choice::new(prompt, "", prompt.to_owned()))
            .collect();
        self.dialog = Some(Dialog::History(Picker::new("Past prompts", choices, 0)));
    }

    pub(super) fn unfold(&mut self) {
        match self.conversation.unfold() {
            Some(lines) => self.conversation.notes(lines),
            None => self.say("Nothing is folded."),
        }
    }

    // Completion.

    /// Finds what is offered for the word at the cursor: text and explanation. Files are searched only if word or files have
    /// changed, because there may be very many.
    pub(super) fn find_offers(&mut self) {
        let word = self.completion.and_then(|_| wanted(self.editor.text(), self.editor.cursor()));
        match word {
            Some(Wanted::File(_, word)) => {
                let searched = Some((word, self.files.len()));
                if self.searched == searched {
                    return;
                }
                let word = searched.as_ref().map_or("", |(word, _)| word.as_str());
                let files = self.files.iter().map(|file| (file.as_str(), ()));
                let found = best(word, files, OFFERED).into_iter();
                self.offers = found.map(|(file, ())| (file.to_owned(), String::new())).collect();
                self.searched = searched;
            }
            Some(Wanted::Command(word)) => {
                self.searched = None;
                let commands = self.all_commands();
                // A command that is typed out needs no list.
                let is_typed = commands.iter().any(|(name, _)| *name == word);
                let names = commands.iter().map(|(name, more)| (name.as_str(), more));
                let found = if is_typed { Vec::new() } else { best(&word, names, OFFERED) };
                let found = found.into_iter();
                self.offers = found.map(|(name, more)| (name.to_owned(), more.clone())).collect();
            }
            None => {
                self.searched = None;
                self.offers.clear();
            }
        }
    }

    fn move_offer(&mut self, step: isize) {
        let count = self.offers.len().max(1);
        let at = self.completion.unwrap_or(0);
        self.completion = Some(at.checked_add_signed(step).unwrap_or(count - 1) % count);
    }

    /// Completes the word. A command without an argument is run at once with Enter.
    fn accept(&mut self, with_enter: bool) {
        let at = self.completion.unwrap_or(0).min(self.offers.len().saturating_sub(1));
        let chosen = self.offers.get(at).map(|(chosen, _)| chosen.clone());
        let (Some(chosen), Some(wanted)) =
            (chosen, wanted(self.editor.text(), self.editor.cursor()))
        else {
            return;
        };
        let rest = self.editor.text()[self.editor.cursor()..].to_owned();
        match wanted {
            Wanted::File(start, _) => {
                let before = format!("{}@{chosen} ", &self.editor.text()[..start]);
                self.editor.set(&format!("{before}{rest}"));
            }
            Wanted::Command(_) => {
                self.editor.set(&format!("/{chosen} {rest}"));
                if with_enter && !self.takes_argument(&chosen) {
                    self.submit();
                }
            }
        }
        self.completion = Some(0);
    }

    fn ask_for_files(&mut self) {
        let is_wanted =
            matches!(wanted(self.editor.text(), self.editor.cursor()), Some(Wanted::File(..)));
        if is_wanted && !self.has_asked_for_files {
            self.has_asked_for_files = true;
            self.commands.push(Command::FindFiles);
        }
        if !is_wanted {
            // The next `@` looks again: files may have come.
            self.has_asked_for_files = false;
        }
    }
}
