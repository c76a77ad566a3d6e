//! The engine's journal: sends jobs to the writer's thread, and waits for those that must finish first.
//!
//! Nothing is opened before the first session.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::Event;
use engine::ports::{
    Content, DisplayPermit, Editor, EventPage, FileChange, Journal, JournalError, Listing,
    PendingWrite, Place, Query, Record, SessionInfo, SpanScope, State, StoredSession,
};
use engine::words::Turns;
use engine::words::{ContentId, SessionId};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use tokio::sync::{mpsc, oneshot};

use crate::content::hash_of;
use crate::copy::conversation;
use crate::journal::Stored;
use crate::location::check_writable;
use crate::options::{CustomBackend, Options, Shared};
use crate::record::{self, Decoded, event_in, record_in};
use crate::replay::{Replay, Replayed, prompt_events};
use crate::writer::{self, Append, Claiming, Job, Sync, Writer};

/// How many jobs may wait. When the channel is full, the session that sends another waits.
const JOBS: usize = 1024;

/// Stores sessions.
pub struct Store {
    options: Options,
    /// Another backend in place of the data directory; taken when the thread starts.
    custom: Mutex<Option<CustomBackend>>,
    shared: Arc<Shared>,
    jobs: OnceLock<Result<mpsc::Sender<Job>, String>>,
}

impl Store {
    /// Creates a store. Opens nothing.
    #[must_use]
    pub fn new(options: Options) -> Store {
        let spans = SpanScope::new(options.spans.clone(), None);
        let shared = Arc::new(Shared { spans, ..Shared::default() });
        let custom = Mutex::default();
        Store { options, custom, shared, jobs: OnceLock::new() }
    }

    /// Creates a store with another backend, which only this process uses.
    #[must_use]
    pub fn with_backend(custom: CustomBackend, options: Options) -> Store {
        let store = Store { custom: Mutex::new(Some(custom)), ..Store::new(options) };
        // It has no directory to check.
        store.shared.is_probed.store(true, Ordering::Relaxed);
        store
    }

    fn jobs(&self) -> Result<&mpsc::Sender<Job>, JournalError> {
        let started = self.jobs.get_or_init(|| {
            // When it is full, the session that sends another job waits.
            let (sender, jobs) = mpsc::channel(JOBS);
            let (options, shared) = (self.options.clone(), Arc::clone(&self.shared));
            let custom = self.custom.lock().unwrap_or_else(PoisonError::into_inner).take();
            let thread =
                std::thread::Builder::new().name("store".to_owned()).stack_size(512 * 1024);
            let started = thread.spawn(move || writer::run(jobs, options, custom, &shared));
            started.map(|_| sender).map_err(|err| err.to_string())
        });
        started.as_ref().map_err(|err| JournalError::Failed(err.clone()))
    }

    async fn send(&self, job: Job) -> Result<(), JournalError> {
        self.jobs()?.send(job).await.map_err(|_| store_stopped())
    }

    /// Runs work on the thread and waits for its result.
    async fn run_on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let (sender, done) = oneshot::channel();
        // Fails only if the receiver was cancelled.
        let job = Job::Do(Box::new(move |writer| drop(sender.send(work(writer)))));
        self.send(job).await?;
        done.await.map_err(|_| store_stopped())?
    }

    async fn append_record(
        &self,
        session: &SessionId,
        record: record::Record,
        sync: Sync,
    ) -> Result<(), JournalError> {
        self.begin_record(session, record, sync).await?.wait().await
    }

    async fn begin_record(
        &self,
        session: &SessionId,
        record: record::Record,
        sync: Sync,
    ) -> Result<PendingWrite, JournalError> {
        let (sender, done) = oneshot::channel();
        let append = Append {
            session: session.clone(),
            record: Some(record),
            shown: None,
            ack: Some(sender),
            sync,
        };
        self.send(Job::Append(append)).await?;
        Ok(PendingWrite::when(done))
    }

    async fn page(&self, session: &SessionId, from: u64) -> Result<Vec<Stored>, JournalError> {
        let session = session.clone();
        self.run_on_thread(move |writer| writer.read(&session, from)).await
    }

    /// Replays all records of a session. Reads the next page while the current one is replayed.
    async fn replay(
        &self,
        session: &SessionId,
        editor: Option<&dyn Editor>,
    ) -> Result<Replay, JournalError> {
        let mut replay = Replay::default();
        let mut page = self.page(session, 1).await?;
        while let Some(last) = page.last() {
            let work = async {
                for stored in &page {
                    replay.feed(stored);
                    show_all(editor, replay.take_events()).await;
                }
            };
            let ((), next) = join(work, self.page(session, last.seq + 1)).await;
            page = next?;
        }
        Ok(replay)
    }

    async fn load_owned(
        &self,
        session: &SessionId,
        is_ours: bool,
        is_fresh: bool,
        editor: Option<&dyn Editor>,
    ) -> Result<Replayed, JournalError> {
        let mut replay = self.replay(session, editor).await?;
        if is_fresh {
            let closing = replay.close();
            for record in closing.into_iter().filter(|_| is_ours) {
                self.append_record(session, record, Sync::Soon).await?;
            }
        }
        let mut replayed = replay.finish();
        show_all(editor, std::mem::take(&mut replayed.events)).await;
        Ok(replayed)
    }

    /// Returns all records of a session as they are stored, for exports.
    ///
    /// # Errors
    /// Fails if the session does not exist.
    pub async fn records(&self, session: &SessionId) -> Result<Vec<Stored>, JournalError> {
        let mut records: Vec<Stored> = Vec::new();
        loop {
            let from = records.last().map_or(1, |last| last.seq + 1);
            let page = self.page(session, from).await?;
            if page.is_empty() {
                return Ok(records);
            }
            records.extend(page);
        }
    }

    /// Appends imported records to a session that is open in this process.
    ///
    /// # Errors
    /// Fails if the session is not open in this process.
    pub async fn import(
        &self,
        session: &SessionId,
        records: Vec<record::Record>,
    ) -> Result<(), JournalError> {
        for record in records {
            self.append_record(session, record, Sync::No).await?;
        }
        Ok(())
    }
}

async fn show_all(editor: Option<&dyn Editor>, events: Vec<Event>) {
    let Some(editor) = editor else { return };
    for event in events {
        editor.show(event).await;
    }
}

/// Returns what a record showed, and the prompt of one. Only the last event completes the record.
fn shown_events(stored: &Stored) -> Vec<(Place, Event)> {
    let events = match stored.record.decode() {
        Decoded::Record(record::Record::Prompt { message, blocks, asides, .. }) => {
            prompt_events(&message, blocks, asides)
        }
        Decoded::Record(record) => record::event_out(record).into_iter().collect(),
        Decoded::Opaque | Decoded::Damaged => Vec::new(),
    };
    let parts = events.len().saturating_sub(1);
    let places = std::iter::repeat_n(Place::Part, parts).chain([Place::Record(stored.seq)]);
    places.zip(events).collect()
}

fn store_stopped() -> JournalError {
    JournalError::Failed("the store has stopped".to_owned())
}

impl Journal for Store {
    fn is_persistent(&self) -> bool {
        if !self.shared.is_probed.swap(true, Ordering::Relaxed)
            && let Err(why) = check_writable(&self.options.location)
        {
            *self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        self.problem().is_none()
    }

    fn problem(&self) -> Option<String> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn recovery(&self) -> Option<String> {
        self.shared.recovery.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        cwd: &'a Path,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let (session, cwd) = (session.clone(), cwd.to_owned());
        self.run_on_thread(move |writer| writer.create(&session, &cwd)).boxed()
    }

    fn find<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<SessionInfo, JournalError>> {
        let session = session.clone();
        self.run_on_thread(move |writer| writer.find(&session)).boxed()
    }

    fn load<'a>(
        &'a self,
        session: &'a SessionId,
        editor: Option<&'a dyn Editor>,
    ) -> BoxFuture<'a, Result<StoredSession, JournalError>> {
        async move {
            let id = session.clone();
            let taken =
                self.run_on_thread(move |writer| writer.take(&id, Claiming::IfIdle)).await?;
            let loaded =
                self.load_owned(session, !taken.is_read_only, taken.is_fresh, editor).await;
            match loaded {
                Ok(replayed) => Ok(StoredSession {
                    info: taken.info,
                    history: replayed.history,
                    mode: replayed.mode,
                    model: replayed.model,
                    thinking: replayed.thinking,
                    spent: replayed.spent,
                    bill: replayed.bill,
                    problems: replayed.problems,
                    prompts: replayed.prompts,
                }),
                Err(err) => {
                    if taken.is_fresh {
                        self.release(session, State::Paused).await?;
                    }
                    Err(err)
                }
            }
        }
        .boxed()
    }

    fn take_over<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        let session = session.clone();
        let work = move |writer: &mut Writer| {
            writer.take(&session, Claiming::ByForce)?;
            writer.release(&session, State::Paused)
        };
        self.run_on_thread(work).boxed()
    }

    fn lost_sessions(&self) -> BoxFuture<'_, Vec<SessionId>> {
        let lost = self.run_on_thread(|writer| Ok(writer.lost_sessions()));
        lost.map(Result::unwrap_or_default).boxed()
    }

    fn begin<'a>(
        &'a self,
        session: &'a SessionId,
        record: Record<'a>,
    ) -> BoxFuture<'a, Result<PendingWrite, JournalError>> {
        let sync = match record {
            Record::ToolIntent(_) => Sync::First,
            Record::Prompt { .. }
            | Record::ToolResult { .. }
            | Record::Undone(_)
            | Record::Redone(_)
            | Record::Compacted { .. }
            | Record::TurnEnd(_) => Sync::Soon,
            Record::Thoughts(_)
            | Record::Answer(_)
            | Record::Reminder(_)
            | Record::Spent { .. } => Sync::No,
        };
        self.begin_record(session, record_in(record), sync).boxed()
    }

    fn append_event<'a>(
        &'a self,
        session: &'a SessionId,
        event: Event,
        show: Option<DisplayPermit>,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        async move {
            let record = event_in(&event);
            let may_ack_early = matches!(event, Event::Text { .. } | Event::Thought { .. })
                && !self.shared.has_failed.load(Ordering::Acquire);
            let mut shown = show.map(|show| (event, show));
            if self.options.late_for_tests
                && let Some((event, show)) = shown.take()
            {
                show(event, Place::Unrecorded);
                return self
                    .send(Job::Append(Append {
                        session: session.clone(),
                        record,
                        shown: None,
                        ack: None,
                        sync: Sync::No,
                    }))
                    .await;
            }
            let (sender, done) = oneshot::channel();
            let ack = (!may_ack_early).then_some(sender);
            let session = session.clone();
            self.send(Job::Append(Append { session, record, shown, ack, sync: Sync::No })).await?;
            if may_ack_early {
                return Ok(());
            }
            done.await.map_err(|_| store_stopped())?
        }
        .boxed()
    }

    fn events_after<'a>(
        &'a self,
        session: &'a SessionId,
        after: Option<u64>,
    ) -> BoxFuture<'a, Result<EventPage, JournalError>> {
        async move {
            let Some(after) = after else {
                let session = session.clone();
                let last = self.run_on_thread(move |writer| writer.head(&session)).await?;
                return Ok(EventPage { last, ..EventPage::default() });
            };
            let page = self.page(session, after + 1).await?;
            let last = page.last().map_or(after, |stored| stored.seq);
            let events = page.iter().flat_map(shown_events).collect();
            Ok(EventPage { events, last })
        }
        .boxed()
    }

    fn save_change<'a>(
        &'a self,
        session: &'a SessionId,
        change: FileChange,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        async move {
            let FileChange { path, before, after } = change;
            let Some(path) = path.to_str().map(str::to_owned) else {
                let why = format!("the path {} is not valid UTF-8", path.display());
                return Err(JournalError::Failed(why));
            };
            let id = session.clone();
            let put = move |writer: &mut Writer| {
                let mut put = |content: Content| writer.put_file(&id, &content);
                Ok((before.map(&mut put).transpose()?, after.map(&mut put).transpose()?))
            };
            let (before, after) = self.run_on_thread(put).await?;
            let record = record::Record::Change { path, before, after };
            self.append_record(session, record, Sync::Soon).await
        }
        .boxed()
    }

    fn turns<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Turns, JournalError>> {
        async move { Ok(self.replay(session, None).await?.finish().turns) }.boxed()
    }

    fn content<'a>(
        &'a self,
        session: &'a SessionId,
        content: &'a ContentId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, JournalError>> {
        async move {
            let Some(hash) = hash_of(content.as_str()) else { return Ok(None) };
            let session = session.clone();
            self.run_on_thread(move |writer| writer.get(&session, &hash)).await
        }
        .boxed()
    }

    fn release<'a>(
        &'a self,
        session: &'a SessionId,
        state: State,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let session = session.clone();
        self.run_on_thread(move |writer| writer.release(&session, state)).boxed()
    }

    fn set_title<'a>(
        &'a self,
        session: &'a SessionId,
        title: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let (session, title) = (session.clone(), title.to_owned());
        self.run_on_thread(move |writer| writer.set_title(&session, title)).boxed()
    }

    fn list(&self, query: Query) -> BoxFuture<'_, Result<Listing, JournalError>> {
        self.run_on_thread(move |writer| writer.list(query)).boxed()
    }

    fn fork<'a>(
        &'a self,
        from: &'a SessionId,
        to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let (from, to) = (from.clone(), to.clone());
        self.run_on_thread(move |writer| writer.fork(&from, &to)).boxed()
    }

    fn copy_into<'a>(
        &'a self,
        session: &'a SessionId,
        from: &'a SessionId,
        editor: &'a dyn Editor,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        async move {
            let stored = self.records(from).await?;
            // The same session may be copied several times: the place of the copy makes its ids unique.
            let head = self.records(session).await?.last().map_or(0, |last| last.seq);
            let decoded = stored.iter().map(|stored| stored.record.decode());
            let records = conversation(decoded, &head.to_string());
            let mut replay = Replay::default();
            for record in records {
                replay.feed_record(record.clone());
                self.append_record(session, record, Sync::No).await?;
                show_all(Some(editor), replay.take_events()).await;
            }
            for record in replay.close() {
                self.append_record(session, record, Sync::Soon).await?;
            }
            show_all(Some(editor), replay.finish().events).await;
            Ok(())
        }
        .boxed()
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        let session = session.clone();
        self.run_on_thread(move |writer| writer.delete(&session)).boxed()
    }
}
