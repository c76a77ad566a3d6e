//! Converts the engine's types to records and back.

use std::path::{Path, PathBuf};

use engine::Event;
use engine::{ports, words};

use super::{
    Block, CompactionStatus, Cut, Location, Name, PlanEntry, PlanStatus, Priority, PromptKind,
    Record, Seal, StopReason, Thought, ToolCall, ToolContent, ToolKind, ToolRequest, ToolStatus,
};

/// Converts a record of the engine.
#[must_use]
pub fn record_in(record: ports::Record<'_>) -> Record {
    match record {
        ports::Record::Prompt { message, prompt, kind } => Record::Prompt {
            message: Name(message.to_shared()),
            kind: match kind {
                ports::PromptKind::Message => PromptKind::Message,
                ports::PromptKind::Command => PromptKind::Command,
                ports::PromptKind::Continue => PromptKind::Continue,
                ports::PromptKind::Steering => PromptKind::Steering,
            },
            blocks: prompt.blocks.iter().map(block_in).collect(),
            asides: prompt.block_meta.clone(),
        },
        ports::Record::Thoughts(thoughts) => {
            Record::Thoughts(thoughts.iter().map(thought_in).collect())
        }
        ports::Record::Answer(calls) => Record::Answer(calls.iter().map(request_in).collect()),
        ports::Record::ToolIntent(call) => Record::ToolIntent(request_in(call)),
        ports::Record::ToolResult { id, text, failed } => {
            Record::ToolResult { id: Name(id.to_shared()), text: text.to_owned(), failed }
        }
        ports::Record::Undone(first) => Record::Undone { first: Name(first.to_shared()) },
        ports::Record::Redone(last) => Record::Redone { last: Name(last.to_shared()) },
        ports::Record::Reminder(text) => Record::Note { text: text.to_owned() },
        ports::Record::Spent { model, usage, dollars } => Record::ModelUsage {
            model: Name(model.to_shared()),
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            dollars,
        },
        ports::Record::Compacted { summary, from, cap } => {
            Record::Compacted { summary: summary.to_owned(), from: cut_in(from), cap }
        }
        ports::Record::TurnEnd(stop) => Record::TurnEnd { stop: stop.map(stop_in) },
    }
}

/// Converts an event to a record; `None` for events that are not part of the conversation.
#[must_use]
pub fn event_in(event: &Event) -> Option<Record> {
    Some(match event {
        Event::Text { message, text } => {
            Record::Text { message: Name(message.to_shared()), text: text.clone() }
        }
        Event::Thought { message, text } => {
            Record::Thought { message: Name(message.to_shared()), text: text.clone() }
        }
        Event::Block { message, block } => {
            Record::Shown { message: Name(message.to_shared()), block: block_in(block) }
        }
        Event::ToolCall(call) => Record::ToolCall(Box::new(call_in(call))),
        Event::ToolUpdate(_, update)
            if matches!(update.live, Some(words::Live::Progress(_))) && update.status.is_none() =>
        {
            return None;
        }
        Event::ToolUpdate(id, update) => Record::ToolUpdate {
            id: Name(id.to_shared()),
            status: update.status.map(status_in),
            content: update
                .content
                .as_ref()
                .map(|content| content.iter().map(content_in).collect()),
            raw_output: update.raw_output.clone(),
            live_output: match &update.live {
                Some(words::Live::Output(text)) => Some(text.clone()),
                Some(words::Live::Progress(_) | words::Live::Ended(_)) | None => None,
            },
        },
        Event::Plan(entries) => Record::Plan(entries.iter().map(entry_in).collect()),
        Event::Settings(settings) => Record::Settings {
            mode: Name(settings.mode.to_shared()),
            model: Name(settings.model.to_shared()),
            thinking: Some(Name(settings.thinking.id().into())),
        },
        Event::Usage { used, size, cost } => {
            Record::Usage { used: *used, size: *size, cost: *cost }
        }
        Event::Compaction { id, status, error } => Record::Compaction {
            id: id.clone(),
            status: match status {
                ports::CompactionStatus::InProgress => CompactionStatus::InProgress,
                ports::CompactionStatus::Completed => CompactionStatus::Completed,
                ports::CompactionStatus::Failed => CompactionStatus::Failed,
                ports::CompactionStatus::Cancelled => CompactionStatus::Cancelled,
            },
            error: error.clone(),
        },
        Event::CompactionSummary { id, text } => {
            Record::CompactionSummary { id: id.clone(), text: text.clone() }
        }
        // A prompt has its own record; the others are state that is stored elsewhere or created anew.
        Event::User { .. }
        | Event::Commands(_)
        | Event::Mode(_)
        | Event::Info { .. }
        | Event::Notice { .. } => return None,
    })
}

/// Converts a record to an event; `None` for records that were never shown.
#[must_use]
pub fn event_out(record: Record) -> Option<Event> {
    let message = |name: Name| words::MessageId::new(name.0);
    Some(match record {
        Record::Text { message: id, text } => Event::Text { message: message(id), text },
        Record::Thought { message: id, text } => Event::Thought { message: message(id), text },
        Record::Shown { message: id, block } => {
            Event::Block { message: message(id), block: block_out(block) }
        }
        Record::ToolCall(call) => Event::ToolCall(Box::new(call_out(*call))),
        Record::ToolUpdate { id, status, content, raw_output, live_output } => {
            let update = words::ToolUpdate {
                status: status.map(status_out),
                content: content.map(|content| content.into_iter().map(content_out).collect()),
                raw_output,
                live: live_output.map(words::Live::Output),
            };
            Event::ToolUpdate(words::ToolCallId::new(id.0), Box::new(update))
        }
        Record::Plan(entries) => Event::Plan(entries.into_iter().map(entry_out).collect()),
        Record::Usage { used, size, cost } => Event::Usage { used, size, cost },
        Record::Compaction { id, status, error } => Event::Compaction {
            id,
            status: match status {
                CompactionStatus::InProgress => ports::CompactionStatus::InProgress,
                CompactionStatus::Completed => ports::CompactionStatus::Completed,
                CompactionStatus::Failed => ports::CompactionStatus::Failed,
                CompactionStatus::Cancelled => ports::CompactionStatus::Cancelled,
            },
            error,
        },
        Record::CompactionSummary { id, text } => Event::CompactionSummary { id, text },
        Record::Own { .. }
        | Record::Prompt { .. }
        | Record::Settings { .. }
        | Record::Thoughts(_)
        | Record::Answer(_)
        | Record::AnswerLargeValues { .. }
        | Record::ToolIntent(_)
        | Record::ToolResult { .. }
        | Record::Change { .. }
        | Record::Undone { .. }
        | Record::Redone { .. }
        | Record::Note { .. }
        | Record::ModelUsage { .. }
        | Record::Compacted { .. }
        | Record::TurnEnd { .. }
        | Record::Interrupted {} => return None,
    })
}

fn cut_in(cut: &words::Cut) -> Cut {
    match cut {
        words::Cut::Turn(message) => Cut::Turn(Name(message.to_shared())),
        words::Cut::Call(id) => Cut::Call(Name(id.to_shared())),
        words::Cut::End => Cut::End,
    }
}

/// Converts a position in the conversation.
#[must_use]
pub fn cut_out(cut: Cut) -> words::Cut {
    match cut {
        Cut::Turn(message) => words::Cut::Turn(words::MessageId::new(message.0)),
        Cut::Call(id) => words::Cut::Call(words::ToolCallId::new(id.0)),
        Cut::End => words::Cut::End,
    }
}

/// Converts the blocks of a prompt.
#[must_use]
pub fn blocks_out(blocks: Vec<Block>) -> Vec<words::Block> {
    blocks.into_iter().map(block_out).collect()
}

/// Converts a tool call that the model requested.
#[must_use]
pub fn tool_request_out(request: ToolRequest) -> words::ToolRequest {
    words::ToolRequest {
        id: words::ToolCallId::new(request.id.0),
        name: request.name,
        input: request.input,
    }
}

/// Converts a thought.
#[must_use]
pub fn thought_out(thought: Thought) -> words::Thought {
    let seal_out = |seal: Seal| words::Seal {
        data: seal.data,
        call: seal.call.map(|call| words::ToolCallId::new(call.0)),
    };
    words::Thought {
        by: words::ModelId::new(thought.by.0),
        text: thought.text,
        seal: thought.seal.map(seal_out),
        at: thought.at,
    }
}

fn thought_in(thought: &words::Thought) -> Thought {
    let seal_in = |seal: &words::Seal| Seal {
        data: seal.data.clone(),
        call: seal.call.as_ref().map(|call| Name(call.to_shared())),
    };
    Thought {
        by: Name(thought.by.to_shared()),
        text: thought.text.clone(),
        seal: thought.seal.as_ref().map(seal_in),
        at: thought.at,
    }
}

/// Converts a stop reason.
#[must_use]
pub fn stop_out(stop: StopReason) -> words::StopReason {
    match stop {
        StopReason::EndTurn => words::StopReason::EndTurn,
        StopReason::MaxTokens => words::StopReason::MaxTokens,
        StopReason::MaxTurnRequests => words::StopReason::MaxTurnRequests,
        StopReason::Refusal => words::StopReason::Refusal,
        StopReason::Cancelled => words::StopReason::Cancelled,
    }
}

fn stop_in(stop: words::StopReason) -> StopReason {
    match stop {
        words::StopReason::EndTurn => StopReason::EndTurn,
        words::StopReason::MaxTokens => StopReason::MaxTokens,
        words::StopReason::MaxTurnRequests => StopReason::MaxTurnRequests,
        words::StopReason::Refusal => StopReason::Refusal,
        words::StopReason::Cancelled => StopReason::Cancelled,
    }
}

fn request_in(request: &words::ToolRequest) -> ToolRequest {
    ToolRequest {
        id: Name(request.id.to_shared()),
        name: request.name.clone(),
        input: request.input.clone(),
    }
}

fn block_in(block: &words::Block) -> Block {
    match block {
        words::Block::Text(text) => Block::Text(text.clone()),
        words::Block::Image(media) => {
            Block::Image { data: media.data.clone(), mime: media.mime.clone() }
        }
        words::Block::Audio(media) => {
            Block::Audio { data: media.data.clone(), mime: media.mime.clone() }
        }
        words::Block::Link { uri, name } => Block::Link { uri: uri.clone(), name: name.clone() },
        words::Block::Resource { uri, mime, contents } => {
            let (uri, mime) = (uri.clone(), mime.clone());
            match contents {
                words::Contents::Text(text) => {
                    Block::TextResource { uri, mime, text: text.clone() }
                }
                words::Contents::Blob(blob) => {
                    Block::BlobResource { uri, mime, blob: blob.clone() }
                }
            }
        }
    }
}

fn block_out(block: Block) -> words::Block {
    match block {
        Block::Text(text) => words::Block::Text(text),
        Block::Image { data, mime } => words::Block::Image(words::Media { data, mime }),
        Block::Audio { data, mime } => words::Block::Audio(words::Media { data, mime }),
        Block::Link { uri, name } => words::Block::Link { uri, name },
        Block::TextResource { uri, mime, text } => {
            words::Block::Resource { uri, mime, contents: words::Contents::Text(text) }
        }
        Block::BlobResource { uri, mime, blob } => {
            words::Block::Resource { uri, mime, contents: words::Contents::Blob(blob) }
        }
    }
}

fn call_in(call: &words::ToolCall) -> ToolCall {
    ToolCall {
        id: Name(call.id.to_shared()),
        name: call.name.clone(),
        title: call.title.clone(),
        kind: kind_in(call.kind),
        status: status_in(call.status),
        content: call.content.iter().map(content_in).collect(),
        locations: call.locations.iter().map(location_in).collect(),
        raw_input: call.raw_input.clone(),
    }
}

fn call_out(call: ToolCall) -> words::ToolCall {
    words::ToolCall {
        id: words::ToolCallId::new(call.id.0),
        name: call.name,
        title: call.title,
        kind: kind_out(call.kind),
        status: status_out(call.status),
        content: call.content.into_iter().map(content_out).collect(),
        locations: call.locations.into_iter().map(location_out).collect(),
        raw_input: call.raw_input,
    }
}

fn content_in(content: &words::ToolContent) -> ToolContent {
    match content {
        words::ToolContent::Block(block) => ToolContent::Block(block_in(block)),
        words::ToolContent::Diff { path, old, new } => {
            ToolContent::Diff { path: path_in(path), old: old.clone(), new: new.clone() }
        }
        words::ToolContent::Terminal(id) => ToolContent::Terminal(Name(id.to_shared())),
        words::ToolContent::Live { cwd } => ToolContent::Live { cwd: path_in(cwd) },
    }
}

fn content_out(content: ToolContent) -> words::ToolContent {
    match content {
        ToolContent::Block(block) => words::ToolContent::Block(block_out(block)),
        ToolContent::Diff { path, old, new } => {
            words::ToolContent::Diff { path: PathBuf::from(path), old, new }
        }
        ToolContent::Terminal(id) => words::ToolContent::Terminal(words::TerminalId::new(id.0)),
        ToolContent::Live { cwd } => words::ToolContent::Live { cwd: PathBuf::from(cwd) },
    }
}

/// Converts a path. Paths come from JSON, so they are valid UTF-8.
fn path_in(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn location_in(location: &words::Location) -> Location {
    Location { path: path_in(&location.path), line: location.line }
}

fn location_out(location: Location) -> words::Location {
    words::Location { path: PathBuf::from(location.path), line: location.line }
}

fn kind_in(kind: words::ToolKind) -> ToolKind {
    match kind {
        words::ToolKind::Read => ToolKind::Read,
        words::ToolKind::Edit => ToolKind::Edit,
        words::ToolKind::Delete => ToolKind::Delete,
        words::ToolKind::Move => ToolKind::Move,
        words::ToolKind::Search => ToolKind::Search,
        words::ToolKind::Execute => ToolKind::Execute,
        words::ToolKind::Think => ToolKind::Think,
        words::ToolKind::Fetch => ToolKind::Fetch,
        words::ToolKind::SwitchMode => ToolKind::SwitchMode,
        words::ToolKind::Other => ToolKind::Other,
    }
}

fn kind_out(kind: ToolKind) -> words::ToolKind {
    match kind {
        ToolKind::Read => words::ToolKind::Read,
        ToolKind::Edit => words::ToolKind::Edit,
        ToolKind::Delete => words::ToolKind::Delete,
        ToolKind::Move => words::ToolKind::Move,
        ToolKind::Search => words::ToolKind::Search,
        ToolKind::Execute => words::ToolKind::Execute,
        ToolKind::Think => words::ToolKind::Think,
        ToolKind::Fetch => words::ToolKind::Fetch,
        ToolKind::SwitchMode => words::ToolKind::SwitchMode,
        ToolKind::Other => words::ToolKind::Other,
    }
}

fn status_in(status: words::ToolStatus) -> ToolStatus {
    match status {
        words::ToolStatus::Pending => ToolStatus::Pending,
        words::ToolStatus::InProgress => ToolStatus::InProgress,
        words::ToolStatus::Completed => ToolStatus::Completed,
        words::ToolStatus::Failed => ToolStatus::Failed,
    }
}

fn status_out(status: ToolStatus) -> words::ToolStatus {
    match status {
        ToolStatus::Pending => words::ToolStatus::Pending,
        ToolStatus::InProgress => words::ToolStatus::InProgress,
        ToolStatus::Completed => words::ToolStatus::Completed,
        ToolStatus::Failed => words::ToolStatus::Failed,
    }
}

fn entry_in(entry: &words::PlanEntry) -> PlanEntry {
    PlanEntry {
        content: entry.content.clone(),
        priority: match entry.priority {
            words::Priority::High => Priority::High,
            words::Priority::Medium => Priority::Medium,
            words::Priority::Low => Priority::Low,
        },
        status: match entry.status {
            words::PlanStatus::Pending => PlanStatus::Pending,
            words::PlanStatus::InProgress => PlanStatus::InProgress,
            words::PlanStatus::Completed => PlanStatus::Completed,
        },
    }
}

fn entry_out(entry: PlanEntry) -> words::PlanEntry {
    words::PlanEntry {
        content: entry.content,
        priority: match entry.priority {
            Priority::High => words::Priority::High,
            Priority::Medium => words::Priority::Medium,
            Priority::Low => words::Priority::Low,
        },
        status: match entry.status {
            PlanStatus::Pending => words::PlanStatus::Pending,
            PlanStatus::InProgress => words::PlanStatus::InProgress,
            PlanStatus::Completed => words::PlanStatus::Completed,
        },
    }
}
