//! A batch: the appends of one session that collect while the previous write is in progress, written in one transaction.

use engine::ports::{JournalError, Place, State};

use super::{Append, Owned, encode, reject};
use crate::record::{Encoded, Record};

/// Consecutive text chunks in a batch are merged into one record, up to about this many bytes.
const MAX_MERGED: usize = 16 * 1024;
/// Roughly how many bytes a record has in addition to its text.
const RECORD_OVERHEAD: u64 = 64;

/// Appends that are written together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) appends: Vec<Append>,
    /// The record of each append, by its index; `None` for an event that is only shown.
    indices: Vec<Option<usize>>,
    pub(super) records: Vec<Encoded>,
    /// A text record after `records`, to which the next chunk may be appended.
    text: Option<Record>,
    bytes: u64,
    pub(super) state: Option<State>,
    pub(super) ends_turn: bool,
}

impl Batch {
    /// Adds an append, or rejects it if an earlier write of the turn failed or the session is full.
    pub(super) fn add(&mut self, owned: &mut Owned, limit: u64, append: Append) {
        match self.admit(owned, limit, append.record.as_ref()) {
            Ok(()) => {
                // The record that was added last is still `text`, or the end of `records`.
                let last = (self.records.len() + usize::from(self.text.is_some())).checked_sub(1);
                self.indices.push(last.filter(|_| append.record.is_some()));
                self.appends.push(append);
            }
            Err(err) => {
                reject(append, &err);
                owned.failure = Some(err);
            }
        }
    }

    fn admit(
        &mut self,
        owned: &Owned,
        limit: u64,
        record: Option<&Record>,
    ) -> Result<(), JournalError> {
        let is_always_accepted = record.is_some_and(Record::ends_operation);
        if let Some(err) = owned.failure.as_ref().filter(|_| !is_always_accepted) {
            return Err(err.clone());
        }
        let Some(record) = record else {
            return Ok(());
        };
        let (encoded, size) = match record {
            Record::Text { text, .. } | Record::Thought { text, .. } => (None, text.len()),
            _ => {
                let encoded = encode(record)?;
                let size = encoded.body.len();
                (Some(encoded), size)
            }
        };
        let size = size as u64 + RECORD_OVERHEAD;
        if !is_always_accepted && limit > 0 && owned.bytes + self.bytes + size > limit {
            return Err(JournalError::Full(limit));
        }
        self.bytes += size;
        match record {
            Record::Prompt { .. } => self.state = Some(State::Active),
            Record::TurnEnd { stop } => {
                self.ends_turn = true;
                self.state = Some(if stop.is_some() { State::Active } else { State::Error });
            }
            _ => {}
        }
        if !merge(self.text.as_mut(), record) {
            self.flush_text()?;
            match encoded {
                Some(encoded) => self.records.push(encoded),
                None => self.text = Some(record.clone()),
            }
        }
        Ok(())
    }

    /// Returns the place of each append, given the number of the last record.
    pub(super) fn places(&self, head: u64) -> Vec<Place> {
        let before = head - self.records.len() as u64;
        let mut later = None;
        let mut places: Vec<Place> = (self.indices.iter().rev())
            .map(|index| match index {
                None => Place::Unrecorded,
                Some(_) if *index == later => Place::Part,
                Some(number) => {
                    later = *index;
                    Place::Record(before + *number as u64 + 1)
                }
            })
            .collect();
        places.reverse();
        places
    }

    fn flush_text(&mut self) -> Result<(), JournalError> {
        if let Some(text) = self.text.take() {
            self.records.push(encode(&text)?);
        }
        Ok(())
    }

    /// Finishes the last text record, and returns how many bytes will be written.
    pub(super) fn finish(&mut self) -> Result<u64, JournalError> {
        self.flush_text()?;
        Ok(self.records.iter().map(|record| record.body.len() as u64).sum())
    }
}

/// Appends a text chunk to the last record if both belong to the same message.
fn merge(last: Option<&mut Record>, next: &Record) -> bool {
    match (last, next) {
        (Some(Record::Text { message, text }), Record::Text { message: other, text: more })
        | (
            Some(Record::Thought { message, text }),
            Record::Thought { message: other, text: more },
        ) if message == other && text.len() < MAX_MERGED => {
            text.push_str(more);
            true
        }
        _ => false,
    }
}
