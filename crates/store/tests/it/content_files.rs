//! Large content: one file each, as long as a session uses it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use engine::Event;
use engine::ports::{Journal, JournalError, State};
use engine::words::{Block, SessionId, ToolCallId, ToolContent, ToolStatus, ToolUpdate};
use store::Store;
use store::content::LARGE;
use store::sqlite::SCHEMA;
use tempfile::TempDir;

use crate::sessions::{call, id, load, options, prompt, wait_for_end_of};

fn content_directory(directory: &TempDir) -> PathBuf {
    directory.path().join("sessions.contents")
}

/// The files with large content.
pub(crate) fn stored_files(directory: &TempDir) -> Vec<PathBuf> {
    let entries = content_directory(directory).read_dir().into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn long(letter: &str) -> String {
    letter.repeat(2 * LARGE)
}

async fn store_text(store: &Store, session: &SessionId, text: &str) {
    store.create(session, Path::new("/w")).await.unwrap();
    prompt(store, session, text).await.unwrap();
}

async fn texts(store: &Store, session: &SessionId) -> Vec<String> {
    let (_, events) = load(store, session).await;
    let texts = events.into_iter().filter_map(|event| match event {
        Event::User { block: Block::Text(text), .. } => Some(text),
        _ => None,
    });
    texts.collect()
}

async fn end(store: Store, directory: &TempDir) {
    drop(store);
    wait_for_end_of(directory).await;
}

// R: S9
#[tokio::test]
async fn file_is_stored_once_private_and_deleted_with_its_last_session() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    let (one, two, other) = (id("one"), id("two"), id("other"));
    store_text(&store, &one, &long("a")).await;
    store_text(&store, &two, &long("a")).await;
    store_text(&store, &other, &long("b")).await;
    assert_eq!(stored_files(&directory).len(), 2);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&content_directory(&directory)), 0o700);
    assert!(stored_files(&directory).iter().all(|path| mode(path) == 0o600));
    store.delete(&one).await.unwrap();
    assert_eq!(texts(&store, &two).await, [long("a")]);
    store.delete(&two).await.unwrap();
    assert_eq!(stored_files(&directory).len(), 1);
    assert_eq!(texts(&store, &other).await, [long("b")]);
}

/// A process may die, or a disk may be full, between writing a file and writing the record that names it.
#[tokio::test]
async fn unused_file_is_removed_when_a_session_is_deleted() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store_text(&store, &id("s"), &long("a")).await;
    store_text(&store, &id("gone"), "short").await;
    let stray = [
        content_directory(&directory).join("new"),
        content_directory(&directory).join("0f".repeat(32)),
    ];
    stray.iter().for_each(|path| std::fs::write(path, "stray").unwrap());
    store.delete(&id("gone")).await.unwrap();
    assert_eq!(stored_files(&directory).len(), 1);
    assert_eq!(texts(&store, &id("s")).await, [long("a")]);
}

/// A call that was shown has ended, even if the record of its end is damaged.
// R: S9
#[tokio::test]
async fn call_with_a_damaged_result_has_failed() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    let session = id("s");
    store_text(&store, &session, "go").await;
    let text = ToolContent::Block(Block::Text(long("a")));
    let done = ToolUpdate {
        status: Some(ToolStatus::Completed),
        content: Some(vec![text]),
        ..ToolUpdate::default()
    };
    for event in [call("t"), Event::ToolUpdate(ToolCallId::new("t"), Box::new(done))] {
        store.append_event(&session, event, None).await.unwrap();
    }
    crate::sessions::end(&store, &session).await.unwrap();
    std::fs::write(&stored_files(&directory)[0], "").unwrap();
    let (stored, events) = load(&store, &session).await;
    assert!(stored.problems[0].contains("damaged"), "{:?}", stored.problems);
    let last = events.iter().rev().find_map(|event| match event {
        Event::ToolUpdate(_, update) => update.status,
        _ => None,
    });
    assert_eq!(last, Some(ToolStatus::Failed), "{events:?}");
}

/// D10: after a power failure a file may have its name but not its content.
#[tokio::test]
async fn file_damaged_by_a_power_failure_is_written_again() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store_text(&store, &id("one"), &long("a")).await;
    let zeros = vec![0; stored_files(&directory)[0].metadata().unwrap().len() as usize];
    std::fs::write(&stored_files(&directory)[0], zeros).unwrap();
    assert_eq!(texts(&store, &id("one")).await, [""; 0]);
    store_text(&store, &id("two"), &long("a")).await;
    assert_eq!(texts(&store, &id("two")).await, [long("a")]);
    assert_eq!(texts(&store, &id("one")).await, [long("a")]);
}

#[tokio::test]
async fn failed_write_is_an_error_and_the_session_continues() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store_text(&store, &id("s"), "short").await;
    std::fs::write(content_directory(&directory), "in the way").unwrap();
    let rejected = prompt(&store, &id("s"), &long("a")).await;
    assert!(matches!(rejected, Err(JournalError::Failed(_))), "{rejected:?}");
    std::fs::remove_file(content_directory(&directory)).unwrap();
    crate::sessions::end(&store, &id("s")).await.ok();
    prompt(&store, &id("s"), &long("a")).await.unwrap();
    assert_eq!(texts(&store, &id("s")).await, ["short".to_owned(), long("a")]);
}

/// The first version had large content in a table. It is still read from there, and new content is written to files.
#[tokio::test]
async fn store_with_content_in_its_tables_still_works() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store_text(&store, &id("s"), &long("a")).await;
    store.release(&id("s"), State::Paused).await.unwrap();
    end(store, &directory).await;
    let body = std::fs::read(&stored_files(&directory)[0]).unwrap();
    std::fs::remove_dir_all(content_directory(&directory)).unwrap();
    let database = rusqlite::Connection::open(directory.path().join("sessions.db")).unwrap();
    let insert = "INSERT INTO blob(hash, body) SELECT hash, ?1 FROM blob_use";
    assert_eq!(database.execute(insert, [body]).unwrap(), 1);
    database.pragma_update(None, "user_version", 1).unwrap();
    let store = Store::new(options(directory.path()));
    assert_eq!(texts(&store, &id("s")).await, [long("a")]);
    prompt(&store, &id("s"), &long("b")).await.unwrap();
    assert_eq!(texts(&store, &id("s")).await, [long("a"), long("b")]);
    assert_eq!(stored_files(&directory).len(), 1);
    let version: i64 = database.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, SCHEMA);
}

#[tokio::test]
async fn files_stay_if_the_database_is_recovered() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store_text(&store, &id("s"), &long("a")).await;
    end(store, &directory).await;
    let mut bytes = std::fs::read(directory.path().join("sessions.db")).unwrap();
    bytes[..64].fill(0);
    std::fs::write(directory.path().join("sessions.db"), bytes).unwrap();
    let store = Store::new(options(directory.path()));
    assert_eq!(texts(&store, &id("s")).await, [long("a")]);
    // Deleting another session does not remove the files of this one.
    store_text(&store, &id("other"), "short").await;
    store.delete(&id("other")).await.unwrap();
    assert_eq!(texts(&store, &id("s")).await, [long("a")]);
}
