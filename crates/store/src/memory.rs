//! The backend in memory: for tests, and if the data directory cannot be written.

use std::collections::BTreeMap;
use std::time::SystemTime;

use engine::ports::{SessionInfo, State};
use engine::words::SessionId;

use crate::content::{Content, Hash};
use crate::index::{Cursor, Filter, PAGE, Page, time_in};
use crate::journal::{Backend, Change, Claim, Error, Facts, Stored};
use crate::record::Encoded;

/// Sessions in memory.
#[derive(Debug, Default)]
pub struct Memory {
    sessions: BTreeMap<String, Session>,
    last_number: u64,
}

#[derive(Debug, Clone)]
struct Session {
    number: u64,
    facts: Facts,
    epoch: u64,
    records: Vec<Encoded>,
    contents: BTreeMap<Hash, Vec<u8>>,
}

impl Memory {
    fn session(&mut self, id: &str) -> Result<&mut Session, Error> {
        self.sessions.get_mut(id).ok_or(Error::NotFound)
    }
}

impl Session {
    fn claim(&self, is_fresh: bool) -> Claim {
        let head = self.records.len() as u64;
        Claim { epoch: self.epoch, head, bytes: self.facts.info.bytes, is_fresh }
    }

    fn change(&mut self, change: &Change) {
        let info = &mut self.facts.info;
        if let Some(title) = &change.title {
            info.title = Some(title.clone());
        }
        info.state = change.state.unwrap_or(info.state);
        info.updated = change.updated.unwrap_or(info.updated);
        info.bytes = change.bytes.unwrap_or(info.bytes);
    }
}

impl Backend for Memory {
    fn create(&mut self, info: &SessionInfo, owner: &str, own: &Encoded) -> Result<Claim, Error> {
        if self.sessions.contains_key(info.id.as_str()) {
            return Err(Error::Exists);
        }
        self.last_number += 1;
        let session = Session {
            number: self.last_number,
            facts: Facts { info: info.clone(), owner: Some(owner.to_owned()) },
            epoch: 1,
            records: vec![own.clone()],
            contents: BTreeMap::new(),
        };
        let claim = session.claim(true);
        self.sessions.insert(info.id.to_string(), session);
        Ok(claim)
    }

    fn take(
        &mut self,
        session: &str,
        owner: &str,
        own: &Encoded,
        describe_owner: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Claim, Error> {
        let session = self.session(session)?;
        match session.facts.owner.as_deref() {
            Some(other) if other == owner => return Ok(session.claim(false)),
            Some(other) => {
                if let Some(cursor) = describe_owner(other) {
                    return Err(Error::Owned(cursor));
                }
            }
            None => {}
        }
        session.facts.owner = Some(owner.to_owned());
        session.facts.info.state = State::Active;
        session.epoch += 1;
        session.records.push(own.clone());
        Ok(session.claim(true))
    }

    fn append(
        &mut self,
        session: &str,
        epoch: u64,
        expected_head: u64,
        records: &[Encoded],
        change: Option<&Change>,
    ) -> Result<u64, Error> {
        let session = self.session(session)?;
        if session.epoch != epoch || session.records.len() as u64 != expected_head {
            return Err(Error::Fenced);
        }
        session.records.extend_from_slice(records);
        if let Some(change) = change {
            session.change(change);
        }
        Ok(session.records.len() as u64)
    }

    fn read(&mut self, session: &str, from: u64, bytes: usize) -> Result<Vec<Stored>, Error> {
        let session = self.session(session)?;
        let mut found = Vec::new();
        let mut size = 0;
        let first = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        for (index, record) in session.records.iter().enumerate().skip(first) {
            size += record.body.len();
            found.push(Stored { seq: index as u64 + 1, record: record.clone() });
            if size >= bytes {
                break;
            }
        }
        Ok(found)
    }

    fn put(&mut self, session: &str, content: &Content<'_>) -> Result<bool, Error> {
        let contents = &mut self.session(session)?.contents;
        Ok(contents.insert(content.hash, content.body.to_vec()).is_none())
    }

    fn get(&mut self, session: &str, hash: &Hash) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.session(session)?.contents.get(hash).cloned())
    }

    fn change(&mut self, session: &str, change: &Change) -> Result<(), Error> {
        self.session(session)?.change(change);
        Ok(())
    }

    fn has_changed(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    fn release(&mut self, session: &str, epoch: u64) -> Result<(), Error> {
        let session = self.session(session)?;
        if session.epoch == epoch {
            session.facts.owner = None;
        }
        Ok(())
    }

    fn find(&mut self, session: &str) -> Result<Option<Facts>, Error> {
        Ok(self.sessions.get(session).map(|session| session.facts.clone()))
    }

    fn list(&mut self, filter: &Filter) -> Result<Page, Error> {
        let cursor = |session: &Session| Cursor {
            updated: time_in(session.facts.info.updated),
            number: session.number,
        };
        let mut found: Vec<&Session> = self
            .sessions
            .values()
            .filter(|session| {
                filter.cwd.as_ref().is_none_or(|cwd| *cwd == session.facts.info.cwd)
                    && filter.after.is_none_or(|after| cursor(session) < after)
            })
            .collect();
        found.sort_by_key(|session| std::cmp::Reverse(cursor(session)));
        let next = (found.len() > PAGE).then(|| cursor(found[PAGE - 1]));
        found.truncate(PAGE);
        Ok(Page {
            sessions: found.into_iter().map(|session| session.facts.clone()).collect(),
            next,
        })
    }

    fn copy(&mut self, from: &str, to: &str, now: SystemTime) -> Result<(), Error> {
        if self.sessions.contains_key(to) {
            return Err(Error::Exists);
        }
        let mut session = self.session(from)?.clone();
        self.last_number += 1;
        session.number = self.last_number;
        session.facts.owner = None;
        session.facts.info.id = SessionId::new(to);
        session.facts.info.state = State::Paused;
        session.facts.info.created = now;
        session.facts.info.updated = now;
        self.sessions.insert(to.to_owned(), session);
        Ok(())
    }

    fn delete(&mut self, session: &str) -> Result<(), Error> {
        self.sessions.remove(session);
        Ok(())
    }
}
