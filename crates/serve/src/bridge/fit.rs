//! Shortens events that are too large for one update. Whatever is left out is named, with its size.
//!
//! `update::print` measures the line and calls [`shorten`] with less and less room until it fits. Text of messages does
//! not come here: the outbox splits it.

use std::path::Path;

use engine::Event;
use engine::words::{
    Block, Contents, Live, Location, Media, PlanEntry, PlanStatus, Priority, SlashCommand,
    ToolCall, ToolContent, ToolUpdate, decoded_length,
};
use serde_json::{Value, json};

use super::size::{json_length, shorten_text, value_weight};

/// The most parts of a tool call's content.
const MAX_PARTS: usize = 16;
/// The longest path or name that is shown in an event that is too large.
const MAX_NAME: usize = 512;

/// Shortens an event to about `room` bytes of JSON.
pub(super) fn shorten(event: Event, room: usize) -> Event {
    match event {
        Event::User { message, block, meta } => {
            let (block, meta) = (shorten_block(block, room), shorten_meta(meta, room));
            Event::User { message, block, meta }
        }
        Event::Text { message, text } => Event::Text { message, text: shorten_text(&text, room) },
        Event::Thought { message, text } => {
            Event::Thought { message, text: shorten_text(&text, room) }
        }
        Event::Block { message, block } => {
            Event::Block { message, block: shorten_block(block, room) }
        }
        Event::ToolCall(call) => Event::ToolCall(Box::new(shorten_call(*call, room))),
        Event::ToolUpdate(id, update) => {
            Event::ToolUpdate(id, Box::new(shorten_update(*update, room)))
        }
        Event::Plan(entries) => Event::Plan(shorten_plan(entries, room)),
        Event::Commands(commands) => Event::Commands(shorten_commands(commands, room)),
        Event::Info { title, updated_at } => {
            Event::Info { title: title.map(|title| shorten_text(&title, room)), updated_at }
        }
        Event::Notice { severity, title, description } => Event::Notice {
            severity,
            title: shorten_text(&title, room / 2),
            description: description.map(|text| shorten_text(&text, room / 2)),
        },
        Event::Compaction { id, status, error } => {
            Event::Compaction { id, status, error: error.map(|text| shorten_text(&text, room)) }
        }
        Event::CompactionSummary { id, text } => {
            Event::CompactionSummary { id, text: shorten_text(&text, room) }
        }
        // The lists of options are made to fit.
        other @ (Event::Mode(_) | Event::Settings(_) | Event::Usage { .. }) => other,
    }
}

/// Shortens a tool call to about `room` bytes of JSON.
pub(super) fn shorten_call(mut call: ToolCall, room: usize) -> ToolCall {
    let quarter = room / 4;
    let locations = shorten_locations(&mut call.locations, quarter);
    call.content = shorten_contents(call.content, quarter);
    call.content.extend(locations.map(|note| ToolContent::Block(Block::Text(note))));
    call.name = shorten_text(&call.name, quarter.min(MAX_NAME));
    call.title = shorten_text(&call.title, quarter.min(4 * MAX_NAME));
    call.raw_input = shorten_value(call.raw_input, quarter);
    call
}

fn shorten_update(mut update: ToolUpdate, room: usize) -> ToolUpdate {
    let third = room / 3;
    update.content = update.content.map(|content| shorten_contents(content, third));
    update.raw_output = update.raw_output.map(|value| shorten_value(value, third));
    match &mut update.live {
        Some(Live::Output(text) | Live::Progress(text)) => *text = shorten_text(text, third),
        // The client's terminal says which signal it was, and may say anything.
        Some(Live::Ended(status)) => {
            status.signal = status.signal.take().map(|signal| shorten_text(&signal, third));
        }
        None => {}
    }
    update
}

fn shorten_contents(contents: Vec<ToolContent>, room: usize) -> Vec<ToolContent> {
    let all = contents.len();
    let fitting = (room / (2 * MAX_NAME)).clamp(1, MAX_PARTS);
    let each = room / all.clamp(1, fitting);
    let mut shown: Vec<ToolContent> =
        contents.into_iter().take(fitting).map(|content| shorten_content(content, each)).collect();
    if all > fitting {
        let note = format!("… {} further parts omitted …", all - fitting);
        shown.push(ToolContent::Block(Block::Text(note)));
    }
    shown
}

fn shorten_content(content: ToolContent, room: usize) -> ToolContent {
    let text = |text: String| ToolContent::Block(Block::Text(text));
    match content {
        ToolContent::Block(block) => ToolContent::Block(shorten_block(block, room)),
        ToolContent::Diff { path, old, new } => {
            let name = path.to_string_lossy();
            let size = new.len() + old.as_ref().map_or(0, String::len);
            let encoded = json_length(&new) + old.as_deref().map_or(0, json_length);
            if encoded + json_length(&name) <= room {
                return ToolContent::Diff { path, old, new };
            }
            let name = shorten_text(&name, room.min(MAX_NAME));
            text(format!("{name}: change too large to show ({size} bytes)"))
        }
        ToolContent::Terminal(id) if id.as_str().len() > MAX_NAME => {
            text("(terminal with an id that is too long)".to_owned())
        }
        ToolContent::Live { cwd } if json_length(&cwd.to_string_lossy()) > room => {
            ToolContent::Live { cwd: shorten_text(&cwd.to_string_lossy(), room).into() }
        }
        ToolContent::Terminal(_) | ToolContent::Live { .. } => content,
    }
}

/// Drops the locations that do not fit: a shortened path would name another file. Returns a note about them.
fn shorten_locations(locations: &mut Vec<Location>, room: usize) -> Option<String> {
    let all = locations.len();
    let mut left = room;
    locations.retain(|location| {
        let size = path_length(&location.path) + 64;
        let fits = size <= left;
        left -= if fits { size } else { 0 };
        fits
    });
    let omitted = all - locations.len();
    (omitted > 0).then(|| format!("… {omitted} of {all} file locations omitted …"))
}

fn path_length(path: &Path) -> usize {
    json_length(&path.to_string_lossy())
}

fn shorten_block(block: Block, room: usize) -> Block {
    let named = |what: &str, mime: &str, data: &str| {
        let mime = shorten_text(mime, 128);
        Block::Text(format!("({what} not shown: {mime}, {} bytes)", decoded_length(data)))
    };
    match block {
        Block::Text(text) => Block::Text(shorten_text(&text, room)),
        Block::Image(Media { data, mime }) if data.len() + mime.len() > room => {
            named("image", &mime, &data)
        }
        Block::Audio(Media { data, mime }) if data.len() + mime.len() > room => {
            named("audio", &mime, &data)
        }
        Block::Link { uri, name } => {
            let half = room / 2;
            Block::Link { uri: shorten_text(&uri, half), name: shorten_text(&name, half) }
        }
        Block::Resource { uri, mime, contents: Contents::Text(text) } => Block::Resource {
            uri: shorten_text(&uri, room.min(MAX_NAME)),
            mime: mime.map(|mime| shorten_text(&mime, 128)),
            contents: Contents::Text(shorten_text(&text, room)),
        },
        Block::Resource { uri, mime, contents: Contents::Blob(data) }
            if json_length(&uri) + data.len() + mime.as_ref().map_or(0, String::len) > room =>
        {
            let uri = shorten_text(&uri, room.min(MAX_NAME));
            named(&uri, mime.as_deref().unwrap_or("unknown type"), &data)
        }
        Block::Image(_) | Block::Audio(_) | Block::Resource { .. } => block,
    }
}

/// The members of a block that the engine does not know stay, or the client is told how large they were.
fn shorten_meta(meta: Option<Value>, room: usize) -> Option<Value> {
    let meta = meta?;
    let size = value_weight(&meta);
    if size <= room {
        return Some(meta);
    }
    Some(json!({ "_meta": { "omittedBytes": size } }))
}

fn shorten_value(value: Value, room: usize) -> Value {
    let size = value_weight(&value);
    if size <= room { value } else { json!(format!("({size} bytes, too large to show)")) }
}

fn shorten_plan(entries: Vec<PlanEntry>, room: usize) -> Vec<PlanEntry> {
    let all = entries.len();
    let fitting = (room / 256).clamp(1, all.max(1));
    let each = (room / fitting).saturating_sub(96);
    let shorten =
        |entry: PlanEntry| PlanEntry { content: shorten_text(&entry.content, each), ..entry };
    let mut shown: Vec<PlanEntry> = entries.into_iter().take(fitting).map(shorten).collect();
    if all > fitting {
        let content = format!("… {} further steps omitted", all - fitting);
        let (priority, status) = (Priority::Low, PlanStatus::Pending);
        shown.push(PlanEntry { content, priority, status });
    }
    shown
}

/// A command needs its name, so those with a very long one are left out as well.
fn shorten_commands(commands: Vec<SlashCommand>, room: usize) -> Vec<SlashCommand> {
    let all = commands.len();
    let fitting = (room / 512).clamp(1, all.max(1));
    let each = (room / fitting).saturating_sub(128) / 3;
    let usable = commands.into_iter().filter(|command| json_length(&command.name) <= each);
    let mut shown: Vec<SlashCommand> = usable
        .take(fitting)
        .map(|command| SlashCommand {
            description: shorten_text(&command.description, each).into(),
            hint: command.hint.map(|hint| shorten_text(&hint, each).into()),
            ..command
        })
        .collect();
    let omitted = all - shown.len();
    if let Some(last) = shown.last_mut().filter(|_| omitted > 0) {
        last.description =
            format!("{} ({omitted} further commands omitted)", last.description).into();
    }
    shown
}
