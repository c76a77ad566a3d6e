//! The sizes of events; splits, merges and shortens text, so that every update stays small. `fit` shortens whole events.

use engine::Event;
use engine::words::{Block, Contents, Live, SlashCommand, ToolContent, ToolStatus, ToolUpdate};
use serde_json::Value;

/// Returns the text of an event that can be split: a chunk of a message or of a summary.
pub(crate) fn text_of(event: &Event) -> Option<&str> {
    match event {
        Event::Text { text, .. }
        | Event::Thought { text, .. }
        | Event::CompactionSummary { text, .. }
        | Event::User { block: Block::Text(text), .. }
        | Event::Block { block: Block::Text(text), .. } => Some(text),
        _ => None,
    }
}

/// Returns the approximate size of an event, in bytes.
pub(crate) fn weight(event: &Event) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let body = match event {
        Event::Text { text, .. } | Event::Thought { text, .. } => return text.len() + 64,
        Event::User { block, meta, .. } => {
            block_weight(block) + meta.as_ref().map_or(0, value_weight)
        }
        Event::Block { block, .. } => block_weight(block),
        Event::ToolCall(call) => {
            let locations = call.locations.iter();
            let locations = locations.map(|location| location.path.as_os_str().len() + 64);
            call.id.as_str().len()
                + call.name.len()
                + call.title.len()
                + call.content.iter().map(content_weight).sum::<usize>()
                + locations.sum::<usize>()
                + value_weight(&call.raw_input)
        }
        Event::ToolUpdate(id, update) => {
            let live = match &update.live {
                Some(Live::Output(text) | Live::Progress(text)) => text.len(),
                Some(Live::Ended(status)) => status.signal.as_ref().map_or(0, String::len),
                None => 0,
            };
            let content = update.content.iter().flatten().map(content_weight).sum::<usize>();
            let raw = update.raw_output.as_ref().map_or(0, value_weight);
            id.as_str().len() + live + content + raw
        }
        Event::Plan(entries) => entries.iter().map(|entry| entry.content.len() + 64).sum(),
        Event::Commands(commands) => {
            let hint = |command: &SlashCommand| command.hint.as_ref().map_or(0, |hint| hint.len());
            let size = |command: &SlashCommand| {
                command.name.len() + command.description.len() + hint(command) + 64
            };
            commands.iter().map(size).sum()
        }
        Event::Settings(settings) => {
            let modes = settings.modes.iter();
            let modes =
                modes.map(|mode| mode.id.len() + mode.name.len() + mode.description.len() + 64);
            let models = settings.models.iter();
            let models = models.map(|choice| choice.id.as_str().len() + choice.name.len() + 64);
            modes.sum::<usize>() + models.sum::<usize>()
        }
        Event::Info { title, .. } => text(title),
        Event::Notice { title, description, .. } => title.len() + text(description),
        Event::Compaction { error, .. } => text(error),
        Event::CompactionSummary { text, .. } => text.len(),
        Event::Mode(mode) => mode.as_str().len(),
        Event::Usage { .. } => 0,
    };
    body + 512
}

fn content_weight(content: &ToolContent) -> usize {
    64 + match content {
        ToolContent::Block(block) => block_weight(block),
        ToolContent::Diff { path, old, new } => {
            path.as_os_str().len() + new.len() + old.as_ref().map_or(0, String::len)
        }
        ToolContent::Terminal(id) => id.as_str().len(),
        ToolContent::Live { cwd } => cwd.as_os_str().len(),
    }
}

fn block_weight(block: &Block) -> usize {
    match block {
        Block::Text(text) => text.len(),
        Block::Image(media) | Block::Audio(media) => media.data.len() + media.mime.len(),
        Block::Link { uri, name } => uri.len() + name.len(),
        Block::Resource { uri, mime, contents: Contents::Text(text) | Contents::Blob(text) } => {
            uri.len() + mime.as_ref().map_or(0, String::len) + text.len()
        }
    }
}

/// Returns the length of a value as JSON, in bytes.
pub(crate) fn value_weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 24,
        Value::String(text) => json_length(text) + 2,
        Value::Array(items) => items.iter().map(|item| value_weight(item) + 1).sum::<usize>() + 2,
        Value::Object(members) => {
            let size = |(key, value): (&String, &Value)| json_length(key) + value_weight(value) + 4;
            members.iter().map(size).sum::<usize>() + 2
        }
    }
}

/// Returns how many bytes of `_meta` the updates of an event have.
pub(crate) fn meta_of(event: &Event) -> usize {
    match event {
        Event::User { meta: Some(meta), .. } => value_weight(meta),
        _ => 0,
    }
}

/// Returns the same event with other text.
pub(crate) fn with_text(event: &Event, text: String) -> Event {
    match event {
        Event::Text { message, .. } => Event::Text { message: message.clone(), text },
        Event::Thought { message, .. } => Event::Thought { message: message.clone(), text },
        Event::CompactionSummary { id, .. } => Event::CompactionSummary { id: id.clone(), text },
        Event::User { message, meta, .. } => {
            Event::User { message: message.clone(), block: Block::Text(text), meta: meta.clone() }
        }
        Event::Block { message, .. } => {
            Event::Block { message: message.clone(), block: Block::Text(text) }
        }
        other => other.clone(),
    }
}

/// Appends the text of `next` to `event` if both are chunks of the same message.
pub(crate) fn append_text(event: &mut Event, next: &Event) -> bool {
    match (event, next) {
        (Event::Text { message, text }, Event::Text { message: other, text: more })
        | (Event::Thought { message, text }, Event::Thought { message: other, text: more })
            if message == other =>
        {
            text.push_str(more);
            true
        }
        _ => false,
    }
}

/// Merges a newer update of the same tool call into one that waits. The end of a call stays an update of its own kind:
/// nothing is merged into it.
pub(crate) fn merge_update(waiting: &mut ToolUpdate, next: &mut ToolUpdate, most: usize) -> bool {
    if matches!(waiting.status, Some(ToolStatus::Completed | ToolStatus::Failed)) {
        return false;
    }
    match (&mut waiting.live, next.live.take()) {
        (_, None) => {}
        (live @ (None | Some(Live::Progress(_))), new) => *live = new,
        (Some(Live::Output(text)), Some(Live::Output(more)))
            if json_length(text) + json_length(&more) <= most =>
        {
            text.push_str(&more);
        }
        (Some(_), new) => {
            next.live = new;
            return false;
        }
    }
    waiting.status = next.status.or(waiting.status);
    waiting.content = next.content.take().or(waiting.content.take());
    waiting.raw_output = next.raw_output.take().or(waiting.raw_output.take());
    true
}

/// Returns the length of a text as a JSON string, in bytes.
pub(crate) fn json_length(text: &str) -> usize {
    text.bytes().map(json_bytes).sum()
}

fn json_bytes(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

/// Splits a text between characters into chunks of at most `most` bytes of JSON.
pub(crate) fn split_text(text: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let last = fitting(rest.char_indices(), most);
        let end = last.map_or(1, |(at, character)| at + character.len_utf8());
        let (chunk, after) = rest.split_at(rest.ceil_char_boundary(end));
        rest = after;
        Some(chunk)
    })
}

/// Shortens a text to its beginning and its end, so that it has about `room` bytes of JSON, and says how much is missing.
pub(crate) fn shorten_text(text: &str, room: usize) -> String {
    if json_length(text) <= room {
        return text.to_owned();
    }
    let half = room.saturating_sub(NOTE) / 2;
    let last = fitting(text.char_indices(), half);
    let head = &text[..last.map_or(0, |(at, character)| at + character.len_utf8())];
    let rest = &text[head.len()..];
    let first = fitting(rest.char_indices().rev(), half);
    let tail = &rest[first.map_or(rest.len(), |(at, _)| at)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n… {left_out} bytes omitted …\n{tail}")
}

/// Room for the note about what was left out.
const NOTE: usize = 64;

/// Returns the last of the characters that fit into `room` bytes of JSON.
fn fitting(characters: impl Iterator<Item = (usize, char)>, room: usize) -> Option<(usize, char)> {
    let mut length = 0;
    let fits = |(_, character): &(usize, char)| {
        let mut bytes = [0; 4];
        length += json_length(character.encode_utf8(&mut bytes));
        length <= room
    };
    characters.take_while(fits).last()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn split_text_loses_nothing_and_fits(text in any::<String>(), most in 12usize..200) {
            let chunks: Vec<&str> = split_text(&text, most).collect();
            prop_assert_eq!(chunks.concat(), text.as_str());
            prop_assert!(chunks.iter().all(|chunk| json_length(chunk) <= most && !chunk.is_empty()));
        }

        #[test]
        fn shortened_text_fits_and_says_how_much_is_missing(text in any::<String>(), room in 0usize..200) {
            let short = shorten_text(&text, room);
            prop_assert!(json_length(&short) <= room.max(NOTE));
            if short != text {
                prop_assert!(short.contains(" bytes omitted …"));
            }
        }

        #[test]
        fn json_length_is_what_serde_writes(text in any::<String>()) {
            prop_assert_eq!(json_length(&text) + 2, serde_json::to_string(&text).unwrap().len());
        }
    }
}
