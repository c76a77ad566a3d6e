//! Measures the store: CPU time per update while text streams, loading compared with a bare loop, listing many sessions.
//!
//! `cargo run --release -p store --example cost`. Prints numbers and checks nothing.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for a person to look at")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Event;
use engine::ports::SystemClock;
use engine::ports::{Journal, PromptKind, Query, Record, State};
use engine::words::{Block, MessageId, Prompt, SessionId, StopReason, ToolCallId, ToolUpdate};
use store::{Options, Store};

const UPDATES: usize = 20_000;

fn options(directory: &Path) -> Options {
    Options {
        location: store::Location::Directory(directory.to_owned()),
        clock: Arc::new(SystemClock),
        max_history_bytes: 0,
        expire_days: 0,
        spans: None,
        late_for_tests: false,
    }
}

/// The CPU time of all threads of this process.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn text(number: usize) -> Event {
    Event::Text { message: MessageId::new("m"), text: format!("word {number} ") }
}

async fn begin(store: &Store, session: &SessionId) {
    store.create(session, Path::new("/w")).await.unwrap();
    prompt(store, session).await;
}

async fn prompt(store: &Store, session: &SessionId) {
    let prompt = Prompt::from(vec![Block::Text("go".to_owned())]);
    let message = MessageId::new("u");
    let kind = PromptKind::Message;
    store
        .append(session, Record::Prompt { message: &message, prompt: &prompt, kind })
        .await
        .unwrap();
}

async fn end(store: &Store, session: &SessionId) {
    store.append(session, Record::TurnEnd(Some(StopReason::EndTurn))).await.unwrap();
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::new(options(directory.path()));
    stream(&store).await;
    load(&store, directory.path()).await;
    list(&store).await;
    load_large(&store).await;
}

/// Measures the CPU time of an update while text streams.
async fn stream(store: &Store) {
    let session = SessionId::new("stream");
    begin(store, &session).await;
    let (began, before) = (Instant::now(), cpu());
    for round in 0..10 {
        for number in 0..UPDATES {
            store
                .append_event(&session, text(round * UPDATES + number), Some(Box::new(|_, _| ())))
                .await
                .unwrap();
        }
    }
    end(store, &session).await;
    let per = |time: Duration| time.as_secs_f64() * 1e6 / (10 * UPDATES) as f64;
    println!(
        "streamed text: {:.2} µs CPU, {:.2} µs wall time per update",
        per(cpu() - before),
        per(began.elapsed())
    );
}

/// Measures loading a session of many records, compared with a bare loop over the same JSON.
async fn load(store: &Store, directory: &Path) {
    let turns = SessionId::new("turns");
    begin(store, &turns).await;
    for turn in 0..1000 {
        for number in 0..18 {
            // A new message each time, so that nothing is merged: the worst case for loading.
            let message = MessageId::new(format!("m{turn}-{number}"));
            let text = format!("some words of an answer, number {number} of turn {turn}");
            store.append_event(&turns, Event::Text { message, text }, None).await.unwrap();
        }
        let update = ToolUpdate { raw_output: Some("x".into()), ..ToolUpdate::default() };
        let event = Event::ToolUpdate(ToolCallId::new("t"), Box::new(update));
        store.append_event(&turns, event, None).await.unwrap();
        end(store, &turns).await;
        prompt(store, &turns).await;
    }
    let began = Instant::now();
    let remembered = store.load(&turns, None).await.unwrap();
    let loaded = began.elapsed();
    let lines: Vec<Vec<u8>> =
        store.records(&turns).await.unwrap().into_iter().map(|stored| stored.record.body).collect();
    let file = directory.join("lines");
    std::fs::write(&file, lines.join(&b'\n')).unwrap();
    let began = Instant::now();
    let mut out = Vec::new();
    for line in std::fs::read(&file).unwrap().split(|byte| *byte == b'\n') {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        serde_json::to_writer(&mut out, &value).unwrap();
    }
    println!(
        "loading {} records: {loaded:?}, {} messages; bare loop: {:?}",
        lines.len(),
        remembered.history.len(),
        began.elapsed()
    );
}

/// Measures listing ten thousand sessions.
async fn list(store: &Store) {
    for number in 0..10_000 {
        let session = SessionId::new(format!("s{number}"));
        store.create(&session, Path::new("/w")).await.unwrap();
        store.release(&session, State::Paused).await.unwrap();
    }
    let began = Instant::now();
    let mut query = Query::default();
    let mut count = 0;
    loop {
        let listing = store.list(query.clone()).await.unwrap();
        count += listing.sessions.len();
        query.cursor = listing.next;
        if query.cursor.is_none() {
            break;
        }
    }
    println!("listing {count} sessions: {:?}", began.elapsed());
}

/// Measures the time and the memory for loading a session of 100 MB.
async fn load_large(store: &Store) {
    let large = SessionId::new("large");
    begin(store, &large).await;
    for number in 0..1000 {
        let message = MessageId::new(format!("m{number}"));
        store
            .append_event(&large, Event::Text { message, text: "z".repeat(100 * 1024) }, None)
            .await
            .unwrap();
    }
    end(store, &large).await;
    store.release(&large, State::Paused).await.unwrap();
    let before = memory();
    let began = Instant::now();
    let remembered = store.load(&large, None).await.unwrap();
    println!(
        "loading 100 MB: {:?}, peak memory {before} → {} MB, {} messages",
        began.elapsed(),
        memory(),
        remembered.history.len()
    );
}
