//! The journal: what it returned. A replay stores nothing.

use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

use engine::Event;
use engine::ports::{
    DisplayPermit, Editor, EventPage, FileChange, Journal, JournalError, Listing, NoJournal,
    PendingWrite, Place, Query, Record, SessionInfo, State, StoredSession,
};
use engine::words::{ContentId, SessionId, Turns};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::act::{Operation, play, recorded};
use crate::tape::Tape;

impl Tape {
    /// Wraps the journal.
    #[must_use]
    pub fn journal(&self, inner: Arc<dyn Journal>) -> Arc<dyn Journal> {
        Arc::new(TapedJournal { tape: self.clone(), inner })
    }

    /// Makes the journal of a replay.
    #[must_use]
    pub fn played_journal(&self) -> Arc<dyn Journal> {
        self.journal(Arc::new(NoJournal))
    }
}

struct TapedJournal {
    tape: Tape,
    inner: Arc<dyn Journal>,
}

/// What a use of the journal returned.
type Outcome<T> = Result<T, JournalError>;

impl TapedJournal {
    /// A write. They are many and nearly always succeed at once, so only others are written.
    fn write<'a, T: Send + 'a>(
        &'a self,
        session: &SessionId,
        played: T,
        mut work: BoxFuture<'a, Outcome<T>>,
    ) -> BoxFuture<'a, Outcome<T>> {
        let key = format!("write {session}");
        let key = format!("{key} {}", self.tape.ordinal(&key));
        async move {
            match &self.tape {
                Tape::Record(recorder) => {
                    let (is_late, outcome) = match futures_util::poll!(&mut work) {
                        Poll::Ready(outcome) => (false, outcome),
                        Poll::Pending => {
                            recorder.next(&key, &Write::Late);
                            (true, work.await)
                        }
                    };
                    match (&outcome, is_late) {
                        (Ok(_), false) => {}
                        (Err(err), false) => recorder.next(&key, &Write::Failed(err.clone())),
                        (Ok(_), true) => recorder.step(&key, &None::<JournalError>),
                        (Err(err), true) => recorder.step(&key, &Some(err)),
                    }
                    outcome
                }
                Tape::Play(player) => {
                    let failed = match player.next(&key) {
                        None => None,
                        Some(Write::Failed(err)) => Some(err),
                        Some(Write::Late) => player.step(&key).await,
                    };
                    failed.map_or(Ok(played), Err)
                }
            }
        }
        .boxed()
    }
}

/// How a write was unusual.
#[derive(Serialize, Deserialize)]
enum Write {
    /// It failed at once.
    Failed(JournalError),
    /// The session waited for it: its result is a step.
    Late,
}

impl Journal for TapedJournal {
    fn is_persistent(&self) -> bool {
        self.tape.state("journal is persistent", || self.inner.is_persistent())
    }

    fn problem(&self) -> Option<String> {
        self.tape.state("journal problem", || self.inner.problem())
    }

    fn recovery(&self) -> Option<String> {
        self.tape.next("journal recovery", || self.inner.recovery())
    }

    fn create<'a>(&'a self, session: &'a SessionId, cwd: &'a Path) -> BoxFuture<'a, Outcome<()>> {
        self.write(session, (), self.inner.create(session, cwd))
    }

    fn find<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Outcome<SessionInfo>> {
        async move { self.tape.step(&format!("find {session}"), self.inner.find(session)).await }
            .boxed()
    }

    fn load<'a>(
        &'a self,
        session: &'a SessionId,
        editor: Option<&'a dyn Editor>,
    ) -> BoxFuture<'a, Outcome<StoredSession>> {
        async move {
            let key = format!("load {session}");
            match (&self.tape, editor) {
                (Tape::Record(recorder), Some(editor)) => {
                    let operation = Operation::new(recorder, &key);
                    let editor = recorded(editor, &operation);
                    let loaded = self.inner.load(session, Some(&editor)).await;
                    operation.done(&loaded);
                    loaded
                }
                (Tape::Play(player), Some(editor)) => play(player, &key, editor, None).await,
                (tape, None) => tape.step(&key, self.inner.load(session, None)).await,
            }
        }
        .boxed()
    }

    fn take_over<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Outcome<()>> {
        self.write(session, (), self.inner.take_over(session))
    }

    fn lost_sessions(&self) -> BoxFuture<'_, Vec<SessionId>> {
        async move { self.tape.step("lost sessions", self.inner.lost_sessions()).await }.boxed()
    }

    fn begin<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Outcome<PendingWrite>> {
        self.write(session, PendingWrite::done(), self.inner.begin(session, record))
    }

    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Outcome<()>> {
        self.write(session, (), self.inner.append(session, record))
    }

    fn append_event<'a>(
        &'a self,
        session: &'a SessionId,
        event: Event,
        show: Option<DisplayPermit>,
    ) -> BoxFuture<'a, Outcome<()>> {
        match (&self.tape, show) {
            (Tape::Play(_), Some(show)) => {
                // Shown at once: its wake may come before the end of the write.
                show(event, Place::Unrecorded);
                self.write(session, (), std::future::ready(Ok(())).boxed())
            }
            (_, show) => self.write(session, (), self.inner.append_event(session, event, show)),
        }
    }

    fn events_after<'a>(
        &'a self,
        session: &'a SessionId,
        after: Option<u64>,
    ) -> BoxFuture<'a, Outcome<EventPage>> {
        // Only sessions that outlive their connection are read so, and they are not recorded.
        self.inner.events_after(session, after)
    }

    fn save_change<'a>(
        &'a self,
        session: &'a SessionId,
        change: FileChange,
    ) -> BoxFuture<'a, Outcome<()>> {
        // Tools save changes, and they do not run in a replay.
        self.inner.save_change(session, change)
    }

    fn turns<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Outcome<Turns>> {
        async move { self.tape.step(&format!("turns {session}"), self.inner.turns(session)).await }
            .boxed()
    }

    fn content<'a>(
        &'a self,
        session: &'a SessionId,
        content: &'a ContentId,
    ) -> BoxFuture<'a, Outcome<Option<Vec<u8>>>> {
        async move {
            self.tape
                .step(&format!("content {session}"), self.inner.content(session, content))
                .await
        }
        .boxed()
    }

    fn release<'a>(&'a self, session: &'a SessionId, state: State) -> BoxFuture<'a, Outcome<()>> {
        self.write(session, (), self.inner.release(session, state))
    }

    fn set_title<'a>(
        &'a self,
        session: &'a SessionId,
        title: &'a str,
    ) -> BoxFuture<'a, Outcome<()>> {
        async move {
            self.tape.step(&format!("title {session}"), self.inner.set_title(session, title)).await
        }
        .boxed()
    }

    fn list(&self, query: Query) -> BoxFuture<'_, Outcome<Listing>> {
        async move { self.tape.step("list", self.inner.list(query)).await }.boxed()
    }

    fn fork<'a>(&'a self, from: &'a SessionId, to: &'a SessionId) -> BoxFuture<'a, Outcome<()>> {
        async move { self.tape.step(&format!("fork {from} {to}"), self.inner.fork(from, to)).await }
            .boxed()
    }

    fn copy_into<'a>(
        &'a self,
        session: &'a SessionId,
        from: &'a SessionId,
        editor: &'a dyn Editor,
    ) -> BoxFuture<'a, Outcome<()>> {
        async move {
            let key = format!("copy {session} {from}");
            match &self.tape {
                Tape::Record(recorder) => {
                    let operation = Operation::new(recorder, &key);
                    let editor = recorded(editor, &operation);
                    let copied = self.inner.copy_into(session, from, &editor).await;
                    operation.done(&copied);
                    copied
                }
                Tape::Play(player) => play(player, &key, editor, None).await,
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Outcome<()>> {
        async move {
            self.tape.step(&format!("delete {session}"), self.inner.delete(session)).await
        }
        .boxed()
    }
}
