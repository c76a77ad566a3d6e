//! The turns of a session: where each starts in the history, and which were undone.

use std::sync::Arc;

use engine::words::History;
use engine::words::{Change, PastTurn, Turns};
use engine::words::{Message, MessageId};

use crate::record::Name;

/// The turns of a session that is being restored.
#[derive(Debug, Default)]
pub(super) struct TurnLog {
    done: Vec<Entry>,
    /// The oldest first.
    undone: Vec<Entry>,
    /// How many turns are no longer in the history.
    forgotten: usize,
}

#[derive(Debug)]
struct Entry {
    turn: PastTurn,
    /// How many entries the history had when the turn started.
    start: usize,
    /// The entries that the turn added to the history, while it is undone.
    messages: Vec<Arc<Message>>,
}

impl TurnLog {
    /// Starts a turn. Undone turns can no longer be redone.
    pub(super) fn begin(&mut self, message: MessageId, title: String, start: usize) {
        self.undone.clear();
        let number = self.forgotten + self.done.len() + 1;
        let (changes, commands) = (Vec::new(), Vec::new());
        let turn = PastTurn { number, message, title, changes, commands };
        self.done.push(Entry { turn, start, messages: Vec::new() });
    }

    /// Records that the turn changed a file.
    pub(super) fn changed(&mut self, change: Change) {
        if let Some(last) = self.done.last_mut() {
            last.turn.changes.push(change);
        }
    }

    /// Records that the turn ran a command that may have changed files.
    pub(super) fn ran(&mut self, command: String) {
        if let Some(last) = self.done.last_mut() {
            last.turn.commands.push(command);
        }
    }

    /// Undoes the turn of a message and all later turns. An unknown message changes nothing.
    pub(super) fn undo(&mut self, first: &Name, history: &mut History) {
        let Some(first) = position(&self.done, first) else { return };
        let mut undone = self.done.split_off(first);
        for entry in undone.iter_mut().rev() {
            entry.messages = history.split_off(entry.start);
        }
        self.undone.splice(..0, undone);
    }

    /// Redoes all turns up to the turn of a message. An unknown message changes nothing.
    pub(super) fn redo(&mut self, last: &Name, history: &mut History) {
        let Some(last) = position(&self.undone, last) else { return };
        for mut entry in self.undone.drain(..=last) {
            entry.start = history.len();
            history.begin_turn(&entry.turn.message);
            history.extend(std::mem::take(&mut entry.messages));
            self.done.push(entry);
        }
    }

    /// Removes turns that started in the first `entries` entries of the history, which were dropped.
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
