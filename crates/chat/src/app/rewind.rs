//! `/rewind` with a list to choose from.
//!
//! The agent's command `/rewind` lists the messages as text: `- NUMBER: TITLE`. The client asks for this list, does not show it as
//! an answer, and sends `/rewind NUMBER` for the entry that was chosen. What is no such list is shown.

use super::{App, Command, Dialog, Link, Turn};
use crate::picker::{Choice, Picker};

/// A longer list is shown as text.
const MAX_LIST: usize = 64 * 1024;

impl App {
    /// Asks for the list. Returns false if the agent has no such command, or cannot answer now.
    pub(super) fn ask_for_messages(&mut self) -> bool {
        let mut commands = self.session.iter().flat_map(|session| session.commands.iter());
        let is_possible = self.link == Link::Ready && self.turn.is_none();
        if !is_possible || !commands.any(|command| command.name == "rewind") {
            return false;
        }
        self.listing = Some(String::new());
        self.turn = Some(Turn { started: self.now, cancelled: None, heard: self.now });
        self.commands.push(Command::Prompt("/rewind".to_owned()));
        true
    }

    /// Takes a part of the list; returns false if none was asked for.
    pub(super) fn take_listing(&mut self, text: &str) -> bool {
        match &mut self.listing {
            Some(listing) if listing.len() + text.len() <= MAX_LIST => {
                listing.push_str(text);
                true
            }
            _ => false,
        }
    }

    /// The turn has ended: offers the list, the last message first.
    pub(super) fn show_listing(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let mut choices: Vec<Choice<usize>> = listing.lines().filter_map(choice).collect();
        choices.reverse();
        if choices.is_empty() {
            return self.say(&crate::clean::clean(listing.trim()));
        }
        let picker = Picker::new("Undo this message and everything after it", choices, 0);
        let hint = "Enter undoes, with the changes of files; Esc closes; type to search";
        self.dialog = Some(Dialog::Rewind(picker.hint(hint)));
    }

    pub(super) fn rewind_to(&mut self, number: usize) {
        self.send_prompt(format!("/rewind {number}"));
    }
}

fn choice(line: &str) -> Option<Choice<usize>> {
    let (number, title) = line.trim().strip_prefix("- ")?.split_once(": ")?;
    let number: usize = number.parse().ok()?;
    Some(Choice::new(title, &format!("message {number}"), number))
}
