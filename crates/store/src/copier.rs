//! Copies a session from one store to another, with its records, facts and contents.

use crate::content::{Content, Hash, hash_of};
use crate::journal::{Backend, Change, Error};
use crate::location::{Location, open_backend};
use crate::record::{Decoded, Encoded, Record};

/// How many bytes are read at once.
const PAGE_BYTES: usize = 1024 * 1024;

/// The owner of a session while it is copied. No process has this id, so a copy that was interrupted can be deleted.
const OWNER: &str = "copy";

/// Two stores.
pub struct Copier {
    from: Box<dyn Backend>,
    to: Box<dyn Backend>,
}

impl Copier {
    /// Opens both stores.
    ///
    /// # Errors
    /// Says which cannot be opened, and why.
    pub fn open(from: &Location, to: &Location) -> Result<Copier, Error> {
        Ok(Copier { from: open_backend(from)?, to: open_backend(to)? })
    }

    /// Copies a session under its own id. Returns how many records it has.
    ///
    /// # Errors
    /// [`Error::Exists`] if the other store has the session already. If it fails half way, nothing of the session stays
    /// there.
    pub fn copy(&mut self, id: &str) -> Result<u64, Error> {
        let facts = self.from.find(id)?.ok_or(Error::NotFound)?;
        let mut page = self.from.read(id, 1, PAGE_BYTES)?;
        if page.is_empty() {
            return Err(Error::Damaged("the session has no records".to_owned()));
        }
        let first = page.remove(0).record;
        let claim = self.to.create(&facts.info, OWNER, &first)?;
        let copied =
            self.copy_rest(id, claim.epoch, page.into_iter().map(|stored| stored.record).collect());
        let finished = copied.and_then(|head| {
            let info = &facts.info;
            let change = Change {
                title: info.title.clone(),
                state: Some(info.state),
                updated: Some(info.updated),
                bytes: Some(info.bytes),
            };
            self.to.change(id, &change)?;
            self.to.release(id, claim.epoch)?;
            Ok(head)
        });
        if finished.is_err()
            && let Err(err) = self.to.delete(id)
        {
            tracing::warn!("cannot delete the incomplete copy of {id}: {err}");
        }
        finished
    }

    fn copy_rest(&mut self, id: &str, epoch: u64, first: Vec<Encoded>) -> Result<u64, Error> {
        let mut head = 1;
        let mut page = first;
        loop {
            for hash in page.iter().flat_map(contents_of) {
                if let Some(body) = self.from.get(id, &hash)? {
                    self.to.put(id, &Content { hash, body: &body })?;
                }
            }
            if !page.is_empty() {
                head = self.to.append(id, epoch, head, &page, None)?;
            }
            page = self
                .from
                .read(id, head + 1, PAGE_BYTES)?
                .into_iter()
                .map(|stored| stored.record)
                .collect();
            if page.is_empty() {
                return Ok(head);
            }
        }
    }
}

/// Returns the contents that a record names.
fn contents_of(record: &Encoded) -> Vec<Hash> {
    let Decoded::Record(record) = record.decode() else { return Vec::new() };
    let names = match record {
        Record::Change { before, after, .. } => before.into_iter().chain(after).collect(),
        Record::AnswerLargeValues { values, .. } => {
            values.into_iter().map(|value| value.text).collect()
        }
        _ => Vec::new(),
    };
    names.iter().filter_map(|name| hash_of(&name.0)).collect()
}
