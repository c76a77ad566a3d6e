//! How a tool call looks: a line with its state, and below it a diff or the end of its output. Pure.

use std::time::Duration;

use wire::acp::schema::{self, ToolCallContent, ToolCallStatus, ToolKind};

use crate::clean::{clean, one_line, output_lines};
use crate::diff::{DiffSize, diff};
use crate::style::{Line, Span, Style, Theme};
use crate::text::fit;

/// How many lines of a finished call are shown; Ctrl-O shows the others.
const DIFF_LINES: usize = 24;
const OUTPUT_LINES: usize = 8;

/// How many lines of the output of a running call are shown.
const LIVE_LINES: usize = 4;

/// How many bytes of live output are stored for a call.
const LIVE_BYTES: usize = 256 * 1024;

/// A call is shown with its time from here on.
const SLOW: Duration = Duration::from_secs(2);

/// A tool call, and what was seen of it.
#[derive(Debug, Clone)]
pub struct ToolView {
    /// The call with all its updates.
    pub call: schema::ToolCall,
    /// The call whose subagent made this one.
    pub parent: Option<schema::ToolCallId>,
    /// What its command wrote so far, if the agent sends that.
    live: String,
    /// Milliseconds since the start of the client when it was first seen, and when it ended.
    started: u64,
    ended: Option<u64>,
}

/// The lines of a call, and all of them if some are left out.
#[derive(Debug, Default)]
pub struct CallLines {
    /// What is shown.
    pub lines: Vec<Line>,
    /// The whole body, if only a part of it is shown.
    pub full: Option<Vec<Line>>,
}

impl ToolView {
    /// Starts with the first update.
    #[must_use]
    pub fn new(call: schema::ToolCall, now: u64) -> ToolView {
        let mut view =
            ToolView { call, parent: None, live: String::new(), started: now, ended: None };
        view.note_end(now);
        view
    }

    /// Applies an update.
    pub fn update(&mut self, update: schema::ToolCallUpdate, now: u64) {
        let written = update.meta.as_ref().and_then(|meta| meta.get("terminal_output"));
        if let Some(data) = written.and_then(|written| written.get("data")?.as_str()) {
            self.write(data);
        }
        self.call.update(update.fields);
        self.note_end(now);
    }

    /// Adds what the call's command has written.
    pub fn write(&mut self, text: &str) {
        self.live.push_str(text);
        if self.live.len() > LIVE_BYTES {
            let cut = self.live.ceil_char_boundary(self.live.len() - LIVE_BYTES / 2);
            self.live.drain(..cut);
        }
    }

    /// Returns the terminals in which the call runs commands.
    pub fn terminals(&self) -> impl Iterator<Item = &schema::TerminalId> {
        self.call.content.iter().filter_map(|content| match content {
            ToolCallContent::Terminal(terminal) => Some(&terminal.terminal_id),
            _ => None,
        })
    }

    /// Returns the images in its result.
    pub fn images(&self) -> impl Iterator<Item = &schema::ContentBlock> {
        self.call.content.iter().filter_map(|content| match content {
            ToolCallContent::Content(content) => {
                matches!(content.content, schema::ContentBlock::Image(_))
                    .then_some(&content.content)
            }
            _ => None,
        })
    }

    fn note_end(&mut self, now: u64) {
        if self.is_over() && self.ended.is_none() {
            self.ended = Some(now);
        }
    }

    /// Returns whether the call has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.call.status, ToolCallStatus::Completed | ToolCallStatus::Failed)
    }

    /// Returns the first line: mark, title, time.
    #[must_use]
    pub fn head(&self, now: u64, spinner: char) -> Line {
        let failure = failure_of(&self.call);
        let (mark, style) = match (self.call.status, &failure) {
            (ToolCallStatus::Completed, None) => ('✓', Style::ansi(2)),
            (ToolCallStatus::Completed | ToolCallStatus::Failed, _) => ('✗', Style::ansi(1)),
            (ToolCallStatus::InProgress, _) => (spinner, Style::ansi(6)),
            _ => ('·', Style::DIM),
        };
        let mut line = Line::of(mark.to_string(), style).then(Span::plain(" "));
        line.push(Span::new(verb(self.call.kind), Style::DIM));
        line.push(Span::plain(one_line(&self.call.title)));
        if let Some(failure) = failure {
            line.push(Span::new(format!(" ({failure})"), Style::ansi(1)));
        }
        let sizes: Vec<DiffSize> =
            self.diffs(Theme::Dark).into_iter().map(|(_, diff)| diff.size).collect();
        if !sizes.is_empty() {
            let added: usize = sizes.iter().map(|size| size.added).sum();
            let removed: usize = sizes.iter().map(|size| size.removed).sum();
            line.push(Span::new(format!(" +{added}"), Style::ansi(2)));
            line.push(Span::new(format!(" -{removed}"), Style::ansi(1)));
        }
        let took = Duration::from_millis(self.ended.unwrap_or(now).saturating_sub(self.started));
        if took >= SLOW {
            line.push(Span::new(format!(" {}", duration(took)), Style::DIM));
        }
        line
    }

    fn diffs(&self, theme: Theme) -> Vec<(String, crate::diff::Diff)> {
        let content = self.call.content.iter();
        content
            .filter_map(|content| match content {
                ToolCallContent::Diff(change) => {
                    let path = one_line(&change.path.to_string_lossy());
                    Some((path, diff(change.old_text.as_deref(), &change.new_text, theme)))
                }
                _ => None,
            })
            .collect()
    }

    /// Returns the lines of a call that has ended, or that is shown for good although it has not.
    #[must_use]
    pub fn finished(&self, now: u64, columns: usize, theme: Theme) -> CallLines {
        let mut shown = CallLines { lines: vec![self.head(now, '·')], full: None };
        let diffs = self.diffs(theme);
        if !diffs.is_empty() && self.call.status != ToolCallStatus::Failed {
            let mut full = Vec::new();
            for (path, diff) in &diffs {
                if diffs.len() > 1 {
                    let name = Line::of(path.as_str(), Style::BOLD);
                    shown.lines.push(indent(&name));
                    full.push(name);
                }
                let part = diff.first_lines(DIFF_LINES);
                shown.lines.extend(part.iter().map(indent));
                full.extend(diff.lines.iter().cloned());
            }
            let is_cut = diffs.iter().any(|(_, diff)| diff.lines.len() > DIFF_LINES + 1);
            shown.full = is_cut.then_some(full);
            return shown;
        }
        let output = self.output();
        if output.is_empty() {
            return shown;
        }
        let is_failed = self.call.status == ToolCallStatus::Failed;
        if !is_failed
            && !matches!(self.call.kind, ToolKind::Execute | ToolKind::Think | ToolKind::Other)
        {
            // What a tool read is for the model; it can be shown.
            shown.full =
                Some(output.iter().map(|line| Line::of(line.as_str(), Style::DIM)).collect());
            return shown;
        }
        let hidden = output.len().saturating_sub(OUTPUT_LINES);
        if hidden > 1 {
            let note = format!("… {hidden} more lines (Ctrl-O, /expand)");
            shown.lines.push(fit(&indent(&Line::of(note, Style::DIM)), columns));
            shown.full =
                Some(output.iter().map(|line| Line::of(line.as_str(), Style::DIM)).collect());
        }
        let from = if hidden > 1 { hidden } else { 0 };
        let last = output[from..].iter().map(|line| indent(&Line::of(line.as_str(), Style::DIM)));
        shown.lines.extend(last.map(|line| fit(&line, columns.max(8) * 2)));
        shown
    }

    /// Returns the lines of a call that runs.
    #[must_use]
    pub fn running(&self, now: u64, spinner: char) -> Vec<Line> {
        let mut lines = vec![self.head(now, spinner)];
        let output = self.output();
        let from = output.len().saturating_sub(LIVE_LINES);
        lines
            .extend(output[from..].iter().map(|line| indent(&Line::of(line.as_str(), Style::DIM))));
        lines
    }

    /// Returns the text of the call, or what its command wrote.
    fn output(&self) -> Vec<String> {
        let texts: Vec<String> = self.call.content.iter().filter_map(text_of).collect();
        let text = if texts.is_empty() { self.live.clone() } else { texts.join("\n") };
        if text.trim().is_empty() { Vec::new() } else { output_lines(text.trim_matches('\n')) }
    }

    /// Returns exactly what the call would do: its command or its whole input, its diffs, and its text.
    #[must_use]
    pub fn details(&self, theme: Theme) -> Vec<Line> {
        let mut lines = Vec::new();
        let diffs = self.diffs(theme);
        if diffs.is_empty()
            && let Some(input) = input_of(&self.call)
        {
            lines.extend(clean(&input).lines().map(|line| Line::of(line, Style::ansi(6))));
        }
        for (path, diff) in diffs {
            lines.push(Line::of(path, Style::BOLD));
            lines.extend(diff.lines);
        }
        let texts = self.call.content.iter().filter_map(text_of);
        lines.extend(
            texts.flat_map(|text| clean(&text).lines().map(Line::plain).collect::<Vec<_>>()),
        );
        lines
    }
}

fn verb(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Execute => "$ ",
        _ => "",
    }
}

pub(crate) fn indent(line: &Line) -> Line {
    if line.picture().is_some() {
        return line.clone();
    }
    let mut indented = Line::plain("  ");
    indented.extend(line.spans().to_vec());
    indented
}

/// Returns a time as people say it.
#[must_use]
pub fn duration(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{}s", time.as_secs()),
        seconds @ 60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Returns how a command failed. Its tool call succeeded all the same.
fn failure_of(call: &schema::ToolCall) -> Option<String> {
    let raw = call.raw_output.as_ref().filter(|_| call.kind == ToolKind::Execute)?;
    match (raw["signal"].as_str(), raw["exitCode"].as_u64()) {
        (Some(signal), _) => Some(format!("ended by {}", one_line(signal))),
        (None, code) => code.filter(|code| *code != 0).map(|code| format!("exit code {code}")),
    }
}

fn text_of(content: &ToolCallContent) -> Option<String> {
    match content {
        ToolCallContent::Content(content) => Some(block_text(&content.content)),
        _ => None,
    }
}

/// Returns a block of content as text.
#[must_use]
pub fn block_text(block: &schema::ContentBlock) -> String {
    match block {
        schema::ContentBlock::Text(text) => text.text.clone(),
        schema::ContentBlock::Image(image) => format!("[image {}]", image.mime_type),
        schema::ContentBlock::Audio(audio) => format!("[audio {}]", audio.mime_type),
        schema::ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        schema::ContentBlock::Resource(resource) => match &resource.resource {
            schema::EmbeddedResourceResource::TextResourceContents(text) => {
                format!("[{}]", text.uri)
            }
            _ => "[resource]".to_owned(),
        },
        _ => "[content]".to_owned(),
    }
}

fn input_of(call: &schema::ToolCall) -> Option<String> {
    let input = call.raw_input.as_ref()?;
    match input.get("command").and_then(|command| command.as_str()) {
        Some(command) if input.as_object().is_some_and(|input| input.len() == 1) => {
            Some(command.to_owned())
        }
        _ => serde_json::to_string_pretty(input).ok(),
    }
}
