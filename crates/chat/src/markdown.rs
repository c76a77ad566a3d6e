//! Markdown while it arrives: finished blocks become lines that never change again.
//!
//! [`Markdown::push`] takes the next chunk of a message and returns the lines that are now final: a paragraph when it has ended,
//! a list item by item, a code block line by line. [`Markdown::tail`] shows what is still open. Source is processed a line at a
//! time, so the result does not depend on how the text was cut into chunks. `markdown::blocks` renders a block.

mod blocks;
mod table;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

use crate::clean::Cleaner;
use crate::highlight::Highlighter;
use crate::style::{Line, Style};

/// An open block that is larger is rendered as it is, so that memory and time stay bounded.
const MAX_PENDING: usize = 16 * 1024;

/// A longer line is treated as several lines.
const MAX_LINE: usize = 8 * 1024;

/// The style of code.
pub(crate) const CODE: Style = Style::ansi(6);

/// Renders one message.
#[derive(Debug)]
pub struct Markdown {
    columns: usize,
    cleaner: Cleaner,
    /// The complete lines of the block that is still open.
    pending: String,
    /// The line that is not complete.
    partial: String,
    fence: Option<Fence>,
    /// The next block is separated from what was rendered by an empty line.
    needs_gap: bool,
    /// What is pending is one paragraph, to which any line that starts with a letter belongs.
    is_in_paragraph: bool,
    /// What is pending continues a list whose first items were rendered.
    is_in_list: bool,
}

/// An open code block.
#[derive(Debug)]
struct Fence {
    mark: char,
    length: usize,
    indent: usize,
    highlighter: Highlighter,
}

/// A block at the top level of what is pending.
struct Block {
    start: usize,
    kind: Kind,
}

enum Kind {
    /// Ends with an empty line.
    Paragraph,
    /// Ends with its line.
    Single,
    /// The start of its last item, and whether it has more than one.
    List {
        last_item: usize,
        items: usize,
    },
    Fence {
        language: String,
    },
    /// Ends when another block starts.
    Other,
}

impl Markdown {
    /// Starts a message. Text is wrapped to this many columns; code is not, so that it can be copied.
    #[must_use]
    pub fn new(columns: usize) -> Markdown {
        Markdown {
            columns: columns.max(1),
            cleaner: Cleaner::default(),
            pending: String::new(),
            partial: String::new(),
            fence: None,
            needs_gap: false,
            is_in_paragraph: false,
            is_in_list: false,
        }
    }

    /// Renders a whole text.
    #[must_use]
    pub fn render(text: &str, columns: usize) -> Vec<Line> {
        let mut markdown = Markdown::new(columns);
        let mut lines = markdown.push(text);
        lines.extend(markdown.finish());
        lines
    }

    /// Changes the width of what is rendered from now on.
    pub fn set_columns(&mut self, columns: usize) {
        self.columns = columns.max(1);
    }

    /// Takes the next chunk and returns the lines that are now final.
    pub fn push(&mut self, chunk: &str) -> Vec<Line> {
        let mut done = Vec::new();
        let clean = self.cleaner.push(chunk);
        for part in clean.split_inclusive('\n') {
            for char in part.chars() {
                if char != '\n' {
                    self.partial.push(char);
                }
                if char == '\n' || self.partial.len() >= MAX_LINE {
                    let line = std::mem::take(&mut self.partial);
                    self.end_line(&line, &mut done);
                }
            }
        }
        done
    }

    /// Ends the message and returns its last lines.
    pub fn finish(&mut self) -> Vec<Line> {
        let mut done = Vec::new();
        if !self.partial.is_empty() {
            let line = std::mem::take(&mut self.partial);
            self.end_line(&line, &mut done);
        }
        let pending = std::mem::take(&mut self.pending);
        self.commit(&pending, &mut done);
        self.fence = None;
        self.is_in_paragraph = false;
        self.cleaner = Cleaner::default();
        done
    }

    /// Returns the lines of what is still open, as they would be if the message ended here.
    #[must_use]
    pub fn tail(&self) -> Vec<Line> {
        if let Some(fence) = &self.fence {
            if self.partial.is_empty() {
                return Vec::new();
            }
            return vec![code_line(&mut fence.highlighter.clone(), &self.partial, fence.indent)];
        }
        let open = format!("{}{}", self.pending, self.partial);
        if open.trim().is_empty() {
            return Vec::new();
        }
        let mut lines = Vec::new();
        self.gap(&open, &mut lines);
        lines.extend(blocks::render(&open, self.columns));
        lines
    }

    fn end_line(&mut self, line: &str, done: &mut Vec<Line>) {
        if let Some(fence) = &mut self.fence {
            if fence.is_closed_by(line) {
                self.fence = None;
            } else {
                done.push(code_line(&mut fence.highlighter, line, fence.indent));
            }
            return;
        }
        let is_more = self.continues_pending(line);
        self.pending.push_str(line);
        self.pending.push('\n');
        if is_more && self.pending.len() <= MAX_PENDING {
            return;
        }
        self.is_in_paragraph = false;
        let Some(Block { start, kind }) = last_block(&self.pending) else {
            if line.trim().is_empty() || self.pending.len() > MAX_PENDING {
                self.pending.clear();
            }
            return;
        };
        let is_blank = line.trim().is_empty();
        let end = match kind {
            Kind::Single => self.pending.len(),
            Kind::Paragraph if is_blank => self.pending.len(),
            Kind::List { last_item, items } if items > 1 => {
                self.take(start, done);
                self.take(last_item - start, done);
                self.is_in_list = true;
                0
            }
            Kind::Fence { language } => {
                self.take(start, done);
                self.open_fence(&language, done);
                return;
            }
            Kind::Paragraph => {
                self.is_in_paragraph = true;
                start
            }
            Kind::List { .. } | Kind::Other => start,
        };
        self.take(end, done);
        if self.pending.len() > MAX_PENDING {
            self.take(self.pending.len(), done);
            self.is_in_paragraph = false;
        }
    }

    /// Returns whether a line certainly belongs to the paragraph, table or quote that is pending. Spares parsing it for each line.
    fn continues_pending(&self, line: &str) -> bool {
        let first = line.chars().next();
        if self.is_in_paragraph && first.is_some_and(char::is_alphabetic) {
            return true;
        }
        let before = self.pending.chars().next();
        matches!(before, Some('|' | '>'))
            && first == before
            && self.pending.lines().nth(1).is_some()
    }

    /// Renders the first bytes of what is pending.
    fn take(&mut self, end: usize, done: &mut Vec<Line>) {
        let rest = self.pending.split_off(end);
        let block = std::mem::replace(&mut self.pending, rest);
        self.commit(&block, done);
    }

    fn commit(&mut self, block: &str, done: &mut Vec<Line>) {
        if block.trim().is_empty() {
            return;
        }
        let lines = blocks::render(block, self.columns);
        if lines.is_empty() {
            return;
        }
        self.gap(block, done);
        done.extend(lines);
        self.needs_gap = true;
        self.is_in_list = false;
    }

    fn gap(&self, block: &str, lines: &mut Vec<Line>) {
        let continues = self.is_in_list
            && matches!(last_block(block), Some(Block { kind: Kind::List { .. }, .. }));
        if self.needs_gap && !continues {
            lines.push(Line::default());
        }
    }

    fn open_fence(&mut self, language: &str, done: &mut Vec<Line>) {
        let opening = std::mem::take(&mut self.pending);
        let trimmed = opening.trim_start_matches(' ');
        let mark = trimmed.chars().next().unwrap_or('`');
        if self.needs_gap {
            done.push(Line::default());
        }
        self.needs_gap = true;
        self.is_in_list = false;
        self.fence = Some(Fence {
            mark,
            length: trimmed.chars().take_while(|char| *char == mark).count(),
            indent: opening.len() - trimmed.len(),
            highlighter: Highlighter::new(language),
        });
    }
}

impl Fence {
    fn is_closed_by(&self, line: &str) -> bool {
        let trimmed = line.trim();
        trimmed.chars().count() >= self.length
            && trimmed.chars().all(|char| char == self.mark)
            && line.len() - line.trim_start_matches(' ').len() < 4
    }
}

/// Renders a line of code; the indentation of its fence is removed.
pub(crate) fn code_line(highlighter: &mut Highlighter, line: &str, indent: usize) -> Line {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    let mut code = Line::of("  ", Style::PLAIN);
    code.extend(highlighter.line(&line[spaces.min(indent)..]));
    code
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// Finds the last block of a source.
fn last_block(source: &str) -> Option<Block> {
    let mut last: Option<Block> = None;
    let mut depth = 0usize;
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    last = Some(Block { start: range.start, kind: kind_of(&tag) });
                } else if depth == 1
                    && let Tag::Item = tag
                    && let Some(Block { kind: Kind::List { last_item, items }, .. }) = &mut last
                {
                    // An item's range may start at its marker; its indentation belongs to it.
                    *last_item = line_start(source, range.start);
                    *items += 1;
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Rule if depth == 0 => {
                last = Some(Block { start: range.start, kind: Kind::Single })
            }
            Event::Html(_) if depth == 0 => {
                last = Some(Block { start: range.start, kind: Kind::Other })
            }
            _ => {}
        }
    }
    last.map(|block| Block { start: line_start(source, block.start), ..block })
}

fn line_start(source: &str, at: usize) -> usize {
    source[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

fn kind_of(tag: &Tag) -> Kind {
    match tag {
        Tag::Paragraph | Tag::Table(_) | Tag::BlockQuote(_) => Kind::Paragraph,
        Tag::Heading { .. } => Kind::Single,
        Tag::List(_) => Kind::List { last_item: 0, items: 0 },
        Tag::CodeBlock(CodeBlockKind::Fenced(info)) => {
            let language = info.split([' ', ',', '{']).next().unwrap_or_default();
            Kind::Fence { language: language.to_owned() }
        }
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests;
