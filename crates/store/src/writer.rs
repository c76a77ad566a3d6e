//! The thread that owns the backend. It takes whatever waits, writes it in one go, and only then shows it.
//!
//! Nothing waits for a timer: while one write is under way the next batch gathers by itself.

mod batch;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use engine::Event;
use engine::ports::{self, Info, JournalError, Listing, Query, Show, State};
use engine::words::SessionId;
use tokio::sync::mpsc;

use crate::apart::{self, TakenOut, name_of};
use crate::index::filter_in;
use crate::journal::{Backend, Change, Claim, Content, Facts, Hash, Stored};
use crate::memory::Memory;
use crate::owner::{self, Owner};
use crate::record::{Encoded, Name, Record};
use crate::sqlite::Sqlite;
use crate::store::{Options, Place, Shared};
use crate::sync::{Ack, Syncer};
use batch::Batch;

/// How many jobs are taken at once.
const AT_ONCE: usize = 512;
/// A file larger than this is not kept for undo.
const LARGEST: usize = 16 * 1024 * 1024;
/// How much a session is read at once.
const PAGE: usize = 256 * 1024;

/// Something to do.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every job is an append; a box each would cost more"
)]
pub(crate) enum Job {
    Append(Append),
    /// Anything else; done behind all appends that came before.
    Do(Box<dyn FnOnce(&mut Writer) + Send>),
}

/// Something to keep.
pub(crate) struct Append {
    pub(crate) session: SessionId,
    /// `None` for an event that is only shown, in its place among the others.
    pub(crate) record: Option<Record>,
    pub(crate) shown: Option<(Event, Show)>,
    pub(crate) ack: Option<Ack>,
    pub(crate) sync: Sync,
}

/// Whether a record must survive the death of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// With the next sync, whenever that is.
    No,
    /// Soon; nobody waits for it.
    Soon,
    /// Before it is acknowledged.
    First,
}

/// Serves until nobody can send a job any more.
pub(crate) fn run(
    mut jobs: mpsc::Receiver<Job>,
    options: Options,
    place: Option<Place>,
    shared: &Arc<Shared>,
) {
    let mut writer = Writer::open(options, place, shared);
    let mut waiting = Vec::with_capacity(AT_ONCE);
    while jobs.blocking_recv_many(&mut waiting, AT_ONCE) > 0 {
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
                    writer.catch_up();
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
    /// Why the backend must not be written; new sessions then live in `spare`.
    read_only: Option<String>,
    spare: Memory,
    in_spare: HashSet<SessionId>,
    owner: Option<Owner>,
    syncer: Option<Syncer>,
    owned: HashMap<SessionId, Owned>,
    /// The long texts of the last answer that had any.
    taken_out: Vec<TakenOut>,
}

/// A session that this process has.
struct Owned {
    epoch: u64,
    head: u64,
    bytes: u64,
    /// Why the turn that runs cannot be kept any more. Cleared when it ends.
    broken: Option<JournalError>,
    /// The state that is not in the index yet. It waits until the first answer is shown, which would wait for it.
    late: Option<State>,
    /// Whether something was written since.
    is_answered: bool,
}

/// A session that was taken.
pub(crate) struct Taken {
    pub(crate) info: Info,
    /// Whether it was not ours before, so that what is open in it was left by a crash.
    pub(crate) is_fresh: bool,
    pub(crate) is_read_only: bool,
}

impl Writer {
    fn open(options: Options, place: Option<Place>, shared: &Arc<Shared>) -> Writer {
        let opened = match (place, &options.folder) {
            (Some(place), _) => open_place(place, shared),
            (None, Some(folder)) => open_disk(folder, shared),
            (None, None) => Err("there is no folder for data: HOME is not set".to_owned()),
        };
        let mut writer = Writer {
            options,
            shared: Arc::clone(shared),
            backend: Box::new(Memory::default()),
            read_only: None,
            spare: Memory::default(),
            in_spare: HashSet::new(),
            owner: None,
            syncer: None,
            owned: HashMap::new(),
            taken_out: Vec::new(),
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
        tracing::warn!("sessions are not kept: {why}");
        *self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    fn backend(&mut self, session: &SessionId) -> &mut dyn Backend {
        if self.in_spare.contains(session) { &mut self.spare } else { &mut *self.backend }
    }

    fn owner_id(&self) -> String {
        self.owner.as_ref().map_or_else(|| "memory".to_owned(), |owner| owner.id().to_owned())
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

    /// Writes what came for one session, then shows it. Nothing is shown that is not written.
    fn append(&mut self, session: &SessionId, mut appends: Vec<Append>) {
        for record in appends.iter_mut().filter_map(|append| append.record.as_mut()) {
            let taken = apart::take_out(record, |text| self.put(session, text));
            if !taken.is_empty() {
                self.taken_out = taken;
            }
        }
        let mut batch = Batch::default();
        let Some(owned) = self.owned.get_mut(session) else {
            let why = match &self.read_only {
                Some(why) => JournalError::ReadOnly(why.clone()),
                None => JournalError::Failed("the session is not open here".to_owned()),
            };
            appends.into_iter().for_each(|append| refuse(append, &why));
            return;
        };
        if let Some(why) =
            self.shared.unsynced.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            owned.broken = Some(JournalError::Failed(why));
        }
        let limit = self.options.max_history_bytes;
        for append in appends {
            batch.take(owned, limit, append);
        }
        if owned.broken.is_some() {
            self.shared.has_failed.store(true, Ordering::Release);
        }
        let (epoch, head, kept) = (owned.epoch, owned.head, owned.bytes);
        let now = match batch.state {
            Some(state) if batch.ends_turn => Some(state),
            None if owned.is_answered => owned.late,
            _ => None,
        };
        let written = batch.finish().and_then(|bytes| {
            let bytes = kept + bytes;
            if batch.records.is_empty() {
                return Ok((head, bytes));
            }
            let change = now.map(|state| self.used(state, bytes));
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
            owned.late = match batch.state {
                Some(_) if batch.ends_turn => None,
                None if owned.is_answered => None,
                state => state.or(owned.late),
            };
            owned.is_answered = batch.state.is_none();
            if batch.ends_turn {
                turn_failed = owned.broken.take();
                self.shared.has_failed.store(false, Ordering::Release);
            }
        }
        for append in batch.appends {
            if let Some((event, show)) = append.shown {
                show(event);
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

    /// A session that is used now.
    fn used(&self, state: State, bytes: u64) -> Change {
        let (state, updated, bytes) = (Some(state), Some(self.now()), Some(bytes));
        Change { state, updated, bytes, ..Change::default() }
    }

    /// Brings into the index what is late: somebody may look.
    fn catch_up(&mut self) {
        let take = |(session, owned): (&SessionId, &mut Owned)| {
            Some((session.clone(), owned.late.take()?, owned.bytes))
        };
        let late: Vec<_> = self.owned.iter_mut().filter_map(take).collect();
        for (session, state, bytes) in late {
            let change = self.used(state, bytes);
            if let Err(err) = self.backend(&session).change(session.as_str(), &change) {
                tracing::warn!(%session, "the index is behind: {err}");
            }
        }
    }

    fn not_written(&mut self, session: &SessionId, batch: Batch, err: &JournalError) {
        tracing::error!(%session, "the journal cannot be written: {err}");
        if let Some(owned) = self.owned.get_mut(session) {
            // A turn that ended is over, kept or not; the next one may find room again.
            owned.broken = (!batch.ends_turn).then(|| err.clone());
            self.shared.has_failed.store(owned.broken.is_some(), Ordering::Release);
        }
        batch.appends.into_iter().for_each(|append| refuse(append, err));
    }

    pub(crate) fn create(&mut self, session: &SessionId, cwd: &Path) -> Result<(), JournalError> {
        let now = self.now();
        let info = Info {
            id: session.clone(),
            cwd: cwd.to_owned(),
            title: None,
            state: State::Active,
            created: now,
            updated: now,
            bytes: 0,
        };
        if self.read_only.is_some() {
            self.in_spare.insert(session.clone());
        }
        let owner = self.owner_id();
        let claim = self.backend(session).create(&info, &owner, &Writer::own_record()?)?;
        self.hold(session, claim);
        Ok(())
    }

    fn hold(&mut self, session: &SessionId, claim: Claim) {
        let Claim { epoch, head, bytes, .. } = claim;
        self.owned.insert(
            session.clone(),
            Owned { epoch, head, bytes, broken: None, late: None, is_answered: false },
        );
    }

    pub(crate) fn find(&mut self, session: &SessionId) -> Result<Info, JournalError> {
        let facts = self.backend(session).find(session.as_str())?.ok_or(JournalError::NotFound)?;
        let info = self.info_out(facts);
        let days = self.options.expire_days;
        let age = self.now().duration_since(info.updated).unwrap_or_default();
        if days > 0 && age > Duration::from_secs(days.saturating_mul(86_400)) {
            return Err(JournalError::Expired(days));
        }
        Ok(info)
    }

    /// A session that nobody has open is paused, whatever its owner last wrote before it died.
    fn info_out(&self, facts: Facts) -> Info {
        let Facts { mut info, owner } = facts;
        let is_open = owner.is_some_and(|id| {
            self.owner.as_ref().is_none_or(|owner| owner.place_of(&id).is_some())
        });
        if info.state == State::Active && !is_open {
            info.state = State::Paused;
        }
        info
    }

    pub(crate) fn take(&mut self, session: &SessionId) -> Result<Taken, JournalError> {
        let mut info = self.find(session)?;
        if self.read_only.is_some() && !self.in_spare.contains(session) {
            return Ok(Taken { info, is_fresh: true, is_read_only: true });
        }
        let id = self.owner_id();
        let own = Writer::own_record()?;
        let owner = self.owner.take();
        let place_of = |id: &str| owner.as_ref().and_then(|owner| owner.place_of(id));
        let taken = self.backend(session).take(session.as_str(), &id, &own, &place_of);
        self.owner = owner;
        let claim = taken?;
        // Giving it back may have failed half way: then it is ours on record, and nobody serves it.
        let is_fresh = claim.is_fresh || !self.owned.contains_key(session);
        if is_fresh {
            self.hold(session, claim);
        }
        info.state = State::Active;
        Ok(Taken { info, is_fresh, is_read_only: false })
    }

    pub(crate) fn read(
        &mut self,
        session: &SessionId,
        from: u64,
    ) -> Result<Vec<Stored>, JournalError> {
        let (id, backend) = (session.as_str(), self.backend(session));
        let mut page = backend.read(id, from, PAGE)?;
        let (mut count, mut size) = (0, 0);
        for stored in page.iter_mut() {
            apart::put_back(&mut stored.record, |hash| backend.get(id, hash))?;
            count += 1;
            size += stored.record.body.len();
            if size >= PAGE {
                break;
            }
        }
        page.truncate(count);
        Ok(page)
    }

    /// Keeps what a file holds, and returns what it is known by.
    pub(crate) fn put_file(
        &mut self,
        session: &SessionId,
        content: &ports::Content,
    ) -> Result<Name, JournalError> {
        let body = content.bytes();
        if let Some(hash) = self.taken_out.iter().find_map(|text| text.hash_of(body)) {
            content.has_hash(hash);
        }
        let hash = content.hash();
        // What is too large is known by its hash alone.
        if body.len() <= LARGEST {
            self.put(session, Content { hash, body })?;
        }
        Ok(name_of(&hash))
    }

    /// Keeps content under its hash.
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

    pub(crate) fn leave(&mut self, session: &SessionId, state: State) -> Result<(), JournalError> {
        let Some(owned) = self.owned.remove(session) else {
            return Ok(());
        };
        let facts = self.backend(session).find(session.as_str()).ok().flatten();
        // That a turn failed is still so when the process ends; that somebody closes the session is an end.
        let has_failed = facts.is_some_and(|facts| facts.info.state == State::Error);
        let state = if has_failed && state == State::Paused { State::Error } else { state };
        let change = Change { state: Some(state), bytes: Some(owned.bytes), ..Change::default() };
        let backend = self.backend(session);
        let changed = backend.change(session.as_str(), &change);
        // Also if its facts could not be changed: others wait for it.
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
        if self.in_spare.contains(from) {
            self.in_spare.insert(to.clone());
        }
        Ok(self.backend(from).copy(from.as_str(), to.as_str(), now)?)
    }

    pub(crate) fn delete(&mut self, session: &SessionId) -> Result<(), JournalError> {
        let Some(facts) = self.backend(session).find(session.as_str())? else {
            return Ok(());
        };
        let me = self.owner_id();
        if let Some(holder) = facts.owner.filter(|holder| *holder != me)
            && let Some(place) = self.owner.as_ref().and_then(|owner| owner.place_of(&holder))
        {
            return Err(JournalError::OpenElsewhere(place));
        }
        self.owned.remove(session);
        self.backend(session).delete(session.as_str())?;
        self.in_spare.remove(session);
        Ok(())
    }
}

fn encode(record: &Record) -> Result<Encoded, JournalError> {
    record.encode().map_err(|err| JournalError::Failed(err.to_string()))
}

fn refuse(append: Append, err: &JournalError) {
    answer(append.ack, Err(err.clone()));
}

fn answer(ack: Option<Ack>, outcome: Result<(), JournalError>) {
    // Whoever stopped waiting was cancelled.
    drop(ack.map(|ack| ack.send(outcome)));
}

/// What a writer works with.
struct Opened {
    backend: Box<dyn Backend>,
    owner: Option<Owner>,
    syncer: Syncer,
    read_only: Option<String>,
}

fn open_place(place: Place, shared: &Arc<Shared>) -> Result<Opened, String> {
    let syncer = Syncer::start(place.sync, shared).map_err(|err| err.to_string())?;
    Ok(Opened { backend: place.backend, owner: None, syncer, read_only: None })
}

fn open_disk(folder: &Path, shared: &Arc<Shared>) -> Result<Opened, String> {
    let said = |path: &Path| {
        let path = path.display().to_string();
        move |err: std::io::Error| format!("{path}: {err}")
    };
    let live = folder.join("live");
    crate::store::make_folder(&live).map_err(said(&live))?;
    let owner = Owner::new(&live).map_err(said(&live))?;
    let path = folder.join("sessions.db");
    crate::store::make_file(&path).map_err(said(&path))?;
    let sqlite = Sqlite::open(&path).map_err(|err| format!("{}: {err}", path.display()))?;
    let syncer = Syncer::start(sqlite.sync(&path), shared).map_err(said(&path))?;
    let read_only = sqlite.read_only().map(str::to_owned);
    Ok(Opened { backend: Box::new(sqlite), owner: Some(owner), syncer, read_only })
}
