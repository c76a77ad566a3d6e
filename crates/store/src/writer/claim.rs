//! Which process has a session: taking it, and noticing that another one took it.

use engine::ports::{JournalError, SessionInfo, State};
use engine::words::{SessionId, iso_8601};

use super::{PAGE_BYTES, Writer};
use crate::journal::Error;
use crate::record::Record;

/// How many sessions are checked at once for another owner.
const MAX_CHECKS: usize = 64;

/// When a session is taken from another running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claiming {
    /// If no turn runs there.
    IfIdle,
    /// In any case.
    ByForce,
}

/// A session that is now owned by this process.
pub(crate) struct OwnedSession {
    pub(crate) info: SessionInfo,
    /// Whether this process did not own it before; then a crash left what is open in it.
    pub(crate) is_fresh: bool,
    pub(crate) is_read_only: bool,
}

impl Writer {
    /// Takes a session. One that is idle in another running process is taken from it: that process cannot write any more.
    pub(crate) fn take(
        &mut self,
        session: &SessionId,
        claiming: Claiming,
    ) -> Result<OwnedSession, JournalError> {
        let mut info = self.find(session)?;
        if self.owned.contains_key(session) && !self.still_owns(session) {
            return Err(JournalError::TakenOver);
        }
        if self.read_only.is_some() && !self.in_fallback.contains(session) {
            return Ok(OwnedSession { info, is_fresh: true, is_read_only: true });
        }
        let id = self.renewed_owner()?;
        let own = Writer::own_record()?;
        let owner = self.owner.take();
        let describe_owner = |id: &str| owner.as_ref().and_then(|owner| owner.describe_owner(id));
        let mut moved = self.backend(session).take(session.as_str(), &id, &own, &describe_owner);
        self.owner = owner;
        if let Err(Error::Owned(place)) = &moved {
            if claiming == Claiming::IfIdle && self.runs_turn(session)? {
                let since = iso_8601(info.updated);
                let place = format!("{place}, where a turn has been running since {since}");
                return Err(JournalError::OpenElsewhere(place));
            }
            moved = self.backend(session).take(session.as_str(), &id, &own, &|_| None);
        }
        let claim = moved?;
        // A release may have failed half way: then the backend says that we own it, but it is not in `owned`.
        let is_fresh = claim.is_fresh || !self.owned.contains_key(session);
        if is_fresh {
            self.add_owned(session, claim);
        }
        // The caller may want to know that the last turn failed.
        if info.state != State::Error {
            info.state = State::Active;
        }
        Ok(OwnedSession { info, is_fresh, is_read_only: false })
    }

    /// Returns the sessions that another process has taken since this one did.
    ///
    /// If nobody else wrote to the store, no session is read. Otherwise a few are read now and the others with the next
    /// calls, because appends wait meanwhile.
    pub(crate) fn lost_sessions(&mut self) -> Vec<SessionId> {
        if self.unchecked.is_empty() && self.backend.has_changed().unwrap_or_default() {
            self.unchecked = self.owned.keys().cloned().collect();
        }
        let rest = self.unchecked.len().saturating_sub(MAX_CHECKS);
        for session in self.unchecked.split_off(rest) {
            let is_lost = !self.still_owns(&session);
            if let Some(owned) = self.owned.get_mut(&session) {
                owned.is_lost = is_lost;
            }
        }
        let lost = self.owned.iter().filter(|(_, owned)| owned.is_lost);
        lost.map(|(session, _)| session.clone()).collect()
    }

    /// Tells whether a session that this process took is still its own.
    pub(super) fn still_owns(&mut self, session: &SessionId) -> bool {
        let me = self.owner_id();
        match self.backend(session).find(session.as_str()) {
            Ok(Some(facts)) => facts.owner == Some(me),
            // Deleted, or not readable now: the next write finds out.
            Ok(None) | Err(_) => true,
        }
    }

    /// Tells whether the records of a session end within a turn.
    fn runs_turn(&mut self, session: &SessionId) -> Result<bool, JournalError> {
        let (mut from, mut runs) = (1, false);
        loop {
            let page = self.backend(session).read(session.as_str(), from, PAGE_BYTES)?;
            let Some(last) = page.last() else { return Ok(runs) };
            from = last.seq + 1;
            for stored in &page {
                match serde_json::from_slice(&stored.record.body) {
                    Ok(Record::Prompt { .. }) => runs = true,
                    // A process that takes a session closes the turn that it finds.
                    Ok(Record::TurnEnd { .. } | Record::Own { .. }) => runs = false,
                    Ok(_) | Err(_) => {}
                }
            }
        }
    }
}
