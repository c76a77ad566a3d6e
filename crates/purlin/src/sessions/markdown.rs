//! A session as Markdown.

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
    for event in events {
        let now = if matches!(event, Event::User { .. }) { "You" } else { "Purlin" };
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
