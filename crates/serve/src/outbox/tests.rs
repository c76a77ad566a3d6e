//! Whatever a session shows, every line is within its limit, nothing of a message is lost, and the rate applies to everything.

use std::sync::Arc;
use std::time::Duration;

use engine::ports::{CompactionStatus, ModelChoice, Settings, Severity};
use engine::script::ScriptedModel;
use engine::words::{
    Block, Contents, ExitStatus, Live, Location, Media, MessageId, ModelId, PlanEntry, PlanStatus,
    Priority, SlashCommand, TerminalId, ToolCall, ToolCallId, ToolContent, ToolKind, ToolStatus,
    ToolUpdate,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use wire::acp::dialect::Dialect;

use super::*;

/// A text that may be very long, and needs up to six bytes for each of its own.
fn text() -> BoxedStrategy<String> {
    let counts = [0, 7, 3_000, 20_000, 120_000];
    (unit(), proptest::sample::select(counts.to_vec())).prop_map(repeated).boxed()
}

/// A short text, for lists that are long.
fn short() -> BoxedStrategy<String> {
    (unit(), 0usize..30).prop_map(repeated).boxed()
}

fn repeated((unit, count): (&'static str, usize)) -> String {
    unit.repeat(count)
}

fn unit() -> BoxedStrategy<&'static str> {
    prop_oneof![
        Just("a"),
        Just("\u{0}"),
        Just("\u{1b}[31m"),
        Just("\"\\"),
        Just("é\n"),
        Just("```\n"),
        Just("\u{1f600}")
    ]
    .boxed()
}

fn block() -> BoxedStrategy<Block> {
    let media = || (text(), text()).prop_map(|(data, mime)| Media { data, mime });
    let contents = prop_oneof![text().prop_map(Contents::Text), text().prop_map(Contents::Blob)];
    prop_oneof![
        text().prop_map(Block::Text),
        media().prop_map(Block::Image),
        media().prop_map(Block::Audio),
        (text(), text()).prop_map(|(uri, name)| Block::Link { uri, name }),
        (text(), option::of(text()), contents).prop_map(|(uri, mime, contents)| Block::Resource {
            uri,
            mime,
            contents
        }),
    ]
    .boxed()
}

fn content() -> BoxedStrategy<ToolContent> {
    prop_oneof![
        block().prop_map(ToolContent::Block),
        (text(), option::of(text()), text())
            .prop_map(|(path, old, new)| { ToolContent::Diff { path: path.into(), old, new } }),
        text().prop_map(|id| ToolContent::Terminal(TerminalId::new(id))),
        text().prop_map(|cwd| ToolContent::Live { cwd: cwd.into() }),
    ]
    .boxed()
}

fn value() -> BoxedStrategy<Value> {
    (text(), vec(text(), 0..3)).prop_map(|(key, items)| json!({ key: items })).boxed()
}

fn tool_call() -> BoxedStrategy<Event> {
    let strings = (text(), text(), "[a-z]{1,300}");
    let location = text().prop_map(|path| Location { path: path.into(), line: Some(1) });
    (strings, vec(content(), 0..4), vec(location, 0..4), value())
        .prop_map(|((name, title, id), content, locations, raw_input)| {
            let (id, kind) = (ToolCallId::new(id), ToolKind::Other);
            let status = ToolStatus::Pending;
            let call = ToolCall { id, name, title, kind, status, content, locations, raw_input };
            Event::ToolCall(Box::new(call))
        })
        .boxed()
}

fn tool_update() -> BoxedStrategy<Event> {
    let live = prop_oneof![
        text().prop_map(Live::Output),
        text().prop_map(|signal| Live::Ended(ExitStatus { code: None, signal: Some(signal) }))
    ];
    let line = short().prop_map(|text| ToolContent::Block(Block::Text(text)));
    let contents = prop_oneof![vec(content(), 0..4), vec(line, 0..3_000)];
    (option::of(contents), option::of(value()), option::of(live))
        .prop_map(|(content, raw_output, live)| {
            let update = ToolUpdate { content, raw_output, live, ..ToolUpdate::default() };
            Event::ToolUpdate(ToolCallId::new("t"), Box::new(update))
        })
        .boxed()
}

fn settings(ids: Vec<(String, String)>) -> Event {
    let model = Arc::new(ScriptedModel::parse("model echo").unwrap());
    let models = ids.into_iter().map(|(id, name)| ModelChoice {
        id: ModelId::new(id),
        name,
        context_size: 1000,
        price: None,
        can_think: true,
        profile: None,
        model: model.clone(),
    });
    Event::Settings(Settings::new(models.collect()).unwrap())
}

fn any_event() -> BoxedStrategy<Event> {
    let message = || MessageId::new("m");
    let entry = |(content, count)| {
        let (priority, status) = (Priority::High, PlanStatus::Pending);
        vec![PlanEntry { content, priority, status }; count]
    };
    let command = |((name, description), hint, count)| {
        let hint = Option::<String>::map(hint, Into::into);
        let (name, description) = (String::into(name), String::into(description));
        vec![SlashCommand { name, description, hint }; count]
    };
    let id = || prop_oneof!["[a-z]{1,20}", text()];
    prop_oneof![
        (block(), option::of(value())).prop_map(move |(block, meta)| {
            let meta = meta.map(|meta| json!({ "_meta": meta }));
            Event::User { message: message(), block, meta }
        }),
        text().prop_map(move |text| Event::Text { message: message(), text }),
        text().prop_map(move |text| Event::Thought { message: message(), text }),
        block().prop_map(move |block| Event::Block { message: message(), block }),
        tool_call(),
        tool_update(),
        (text(), 0usize..3).prop_map(entry).prop_map(Event::Plan),
        (short(), 0usize..3_000).prop_map(entry).prop_map(Event::Plan),
        ((text(), text()), option::of(text()), 0usize..3)
            .prop_map(command)
            .prop_map(Event::Commands),
        ((short(), short()), option::of(short()), 0usize..3_000)
            .prop_map(command)
            .prop_map(Event::Commands),
        vec((id(), text()), 1..4).prop_map(settings),
        vec(("[a-z]{1,20}", short()), 1..3_000).prop_map(settings),
        text().prop_map(|title| Event::Info { title: Some(title), updated_at: None }),
        (text(), option::of(text())).prop_map(|(title, description)| Event::Notice {
            severity: Severity::Info,
            title,
            description
        }),
        text().prop_map(|error| Event::Compaction {
            id: "c".to_owned(),
            status: CompactionStatus::Failed,
            error: Some(error),
        }),
        text().prop_map(|text| Event::CompactionSummary { id: "c".to_owned(), text }),
    ]
    .boxed()
}

const LIMIT: usize = 100 * 1024;

fn outbox(updates_per_minute: u64) -> (Outbox, SessionId) {
    let limits = Limits { updates_per_minute, ..Limits::default() };
    let mut outbox = Outbox::new(&limits);
    let session = SessionId::new("s");
    outbox.open(
        session.clone(),
        Arc::new(Semaphore::new(SESSION_BUDGET)),
        Pace::Live,
        Instant::now(),
    );
    (outbox, session)
}

/// Writes everything that may be sent now, and returns its lines.
fn lines(outbox: &mut Outbox, dialect: Dialect, now: Instant) -> Vec<Value> {
    let mut lines = Vec::new();
    loop {
        let mut batch = Vec::new();
        outbox.fill(&mut batch, NotePrinter::of(dialect), now);
        if batch.is_empty() {
            return lines;
        }
        for line in batch.split_inclusive(|byte| *byte == b'\n') {
            assert!(line.len() <= LIMIT, "{dialect:?}: {} bytes", line.len());
            lines.push(serde_json::from_slice(line).unwrap());
        }
    }
}

/// Joins the text of all chunks.
fn joined(lines: &[Value]) -> String {
    let text =
        |line: &Value| line["params"]["update"]["content"]["text"].as_str().map(str::to_owned);
    lines.iter().filter_map(text).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    // R: W10
    #[test]
    fn every_line_of_any_event_is_within_the_limit(event in any_event()) {
        for dialect in Dialect::ALL {
            let (mut outbox, session) = outbox(0);
            outbox.push_event(&session, event.clone(), 0, None);
            lines(&mut outbox, dialect, Instant::now());
            prop_assert!(outbox.is_empty());
        }
    }

    // R: W10
    #[test]
    fn long_text_is_split_and_nothing_of_it_is_lost(text in text(), kind in 0..3) {
        let message = MessageId::new("m");
        let event = match kind {
            0 => Event::Text { message, text: text.clone() },
            1 => Event::User { message, block: Block::Text(text.clone()), meta: None },
            _ => Event::CompactionSummary { id: "c".to_owned(), text: text.clone() },
        };
        let (mut outbox, session) = outbox(0);
        outbox.push_event(&session, event, 0, None);
        prop_assert_eq!(joined(&lines(&mut outbox, Dialect::V1, Instant::now())), text);
    }
}

fn update(id: &str, status: Option<ToolStatus>, live: Option<&str>) -> Event {
    let live = live.map(|text| Live::Output(text.to_owned()));
    let update = ToolUpdate { status, live, ..ToolUpdate::default() };
    Event::ToolUpdate(ToolCallId::new(id), Box::new(update))
}

fn call(id: &str) -> Event {
    Event::ToolCall(Box::new(ToolCall {
        id: ToolCallId::new(id),
        name: "bash".to_owned(),
        title: "ls".to_owned(),
        kind: ToolKind::Execute,
        status: ToolStatus::Pending,
        content: Vec::new(),
        locations: Vec::new(),
        raw_input: Value::Null,
    }))
}

// R: W11, W17
#[tokio::test(start_paused = true)]
async fn tool_updates_count_for_the_rate_and_begin_and_end_are_not_lost() {
    let (mut outbox, session) = outbox(60);
    let start = Instant::now();
    let mut sent = Vec::new();
    let mut output = String::new();
    for id in 0..20 {
        let id = id.to_string();
        outbox.push_event(&session, call(&id), 0, None);
        outbox.push_event(&session, update(&id, Some(ToolStatus::InProgress), None), 0, None);
        for beat in 0..50 {
            let text = format!("{id}.{beat}\n");
            output.push_str(&text);
            outbox.push_event(&session, update(&id, None, Some(&text)), 0, None);
        }
        outbox.push_event(&session, update(&id, Some(ToolStatus::Completed), None), 0, None);
        sent.extend(lines(&mut outbox, Dialect::V1, start));
    }
    assert!(sent.len() <= 6, "a tenth of the rate at once: {}", sent.len());
    for second in 1..120 {
        let now = start + Duration::from_secs(second);
        let more = lines(&mut outbox, Dialect::V1, now);
        assert!(more.len() <= 1, "{more:?}");
        sent.extend(more);
    }
    assert!(outbox.is_empty());
    let count = |kind: &str, status: &str| {
        let of = |line: &&Value| {
            let update = &line["params"]["update"];
            update["sessionUpdate"] == kind && update["status"] == status
        };
        sent.iter().filter(of).count()
    };
    assert_eq!(count("tool_call", "pending"), 20);
    assert_eq!(count("tool_call_update", "completed"), 20);
    let shown: String = sent
        .iter()
        .filter_map(|line| line["params"]["update"]["_meta"]["terminal_output"]["data"].as_str())
        .collect();
    assert_eq!(shown, output);
}

// R: W11
#[tokio::test(start_paused = true)]
async fn answer_does_not_wait_for_the_rate_and_takes_earlier_updates_along() {
    let (mut outbox, session) = outbox(60);
    let now = Instant::now();
    for id in 0..30 {
        outbox.push_event(&session, call(&id.to_string()), 0, None);
    }
    outbox.push_line(&session, b"{\"id\":1,\"result\":{}}\n".to_vec(), 0);
    let sent = lines(&mut outbox, Dialect::V1, now);
    assert_eq!((sent.len(), &sent[30]["id"]), (31, &json!(1)));
    outbox.push_event(&session, call("next"), 0, None);
    assert!(lines(&mut outbox, Dialect::V1, now + Duration::from_secs(6)).is_empty());
    assert_eq!(lines(&mut outbox, Dialect::V1, now + Duration::from_secs(20)).len(), 1);
}

// R: W10, T4
#[test]
fn call_over_its_limit_is_not_sent_and_its_room_is_returned() {
    let (mut outbox, session) = outbox(0);
    let before = outbox.total().available_permits();
    let line = vec![b'x'; 10 * 1024 * 1024 + 1];
    outbox.total().forget_permits(100);
    let error = outbox.push_call(&session, "fs/write_text_file", line, 100).unwrap_err();
    assert_eq!(error.code, wire::Code::FILE_TOO_LARGE);
    assert_eq!(outbox.total().available_permits(), before);
    assert!(outbox.is_empty());
}
