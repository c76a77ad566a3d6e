//! Undo and redo: the turns, the files that they changed, and the history.

use std::path::{Path, PathBuf};

use engine::ports::{Content, FileChange, Journal, JournalError, Record, State, StoredSession};
use engine::words::Cut;
use engine::words::PastTurn;
use engine::words::{ContentId, Message, MessageId, ModelId, SessionId, Usage};
use store::{Options, Store};
use tempfile::TempDir;

use crate::sessions::{end, id, load, options, prompt_as, say, wait_for_end_of};

async fn turn(store: &Store, session: &SessionId, name: &str) {
    prompt_as(store, session, name, &format!("{name}, please")).await.unwrap();
    say(store, session, &format!("did {name}")).await;
    end(store, session).await.unwrap();
}

async fn change(store: &Store, session: &SessionId, before: Option<&str>, after: Option<&str>) {
    let bytes = |text: Option<&str>| text.map(|text| Content::new(text.as_bytes().to_vec()));
    let path = PathBuf::from("/w/a.txt");
    let change = FileChange { path, before: bytes(before), after: bytes(after) };
    store.save_change(session, change).await.unwrap();
}

fn users(stored: &StoredSession) -> Vec<String> {
    let messages = stored.history.messages().iter();
    let texts = messages.filter_map(|message| match &**message {
        Message::User(prompt) => Some(prompt.text()),
        Message::Agent { .. } | Message::ToolResult { .. } => None,
    });
    texts.collect()
}

fn titles(turns: &[PastTurn]) -> Vec<(usize, &str)> {
    turns.iter().map(|turn| (turn.number, turn.title.as_str())).collect()
}

async fn text_of(store: &Store, session: &SessionId, content: &Option<ContentId>) -> String {
    let content = store.content(session, content.as_ref().unwrap()).await.unwrap();
    String::from_utf8(content.unwrap()).unwrap()
}

#[tokio::test]
async fn turns_are_undone_and_redone_across_restarts() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    store.create(&session, Path::new("/w")).await.unwrap();
    turn(&store, &session, "one").await;
    prompt_as(&store, &session, "two", "two, please").await.unwrap();
    change(&store, &session, None, Some("first")).await;
    change(&store, &session, Some("first"), Some("second")).await;
    end(&store, &session).await.unwrap();
    turn(&store, &session, "three").await;
    drop(store);
    wait_for_end_of(&directory).await;

    let store = Store::new(options(directory.path()));
    load(&store, &session).await;
    let turns = store.turns(&session).await.unwrap();
    assert_eq!(titles(&turns.done), [(1, "one, please"), (2, "two, please"), (3, "three, please")]);
    let changes = &turns.done[1].changes;
    assert_eq!((changes.len(), &changes[0].before), (2, &None));
    assert_eq!(changes[0].after, changes[1].before);
    assert_eq!(text_of(&store, &session, &changes[1].after).await, "second");
    store.append(&session, Record::Undone(&MessageId::new("two"))).await.unwrap();
    store.release(&session, State::Paused).await.unwrap();
    drop(store);
    wait_for_end_of(&directory).await;

    let store = Store::new(options(directory.path()));
    let (stored, events) = load(&store, &session).await;
    assert_eq!(users(&stored), ["one, please"]);
    // The client sees everything that happened.
    assert_eq!(events.len(), 5);
    let turns = store.turns(&session).await.unwrap();
    assert_eq!(titles(&turns.done), [(1, "one, please")]);
    assert_eq!(titles(&turns.undone), [(2, "two, please"), (3, "three, please")]);
    store.append(&session, Record::Redone(&MessageId::new("two"))).await.unwrap();
    assert_eq!(users(&load(&store, &session).await.0), ["one, please", "two, please"]);
    // After a new prompt the undone turns can no longer be redone.
    turn(&store, &session, "four").await;
    store.append(&session, Record::Redone(&MessageId::new("three"))).await.unwrap();
    let stored = load(&store, &session).await.0;
    assert_eq!(users(&stored), ["one, please", "two, please", "four, please"]);
    let turns = store.turns(&session).await.unwrap();
    assert_eq!(turns.undone, []);
    assert_eq!(turns.done[2].number, 3);
}

#[tokio::test]
async fn file_content_is_deleted_with_its_last_session() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (id("one"), id("two"));
    let store = Store::new(options(directory.path()));
    store.create(&one, Path::new("/w")).await.unwrap();
    prompt_as(&store, &one, "m", "go").await.unwrap();
    change(&store, &one, Some("plugh-before"), Some("plugh-after")).await;
    end(&store, &one).await.unwrap();
    store.fork(&one, &two).await.unwrap();
    store.delete(&one).await.unwrap();
    let change = store.turns(&two).await.unwrap().done[0].changes[0].clone();
    assert_eq!(text_of(&store, &two, &change.before).await, "plugh-before");
    store.create(&id("three"), Path::new("/w")).await.unwrap();
    let foreign = store.content(&id("three"), change.before.as_ref().unwrap()).await.unwrap();
    assert_eq!(foreign, None);
    store.delete(&two).await.unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap().flatten() {
        if entry.metadata().unwrap().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!bytes.windows(6).any(|window| window == b"plugh-"), "{:?}", entry.path());
        }
    }
}

// R: S8
#[tokio::test]
async fn file_counts_once_towards_the_limit_unless_it_is_too_large() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(Options { max_history_bytes: 10_000, ..options(directory.path()) });
    store.create(&session, Path::new("/w")).await.unwrap();
    prompt_as(&store, &session, "m", "go").await.unwrap();
    let file = |size: usize| FileChange {
        path: PathBuf::from("/w/a"),
        before: Some(Content::new(vec![b'x'; size])),
        after: None,
    };
    for _ in 0..3 {
        store.save_change(&session, file(4000)).await.unwrap();
    }
    let rejected = store.save_change(&session, file(7000)).await;
    assert_eq!(rejected, Err(JournalError::Full(10_000)));
    let huge = 17 * 1024 * 1024;
    store.save_change(&session, file(huge)).await.unwrap();
    let turns = store.turns(&session).await.unwrap();
    let last = turns.done[0].changes.last().unwrap().before.clone().unwrap();
    assert_eq!(store.content(&session, &last).await.unwrap(), None);
    end(&store, &session).await.unwrap();
}

/// The model sees the summary and what follows it. The client still sees everything, and an undo across the compaction
/// restores the full history.
// R: S2, W16
#[tokio::test]
async fn compaction_survives_a_restart_and_can_be_undone() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    store.create(&session, Path::new("/w")).await.unwrap();
    for name in ["one", "two", "three"] {
        turn(&store, &session, name).await;
    }
    let compacted = Record::Compacted {
        summary: "what was",
        from: &Cut::Turn(MessageId::new("three")),
        cap: None,
    };
    store.append(&session, compacted).await.unwrap();
    let (model, usage) = (ModelId::new("a/b"), Usage { input: 5, ..Usage::default() });
    let spent = Record::Spent { model: &model, usage: &usage, dollars: Some(0.5) };
    store.append(&session, spent).await.unwrap();
    turn(&store, &session, "four").await;
    drop(store);
    wait_for_end_of(&directory).await;

    let store = Store::new(options(directory.path()));
    let (stored, events) = load(&store, &session).await;
    assert_eq!(users(&stored), ["what was", "three, please", "four, please"]);
    assert_eq!(events.len(), 8);
    assert!(stored.bill.print().contains("| `a/b` | 1 | 5 | 0 | 0 | 0 | $0.5000 |"));
    store.append(&session, Record::Undone(&MessageId::new("four"))).await.unwrap();
    let (stored, _) = load(&store, &session).await;
    assert_eq!(users(&stored), ["what was", "three, please"]);
    store.append(&session, Record::Undone(&MessageId::new("two"))).await.unwrap();
    let (stored, _) = load(&store, &session).await;
    assert_eq!(users(&stored), ["one, please"]);
    store.append(&session, Record::Redone(&MessageId::new("three"))).await.unwrap();
    let (stored, _) = load(&store, &session).await;
    assert_eq!(users(&stored), ["one, please", "two, please", "three, please"]);
}
