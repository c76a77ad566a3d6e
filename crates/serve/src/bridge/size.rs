//! The sizes of events; splits, merges and shortens text, so that every update stays small.

use engine::Event;
use engine::words::{Block, Contents, Live, ToolContent};
use serde_json::Value;

/// Returns the text of a text chunk, which can be merged and split.
pub(crate) fn text_of(event: &Event) -> Option<&str> {
    match event {
        Event::Text { text, .. } | Event::Thought { text, .. } => Some(text),
        _ => None,
    }
}

/// Returns the approximate size of an event, in bytes.
pub(crate) fn weight(event: &Event) -> usize {
    let content = |content: &ToolContent| match content {
        ToolContent::Block(block) => block_weight(block),
        ToolContent::Diff { old, new, .. } => new.len() + old.as_ref().map_or(0, String::len),
        ToolContent::Terminal(_) | ToolContent::Live { .. } => 0,
    };
    let body = match event {
        Event::Text { text, .. } | Event::Thought { text, .. } => return text.len() + 64,
        Event::User { block, .. } | Event::Block { block, .. } => block_weight(block),
        Event::ToolCall(call) => call.content.iter().map(content).sum(),
        Event::ToolUpdate(_, update) => {
            let live = match &update.live {
                Some(Live::Output(text)) => text.len(),
                Some(Live::Ended(_)) | None => 0,
            };
            live + update.content.iter().flatten().map(content).sum::<usize>()
        }
        Event::Plan(entries) => entries.iter().map(|entry| entry.content.len() + 64).sum(),
        Event::CompactionSummary { text, .. } => text.len(),
        _ => 0,
    };
    body + 512
}

fn block_weight(block: &Block) -> usize {
    match block {
        Block::Text(text) => text.len(),
        Block::Image(media) | Block::Audio(media) => media.data.len(),
        Block::Link { uri, name } => uri.len() + name.len(),
        Block::Resource { contents: Contents::Text(text) | Contents::Blob(text), .. } => text.len(),
    }
}

/// Returns the same event with other text.
pub(crate) fn with_text(event: &Event, text: String) -> Event {
    match event {
        Event::Text { message, .. } => Event::Text { message: message.clone(), text },
        Event::Thought { message, .. } => Event::Thought { message: message.clone(), text },
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
        let mut length = 0;
        let fits = |(_, character): &(usize, char)| {
            let mut bytes = [0; 4];
            length += json_length(character.encode_utf8(&mut bytes));
            length <= most
        };
        let end = rest
            .char_indices()
            .take_while(fits)
            .last()
            .map_or(1, |(at, character)| at + character.len_utf8());
        let (chunk, after) = rest.split_at(rest.ceil_char_boundary(end));
        rest = after;
        Some(chunk)
    })
}

/// Shortens the content of a tool call, so that the update fits: long texts lose their middle, the rest is dropped.
pub(super) fn shorten(event: Event, most: usize) -> Event {
    let room = most / 4;
    let cut = |content: Vec<ToolContent>| {
        content.into_iter().take(8).map(|content| shorten_content(content, room / 8)).collect()
    };
    match event {
        Event::ToolCall(mut call) => {
            call.content = cut(std::mem::take(&mut call.content));
            call.locations.truncate(64);
            call.title = shorten_text(&call.title, 1024);
            call.raw_input = shorten_value(std::mem::take(&mut call.raw_input), room);
            Event::ToolCall(call)
        }
        Event::ToolUpdate(id, mut update) => {
            update.content = update.content.take().map(cut);
            update.raw_output = update.raw_output.take().map(|value| shorten_value(value, room));
            if let Some(Live::Output(text)) = &mut update.live {
                *text = shorten_text(text, room);
            }
            Event::ToolUpdate(id, update)
        }
        other => other,
    }
}

fn shorten_content(content: ToolContent, room: usize) -> ToolContent {
    match content {
        ToolContent::Block(Block::Text(text)) => {
            ToolContent::Block(Block::Text(shorten_text(&text, room)))
        }
        ToolContent::Diff { path, old, new } => {
            let size = new.len() + old.as_ref().map_or(0, String::len);
            if size <= room {
                return ToolContent::Diff { path, old, new };
            }
            let text = format!("{}: change too large to show ({size} bytes)", path.display());
            ToolContent::Block(Block::Text(text))
        }
        ToolContent::Block(block) => {
            let text = match block {
                Block::Image(_) => "(image too large to show)",
                _ => "(content too large to show)",
            };
            ToolContent::Block(Block::Text(text.to_owned()))
        }
        ToolContent::Terminal(_) | ToolContent::Live { .. } => content,
    }
}

/// Shortens a text to its beginning and its end.
fn shorten_text(text: &str, room: usize) -> String {
    if json_length(text) <= room {
        return text.to_owned();
    }
    // A byte of text may need six bytes of JSON.
    let half = room / 12;
    let head = &text[..text.floor_char_boundary(half)];
    let tail = &text[text.ceil_char_boundary(text.len() - half.min(text.len()))..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n… {left_out} bytes omitted …\n{tail}")
}

fn shorten_value(value: Value, room: usize) -> Value {
    if value.to_string().len() <= room {
        value
    } else {
        Value::String("(too large to show)".to_owned())
    }
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
        fn json_length_is_what_serde_writes(text in any::<String>()) {
            prop_assert_eq!(json_length(&text) + 2, serde_json::to_string(&text).unwrap().len());
        }
    }
}
