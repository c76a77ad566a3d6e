//! Large values of tool calls: stored once with the file that they are written to, and restored when records are read.

use std::path::{Path, PathBuf};

use engine::ports::{Content, FileChange, Journal, Query, Record, State, StoredSession};
use engine::words::{Message, SessionId, ToolCallId, ToolRequest};
use serde_json::{Value, json};
use store::content::LARGE;
use store::record::Decoded;
use store::{Store, record};
use tempfile::TempDir;

use crate::content_files::stored_files;
use crate::sessions::{end, id, load, options, prompt, wait_for_end_of};

fn long(letter: &str) -> String {
    format!("\"{letter}\"\n").repeat(LARGE)
}

fn inputs() -> [Value; 2] {
    let edit =
        json!({ "filePath": "b", "oldString": long("b"), "newString": long("c"), "all": true });
    [json!({ "filePath": "a", "content": long("a") }), edit]
}

/// Stores an answer with two calls, and the file that the first call writes.
async fn write(store: &Store, session: &SessionId) {
    store.create(session, Path::new("/w")).await.unwrap();
    prompt(store, session, "go").await.unwrap();
    let calls = inputs().map(|input| ToolRequest {
        id: ToolCallId::new("t"),
        name: "write".to_owned(),
        input: input.into(),
    });
    store.append(session, Record::Answer(&calls)).await.unwrap();
    let after = Some(Content::new(long("a").into_bytes()));
    let change = FileChange { path: PathBuf::from("/w/a"), before: None, after };
    store.save_change(session, change).await.unwrap();
    end(store, session).await.unwrap();
}

fn asked(stored: &StoredSession) -> Vec<Value> {
    let calls = stored.history.messages().iter().flat_map(|message| match &**message {
        Message::Agent { calls, .. } => calls.clone(),
        Message::User(_) | Message::ToolResult { .. } => Vec::new(),
    });
    calls.map(|call| (*call.input).clone()).collect()
}

// R: S2
#[tokio::test]
async fn file_written_as_requested_is_stored_once() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (id("one"), id("two"));
    let store = Store::new(options(directory.path()));
    write(&store, &one).await;
    let bytes = store.list(Query::default()).await.unwrap().sessions[0].bytes;
    let texts = 3 * long("a").len() as u64;
    assert!((texts..texts + 2_000).contains(&bytes), "{bytes} for {texts}");
    store.fork(&one, &two).await.unwrap();
    store.delete(&one).await.unwrap();
    let (stored, _) = load(&store, &two).await;
    assert_eq!(asked(&stored), inputs());
    assert_eq!(stored.problems, [""; 0]);
    let after = store.turns(&two).await.unwrap().done[0].changes[0].after.clone().unwrap();
    assert_eq!(store.content(&two, &after).await.unwrap(), Some(long("a").into_bytes()));
}

#[tokio::test]
async fn file_that_differs_from_the_request_is_stored_separately() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    write(&store, &session).await;
    let nearly = long("a").replace('\n', "\r");
    prompt(&store, &session, "again").await.unwrap();
    let (before, after) = (long("a"), nearly.clone());
    let [before, after] = [before, after].map(|text| Some(Content::new(text.into_bytes())));
    let change = FileChange { path: PathBuf::from("/w/a"), before, after };
    store.save_change(&session, change).await.unwrap();
    end(&store, &session).await.unwrap();
    let turns = store.turns(&session).await.unwrap();
    let (first, second) = (&turns.done[0].changes[0], &turns.done[1].changes[0]);
    assert_eq!(second.before, first.after);
    let after = store.content(&session, second.after.as_ref().unwrap()).await.unwrap();
    assert_eq!(after, Some(nearly.into_bytes()));
}

#[tokio::test]
async fn records_are_read_with_their_large_values() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    write(&store, &id("s")).await;
    let records = store.records(&id("s")).await.unwrap();
    let answers = records.iter().filter_map(|stored| match stored.record.decode() {
        Decoded::Record(record::Record::Answer(calls)) => Some(calls),
        _ => None,
    });
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers[0].iter().map(|call| (*call.input).clone()).collect::<Vec<_>>(), inputs());
    store.create(&id("copy"), Path::new("/w")).await.unwrap();
    store.import(&id("copy"), vec![record::Record::Answer(answers[0].clone())]).await.unwrap();
    assert_eq!(asked(&load(&store, &id("copy")).await.0), inputs());
}

/// An answer whose large value is missing must not be restored with another value.
#[tokio::test]
async fn answer_with_a_damaged_large_value_is_skipped_and_reported() {
    let shorten = |path: &Path| std::fs::write(path, "short");
    let remove = |path: &Path| std::fs::remove_file(path);
    for damage in [&shorten as &dyn Fn(&Path) -> std::io::Result<()>, &remove] {
        let directory = TempDir::new().unwrap();
        let store = Store::new(options(directory.path()));
        write(&store, &id("s")).await;
        store.release(&id("s"), State::Paused).await.unwrap();
        drop(store);
        wait_for_end_of(&directory).await;
        stored_files(&directory).iter().for_each(|path| damage(path).unwrap());
        let store = Store::new(options(directory.path()));
        let (stored, events) = load(&store, &id("s")).await;
        assert_eq!((asked(&stored), events.len()), (vec![], 1));
        assert!(stored.problems[0].contains("damaged"), "{:?}", stored.problems);
    }
}
