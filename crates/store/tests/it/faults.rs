//! Failing storage: damaged files, newer versions, directories that cannot be written.

use std::path::Path;

use engine::ports::{Journal, JournalError, Query, State};
use store::{Location, Store};
use tempfile::TempDir;

use crate::sessions::{id, load, options, prompt, say, wait_for_end_of};

async fn one_session(directory: &TempDir) {
    let store = Store::new(options(directory.path()));
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    for turn in 0..3 {
        prompt(&store, &id("s"), &format!("prompt {turn}")).await.unwrap();
        say(&store, &id("s"), &format!("answer {turn}")).await;
    }
    store.release(&id("s"), State::Paused).await.unwrap();
    drop(store);
    wait_for_end_of(directory).await;
}

fn change(directory: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(directory.join("sessions.db")).unwrap();
    assert!(connection.execute(sql, []).is_ok(), "{sql}");
}

/// D10–D13: a record that is cut, flipped, emptied or missing is skipped and reported; the rest loads.
#[tokio::test]
async fn damaged_record_is_skipped_and_reported() {
    let damages = [
        ("UPDATE journal SET body = x'00' || substr(body, 2) WHERE key & 0xffff = 3", "damaged"),
        ("UPDATE journal SET body = substr(body, 1, 5) WHERE key & 0xffff = 3", "damaged"),
        ("UPDATE journal SET body = zeroblob(30) WHERE key & 0xffff = 3", "damaged"),
        ("UPDATE journal SET body = NULL WHERE key & 0xffff = 3", "damaged"),
        ("UPDATE journal SET checksum = checksum + 1 WHERE key & 0xffff = 3", "damaged"),
        ("UPDATE journal SET version = 99, checksum = 1 WHERE key & 0xffff = 3", "damaged"),
        ("DELETE FROM journal WHERE key & 0xffff = 3", "missing"),
    ];
    for (damage, expected) in damages {
        let directory = TempDir::new().unwrap();
        one_session(&directory).await;
        change(directory.path(), damage);
        let store = Store::new(options(directory.path()));
        let (stored, events) = load(&store, &id("s")).await;
        assert_eq!(events.len(), 5, "{damage}: {events:?}");
        assert_eq!(stored.problems.len(), 1, "{damage}");
        assert!(stored.problems[0].contains(expected), "{:?}", stored.problems);
        // The session continues: the numbers of skipped records are never used again.
        prompt(&store, &id("s"), "go on").await.unwrap();
    }
}

/// D14: a store of a newer version is read but not written; new sessions work but are not stored.
#[tokio::test]
async fn store_of_a_newer_version_is_read_but_not_written() {
    let directory = TempDir::new().unwrap();
    one_session(&directory).await;
    change(directory.path(), "PRAGMA user_version = 99");
    let before = std::fs::read(directory.path().join("sessions.db")).unwrap();
    let store = Store::new(options(directory.path()));
    let (stored, events) = load(&store, &id("s")).await;
    assert_eq!(events.len(), 6);
    assert!(stored.problems.is_empty());
    assert!(matches!(
        prompt(&store, &id("s"), "more").await,
        Err(JournalError::ReadOnly(why)) if why.contains("newer version")
    ));
    assert!(!store.is_persistent());
    store.create(&id("new"), Path::new("/w")).await.unwrap();
    prompt(&store, &id("new"), "hello").await.unwrap();
    assert!(store.set_title(&id("s"), "title").await.is_err());
    assert!(store.delete(&id("s")).await.is_err());
    assert_eq!(store.list(Query::default()).await.unwrap().sessions.len(), 1);
    drop(store);
    assert_eq!(std::fs::read(directory.path().join("sessions.db")).unwrap(), before);
}

/// D25: no data directory, or one that cannot be created.
#[tokio::test]
async fn sessions_are_in_memory_without_a_data_directory() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    for place in [Location::Nowhere, Location::Directory(file.join("purlin"))] {
        let store =
            Store::new(store::Options { location: place.clone(), ..options(directory.path()) });
        assert!(!store.is_persistent());
        assert!(store.problem().is_some());
        store.create(&id("s"), Path::new("/w")).await.unwrap();
        prompt(&store, &id("s"), "hello").await.unwrap();
        say(&store, &id("s"), "hi").await;
        assert_eq!(load(&store, &id("s")).await.1.len(), 2);
    }
}

/// D10 on the whole file: it is renamed, and the program continues.
#[tokio::test]
async fn file_that_is_not_a_database_is_renamed() {
    let directory = TempDir::new().unwrap();
    one_session(&directory).await;
    let path = directory.path().join("sessions.db");
    std::fs::write(
        &path,
        b"this is no database, and it is long enough to look like one".repeat(99),
    )
    .unwrap();
    let store = Store::new(options(directory.path()));
    store.create(&id("new"), Path::new("/w")).await.unwrap();
    assert!(store.is_persistent());
    let aside = std::fs::read_dir(directory.path()).unwrap().flatten();
    assert!(aside.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("damaged")));
}

/// D10: the file cut at every page and in the middle of each. No cut causes a panic or a hang, and a new session works.
#[tokio::test]
async fn truncated_database_never_prevents_new_sessions() {
    let directory = TempDir::new().unwrap();
    one_session(&directory).await;
    let whole = std::fs::read(directory.path().join("sessions.db")).unwrap();
    for length in (0..whole.len()).step_by(2048) {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("sessions.db"), &whole[..length]).unwrap();
        let store = Store::new(options(directory.path()));
        match store.load(&id("s"), None).await {
            Ok(_) | Err(JournalError::NotFound | JournalError::Failed(_)) => {}
            Err(err) => panic!("cut at {length}: {err}"),
        }
        let made = store.create(&id("new"), Path::new("/w")).await;
        assert!(made.is_ok(), "cut at {length}: {made:?}");
    }
}

/// D11 on the whole file, D12 and D13 on its log: flipped bytes, the end of the log zeroed or doubled. None causes a panic,
/// a hang, or text that was never written.
#[tokio::test]
async fn damaged_database_or_log_never_stops_the_program() {
    let directory = TempDir::new().unwrap();
    one_session(&directory).await;
    let whole = std::fs::read(directory.path().join("sessions.db")).unwrap();
    for at in (0..whole.len()).step_by(331) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        try_to_load(&flipped, None, &format!("byte {at} flipped")).await;
    }
    // A store that is not closed has everything in its log.
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    prompt(&store, &id("s"), "prompt").await.unwrap();
    let file = std::fs::read(directory.path().join("sessions.db")).unwrap();
    let log = std::fs::read(directory.path().join("sessions.db-wal")).unwrap();
    for tail in (0..log.len()).step_by(1021) {
        let mut emptied = log.clone();
        emptied[log.len() - tail..].fill(0);
        try_to_load(&file, Some(&emptied), &format!("the last {tail} bytes of the log emptied"))
            .await;
        let mut doubled = log.clone();
        doubled.extend_from_slice(&log[log.len() - tail..]);
        try_to_load(&file, Some(&doubled), &format!("the last {tail} bytes of the log doubled"))
            .await;
    }
}

async fn try_to_load(file: &[u8], log: Option<&[u8]>, what: &str) {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("sessions.db"), file).unwrap();
    if let Some(log) = log {
        std::fs::write(directory.path().join("sessions.db-wal"), log).unwrap();
    }
    let store = Store::new(options(directory.path()));
    match store.load(&id("s"), None).await {
        Ok(stored) => {
            let said = stored.history.messages().iter().map(|message| format!("{message:?}"));
            for said in said {
                assert!(said.contains("prompt") || said.contains("answer"), "{what}: {said}");
            }
        }
        Err(JournalError::NotFound | JournalError::Failed(_) | JournalError::OpenElsewhere(_)) => {}
        Err(err) => panic!("{what}: {err}"),
    }
    let made = store.create(&id("new"), Path::new("/w")).await;
    assert!(made.is_ok(), "{what}: {made:?}");
}
