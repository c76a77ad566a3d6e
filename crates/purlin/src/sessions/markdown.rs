//! A session as Markdown.

use std::collections::BTreeSet;
use std::path::Path;

use engine::Event;
use engine::ports::SessionInfo;
use engine::words::iso_8601;
use engine::words::{Block, Contents, PlanStatus, ToolContent, ToolStatus};

use super::unified::unified;
use crate::count::count;

/// Prints a session, with at most this many lines of each change and output.
pub(super) fn print(
    info: &SessionInfo,
    events: &[Event],
    problems: &[String],
    most: usize,
) -> String {
    let title = info.title.as_deref().unwrap_or("Session");
    let updated = iso_8601(info.updated);
    let mut out = format!("# {title}\n\n{} · {} · {updated}\n", info.id, info.cwd.display());
    for problem in problems {
        out.push_str(&format!("\n> {problem}\n"));
    }
    let mut speaker = "";
    let mut diffs = BTreeSet::new();
    for event in events {
        let now = if matches!(event, Event::User { .. }) { "You" } else { "Purlin" };
        if repeats_its_diffs(event, &mut diffs) {
            continue;
        }
        let part = part(event, most);
        if part.is_empty() {
            continue;
        }
        if now != speaker {
            out.push_str(&format!("\n## {now}\n"));
            speaker = now;
        }
        out.push_str(&format!("\n{}\n", part.trim_end()));
    }
    out
}

/// Tells whether an update ends a call with the diffs that the call began with.
fn repeats_its_diffs<'a>(
    event: &'a Event,
    diffs: &mut BTreeSet<(&'a str, &'a Path, &'a str)>,
) -> bool {
    let (id, content, is_end) = match event {
        Event::ToolCall(call) => (call.id.as_str(), call.content.as_slice(), false),
        Event::ToolUpdate(id, update) => {
            let is_end = update.status == Some(ToolStatus::Completed);
            (id.as_str(), update.content.as_deref().unwrap_or_default(), is_end)
        }
        _ => return false,
    };
    let mut is_known = is_end && !content.is_empty();
    for one in content {
        is_known &= match one {
            ToolContent::Diff { path, new, .. } => {
                !diffs.insert((id, path.as_path(), new.as_str()))
            }
            _ => false,
        };
    }
    is_known
}

fn part(event: &Event, most: usize) -> String {
    match event {
        Event::User { block, .. } | Event::Block { block, .. } => block_text(block),
        Event::Text { text, .. } => text.clone(),
        Event::Thought { text, .. } | Event::CompactionSummary { text, .. } => quoted(text),
        Event::ToolCall(call) => {
            let mut text = format!("**{}** (`{}`)\n", call.title, call.name);
            text.extend(call.content.iter().map(|content| content_text(content, most)));
            text
        }
        Event::ToolUpdate(_, update) => {
            let contents = update.content.iter().flatten();
            let shown: String = contents.map(|content| content_text(content, most)).collect();
            match update.status {
                Some(ToolStatus::Failed) => format!("Failed.\n{shown}"),
                Some(ToolStatus::Completed | ToolStatus::Pending | ToolStatus::InProgress)
                | None => shown,
            }
        }
        Event::Plan(entries) => entries
            .iter()
            .map(|entry| {
                let mark = if entry.status == PlanStatus::Completed { "x" } else { " " };
                format!("- [{mark}] {}\n", entry.content)
            })
            .collect(),
        Event::Commands(_)
        | Event::Mode(_)
        | Event::Settings(_)
        | Event::Info { .. }
        | Event::Usage { .. }
        | Event::Notice { .. }
        | Event::Compaction { .. } => String::new(),
    }
}

fn block_text(block: &Block) -> String {
    match block {
        Block::Text(text) => text.clone(),
        Block::Image(_) => "*(image)*".to_owned(),
        Block::Audio(_) => "*(audio)*".to_owned(),
        Block::Link { uri, name } => format!("[{name}]({uri})"),
        Block::Resource { uri, contents: Contents::Text(text), .. } => {
            format!("{uri}:\n{}", fenced(text))
        }
        Block::Resource { uri, contents: Contents::Blob(_), .. } => uri.clone(),
    }
}

fn content_text(content: &ToolContent, most: usize) -> String {
    match content {
        ToolContent::Block(Block::Text(text)) => fenced(&cut(text, most)),
        ToolContent::Block(block) => format!("\n{}\n", block_text(block)),
        ToolContent::Diff { path, old, new } => {
            let path = path.to_string_lossy();
            fenced(&unified(&path, old.as_deref(), new, most))
        }
        // Their output is stored as text.
        ToolContent::Terminal(_) | ToolContent::Live { .. } => String::new(),
    }
}

/// Returns the first lines of a string, and how many follow.
fn cut(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.len() <= most {
        return text.to_owned();
    }
    let more = count(lines.len() - most, "more line", "more lines");
    format!("{}\n… {more}", lines[..most].join("\n"))
}

fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("> {line}\n")).collect()
}

/// A code block whose fence is longer than any in the text.
fn fenced(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("\n{fence}\n{}\n{fence}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use engine::words::{ToolCallId, ToolUpdate};

    use super::*;

    #[test]
    fn diff_that_a_call_began_with_is_not_repeated() {
        let diff = |new: &str| {
            let path = "/a".into();
            vec![ToolContent::Diff { path, old: None, new: new.into() }]
        };
        let end = |new: &str| {
            let status = Some(ToolStatus::Completed);
            let update = ToolUpdate { status, content: Some(diff(new)), ..ToolUpdate::default() };
            Event::ToolUpdate(ToolCallId::new("t"), Box::new(update))
        };
        let (first, same, other) = (end("x"), end("x"), end("y"));
        let mut diffs = BTreeSet::new();
        let repeats = [&first, &same, &other].map(|event| repeats_its_diffs(event, &mut diffs));
        assert_eq!(repeats, [false, true, false]);
    }
}
