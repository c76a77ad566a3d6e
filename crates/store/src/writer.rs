//! The thread that owns the backend. It takes all waiting jobs, writes their records in one transaction, and then shows them.
//!
//! It uses no timer: while one write is in progress, the next batch collects.

mod batch;
mod claim;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use engine::Event;
use engine::ports::{self, DisplayPermit, JournalError, Listing, Query, SessionInfo, State};
use engine::words::SessionId;
use tokio::sync::mpsc;

use crate::content::{Content, Hash, name_of};
use crate::durable_objects::DurableObjects;
use crate::index::filter_in;
use crate::journal::{Backend, Change, Claim, Error, Facts, Stored};
use crate::large_values::{self, TakenValue};
use crate::lease::{Lease, Leases};
use crate::location::{Location, NO_DIRECTORY};
use crate::memory::Memory;
use crate::options::{CustomBackend, Options, Shared};
use crate::owner::{self, LockFile, Owner};
use crate::postgres::Postgres;
use crate::record::{Encoded, Name, Record};
use crate::recovering::Recovering;
use crate::sync::{Ack, Syncer};
use batch::Batch;
pub(crate) use claim::Claiming;

/// How many jobs are handled at once.
const MAX_JOBS: usize = 512;
/// The content of a larger file is not stored, so it cannot be undone.
const MAX_UNDO_BYTES: usize = 16 * 1024 * 1024;
/// How many bytes of a session are read at once.
const PAGE_BYTES: usize = 256 * 1024;

/// A job for the thread.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every job is an append; a box each would cost more"
)]
pub(crate) enum Job {
    Append(Append),
    /// Any other work; done after all earlier appends.
    Do(Box<dyn FnOnce(&mut Writer) + Send>),
}

/// A record to write, an event to show, or both.
pub(crate) struct Append {
    pub(crate) session: SessionId,
    /// `None` for an event that is only shown, in order with the others.
    pub(crate) record: Option<Record>,
    pub(crate) shown: Option<(Event, DisplayPermit)>,
    pub(crate) ack: Option<Ack>,
    pub(crate) sync: Sync,
}

/// When a record must be synced to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// With the next sync for another record.
    No,
    /// Soon; the append does not wait for it.
    Soon,
    /// Before it is acknowledged.
    First,
}

/// Runs until all senders of jobs are dropped.
pub(crate) fn run(
    mut jobs: mpsc::Receiver<Job>,
    options: Options,
    custom: Option<CustomBackend>,
    shared: &Arc<Shared>,
) {
    let mut writer = Writer::open(options, custom, shared);
    let mut waiting = Vec::with_capacity(MAX_JOBS);
    while jobs.blocking_recv_many(&mut waiting, MAX_JOBS) > 0 {
        let mut appends: Vec<(SessionId, Vec<Append>)> = Vec::new();
        for job in waiting.drain(..) {
            match job {
                Job::Append(append) => {
                    match appends.iter_mut().find(|(session, _)| *session == append.session) {
                        Some((_, of_session)) => of_session.push(append),
                        None => appends.push((append.session.clone(), vec![append])),
                    }
                }
                Job::Do(work) => {
                    writer.append_all(&mut appends);
                    writer.write_delayed_states();
                    work(&mut writer);
                }
            }
        }
        writer.append_all(&mut appends);
    }
}

/// The state of the thread.
pub(crate) struct Writer {
    options: Options,
    shared: Arc<Shared>,
    backend: Box<dyn Backend>,
    /// Why the backend must not be written, if so; new sessions are then stored in `fallback`.
    read_only: Option<String>,
    fallback: Memory,
    in_fallback: HashSet<SessionId>,
    owner: Option<Box<dyn Owner>>,
    syncer: Option<Syncer>,
    owned: HashMap<SessionId, Owned>,
    /// The sessions whose owner must be read again, because another process has written to the store.
    unchecked: Vec<SessionId>,
    /// The large values of the last answer that had any.
    large_values: Vec<TakenValue>,
}

/// A session that this process owns.
struct Owned {
    epoch: u64,
    head: u64,
    bytes: u64,
    /// Why the running turn can no longer be stored. Cleared when the turn ends.
    failure: Option<JournalError>,
    /// A state that is not in the list of sessions yet. Writing it is delayed until the first output is shown, so that the
    /// output does not wait for it.
    delayed_state: Option<State>,
    /// Whether anything was written since the last change of state.
    has_written: bool,
    /// Whether another process has taken it.
    is_lost: bool,
}

impl Writer {
    fn open(options: Options, custom: Option<CustomBackend>, shared: &Arc<Shared>) -> Writer {
        let opened = match (custom, &options.location) {
            (Some(custom), _) => open_custom(custom, shared),
            (None, Location::Directory(directory)) => open_disk(directory, shared),
            (None, Location::Postgres(server)) => {
                let server = || Postgres::new(server.clone());
                open_shared(Box::new(server()), Box::new(server()), shared)
            }
            (None, Location::DurableObjects(url)) => {
                let objects = || DurableObjects::new(url.clone());
                open_shared(Box::new(objects()), Box::new(objects()), shared)
            }
            (None, Location::Nowhere) => Err(NO_DIRECTORY.to_owned()),
        };
        let mut writer = Writer {
            options,
            shared: Arc::clone(shared),
            backend: Box::new(Memory::default()),
            read_only: None,
            fallback: Memory::default(),
            in_fallback: HashSet::new(),
            owner: None,
            syncer: None,
            owned: HashMap::new(),
            unchecked: Vec::new(),
            large_values: Vec::new(),
        };
        match opened {
            Ok(opened) => {
                writer.read_only = opened.read_only;
                writer.backend = opened.backend;
                writer.owner = opened.owner;
                writer.syncer = Some(opened.syncer);
                if let Some(why) = writer.read_only.clone() {
                    writer.report(why);
                }
            }
            Err(why) => writer.report(why),
        }
        writer
    }

    fn report(&self, why: String) {
        tracing::warn!("sessions are not stored: {why}");
        *self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    fn backend(&mut self, session: &SessionId) -> &mut dyn Backend {
        if self.in_fallback.contains(session) { &mut self.fallback } else { &mut *self.backend }
    }

    fn owner_id(&self) -> String {
        self.owner.as_ref().map_or_else(|| "memory".to_owned(), |owner| owner.id().to_owned())
    }

    /// Returns the id of this process as an owner that others see as running.
    fn renewed_owner(&self) -> Result<String, JournalError> {
        if let Some(owner) = &self.owner {
            owner.renew()?;
        }
        Ok(self.owner_id())
    }

    fn own_record() -> Result<Encoded, JournalError> {
        encode(&Record::Own { pid: std::process::id(), host: owner::host() })
    }

    fn now(&self) -> SystemTime {
        self.options.clock.now()
    }

    fn append_all(&mut self, appends: &mut Vec<(SessionId, Vec<Append>)>) {
        if self.options.late_for_tests && !appends.is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
        for (session, of_session) in appends.drain(..) {
            self.append(&session, of_session);
        }
    }

    /// Writes the appends of one session, then shows their events. Nothing is shown that is not written.
    fn append(&mut self, session: &SessionId, mut appends: Vec<Append>) {
        for record in appends.iter_mut().filter_map(|append| append.record.as_mut()) {
            let moved = large_values::move_out(record, |text| self.put(session, text));
            if !moved.is_empty() {
                self.large_values = moved;
            }
        }
        let mut batch = Batch::default();
        let Some(owned) = self.owned.get_mut(session) else {
            let why = match &self.read_only {
                Some(why) => JournalError::ReadOnly(why.clone()),
                None => JournalError::Failed("the session is not open here".to_owned()),
            };
            appends.into_iter().for_each(|append| reject(append, &why));
            return;
        };
        if let Some(why) =
            self.shared.unsynced.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            owned.failure = Some(JournalError::Failed(why));
        }
        let limit = self.options.max_history_bytes;
        for append in appends {
            batch.add(owned, limit, append);
        }
        if owned.failure.is_some() {
            self.shared.has_failed.store(true, Ordering::Release);
        }
        let (epoch, head, stored) = (owned.epoch, owned.head, owned.bytes);
        let now = match batch.state {
            Some(state) if batch.ends_turn => Some(state),
            None if owned.has_written => owned.delayed_state,
            _ => None,
        };
        let written = batch.finish().and_then(|bytes| {
            let bytes = stored + bytes;
            if batch.records.is_empty() {
                return Ok((head, bytes));
            }
            let change = now.map(|state| self.used_now(state, bytes));
            let (id, records) = (session.as_str(), &batch.records);
            let head = self.backend(session).append(id, epoch, head, records, change.as_ref())?;
            Ok((head, bytes))
        });
        match written {
            Ok((head, bytes)) => self.written(session, batch, head, bytes),
            Err(err) => self.not_written(session, batch, &err),
        }
    }

    fn written(&mut self, session: &SessionId, batch: Batch, head: u64, bytes: u64) {
        let mut turn_failed = None;
        if let Some(owned) = self.owned.get_mut(session) {
            owned.head = head;
            owned.bytes = bytes;
            owned.delayed_state = match batch.state {
                Some(_) if batch.ends_turn => None,
                None if owned.has_written => None,
                state => state.or(owned.delayed_state),
            };
            owned.has_written = batch.state.is_none();
            if batch.ends_turn {
                turn_failed = owned.failure.take();
                self.shared.has_failed.store(false, Ordering::Release);
            }
        }
        let places = batch.places(head);
        for (append, place) in batch.appends.into_iter().zip(places) {
            if let Some((event, show)) = append.shown {
                show(event, place);
            }
            let outcome = match (&append.record, &turn_failed) {
                (Some(Record::TurnEnd { .. }), Some(err)) => Err(err.clone()),
                _ => Ok(()),
            };
            match (&self.syncer, append.sync) {
                (Some(syncer), Sync::First) if outcome.is_ok() => syncer.request(append.ack),
                (Some(syncer), Sync::Soon) => {
                    answer(append.ack, outcome);
                    syncer.request(None);
                }
                (_, _) => answer(append.ack, outcome),
            }
        }
    }

    /// Returns the change for a session that is used now.
    fn used_now(&self, state: State, bytes: u64) -> Change {
        let (state, updated, bytes) = (Some(state), Some(self.now()), Some(bytes));
        Change { state, updated, bytes, ..Change::default() }
    }

    /// Writes delayed states to the list of sessions, because the next job may read it.
    fn write_delayed_states(&mut self) {
        let take = |(session, owned): (&SessionId, &mut Owned)| {
            Some((session.clone(), owned.delayed_state.take()?, owned.bytes))
        };
        let delayed_state: Vec<_> = self.owned.iter_mut().filter_map(take).collect();
        for (session, state, bytes) in delayed_state {
            let change = self.used_now(state, bytes);
            if let Err(err) = self.backend(&session).change(session.as_str(), &change) {
                tracing::warn!(%session, "cannot update the list of sessions: {err}");
            }
        }
    }

    fn not_written(&mut self, session: &SessionId, batch: Batch, err: &JournalError) {
        tracing::error!(%session, "cannot write the journal: {err}");
        if let Some(owned) = self.owned.get_mut(session) {
            // The next turn may succeed, so the failure is cleared when the turn ends.
            owned.failure = (!batch.ends_turn).then(|| err.clone());
            self.shared.has_failed.store(owned.failure.is_some(), Ordering::Release);
        }
        batch.appends.into_iter().for_each(|append| reject(append, err));
    }

    pub(crate) fn create(&mut self, session: &SessionId, cwd: &Path) -> Result<(), JournalError> {
        let now = self.now();
        let info = SessionInfo {
            id: session.clone(),
            cwd: cwd.to_owned(),
            title: None,
            state: State::Active,
            created: now,
            updated: now,
            bytes: 0,
        };
        if self.read_only.is_some() {
            self.in_fallback.insert(session.clone());
        }
        let (owner, own) = (self.renewed_owner()?, Writer::own_record()?);
        let claim = match self.backend(session).create(&info, &owner, &own) {
            // The store was found damaged and could not be recovered.
            Err(Error::ReadOnly(why)) => {
                self.report(why.clone());
                self.read_only = Some(why);
                self.in_fallback.insert(session.clone());
                self.backend(session).create(&info, &owner, &own)?
            }
            claim => claim?,
        };
        self.add_owned(session, claim);
        Ok(())
    }

    fn add_owned(&mut self, session: &SessionId, claim: Claim) {
        let Claim { epoch, head, bytes, .. } = claim;
        self.owned.insert(
            session.clone(),
            Owned {
                epoch,
                head,
                bytes,
                failure: None,
                delayed_state: None,
                has_written: false,
                is_lost: false,
            },
        );
    }

    pub(crate) fn find(&mut self, session: &SessionId) -> Result<SessionInfo, JournalError> {
        let facts = self.backend(session).find(session.as_str())?.ok_or(JournalError::NotFound)?;
        let info = self.info_out(facts);
        let days = self.options.expire_days;
        let age = self.now().duration_since(info.updated).unwrap_or_default();
        if days > 0 && age > Duration::from_secs(days.saturating_mul(86_400)) {
            return Err(JournalError::Expired(days));
        }
        Ok(info)
    }

    /// Converts facts. A session that no running process owns is paused, whatever its dead owner wrote last.
    fn info_out(&self, facts: Facts) -> SessionInfo {
        let Facts { mut info, owner } = facts;
        let is_open = owner.is_some_and(|id| {
            self.owner.as_ref().is_none_or(|owner| owner.describe_owner(&id).is_some())
        });
        if info.state == State::Active && !is_open {
            info.state = State::Paused;
        }
        info
    }

    /// Returns the number of the last record of a session.
    pub(crate) fn head(&mut self, session: &SessionId) -> Result<u64, JournalError> {
        match self.owned.get(session) {
            Some(owned) => Ok(owned.head),
            None => Err(JournalError::Failed("the session is not open here".to_owned())),
        }
    }

    pub(crate) fn read(
        &mut self,
        session: &SessionId,
        from: u64,
    ) -> Result<Vec<Stored>, JournalError> {
        let (id, backend) = (session.as_str(), self.backend(session));
        let mut page = backend.read(id, from, PAGE_BYTES)?;
        let (mut count, mut size) = (0, 0);
        for stored in page.iter_mut() {
            large_values::restore(&mut stored.record, |hash| backend.get(id, hash))?;
            count += 1;
            size += stored.record.body.len();
            if size >= PAGE_BYTES {
                break;
            }
        }
        page.truncate(count);
        Ok(page)
    }

    /// Stores the content of a file, and returns its hash.
    pub(crate) fn put_file(
        &mut self,
        session: &SessionId,
        content: &ports::Content,
    ) -> Result<Name, JournalError> {
        let body = content.bytes();
        if let Some(hash) = self.large_values.iter().find_map(|text| text.hash_of(body)) {
            content.set_hash(hash);
        }
        let hash = content.hash();
        // Of content that is too large only the hash is used.
        if body.len() <= MAX_UNDO_BYTES {
            self.put(session, Content { hash, body })?;
        }
        Ok(name_of(&hash))
    }

    /// Stores content under its hash.
    fn put(&mut self, session: &SessionId, content: Content<'_>) -> Result<(), JournalError> {
        let limit = self.options.max_history_bytes;
        let size = content.body.len() as u64;
        let Some(owned) = self.owned.get(session) else {
            return Err(JournalError::Failed("the session is not open here".to_owned()));
        };
        if limit > 0 && owned.bytes + size > limit {
            return Err(JournalError::Full(limit));
        }
        let is_new = self.backend(session).put(session.as_str(), &content)?;
        if let Some(owned) = self.owned.get_mut(session).filter(|_| is_new) {
            owned.bytes += size;
        }
        Ok(())
    }

    pub(crate) fn get(
        &mut self,
        session: &SessionId,
        hash: &Hash,
    ) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(self.backend(session).get(session.as_str(), hash)?)
    }

    pub(crate) fn release(
        &mut self,
        session: &SessionId,
        state: State,
    ) -> Result<(), JournalError> {
        let still_owns = self.still_owns(session);
        let Some(owned) = self.owned.remove(session).filter(|_| still_owns) else {
            return Ok(());
        };
        let facts = self.backend(session).find(session.as_str()).ok().flatten();
        // A session that ends with its process keeps the state of a failed turn; one that is closed does not.
        let has_failed = facts.is_some_and(|facts| facts.info.state == State::Error);
        let state = if has_failed && state == State::Paused { State::Error } else { state };
        let change = Change { state: Some(state), bytes: Some(owned.bytes), ..Change::default() };
        let backend = self.backend(session);
        let changed = backend.change(session.as_str(), &change);
        // Even if its facts could not be changed, because other processes may wait for it.
        backend.release(session.as_str(), owned.epoch)?;
        Ok(changed?)
    }

    pub(crate) fn set_title(
        &mut self,
        session: &SessionId,
        title: String,
    ) -> Result<(), JournalError> {
        let change = Change { title: Some(title), ..Change::default() };
        Ok(self.backend(session).change(session.as_str(), &change)?)
    }

    pub(crate) fn list(&mut self, query: Query) -> Result<Listing, JournalError> {
        let page = self.backend.list(&filter_in(query)?)?;
        let sessions = page.sessions.into_iter().map(|facts| self.info_out(facts)).collect();
        Ok(Listing { sessions, next: page.next.map(|cursor| cursor.print()) })
    }

    pub(crate) fn fork(&mut self, from: &SessionId, to: &SessionId) -> Result<(), JournalError> {
        self.find(from)?;
        let now = self.now();
        if self.in_fallback.contains(from) {
            self.in_fallback.insert(to.clone());
        }
        Ok(self.backend(from).copy(from.as_str(), to.as_str(), now)?)
    }

    pub(crate) fn delete(&mut self, session: &SessionId) -> Result<(), JournalError> {
        let Some(facts) = self.backend(session).find(session.as_str())? else {
            return Ok(());
        };
        let me = self.owner_id();
        if let Some(current_owner) = facts.owner.filter(|current_owner| *current_owner != me)
            && let Some(custom) =
                self.owner.as_ref().and_then(|owner| owner.describe_owner(&current_owner))
        {
            return Err(JournalError::OpenElsewhere(custom));
        }
        self.owned.remove(session);
        self.backend(session).delete(session.as_str())?;
        self.in_fallback.remove(session);
        Ok(())
    }
}

fn encode(record: &Record) -> Result<Encoded, JournalError> {
    record.encode().map_err(|err| JournalError::Failed(err.to_string()))
}

fn reject(append: Append, err: &JournalError) {
    answer(append.ack, Err(err.clone()));
}

fn answer(ack: Option<Ack>, outcome: Result<(), JournalError>) {
    // Fails only if the receiver was cancelled.
    drop(ack.map(|ack| ack.send(outcome)));
}

/// An opened backend.
struct Opened {
    backend: Box<dyn Backend>,
    owner: Option<Box<dyn Owner>>,
    syncer: Syncer,
    read_only: Option<String>,
}

fn open_custom(custom: CustomBackend, shared: &Arc<Shared>) -> Result<Opened, String> {
    let syncer = Syncer::start(custom.sync, shared).map_err(|err| err.to_string())?;
    Ok(Opened { backend: custom.backend, owner: None, syncer, read_only: None })
}

fn open_disk(directory: &Path, shared: &Arc<Shared>) -> Result<Opened, String> {
    let with_path = |path: &Path| {
        let path = path.display().to_string();
        move |err: std::io::Error| format!("{path}: {err}")
    };
    let live = directory.join("live");
    crate::files::create_private_dir(&live).map_err(with_path(&live))?;
    let owner = LockFile::new(&live).map_err(with_path(&live))?;
    let path = directory.join("sessions.db");
    crate::files::create_private_file(&path).map_err(with_path(&path))?;
    let opened =
        Recovering::open(&path, shared).map_err(|err| format!("{}: {err}", path.display()))?;
    let syncer = Syncer::start(opened.sqlite().sync(&path), shared).map_err(with_path(&path))?;
    let read_only = opened.sqlite().read_only().map(str::to_owned);
    Ok(Opened { backend: Box::new(opened), owner: Some(Box::new(owner)), syncer, read_only })
}

/// Opens a store that several machines share. The lease has a connection of its own.
fn open_shared(
    backend: Box<dyn Backend>,
    leases: Box<dyn Leases>,
    shared: &Arc<Shared>,
) -> Result<Opened, String> {
    let lease = Lease::new(leases).map_err(|err| err.to_string())?;
    // What the server has committed, it has synced.
    let syncer = Syncer::start(Box::new(|| Ok(())), shared).map_err(|err| err.to_string())?;
    Ok(Opened { backend, owner: Some(Box::new(lease)), syncer, read_only: None })
}
