//! A damaged database: what can be read is recovered, and no single page prevents new sessions.

use std::path::{Path, PathBuf};

use engine::ports::{Journal, JournalError, Query, State};
use store::Store;
use tempfile::TempDir;

use crate::sessions::{end, id, load, options, prompt, say, wait_for_end_of};

const SESSIONS: usize = 12;
const PAGE: usize = 4096;

fn name(number: usize) -> String {
    format!("session-{number}")
}

/// Stores sessions with enough records for several levels of pages.
async fn stored_sessions(directory: &TempDir) {
    let store = Store::new(options(directory.path()));
    for number in 0..SESSIONS {
        let session = id(&name(number));
        store.create(&session, Path::new("/w")).await.unwrap();
        for turn in 0..4 {
            prompt(&store, &session, &format!("prompt {turn} of {number}")).await.unwrap();
            say(&store, &session, &format!("answer {turn} of {number}. ").repeat(60)).await;
            end(&store, &session).await.unwrap();
        }
        store.release(&session, State::Paused).await.unwrap();
    }
    drop(store);
    wait_for_end_of(directory).await;
}

fn database(directory: &TempDir) -> PathBuf {
    directory.path().join("sessions.db")
}

fn damaged_files(directory: &TempDir) -> usize {
    let entries = directory.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let is_database = |name: &str| {
        let stamp = name.strip_prefix("sessions.db.damaged-");
        stamp.is_some_and(|stamp| stamp.bytes().all(|byte| byte.is_ascii_digit()))
    };
    entries.filter(|name| is_database(&name.to_string_lossy())).count()
}

/// Opens every stored session, and returns how many could be loaded with how many events.
async fn loadable(store: &Store) -> (usize, usize) {
    let (mut sessions, mut events) = (0, 0);
    for number in 0..SESSIONS {
        match store.load(&id(&name(number)), None).await {
            Ok(_) => {
                sessions += 1;
                store.release(&id(&name(number)), State::Paused).await.unwrap();
                events += load(store, &id(&name(number))).await.1.len();
                store.release(&id(&name(number)), State::Paused).await.unwrap();
            }
            Err(JournalError::NotFound) => {}
            Err(err) => panic!("session {number}: {err}"),
        }
    }
    (sessions, events)
}

/// Each page in turn is zeroed, filled with noise, or has its first bytes changed. New sessions are stored, all sessions
/// are listed or recovered, and at most the rows of that page are lost.
// R: S9, W16
#[tokio::test]
async fn damaged_page_costs_only_its_own_rows() {
    let directory = TempDir::new().unwrap();
    stored_sessions(&directory).await;
    let whole = std::fs::read(database(&directory)).unwrap();
    let store = Store::new(options(directory.path()));
    let (_, all_events) = loadable(&store).await;
    drop(store);
    let pages = whole.len() / PAGE;
    assert!(pages > 20, "{pages} pages");
    let mut recoveries = 0;
    for page in 0..pages {
        for (damage, bytes) in
            [("zeroed", vec![0; PAGE]), ("noise", vec![0xa5; PAGE]), ("type", vec![0x77; 8])]
        {
            let what = format!("page {} of {pages}, {damage}", page + 1);
            let directory = TempDir::new().unwrap();
            let mut damaged = whole.clone();
            damaged[page * PAGE..page * PAGE + bytes.len()].copy_from_slice(&bytes);
            std::fs::write(database(&directory), damaged).unwrap();
            let store = Store::new(options(directory.path()));
            store.create(&id("new"), Path::new("/w")).await.expect(&what);
            prompt(&store, &id("new"), "hello").await.expect(&what);
            assert!(store.is_persistent(), "{what}: {:?}", store.problem());
            let listed = store.list(Query::default()).await.expect(&what).sessions.len();
            let (sessions, events) = loadable(&store).await;
            // A page has the rows of several sessions at most; the row of a session is also in the indexes.
            assert!(sessions == SESSIONS && listed == SESSIONS + 1, "{what}: {sessions}, {listed}");
            assert!(events * 10 >= all_events * 8, "{what}: {events} of {all_events} events");
            assert_eq!(
                damaged_files(&directory),
                usize::from(store.recovery().is_some()),
                "{what}"
            );
            recoveries += damaged_files(&directory);
        }
    }
    // Damage inside a row is found by its checksum, without a recovery.
    assert!(recoveries > pages, "{recoveries} recoveries");
}

#[tokio::test]
async fn recovery_reads_what_is_only_in_the_log() {
    let directory = TempDir::new().unwrap();
    stored_sessions(&directory).await;
    let store = Store::new(options(directory.path()));
    let session = id(&name(3));
    let before = load(&store, &session).await.1.len();
    prompt(&store, &session, "only in the log").await.unwrap();
    // The files as a crash would leave them, and the first page damaged.
    let copy = TempDir::new().unwrap();
    let log = std::fs::read(directory.path().join("sessions.db-wal")).unwrap();
    std::fs::write(copy.path().join("sessions.db-wal"), log).unwrap();
    let mut bytes = std::fs::read(database(&directory)).unwrap();
    bytes[..PAGE].fill(0x33);
    std::fs::write(database(&copy), bytes).unwrap();
    let recovered = Store::new(options(copy.path()));
    let (_, events) = load(&recovered, &session).await;
    assert_eq!(events.len(), before + 1);
    assert!(format!("{:?}", events.last()).contains("only in the log"));
    let told = recovered.recovery().unwrap();
    assert!(told.contains("12 sessions") && told.contains("sessions.db.damaged-"), "{told}");
}

/// Two processes have the store open. One of them finds the damage and recovers the store; the other one continues in the
/// new file, with its own session.
#[tokio::test]
async fn other_process_continues_after_a_recovery() {
    let directory = TempDir::new().unwrap();
    stored_sessions(&directory).await;
    let other = Store::new(options(directory.path()));
    other.create(&id("other"), Path::new("/w")).await.unwrap();
    prompt(&other, &id("other"), "before").await.unwrap();
    let connection = rusqlite::Connection::open(database(&directory)).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    // The index by time is changed by every new session.
    let mut bytes = std::fs::read(database(&directory)).unwrap();
    let root = index_page(&directory);
    bytes[(root - 1) * PAGE..root * PAGE].fill(0x99);
    overwrite(&database(&directory), &bytes);
    let store = Store::new(options(directory.path()));
    store.create(&id("new"), Path::new("/w")).await.unwrap();
    assert!(store.recovery().is_some());
    prompt(&other, &id("other"), "after").await.unwrap();
    assert!(other.recovery().is_none());
    assert_eq!(damaged_files(&directory), 1);
    other.release(&id("other"), State::Paused).await.unwrap();
    assert_eq!(load(&store, &id("other")).await.1.len(), 2);
}

fn index_page(directory: &TempDir) -> usize {
    let connection = rusqlite::Connection::open(database(directory)).unwrap();
    let query = "SELECT rootpage FROM sqlite_schema WHERE name = 'session_by_time'";
    let page: i64 = connection.query_row(query, [], |row| row.get(0)).unwrap();
    usize::try_from(page).unwrap()
}

/// Changes a file in place: another process has it open.
fn overwrite(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[tokio::test]
async fn interrupted_recovery_is_finished() {
    let directory = TempDir::new().unwrap();
    stored_sessions(&directory).await;
    // Killed after the damaged file was renamed.
    std::fs::rename(database(&directory), directory.path().join("sessions.db.recovered")).unwrap();
    let store = Store::new(options(directory.path()));
    assert_eq!(store.list(Query::default()).await.unwrap().sessions.len(), SESSIONS);
    // Killed before.
    drop(store);
    wait_for_end_of(&directory).await;
    std::fs::rename(database(&directory), directory.path().join("sessions.db.recovered")).unwrap();
    std::fs::write(database(&directory), "damaged").unwrap();
    let store = Store::new(options(directory.path()));
    assert_eq!(store.list(Query::default()).await.unwrap().sessions.len(), SESSIONS);
    assert_eq!(damaged_files(&directory), 1);
}

#[tokio::test]
async fn damage_is_found_without_changing_anything() {
    let directory = TempDir::new().unwrap();
    assert_eq!(store::check(directory.path()), store::Check::default());
    stored_sessions(&directory).await;
    assert_eq!(store::check(directory.path()), store::Check::default());
    let mut bytes = std::fs::read(database(&directory)).unwrap();
    let root = index_page(&directory);
    bytes[(root - 1) * PAGE..root * PAGE].fill(0x99);
    std::fs::write(database(&directory), &bytes).unwrap();
    let found = store::check(directory.path());
    assert!(found.damage.is_some_and(|found| found.contains("is damaged and will be recovered")));
    assert!(found.remarks.is_empty());
    assert!(std::fs::read(database(&directory)).unwrap() == bytes);
    let store = Store::new(options(directory.path()));
    store.create(&id("new"), Path::new("/w")).await.unwrap();
    let found = store::check(directory.path());
    assert!(found.damage.is_none());
    assert!(found.remarks.len() == 1 && found.remarks[0].contains("Delete it"), "{found:?}");
}

/// If the new file cannot be written, new sessions are in memory, and the user is told why.
#[tokio::test]
async fn sessions_are_in_memory_if_the_recovery_fails() {
    let directory = TempDir::new().unwrap();
    stored_sessions(&directory).await;
    std::fs::create_dir_all(directory.path().join("sessions.db.recovering/in the way")).unwrap();
    let mut bytes = std::fs::read(database(&directory)).unwrap();
    bytes[PAGE..].fill(0x99);
    std::fs::write(database(&directory), bytes).unwrap();
    let store = Store::new(options(directory.path()));
    store.create(&id("new"), Path::new("/w")).await.unwrap();
    prompt(&store, &id("new"), "hello").await.unwrap();
    let problem = store.problem().unwrap();
    assert!(problem.contains("damaged and cannot be recovered"), "{problem}");
    assert!(!store.is_persistent());
}

/// A pipe in place of the database, its log, its lock or another process's file must not block.
#[cfg(unix)]
#[tokio::test]
async fn pipe_in_place_of_a_file_does_not_block() {
    for place in ["sessions.db", "sessions.db-wal", "sessions.db.lock", "live/123"] {
        let directory = TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("live")).unwrap();
        let pipe = directory.path().join(place);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let store = Store::new(options(directory.path()));
        store.create(&id("new"), Path::new("/w")).await.expect(place);
        prompt(&store, &id("new"), "hello").await.expect(place);
    }
}
