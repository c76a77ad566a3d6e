//! Converts events to updates. Does no IO. `bridge::size` shortens what is too long for an update.

use engine::Event;
use engine::ports::{CompactionStatus, Severity};
use engine::words::{Block, PlanEntry, PlanStatus, Priority, SessionId, SlashCommand};
use serde::Serialize;
use wire::acp::schema;

use super::call::CallOut;
use super::options::options_out;
use super::{block_out, block_with, fit, size};
use crate::dialect::NotePrinter;

const UPDATE: &str = "session/update";

/// An event of fewer bytes than this part of the limit fits, however much its encoding and a dialect add.
const SURELY_FITS: usize = 16;
/// With less room than this nothing useful is left of an event.
const SMALLEST: usize = 128;

/// Appends the event as one `session/update` line of at most `most` bytes: the only place where updates are measured.
///
/// An event that is too large is shortened until its line fits. Dialects repeat parts of it, so the line is measured.
pub(crate) fn print(
    out: &mut Vec<u8>,
    printer: NotePrinter,
    session: &SessionId,
    event: Event,
    seq: Option<u64>,
    most: usize,
) {
    let start = out.len();
    let may_exceed = size::weight(&event) > most / SURELY_FITS;
    let whole = may_exceed.then(|| event.clone());
    print_event(out, printer, session, event, seq, most);
    let Some(whole) = whole else { return };
    let mut room = most;
    while out.len() - start > most && room > SMALLEST {
        room /= 2;
        out.truncate(start);
        let shortened = fit::shorten(whole.clone(), room);
        print_event(out, printer, session, shortened, seq, most);
    }
    if out.len() - start > most {
        out.truncate(start);
        tracing::error!(%session, "an update was omitted: its ids are longer than the limit");
    }
}

fn print_event(
    out: &mut Vec<u8>,
    printer: NotePrinter,
    session: &SessionId,
    event: Event,
    seq: Option<u64>,
    most: usize,
) {
    if !print_tool(out, printer, session, &event, seq)
        && let Some(update) = event_out(event, most)
    {
        print_note(out, printer, session, &update, seq);
    }
}

/// Appends a tool call or its update; false for any other event.
fn print_tool(
    out: &mut Vec<u8>,
    printer: NotePrinter,
    session: &SessionId,
    event: &Event,
    seq: Option<u64>,
) -> bool {
    let call = match event {
        Event::ToolCall(call) => CallOut::first(call),
        Event::ToolUpdate(id, update) => CallOut::update(id, update),
        _ => return false,
    };
    print_note(out, printer, session, &call, seq);
    true
}

fn print_note(
    out: &mut Vec<u8>,
    printer: NotePrinter,
    session: &SessionId,
    update: &impl Serialize,
    seq: Option<u64>,
) {
    let meta = seq.map(|seq| NoteMeta { seq });
    let note = Note { session_id: session.as_str(), update, meta };
    if let Err(err) = printer.print(out, UPDATE, &note) {
        tracing::error!(%session, "cannot write an update: {err}");
    }
}

/// The parameters of `session/update`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Note<'a, T> {
    session_id: &'a str,
    update: &'a T,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<NoteMeta>,
}

/// The number of the record that an update completes. A client that has lost its connection names the last one it has.
#[derive(Serialize)]
struct NoteMeta {
    seq: u64,
}

/// Converts an event; `None` for a tool call, which is printed directly.
fn event_out(event: Event, most: usize) -> Option<schema::SessionUpdate> {
    use schema::SessionUpdate;
    Some(match event {
        Event::ToolCall(_) | Event::ToolUpdate(..) => return None,
        Event::User { message, block, meta } => {
            let content = schema::ContentChunk::new(block_with(block, meta));
            let message = schema::MessageId::new(message.to_shared());
            SessionUpdate::UserMessageChunk(content.message_id(message))
        }
        Event::Text { message, text } => {
            SessionUpdate::AgentMessageChunk(chunk(message.to_shared(), Block::Text(text)))
        }
        Event::Thought { message, text } => {
            SessionUpdate::AgentThoughtChunk(chunk(message.to_shared(), Block::Text(text)))
        }
        Event::Block { message, block } => {
            SessionUpdate::AgentMessageChunk(chunk(message.to_shared(), block))
        }
        Event::Plan(entries) => SessionUpdate::Plan(schema::Plan::new(
            entries.into_iter().map(plan_entry_out).collect(),
        )),
        Event::Commands(commands) => SessionUpdate::AvailableCommandsUpdate(
            schema::AvailableCommandsUpdate::new(commands.into_iter().map(command_out).collect()),
        ),
        Event::Mode(mode) => SessionUpdate::CurrentModeUpdate(schema::CurrentModeUpdate::new(
            schema::SessionModeId::new(mode.to_shared()),
        )),
        Event::Settings(settings) => SessionUpdate::ConfigOptionUpdate(
            schema::ConfigOptionUpdate::new(options_out(&settings, most)),
        ),
        Event::Info { title, updated_at } => {
            SessionUpdate::SessionInfoUpdate(info_out(title, updated_at))
        }
        Event::Usage { used, size, cost } => {
            let cost = cost.map(|amount| schema::Cost::new(amount, "USD"));
            SessionUpdate::UsageUpdate(schema::UsageUpdate::new(used, size).cost(cost))
        }
        Event::Notice { severity, title, description } => {
            let notice = schema::Notice::new(severity_out(severity), title);
            SessionUpdate::Notice(notice.description(description))
        }
        Event::Compaction { id, status, error } => {
            SessionUpdate::CompactionUpdate(compaction_out(id, status, error))
        }
        Event::CompactionSummary { id, text } => {
            SessionUpdate::CompactionSummaryChunk(schema::CompactionSummaryChunk::new(
                schema::CompactionId::new(id),
                block_out(Block::Text(text)),
            ))
        }
    })
}

fn command_out(command: SlashCommand) -> schema::AvailableCommand {
    let hint = command.hint.map(|hint| {
        schema::AvailableCommandInput::Unstructured(schema::UnstructuredCommandInput::new(hint))
    });
    schema::AvailableCommand::new(command.name, command.description).input(hint)
}

fn info_out(title: Option<String>, updated_at: Option<String>) -> schema::SessionInfoUpdate {
    let mut info = schema::SessionInfoUpdate::new();
    if let Some(title) = title {
        info = info.title(title);
    }
    if let Some(updated_at) = updated_at {
        info = info.updated_at(updated_at);
    }
    info
}

fn severity_out(severity: Severity) -> schema::NoticeSeverity {
    match severity {
        Severity::Info => schema::NoticeSeverity::Info,
        Severity::Warning => schema::NoticeSeverity::Warning,
        Severity::Error => schema::NoticeSeverity::Error,
    }
}

fn compaction_out(
    id: String,
    status: CompactionStatus,
    error: Option<String>,
) -> schema::CompactionUpdate {
    let status = match status {
        CompactionStatus::InProgress => schema::CompactionStatus::InProgress,
        CompactionStatus::Completed => schema::CompactionStatus::Completed,
        CompactionStatus::Failed => schema::CompactionStatus::Failed,
        CompactionStatus::Cancelled => schema::CompactionStatus::Cancelled,
    };
    let update = schema::CompactionUpdate::new(schema::CompactionId::new(id), status);
    match error {
        Some(error) => update.error(error),
        None => update,
    }
}

fn chunk(message: std::sync::Arc<str>, block: Block) -> schema::ContentChunk {
    schema::ContentChunk::new(block_out(block)).message_id(schema::MessageId::new(message))
}

fn plan_entry_out(entry: PlanEntry) -> schema::PlanEntry {
    let priority = match entry.priority {
        Priority::High => schema::PlanEntryPriority::High,
        Priority::Medium => schema::PlanEntryPriority::Medium,
        Priority::Low => schema::PlanEntryPriority::Low,
    };
    let status = match entry.status {
        PlanStatus::Pending => schema::PlanEntryStatus::Pending,
        PlanStatus::InProgress => schema::PlanEntryStatus::InProgress,
        PlanStatus::Completed => schema::PlanEntryStatus::Completed,
    };
    schema::PlanEntry::new(entry.content, priority, status)
}

#[cfg(test)]
mod tests {
    use engine::words::{
        Contents, Location, Media, MessageId, TerminalId, ToolCall, ToolCallId, ToolContent,
        ToolKind, ToolStatus, ToolUpdate,
    };
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn line(event: Event) -> Value {
        let mut out = Vec::new();
        print(&mut out, NotePrinter::default(), &SessionId::new("s"), event, None, 100 * 1024);
        assert!(out.len() <= 100 * 1024, "{} bytes", out.len());
        serde_json::from_slice::<Value>(&out).unwrap()["params"]["update"].clone()
    }

    /// One of every event, with all members.
    fn every_event() -> Vec<Event> {
        let message = MessageId::new("m");
        let media = |mime: &str| Media { data: "AAAA".into(), mime: mime.into() };
        let blocks = [
            Block::Text("text".into()),
            Block::Image(media("image/png")),
            Block::Audio(media("audio/wav")),
            Block::Link { uri: "file:///a".into(), name: "a".into() },
            Block::Resource {
                uri: "file:///a".into(),
                mime: None,
                contents: Contents::Text("t".into()),
            },
            Block::Resource {
                uri: "file:///b".into(),
                mime: Some("x/y".into()),
                contents: Contents::Blob("AAAA".into()),
            },
        ];
        let content = vec![
            ToolContent::Block(Block::Text("text".into())),
            ToolContent::Diff { path: "/a".into(), old: Some("x".into()), new: "y".into() },
            ToolContent::Diff { path: "/b".into(), old: None, new: "y".into() },
            ToolContent::Terminal(TerminalId::new("term")),
        ];
        let kinds = [
            ToolKind::Read,
            ToolKind::Edit,
            ToolKind::Delete,
            ToolKind::Move,
            ToolKind::Search,
            ToolKind::Execute,
            ToolKind::Think,
            ToolKind::Fetch,
            ToolKind::SwitchMode,
            ToolKind::Other,
        ];
        let statuses = [
            ToolStatus::Pending,
            ToolStatus::InProgress,
            ToolStatus::Completed,
            ToolStatus::Failed,
        ];
        let model = engine::script::ScriptedModel::parse("model echo").unwrap();
        let models = std::sync::Arc::new([engine::ports::ModelChoice {
            id: engine::words::ModelId::new("script/echo"),
            name: "Echo".to_owned(),
            context_size: 1000,
            price: None,
            can_think: true,
            profile: None,
            model: std::sync::Arc::new(model),
        }]);
        let settings = engine::ports::Settings::new(models).unwrap();
        let mut events = vec![
            Event::Text { message: message.clone(), text: "text".into() },
            Event::Thought { message: message.clone(), text: "text".into() },
            Event::Plan(
                [
                    (Priority::High, PlanStatus::Completed),
                    (Priority::Medium, PlanStatus::InProgress),
                    (Priority::Low, PlanStatus::Pending),
                ]
                .map(|(priority, status)| PlanEntry { content: "do".into(), priority, status })
                .to_vec(),
            ),
            Event::Commands(engine::commands::COMMANDS.to_vec()),
            Event::Mode(settings.mode.clone()),
            Event::Settings(settings),
            Event::Info {
                title: Some("title".into()),
                updated_at: Some("2026-01-01T00:00:00Z".into()),
            },
            Event::Info { title: None, updated_at: None },
            Event::Usage { used: 1, size: 2, cost: Some(0.5) },
            Event::Usage { used: 1, size: 2, cost: None },
            Event::CompactionSummary { id: "c".into(), text: "text".into() },
        ];
        events.extend(blocks.iter().flat_map(|block| {
            let (message, block) = (message.clone(), block.clone());
            [
                Event::User { message: message.clone(), block: block.clone(), meta: None },
                Event::Block { message, block },
            ]
        }));
        events.extend(kinds.map(|kind| {
            Event::ToolCall(Box::new(ToolCall {
                id: ToolCallId::new("t"),
                name: "tool".into(),
                title: "title".into(),
                kind,
                status: ToolStatus::Pending,
                content: content.clone(),
                locations: vec![Location { path: "/a".into(), line: Some(1) }],
                raw_input: serde_json::json!({ "a": 1 }),
            }))
        }));
        events.extend(statuses.map(|status| {
            let update = ToolUpdate {
                status: Some(status),
                content: Some(content.clone()),
                raw_output: Some(serde_json::json!([1])),
                ..ToolUpdate::default()
            };
            Event::ToolUpdate(ToolCallId::new("t"), Box::new(update))
        }));
        events.extend([Severity::Info, Severity::Warning, Severity::Error].map(|severity| {
            Event::Notice { severity, title: "title".into(), description: Some("more".into()) }
        }));
        let compactions = [
            CompactionStatus::InProgress,
            CompactionStatus::Completed,
            CompactionStatus::Failed,
            CompactionStatus::Cancelled,
        ];
        events.extend(compactions.map(|status| Event::Compaction {
            id: "c".into(),
            status,
            error: Some("why".into()),
        }));
        events
    }

    // R: P2, P7, D1
    #[test]
    fn every_event_is_an_update_of_the_official_schema() {
        let text = include_str!("../../../../conformance/schema/acp-v1.json");
        let schema: Value = serde_json::from_str(text).unwrap();
        let update = serde_json::json!({
            "$schema": schema["$schema"],
            "$ref": "#/$defs/SessionUpdate",
            "$defs": schema["$defs"],
        });
        let validator = jsonschema::validator_for(&update).unwrap();
        let mut variants = std::collections::BTreeSet::new();
        for event in every_event() {
            let shown = line(event);
            let faults: Vec<String> =
                validator.iter_errors(&shown).map(|fault| fault.to_string()).collect();
            assert!(faults.is_empty(), "{shown}: {faults:?}");
            variants.insert(shown["sessionUpdate"].as_str().unwrap().to_owned());
        }
        let stable = [
            "agent_message_chunk",
            "agent_thought_chunk",
            "available_commands_update",
            "compaction_summary_chunk",
            "compaction_update",
            "config_option_update",
            "current_mode_update",
            "notice",
            "plan",
            "session_info_update",
            "tool_call",
            "tool_call_update",
            "usage_update",
            "user_message_chunk",
        ];
        assert_eq!(variants, stable.map(str::to_owned).into());
    }

    // R: W10
    #[test]
    fn large_tool_output_is_cut_to_fit() {
        let text = "\u{1b}[31mé\n".repeat(100_000);
        let content = vec![ToolContent::Block(Block::Text(text.clone()))];
        let update = ToolUpdate { content: Some(content), ..ToolUpdate::default() };
        let shown = line(Event::ToolUpdate(ToolCallId::new("t"), Box::new(update)));
        assert!(shown["content"][0]["content"]["text"].as_str().unwrap().contains("bytes omitted"));
        let diff = ToolContent::Diff { path: "/w/a".into(), old: None, new: text };
        let update = ToolUpdate { content: Some(vec![diff]), ..ToolUpdate::default() };
        let shown = line(Event::ToolUpdate(ToolCallId::new("t"), Box::new(update)));
        assert!(
            shown["content"][0]["content"]["text"]
                .as_str()
                .unwrap()
                .starts_with("/w/a: change too large")
        );
    }

    proptest! {
        #[test]
        fn text_of_a_chunk_comes_back(text in any::<String>()) {
            let shown = line(Event::Text { message: MessageId::new("m"), text: text.clone() });
            prop_assert_eq!(shown["content"]["text"].as_str(), Some(text.as_str()));
        }
    }
}
