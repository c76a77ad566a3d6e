//! What comes for one session while the last write is under way: records that go into one transaction, and who waits for them.

use engine::ports::{JournalError, State};

use super::{Append, Owned, encode, refuse};
use crate::record::{Encoded, Record};

/// Pieces of text that wait together are kept as one record, up to about this many bytes.
const PIECE: usize = 16 * 1024;
/// About how many bytes a record takes beside its text.
const AROUND: u64 = 64;

/// What is written together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) appends: Vec<Append>,
    pub(super) records: Vec<Encoded>,
    /// A piece of text behind the records, that the next may be joined to.
    piece: Option<Record>,
    bytes: u64,
    pub(super) state: Option<State>,
    pub(super) ends_turn: bool,
}

impl Batch {
    /// Takes an append, or refuses it if the turn cannot be kept any more or the session is full.
    pub(super) fn take(&mut self, owned: &mut Owned, limit: u64, append: Append) {
        match self.admit(owned, limit, append.record.as_ref()) {
            Ok(()) => self.appends.push(append),
            Err(err) => {
                refuse(append, &err);
                owned.broken = Some(err);
            }
        }
    }

    fn admit(
        &mut self,
        owned: &Owned,
        limit: u64,
        record: Option<&Record>,
    ) -> Result<(), JournalError> {
        let must_be_taken = record.is_some_and(Record::ends_something);
        if let Some(err) = owned.broken.as_ref().filter(|_| !must_be_taken) {
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
        let size = size as u64 + AROUND;
        if !must_be_taken && limit > 0 && owned.bytes + self.bytes + size > limit {
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
        if !merge(self.piece.as_mut(), record) {
            self.end_piece()?;
            match encoded {
                Some(encoded) => self.records.push(encoded),
                None => self.piece = Some(record.clone()),
            }
        }
        Ok(())
    }

    fn end_piece(&mut self) -> Result<(), JournalError> {
        if let Some(piece) = self.piece.take() {
            self.records.push(encode(&piece)?);
        }
        Ok(())
    }

    /// Ends the last piece of text, and returns how many bytes there are to be written.
    pub(super) fn finish(&mut self) -> Result<u64, JournalError> {
        self.end_piece()?;
        Ok(self.records.iter().map(|record| record.body.len() as u64).sum())
    }
}

/// Joins pieces of the same message.
fn merge(last: Option<&mut Record>, next: &Record) -> bool {
    match (last, next) {
        (Some(Record::Text { message, text }), Record::Text { message: other, text: more })
        | (
            Some(Record::Thought { message, text }),
            Record::Thought { message: other, text: more },
        ) if message == other && text.len() < PIECE => {
            text.push_str(more);
            true
        }
        _ => false,
    }
}
