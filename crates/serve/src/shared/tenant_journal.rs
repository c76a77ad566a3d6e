//! The journal as one tenant sees it: sessions of other tenants do not exist.
//!
//! The id of a session begins with its tenant's name, so every call can be checked without asking the store.

use std::path::Path;
use std::sync::Arc;

use engine::Event;
use engine::ports::{
    DisplayPermit, Editor, EventPage, FileChange, Journal, JournalError, Listing, PendingWrite,
    Query, Record, SessionInfo, State, StoredSession,
};
use engine::words::{ContentId, SessionId, Turns};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

/// Stands between the name of a tenant and the rest of an id. No id of our own has it.
const SEPARATOR: char = '~';
/// How many pages of the list are searched for sessions of the tenant at once.
const PAGES: usize = 64;

/// The journal of one tenant.
pub(super) struct TenantJournal {
    journal: Arc<dyn Journal>,
    /// Empty for the only user of a server without tokens.
    tenant: Arc<str>,
}

impl TenantJournal {
    pub(super) fn new(journal: Arc<dyn Journal>, tenant: Arc<str>) -> TenantJournal {
        TenantJournal { journal, tenant }
    }

    fn has(&self, session: &SessionId) -> bool {
        match session.as_str().split_once(SEPARATOR) {
            Some((tenant, _)) => *tenant == *self.tenant,
            None => self.tenant.is_empty(),
        }
    }

    /// Refuses a session of another tenant exactly like one that does not exist.
    fn check<'a, T: Send + 'a>(
        &'a self,
        session: &SessionId,
        call: impl FnOnce(&'a dyn Journal) -> BoxFuture<'a, Result<T, JournalError>>,
    ) -> BoxFuture<'a, Result<T, JournalError>> {
        match self.has(session) {
            true => call(&*self.journal),
            false => ready(Err(JournalError::NotFound)).boxed(),
        }
    }

    async fn list_own(&self, mut query: Query) -> Result<Listing, JournalError> {
        let mut own = Listing::default();
        for _ in 0..PAGES {
            let page = self.journal.list(query.clone()).await?;
            own.sessions.extend(page.sessions.into_iter().filter(|info| self.has(&info.id)));
            own.next = page.next;
            if own.next.is_none() || !own.sessions.is_empty() {
                break;
            }
            query.cursor = own.next.clone();
        }
        Ok(own)
    }
}

/// Returns the id of a session of a tenant.
pub(super) fn session_id(tenant: &str, id: String) -> SessionId {
    SessionId::new(if tenant.is_empty() { id } else { format!("{tenant}{SEPARATOR}{id}") })
}

/// Tells whether this can be the name of a tenant: it is a part of ids, of paths and of metrics.
pub(crate) fn is_tenant_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) && !name.starts_with('.')
}

impl Journal for TenantJournal {
    fn is_persistent(&self) -> bool {
        self.journal.is_persistent()
    }

    fn problem(&self) -> Option<String> {
        self.journal.problem()
    }

    fn recovery(&self) -> Option<String> {
        self.journal.recovery()
    }

    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        cwd: &'a Path,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.check(session, |journal| journal.create(session, cwd))
    }

    fn find<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<SessionInfo, JournalError>> {
        self.check(session, |journal| journal.find(session))
    }

    fn load<'a>(
        &'a self,
        session: &'a SessionId,
        editor: Option<&'a dyn Editor>,
    ) -> BoxFuture<'a, Result<StoredSession, JournalError>> {
        self.check(session, |journal| journal.load(session, editor))
    }

    fn take_over<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        self.check(session, |journal| journal.take_over(session))
    }

    fn lost_sessions(&self) -> BoxFuture<'_, Vec<SessionId>> {
        let own = async {
            let mut lost = self.journal.lost_sessions().await;
            lost.retain(|session| self.has(session));
            lost
        };
        own.boxed()
    }

    fn begin<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<PendingWrite, JournalError>> {
        self.check(session, |journal| journal.begin(session, record))
    }

    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.check(session, |journal| journal.append(session, record))
    }

    fn append_event<'a>(
        &'a self,
        session: &'a SessionId,
        event: Event,
        show: Option<DisplayPermit>,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.check(session, |journal| journal.append_event(session, event, show))
    }

    fn events_after<'a>(
        &'a self,
        session: &'a SessionId,
        after: Option<u64>,
    ) -> BoxFuture<'a, Result<EventPage, JournalError>> {
        self.check(session, |journal| journal.events_after(session, after))
    }

    fn save_change<'a>(
        &'a self,
        session: &'a SessionId,
        change: FileChange,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.check(session, |journal| journal.save_change(session, change))
    }

    fn turns<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Turns, JournalError>> {
        self.check(session, |journal| journal.turns(session))
    }

    fn content<'a>(
        &'a self,
        session: &'a SessionId,
        content: &'a ContentId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, JournalError>> {
        self.check(session, |journal| journal.content(session, content))
    }

    fn release<'a>(
        &'a self,
        session: &'a SessionId,
        state: State,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.check(session, |journal| journal.release(session, state))
    }

    fn set_title<'a>(
        &'a self,
        session: &'a SessionId,
        title: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.check(session, |journal| journal.set_title(session, title))
    }

    fn list(&self, query: Query) -> BoxFuture<'_, Result<Listing, JournalError>> {
        self.list_own(query).boxed()
    }

    fn fork<'a>(
        &'a self,
        from: &'a SessionId,
        to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        match self.has(to) {
            true => self.check(from, |journal| journal.fork(from, to)),
            false => ready(Err(JournalError::NotFound)).boxed(),
        }
    }

    fn copy_into<'a>(
        &'a self,
        session: &'a SessionId,
        from: &'a SessionId,
        editor: &'a dyn Editor,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        match self.has(from) {
            true => self.check(session, |journal| journal.copy_into(session, from, editor)),
            false => ready(Err(JournalError::NotFound)).boxed(),
        }
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        match self.has(session) {
            true => self.journal.delete(session),
            // As for any session that does not exist.
            false => ready(Ok(())).boxed(),
        }
    }
}
