//! The ledger of turns: which there are, where each began in the history, and which were taken back.

use std::sync::Arc;

use engine::context::History;
use engine::undo::{Change, Turn, Turns};
use engine::words::{Message, MessageId};

use crate::record::Name;

/// The turns on the way back.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    done: Vec<Entry>,
    /// The oldest first.
    undone: Vec<Entry>,
    /// How many turns the history no longer reaches back to.
    forgotten: usize,
}

#[derive(Debug)]
struct Entry {
    turn: Turn,
    /// How many entries the history had when the turn began.
    start: usize,
    /// What the turn added to the history, while it is taken back.
    messages: Vec<Arc<Message>>,
}

impl Ledger {
    /// A turn begins: what was taken back cannot come back any more.
    pub(super) fn begin(&mut self, message: MessageId, title: String, start: usize) {
        self.undone.clear();
        let number = self.forgotten + self.done.len() + 1;
        let (changes, commands) = (Vec::new(), Vec::new());
        let turn = Turn { number, message, title, changes, commands };
        self.done.push(Entry { turn, start, messages: Vec::new() });
    }

    /// The turn changed a file.
    pub(super) fn changed(&mut self, change: Change) {
        if let Some(last) = self.done.last_mut() {
            last.turn.changes.push(change);
        }
    }

    /// The turn ran something that may have changed files.
    pub(super) fn ran(&mut self, command: String) {
        if let Some(last) = self.done.last_mut() {
            last.turn.commands.push(command);
        }
    }

    /// Takes back the turn of a message and all behind it. A message that is not there changes nothing.
    pub(super) fn take_back(&mut self, first: &Name, history: &mut History) {
        let Some(first) = position(&self.done, first) else { return };
        let mut taken = self.done.split_off(first);
        for entry in taken.iter_mut().rev() {
            entry.messages = history.split_off(entry.start);
        }
        self.undone.splice(..0, taken);
    }

    /// Brings back all turns up to that of a message. A message that is not there changes nothing.
    pub(super) fn bring_back(&mut self, last: &Name, history: &mut History) {
        let Some(last) = position(&self.undone, last) else { return };
        for mut entry in self.undone.drain(..=last) {
            entry.start = history.len();
            history.begin_turn(&entry.turn.message);
            history.extend(std::mem::take(&mut entry.messages));
            self.done.push(entry);
        }
    }

    /// The history lost its first entries: turns that began there cannot be taken back any more.
    pub(super) fn forget(&mut self, entries: usize) {
        if entries == 0 {
            return;
        }
        let lost = self.done.iter().take_while(|entry| entry.start < entries).count();
        self.done.drain(..lost);
        self.forgotten += lost;
        for entry in &mut self.done {
            entry.start -= entries;
        }
    }

    pub(super) fn finish(self) -> Turns {
        let turns = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.turn).collect();
        Turns { done: turns(self.done), undone: turns(self.undone) }
    }
}

fn position(entries: &[Entry], message: &Name) -> Option<usize> {
    entries.iter().position(|entry| entry.turn.message.as_str() == &*message.0)
}
