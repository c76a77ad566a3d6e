//! Sessions in the store: what is restored after a normal end and after a crash.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use engine::Event;
use engine::ports::*;
use engine::test_support::StubEditor;
use engine::words::*;
use serde_json::json;
use store::{Location, Options, Store};
use tempfile::TempDir;

/// A clock that tests set.
#[derive(Default)]
pub(crate) struct TestClock(pub(crate) Mutex<Duration>);

impl Clock for TestClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000) + *self.0.lock().unwrap()
    }

    fn fresh_id(&self) -> String {
        "id".to_owned()
    }
}

pub(crate) fn options(directory: &Path) -> Options {
    Options {
        location: Location::Directory(directory.to_owned()),
        clock: Arc::new(TestClock::default()),
        max_history_bytes: 0,
        expire_days: 0,
        spans: None,
        late_for_tests: false,
    }
}

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::new(text)
}

fn prompt_of(text: &str) -> Prompt {
    Prompt::from(vec![Block::Text(text.to_owned())])
}

pub(crate) async fn prompt(
    store: &Store,
    session: &SessionId,
    text: &str,
) -> Result<(), JournalError> {
    prompt_as(store, session, "u", text).await
}

pub(crate) async fn prompt_as(
    store: &Store,
    session: &SessionId,
    message: &str,
    text: &str,
) -> Result<(), JournalError> {
    let (message, prompt) = (MessageId::new(message), prompt_of(text));
    let record = Record::Prompt { message: &message, prompt: &prompt, kind: PromptKind::Message };
    store.append(session, record).await
}

pub(crate) async fn say(store: &Store, session: &SessionId, text: &str) {
    let event = Event::Text { message: MessageId::new("m"), text: text.to_owned() };
    store.append_event(session, event, None).await.unwrap();
}

pub(crate) async fn end(store: &Store, session: &SessionId) -> Result<(), JournalError> {
    store.append(session, Record::TurnEnd(Some(StopReason::EndTurn))).await
}

fn request(id: &str) -> ToolRequest {
    ToolRequest {
        id: ToolCallId::new(id),
        name: "tool".to_owned(),
        input: json!({ "a": 1.5 }).into(),
    }
}

pub(crate) fn call(id: &str) -> Event {
    Event::ToolCall(Box::new(ToolCall {
        id: ToolCallId::new(id),
        name: "tool".to_owned(),
        title: "Do it".to_owned(),
        kind: ToolKind::Execute,
        status: ToolStatus::Pending,
        content: Vec::new(),
        locations: Vec::new(),
        raw_input: json!({ "a": 1.5 }),
    }))
}

fn update(id: &str, update: ToolUpdate) -> Event {
    Event::ToolUpdate(ToolCallId::new(id), Box::new(update))
}

fn failed(id: &str, text: &str) -> Event {
    let content = Some(vec![ToolContent::Block(Block::Text(text.to_owned()))]);
    update(id, ToolUpdate { status: Some(ToolStatus::Failed), content, ..ToolUpdate::default() })
}

fn user(text: &str) -> Event {
    Event::User { message: MessageId::new("u"), block: Block::Text(text.to_owned()), meta: None }
}

fn agent_text(text: &str) -> Event {
    Event::Text { message: MessageId::new("m"), text: text.to_owned() }
}

pub(crate) async fn load(store: &Store, session: &SessionId) -> (StoredSession, Vec<Event>) {
    let editor = StubEditor::default();
    let stored = store.load(session, Some(&editor)).await.unwrap();
    let events = editor.events();
    (stored, events)
}

fn messages(stored: &StoredSession) -> Vec<Message> {
    stored.history.messages().iter().map(|message| (**message).clone()).collect()
}

// R: S2, S9
#[tokio::test]
async fn session_is_restored_as_it_was_shown() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    store.create(&session, Path::new("/w")).await.unwrap();
    prompt(&store, &session, "Hello").await.unwrap();
    say(&store, &session, "Good ").await;
    say(&store, &session, "day.").await;
    store.append(&session, Record::Answer(&[request("t1")])).await.unwrap();
    store.append_event(&session, call("t1"), None).await.unwrap();
    store.append(&session, Record::ToolIntent(&request("t1"))).await.unwrap();
    let terminal = Some(vec![ToolContent::Terminal(TerminalId::new("term"))]);
    let running = ToolUpdate { content: terminal, ..ToolUpdate::default() };
    store.append_event(&session, update("t1", running), None).await.unwrap();
    let id_of = ToolCallId::new("t1");
    let result = Record::ToolResult { id: &id_of, text: "out", failed: false };
    store.append(&session, result).await.unwrap();
    let done = ToolUpdate { status: Some(ToolStatus::Completed), ..ToolUpdate::default() };
    store.append_event(&session, update("t1", done), None).await.unwrap();
    end(&store, &session).await.unwrap();
    store.release(&session, State::Paused).await.unwrap();
    drop(store);

    let (stored, events) = load(&Store::new(options(directory.path())), &session).await;
    // The terminal ended with its client, but its output is stored.
    let out = vec![ToolContent::Block(Block::Text("out".to_owned()))];
    let done = ToolUpdate {
        status: Some(ToolStatus::Completed),
        content: Some(out),
        ..ToolUpdate::default()
    };
    assert_eq!(events, [user("Hello"), agent_text("Good day."), call("t1"), update("t1", done)]);
    assert_eq!(
        messages(&stored),
        [
            Message::User(prompt_of("Hello")),
            Message::Agent {
                thoughts: Vec::new(),
                text: "Good day.".to_owned(),
                calls: vec![request("t1")]
            },
            Message::ToolResult {
                id: ToolCallId::new("t1"),
                text: "out".to_owned(),
                failed: false
            },
        ]
    );
    assert!(stored.problems.is_empty());
}

/// Models reject thoughts without their signatures, and the cost must include earlier turns.
// R: S9
#[tokio::test]
async fn thoughts_cost_and_settings_are_restored() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    store.create(&session, Path::new("/w")).await.unwrap();
    let model = engine::ports::ModelChoice {
        id: ModelId::new("a/b"),
        name: String::new(),
        context_size: 1,
        price: None,
        can_think: true,
        profile: None,
        model: Arc::new(engine::script::ScriptedModel::parse("").unwrap()),
    };
    let mut settings = engine::ports::Settings::new(vec![model].into()).unwrap();
    settings.thinking = Thinking::High;
    store.append_event(&session, Event::Settings(settings), None).await.unwrap();
    prompt(&store, &session, "Think").await.unwrap();
    say(&store, &session, "Hm.").await;
    let thoughts = [Thought {
        by: ModelId::new("a/b"),
        text: "deep".to_owned(),
        seal: Some(Seal { data: "signed".to_owned(), call: Some(ToolCallId::new("t1")) }),
        at: 0,
    }];
    store.append(&session, Record::Thoughts(&thoughts)).await.unwrap();
    store.append(&session, Record::Answer(&[request("t1")])).await.unwrap();
    for cost in [Some(0.25), None] {
        store.append_event(&session, Event::Usage { used: 1, size: 2, cost }, None).await.unwrap();
    }
    end(&store, &session).await.unwrap();
    let (stored, _) = load(&store, &session).await;
    assert_eq!(stored.thinking, Some(Thinking::High));
    assert!((stored.spent - 0.25).abs() < 1e-9, "{}", stored.spent);
    let agent_text = Message::Agent {
        thoughts: thoughts.to_vec(),
        text: "Hm.".to_owned(),
        calls: vec![request("t1")],
    };
    assert_eq!(messages(&stored)[1], agent_text);
}

/// The first store is dropped without releasing the session, as in a crash.
#[tokio::test]
async fn interrupted_tool_is_reported_once() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    store.create(&session, Path::new("/w")).await.unwrap();
    prompt(&store, &session, "Do both").await.unwrap();
    say(&store, &session, "I wi").await;
    store.append(&session, Record::Answer(&[request("t1"), request("t2")])).await.unwrap();
    store.append_event(&session, call("t1"), None).await.unwrap();
    store.append(&session, Record::ToolIntent(&request("t1"))).await.unwrap();
    store.append_event(&session, call("t2"), None).await.unwrap();
    drop(store);
    wait_for_end_of(&directory).await;

    let expected = [
        user("Do both"),
        agent_text("I wi"),
        call("t1"),
        call("t2"),
        failed("t1", "Interrupted. The outcome is unknown"),
        failed("t2", "Interrupted before it ran"),
    ];
    for _ in 0..2 {
        let store = Store::new(options(directory.path()));
        let (stored, events) = load(&store, &session).await;
        assert_eq!(events, expected);
        let messages = messages(&stored);
        assert_eq!(messages.len(), 4);
        let Message::ToolResult { text, failed: true, .. } = &messages[2] else {
            panic!("{:?}", messages[2]);
        };
        assert!(text.contains("outcome is unknown"), "{text}");
        store.release(&session, State::Paused).await.unwrap();
    }
}

/// The model did not make the calls of its subagent, so it gets a result for the task only.
// R: S9
#[tokio::test]
async fn interrupted_task_is_reported_with_the_commands_of_its_subagent() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    store.create(&session, Path::new("/w")).await.unwrap();
    prompt(&store, &session, "Have it done").await.unwrap();
    store.append(&session, Record::Answer(&[request("t1")])).await.unwrap();
    store.append_event(&session, call("t1"), None).await.unwrap();
    store.append(&session, Record::ToolIntent(&request("t1"))).await.unwrap();
    // The first call of the subagent needed permission and was shown; the second was allowed by a rule.
    store.append_event(&session, call("t1/c1"), None).await.unwrap();
    store.append(&session, Record::ToolIntent(&request("t1/c1"))).await.unwrap();
    let make = ToolRequest { name: "make".to_owned(), ..request("t1/c2") };
    store.append(&session, Record::ToolIntent(&make)).await.unwrap();
    drop(store);
    wait_for_end_of(&directory).await;

    let unknown = "Interrupted. The outcome is unknown";
    let expected = [
        user("Have it done"),
        call("t1"),
        call("t1/c1"),
        failed("t1", unknown),
        failed("t1/c1", unknown),
    ];
    let store = Store::new(options(directory.path()));
    let (stored, events) = load(&store, &session).await;
    assert_eq!(events, expected);
    let messages = messages(&stored);
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(matches!(&messages[2], Message::ToolResult { id, .. } if id.as_str() == "t1"));
    let turns = store.turns(&session).await.unwrap();
    assert_eq!(turns.done[0].commands, ["Do it", "Do it", "make"]);
}

/// Parallel calls end in any order.
#[tokio::test]
async fn results_are_restored_in_the_order_of_their_calls() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    store.create(&session, Path::new("/w")).await.unwrap();
    prompt(&store, &session, "Read all").await.unwrap();
    let calls = [request("t1"), request("t2"), request("t3")];
    store.append(&session, Record::Answer(&calls)).await.unwrap();
    for name in ["t3", "t1", "t2"] {
        let id = ToolCallId::new(name);
        let result = Record::ToolResult { id: &id, text: name, failed: false };
        store.append(&session, result).await.unwrap();
    }
    end(&store, &session).await.unwrap();
    let (stored, _) = load(&store, &session).await;
    let results = messages(&stored).into_iter().filter_map(|message| match message {
        Message::ToolResult { text, .. } => Some(text),
        Message::User(_) | Message::Agent { .. } => None,
    });
    assert_eq!(results.collect::<Vec<_>>(), ["t1", "t2", "t3"]);
}

/// Images of tools are restored where the model saw them: after the results, before the next answer.
// R: M3, S2
#[tokio::test]
async fn images_of_tools_are_restored_where_the_model_saw_them() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(options(directory.path()));
    store.create(&session, Path::new("/w")).await.unwrap();
    prompt(&store, &session, "Look").await.unwrap();
    store.append(&session, Record::Answer(&[request("t1")])).await.unwrap();
    let call = ToolCallId::new("t1");
    let result = Record::ToolResult { id: &call, text: "[an image]", failed: false };
    store.append(&session, result).await.unwrap();
    let image = Block::Image(Media { data: "AAAA".to_owned(), mime: "image/png".to_owned() });
    let update = ToolUpdate {
        status: Some(ToolStatus::Completed),
        content: Some(vec![ToolContent::Block(image.clone())]),
        ..ToolUpdate::default()
    };
    let shown = Event::ToolUpdate(call, Box::new(update));
    store.append_event(&session, shown, None).await.unwrap();
    store.append(&session, Record::Answer(&[])).await.unwrap();
    end(&store, &session).await.unwrap();
    let (stored, _) = load(&store, &session).await;
    let kinds = messages(&stored).into_iter().map(|message| match message {
        Message::User(prompt) if prompt.blocks.contains(&image) => "images",
        Message::User(_) => "user",
        Message::Agent { .. } => "agent",
        Message::ToolResult { .. } => "result",
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["user", "agent", "result", "images", "agent"]);
}

/// The thread of a dropped store ends a little later and then releases its lock.
pub(crate) async fn wait_for_end_of(directory: &TempDir) {
    for _ in 0..500 {
        let live = std::fs::read_dir(directory.path().join("live")).unwrap().count();
        if live == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("the store does not end");
}

async fn begin_turn(store: &Store, session: &SessionId) {
    let prompt = Prompt::from(vec![Block::Text("go".to_owned())]);
    let message = MessageId::new("m1");
    let record = Record::Prompt { message: &message, prompt: &prompt, kind: PromptKind::Message };
    store.append(session, record).await.unwrap();
}

/// The process that had it can write nothing any more, and learns why.
// R: S11, S6
#[tokio::test]
async fn idle_session_is_taken_over_and_a_running_one_by_force() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (Store::new(options(directory.path())), Store::new(options(directory.path())));
    let session = id("s");
    let end = || Record::TurnEnd(Some(StopReason::EndTurn));
    one.create(&session, Path::new("/w")).await.unwrap();
    begin_turn(&one, &session).await;
    one.append(&session, end()).await.unwrap();
    assert_eq!(one.lost_sessions().await, []);

    two.load(&session, None).await.unwrap();
    for _ in 0..2 {
        assert_eq!(one.lost_sessions().await, std::slice::from_ref(&session));
        assert_eq!(two.lost_sessions().await, []);
    }
    assert_eq!(one.append(&session, end()).await, Err(JournalError::TakenOver));
    assert_eq!(one.load(&session, None).await.err(), Some(JournalError::TakenOver));
    // What it does at its end does not touch the session of the other one.
    one.release(&session, State::Paused).await.unwrap();
    assert_eq!(one.lost_sessions().await, []);
    assert_eq!(two.find(&session).await.unwrap().state, State::Active);

    begin_turn(&two, &session).await;
    assert!(matches!(one.load(&session, None).await, Err(JournalError::OpenElsewhere(_))));
    one.take_over(&session).await.unwrap();
    one.load(&session, None).await.unwrap();
    assert_eq!(two.lost_sessions().await, std::slice::from_ref(&session));
    assert_eq!(two.append(&session, end()).await, Err(JournalError::TakenOver));
    one.append(&session, end()).await.unwrap();
}

// R: S11
#[tokio::test]
async fn session_with_a_running_turn_elsewhere_names_the_process() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (Store::new(options(directory.path())), Store::new(options(directory.path())));
    let session = id("s");
    one.create(&session, Path::new("/w")).await.unwrap();
    begin_turn(&one, &session).await;
    let Err(JournalError::OpenElsewhere(place)) = two.load(&session, None).await else {
        panic!("it could be loaded");
    };
    assert!(place.starts_with(&format!("process {} on ", std::process::id())), "{place}");
    assert!(place.contains(", where a turn has been running since "), "{place}");
    assert!(matches!(two.delete(&session).await, Err(JournalError::OpenElsewhere(_))));
    assert_eq!(two.find(&session).await.unwrap().state, State::Active);
    drop(one);
    for _ in 0..500 {
        if two.load(&session, None).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("a dead owner keeps the session");
}

#[tokio::test]
async fn session_of_a_dead_owner_is_listed_as_paused() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    assert_eq!(store.find(&id("s")).await.unwrap().state, State::Active);
    drop(store);
    wait_for_end_of(&directory).await;
    let store = Store::new(options(directory.path()));
    assert_eq!(store.list(Query::default()).await.unwrap().sessions[0].state, State::Paused);
}

// R: S8
#[tokio::test]
async fn full_session_rejects_records_and_still_loads() {
    let directory = TempDir::new().unwrap();
    let session = id("s");
    let store = Store::new(Options { max_history_bytes: 1000, ..options(directory.path()) });
    store.create(&session, Path::new("/w")).await.unwrap();
    prompt(&store, &session, "Talk").await.unwrap();
    for _ in 0..100 {
        // Text is acknowledged before it is written, so the error appears later, at the latest at the end of the turn.
        match store.append_event(&session, agent_text(&"x".repeat(50)), None).await {
            Ok(()) | Err(JournalError::Full(1000)) => {}
            Err(err) => panic!("{err}"),
        }
    }
    assert_eq!(end(&store, &session).await, Err(JournalError::Full(1000)));
    assert_eq!(prompt(&store, &session, &"y".repeat(900)).await, Err(JournalError::Full(1000)));
    assert_eq!(end(&store, &session).await, Err(JournalError::Full(1000)));
    store.release(&session, State::Paused).await.unwrap();
    let (stored, events) = load(&store, &session).await;
    assert_eq!(events.len(), 2);
    assert!(stored.info.bytes < 1200, "{}", stored.info.bytes);
}

// R: S7
#[tokio::test]
async fn old_session_expires_only_if_configured() {
    let directory = TempDir::new().unwrap();
    let clock = Arc::new(TestClock::default());
    let options = |days| Options {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        expire_days: days,
        ..options(directory.path())
    };
    let store = Store::new(options(30));
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    store.release(&id("s"), State::Paused).await.unwrap();
    *clock.0.lock().unwrap() = Duration::from_secs(31 * 86_400);
    assert_eq!(store.load(&id("s"), None).await.unwrap_err(), JournalError::Expired(30));
    assert!(Store::new(options(0)).load(&id("s"), None).await.is_ok());
}

/// The list of sessions may be updated later than the journal, but readers of the list never see a difference.
#[tokio::test]
async fn session_is_marked_as_used_at_its_prompt() {
    let directory = TempDir::new().unwrap();
    let clock = Arc::new(TestClock::default());
    let store = Store::new(Options {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..options(directory.path())
    });
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    let used = async |store: &Store| {
        let found = store.find(&id("s")).await.unwrap();
        let since = found.updated.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        since.as_secs() - 1_000_000_000
    };
    let at = |seconds| *clock.0.lock().unwrap() = Duration::from_secs(seconds);
    at(10);
    prompt(&store, &id("s"), "Hello").await.unwrap();
    assert_eq!(used(&store).await, 10);
    at(20);
    prompt(&store, &id("s"), "Hello").await.unwrap();
    store.append_event(&id("s"), call("t1"), None).await.unwrap();
    store.append_event(&id("s"), call("t2"), None).await.unwrap();
    // As another process sees it: the second record after the prompt wrote the state.
    assert_eq!(used(&Store::new(options(directory.path()))).await, 20);
    at(30);
    end(&store, &id("s")).await.unwrap();
    assert_eq!(used(&Store::new(options(directory.path()))).await, 30);
}

#[tokio::test]
async fn fork_is_independent_of_its_origin() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    prompt(&store, &id("s"), "Hello").await.unwrap();
    say(&store, &id("s"), "Hi").await;
    // While its turn runs, which does not affect the copy.
    store.fork(&id("s"), &id("f")).await.unwrap();
    say(&store, &id("s"), " there").await;
    end(&store, &id("s")).await.unwrap();
    let (stored, events) = load(&store, &id("f")).await;
    assert_eq!(events, [user("Hello"), agent_text("Hi")]);
    assert_eq!(stored.info.cwd, Path::new("/w"));
    assert_eq!(load(&store, &id("s")).await.1, [user("Hello"), agent_text("Hi there")]);
    assert_eq!(store.fork(&id("none"), &id("g")).await, Err(JournalError::NotFound));
}

#[tokio::test]
async fn deleted_session_leaves_no_data() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    prompt(&store, &id("s"), "Tell nobody: xyzzy-secret").await.unwrap();
    say(&store, &id("s"), &"xyzzy-secret ".repeat(10_000)).await;
    end(&store, &id("s")).await.unwrap();
    store.delete(&id("s")).await.unwrap();
    store.delete(&id("s")).await.unwrap();
    assert_eq!(store.find(&id("s")).await.unwrap_err(), JournalError::NotFound);
    for entry in std::fs::read_dir(directory.path()).unwrap().flatten() {
        if entry.metadata().unwrap().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            let found = bytes.windows(12).any(|window| window == b"xyzzy-secret");
            assert!(!found, "{}", entry.path().display());
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let top = TempDir::new().unwrap();
    let directory = top.path().join("purlin");
    let store = Store::new(options(&directory));
    assert!(store.is_persistent());
    store.create(&id("s"), Path::new("/w")).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in std::fs::read_dir(&directory).unwrap().flatten() {
        let expected = if entry.metadata().unwrap().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&entry.path()), expected, "{}", entry.path().display());
    }
}

/// D16. `examples/cost.rs` measures the time.
// R: S11
#[tokio::test]
async fn d16_ten_thousand_sessions_are_listed_once_each() {
    let directory = TempDir::new().unwrap();
    let store = Store::new(options(directory.path()));
    for number in 0..10_000 {
        store.create(&id(&format!("s{number}")), Path::new("/w")).await.unwrap();
    }
    let mut listed = std::collections::HashSet::new();
    let mut query = Query::default();
    loop {
        let listing = store.list(query.clone()).await.unwrap();
        assert!(listing.sessions.len() <= 1000, "{} at once", listing.sessions.len());
        for info in listing.sessions {
            assert!(listed.insert(info.id.clone()), "{} twice", info.id);
        }
        query.cursor = listing.next;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), 10_000);
}
