//! A failing disk: at every write, every sync and every read. The ids are those of docs/internals/faults.md.
//!
//! The disk is a backend that fails on its Nth call. The tests of `purlin` cause the same faults in the kernel.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use engine::Event;
use engine::ports::*;
use engine::test_support::StubEditor;
use engine::words::*;
use store::content::{Content, Hash};
use store::index::{Filter, Page};
use store::journal::{Backend, Change, Claim, Error, Facts, Stored};
use store::memory::Memory;
use store::record::Encoded;
use store::{CustomBackend, Location, Options, Store, SyncAll};
use tempfile::TempDir;

use crate::sessions::{TestClock, end, id, options, prompt_as};

/// A disk that several stores use one after the other, and that fails as configured.
#[derive(Clone, Default)]
struct Disk {
    memory: Arc<Mutex<Memory>>,
    writes: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
    failing: Failing,
}

#[derive(Clone, Copy, Default)]
struct Failing {
    /// Which write fails, counting from 1.
    write: Option<usize>,
    /// Which read fails.
    read: Option<usize>,
    /// Whether all later calls fail, too, as on a full disk.
    for_ever: bool,
}

impl Failing {
    fn hits(self, at: Option<usize>, count: usize) -> bool {
        at.is_some_and(|at| count == at || (self.for_ever && count > at))
    }
}

impl Disk {
    fn write<T>(&self, work: impl FnOnce(&mut Memory) -> Result<T, Error>) -> Result<T, Error> {
        let count = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if self.failing.hits(self.failing.write, count) {
            return Err(Error::Failed("no space left on device".to_owned()));
        }
        work(&mut self.memory.lock().unwrap())
    }

    fn read<T>(&self, work: impl FnOnce(&mut Memory) -> Result<T, Error>) -> Result<T, Error> {
        let count = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        if self.failing.hits(self.failing.read, count) {
            return Err(Error::Failed("input/output error".to_owned()));
        }
        work(&mut self.memory.lock().unwrap())
    }
}

impl Backend for Disk {
    fn create(&mut self, info: &SessionInfo, owner: &str, own: &Encoded) -> Result<Claim, Error> {
        self.write(|memory| memory.create(info, owner, own))
    }

    fn take(
        &mut self,
        session: &str,
        owner: &str,
        own: &Encoded,
        describe_owner: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Claim, Error> {
        self.write(|memory| memory.take(session, owner, own, describe_owner))
    }

    fn append(
        &mut self,
        session: &str,
        epoch: u64,
        expected_head: u64,
        records: &[Encoded],
        change: Option<&Change>,
    ) -> Result<u64, Error> {
        self.write(|memory| memory.append(session, epoch, expected_head, records, change))
    }

    fn read(&mut self, session: &str, from: u64, bytes: usize) -> Result<Vec<Stored>, Error> {
        Disk::read(self, |memory| memory.read(session, from, bytes))
    }

    fn put(&mut self, session: &str, content: &Content<'_>) -> Result<bool, Error> {
        self.write(|memory| memory.put(session, content))
    }

    fn get(&mut self, session: &str, hash: &Hash) -> Result<Option<Vec<u8>>, Error> {
        Disk::read(self, |memory| memory.get(session, hash))
    }

    fn change(&mut self, session: &str, change: &Change) -> Result<(), Error> {
        self.write(|memory| memory.change(session, change))
    }

    fn release(&mut self, session: &str, epoch: u64) -> Result<(), Error> {
        self.write(|memory| memory.release(session, epoch))
    }

    fn find(&mut self, session: &str) -> Result<Option<Facts>, Error> {
        Disk::read(self, |memory| memory.find(session))
    }

    fn list(&mut self, filter: &Filter) -> Result<Page, Error> {
        Disk::read(self, |memory| memory.list(filter))
    }

    fn copy(&mut self, from: &str, to: &str, now: SystemTime) -> Result<(), Error> {
        self.write(|memory| memory.copy(from, to, now))
    }

    fn delete(&mut self, session: &str) -> Result<(), Error> {
        self.write(|memory| memory.delete(session))
    }
}

fn store_on(disk: &Disk, sync: SyncAll) -> Store {
    let place = CustomBackend { backend: Box::new(disk.clone()), sync };
    Store::with_backend(place, Options { location: Location::Nowhere, ..options(Path::new("")) })
}

fn good_sync() -> SyncAll {
    Box::new(|| Ok(()))
}

/// Collects the events that the client is shown.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<Event>>>);

impl Shown {
    fn show(&self) -> Option<DisplayPermit> {
        let shown = Arc::clone(&self.0);
        Some(Box::new(move |event, _| shown.lock().unwrap().push(event)))
    }

    /// The words that were shown, each with its number.
    fn words(&self) -> Vec<String> {
        words_of(&self.0.lock().unwrap())
    }
}

fn words_of(events: &[Event]) -> Vec<String> {
    let texts = events.iter().filter_map(|event| match event {
        Event::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<String>().split_whitespace().map(str::to_owned).collect()
}

/// Runs two turns with text and a tool that changes a file. Stops a turn where the engine would.
async fn work(store: &Store, shown: &Shown) -> Result<(), JournalError> {
    let session = id("s");
    store.create(&session, Path::new("/w")).await?;
    for turn in 0..2 {
        let ran = one_turn(store, &session, turn, shown).await;
        let ended = end(store, &session).await;
        // A failed write is reported at the end of the turn at the latest.
        if ran.is_err() {
            assert!(ended.is_err() || store.problem().is_none());
        }
        ran.and(ended)?;
    }
    store.release(&session, State::Paused).await
}

async fn one_turn(
    store: &Store,
    session: &SessionId,
    turn: usize,
    shown: &Shown,
) -> Result<(), JournalError> {
    prompt_as(store, session, &format!("u{turn}"), "go").await?;
    for word in 0..5 {
        let text = format!("{turn}.{word} ");
        let event = Event::Text { message: MessageId::new(format!("m{turn}")), text };
        store.append_event(session, event, shown.show()).await?;
    }
    let request = ToolRequest {
        id: ToolCallId::new(format!("t{turn}")),
        name: "write".to_owned(),
        input: serde_json::json!({}).into(),
    };
    store.append(session, Record::Answer(std::slice::from_ref(&request))).await?;
    store.append(session, Record::ToolIntent(&request)).await?;
    let held = |turn: usize| Some(engine::ports::Content::new(vec![turn as u8]));
    let (before, after) = (held(turn), held(turn + 1));
    let change = FileChange { path: PathBuf::from("/w/a"), before, after };
    store.save_change(session, change).await?;
    let result = Record::ToolResult { id: &request.id, text: "done", failed: false };
    store.append(session, result).await
}

async fn loaded_words(disk: &Disk) -> Vec<String> {
    let healthy = Disk { failing: Failing::default(), ..disk.clone() };
    let store = store_on(&healthy, good_sync());
    let editor = StubEditor::default();
    store.load(&id("s"), Some(&editor)).await.unwrap();
    words_of(&editor.events())
}

async fn count_of(count: impl Fn(&Disk) -> usize) -> usize {
    let disk = Disk::default();
    work(&store_on(&disk, good_sync()), &Shown::default()).await.unwrap();
    count(&disk)
}

/// D01, D02, D05, D06, D08: a write fails, once or from then on, at every write. Everything that was shown is stored, the
/// failure is reported, and the session loads and continues.
// R: S9
#[tokio::test]
async fn failed_write_loses_nothing_that_was_shown() {
    let writes = count_of(|disk| disk.writes.load(Ordering::Relaxed)).await;
    assert!(writes >= 12, "{writes}");
    for for_ever in [false, true] {
        for write in 1..=writes {
            let failing = Failing { write: Some(write), for_ever, read: None };
            let disk = Disk { failing, ..Disk::default() };
            let shown = Shown::default();
            let store = store_on(&disk, good_sync());
            let done = work(&store, &shown).await;
            drop(store);
            if disk.memory.lock().unwrap().find("s").unwrap().is_none() {
                assert_eq!(shown.words(), Vec::<String>::new(), "write {write}");
                assert!(done.is_err(), "write {write}");
                continue;
            }
            let loaded = loaded_words(&disk).await;
            assert!(
                loaded.starts_with(&shown.words()),
                "write {write}: {loaded:?}, {shown:?}",
                shown = shown.words()
            );
            if loaded.len() < 10 {
                assert!(done.is_err(), "write {write}: words are lost without an error");
            }
            let healthy = Disk { failing: Failing::default(), ..disk.clone() };
            let store = store_on(&healthy, good_sync());
            store.load(&id("s"), None).await.unwrap();
            prompt_as(&store, &id("s"), "again", "go on").await.unwrap();
            end(&store, &id("s")).await.unwrap();
        }
    }
}

/// D03: a sync fails. A later success does not hide it: the running turn fails, and the next one works.
#[tokio::test]
async fn failed_sync_ends_the_turn() {
    let disk = Disk::default();
    let mut is_first = true;
    let (report, failed) = mpsc::channel();
    let sync: SyncAll = Box::new(move || {
        if std::mem::take(&mut is_first) {
            report.send(()).unwrap();
            return Err(io::Error::other("input/output error"));
        }
        Ok(())
    });
    let store = store_on(&disk, sync);
    let session = id("s");
    store.create(&session, Path::new("/w")).await.unwrap();
    // Requests a sync without waiting for it.
    prompt_as(&store, &session, "u", "go").await.unwrap();
    failed.recv().unwrap();
    // The error is set before the thread handles its next job.
    let refused = loop {
        let event = Event::Plan(Vec::new());
        match store.append_event(&session, event, None).await {
            Ok(()) => tokio::task::yield_now().await,
            Err(err) => break err,
        }
    };
    assert!(refused.to_string().contains("sync to disk failed"), "{refused}");
    assert!(end(&store, &session).await.is_err());
    prompt_as(&store, &session, "u2", "go on").await.unwrap();
    end(&store, &session).await.unwrap();
}

/// D03: a tool does not run if its intent could not be synced.
#[tokio::test]
async fn tool_does_not_run_if_its_intent_is_not_synced() {
    let disk = Disk::default();
    let store = store_on(&disk, Box::new(|| Err(io::Error::other("input/output error"))));
    let session = id("s");
    store.create(&session, Path::new("/w")).await.unwrap();
    let (id_of, name) = (ToolCallId::new("t"), "write".to_owned());
    let request = ToolRequest { id: id_of, name, input: serde_json::json!({}).into() };
    assert!(store.append(&session, Record::ToolIntent(&request)).await.is_err());
}

/// D04: each read of a load fails once. It is an error, and the next attempt works.
#[tokio::test]
async fn failed_read_is_an_error_and_can_be_retried() {
    let disk = Disk::default();
    work(&store_on(&disk, good_sync()), &Shown::default()).await.unwrap();
    for read in 1..10 {
        disk.reads.store(0, Ordering::Relaxed);
        let failing = Failing { read: Some(read), ..Failing::default() };
        let bad = Disk { failing, ..disk.clone() };
        let store = store_on(&bad, good_sync());
        let editor = StubEditor::default();
        let loaded = store.load(&id("s"), Some(&editor)).await;
        let has_failed = disk.reads.load(Ordering::Relaxed) >= read && loaded.is_err();
        assert!(has_failed || loaded.is_ok(), "read {read}");
        if loaded.is_err() {
            assert!(store.load(&id("s"), None).await.is_ok(), "read {read}");
        }
        store.release(&id("s"), State::Paused).await.unwrap();
        drop(store);
        assert_eq!(loaded_words(&disk).await.len(), 10, "read {read}");
    }
}

/// D23: during a slow sync text continues, and only records that must be synced first wait.
#[tokio::test]
async fn text_continues_while_the_disk_syncs() {
    let disk = Disk::default();
    let (go, may_go): (Sender<()>, Receiver<()>) = mpsc::channel();
    let sync: SyncAll = Box::new(move || may_go.recv().map_err(io::Error::other));
    let store = store_on(&disk, sync);
    let (session, shown) = (id("s"), Shown::default());
    store.create(&session, Path::new("/w")).await.unwrap();
    prompt_as(&store, &session, "u", "go").await.unwrap();
    for word in 0..100 {
        let event = Event::Text { message: MessageId::new("m"), text: format!("{word} ") };
        store.append_event(&session, event, shown.show()).await.unwrap();
    }
    end(&store, &session).await.unwrap();
    assert_eq!(shown.words().len(), 100);
    let (id_of, name) = (ToolCallId::new("t"), "write".to_owned());
    let request = ToolRequest { id: id_of, name, input: serde_json::json!({}).into() };
    let intent = store.append(&session, Record::ToolIntent(&request));
    tokio::pin!(intent);
    assert!(futures_util::FutureExt::now_or_never(&mut intent).is_none());
    // One for each record that requests a sync; fewer if several requests are combined.
    for _ in 0..3 {
        go.send(()).unwrap();
    }
    intent.await.unwrap();
}

/// D21, D22: the clock jumps back and forward by a day. The order of records does not change, and nothing expires.
#[tokio::test]
async fn clock_jump_changes_no_order_and_loses_nothing() {
    let directory = TempDir::new().unwrap();
    let clock = Arc::new(TestClock::default());
    let day = Duration::from_secs(86_400);
    *clock.0.lock().unwrap() = 2 * day;
    let options = Options {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        expire_days: 2,
        ..options(directory.path())
    };
    let store = Store::new(options);
    let shown = Shown::default();
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    for (turn, now) in [2 * day, day, 3 * day].into_iter().enumerate() {
        *clock.0.lock().unwrap() = now;
        one_turn(&store, &id("s"), turn, &shown).await.unwrap();
        end(&store, &id("s")).await.unwrap();
    }
    *clock.0.lock().unwrap() = day;
    store.release(&id("s"), State::Paused).await.unwrap();
    let editor = StubEditor::default();
    store.load(&id("s"), Some(&editor)).await.unwrap();
    assert_eq!(words_of(&editor.events()), shown.words());
    assert_eq!(store.list(Query::default()).await.unwrap().sessions.len(), 1);
}
