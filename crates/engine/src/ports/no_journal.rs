//! The journal of a program that stores no sessions.

use std::path::Path;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};

use super::editor::Editor;
use super::error::JournalError;
use super::event::{DisplayPermit, Event, Place};
use super::journal::{
    FileChange, Journal, Listing, PendingWrite, Query, Record, SessionInfo, State, StoredSession,
};
use crate::words::{ContentId, SessionId, Turns};

/// A journal that stores nothing: what `purlin acp --forget` runs with.
#[derive(Debug, Default)]
pub struct NoJournal;

impl NoJournal {
    fn none<T: Send + 'static>(&self) -> BoxFuture<'_, Result<T, JournalError>> {
        future::ready(Err(JournalError::NotFound)).boxed()
    }
}

impl Journal for NoJournal {
    fn is_persistent(&self) -> bool {
        false
    }

    fn problem(&self) -> Option<String> {
        None
    }

    fn recovery(&self) -> Option<String> {
        None
    }

    fn create<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a Path,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }

    fn find<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<SessionInfo, JournalError>> {
        self.none()
    }

    fn load<'a>(
        &'a self,
        _: &'a SessionId,
        _: Option<&'a dyn Editor>,
    ) -> BoxFuture<'a, Result<StoredSession, JournalError>> {
        self.none()
    }

    fn begin<'a>(
        &'a self,
        _: &'a SessionId,
        _: Record<'a>,
    ) -> BoxFuture<'a, Result<PendingWrite, JournalError>> {
        future::ready(Ok(PendingWrite::done())).boxed()
    }

    fn append_event<'a>(
        &'a self,
        _: &'a SessionId,
        event: Event,
        show: Option<DisplayPermit>,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        if let Some(show) = show {
            show(event, Place::Unrecorded);
        }
        future::ready(Ok(())).boxed()
    }

    fn save_change<'a>(
        &'a self,
        _: &'a SessionId,
        _: FileChange,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }

    fn turns<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<Turns, JournalError>> {
        self.none()
    }

    fn content<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a ContentId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, JournalError>> {
        self.none()
    }

    fn release<'a>(
        &'a self,
        _: &'a SessionId,
        _: State,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }

    fn set_title<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }

    fn list(&self, _: Query) -> BoxFuture<'_, Result<Listing, JournalError>> {
        future::ready(Ok(Listing::default())).boxed()
    }

    fn fork<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.none()
    }

    fn copy_into<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a SessionId,
        _: &'a dyn Editor,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.none()
    }

    fn delete<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }
}
