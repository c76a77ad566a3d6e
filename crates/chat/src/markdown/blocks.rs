//! Renders blocks of Markdown as lines.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd};

use super::table::Table;
use super::{CODE, code_line, options};
use crate::highlight::Highlighter;
use crate::style::{Color, Line, Span, Style};
use crate::text::wrap;

/// Renders a source that holds whole blocks.
pub(super) fn render(source: &str, columns: usize) -> Vec<Line> {
    let mut renderer = Renderer::new(columns);
    for event in Parser::new_ext(source, options()) {
        renderer.event(event);
    }
    renderer.end_text();
    renderer.done
}

#[derive(Default)]
struct Renderer {
    columns: usize,
    done: Vec<Line>,
    /// The text of the current paragraph.
    text: Line,
    styles: Vec<Style>,
    /// Where each open link goes, and its text so far.
    links: Vec<(String, String)>,
    /// The lists that are open, with the number of the next item.
    lists: Vec<Option<u64>>,
    /// What each line starts with: quotes and the indentation of items.
    prefixes: Vec<Line>,
    /// The mark of an item that no line has shown yet.
    marker: Option<Line>,
    code: Option<Highlighter>,
    table: Option<Table>,
    /// The next block inside the current one is separated by an empty line.
    needs_gap: bool,
}

impl Renderer {
    fn new(columns: usize) -> Renderer {
        Renderer { columns, ..Renderer::default() }
    }

    fn style(&self) -> Style {
        self.styles.iter().fold(Style::PLAIN, |all, style| all.with(*style))
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => self.inline(&code, CODE),
            Event::Html(html) | Event::InlineHtml(html) => self.raw(&html),
            Event::SoftBreak => self.inline(" ", Style::PLAIN),
            Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.gap();
                let length = self.columns.min(40);
                self.push_block(Line::of("─".repeat(length), Style::DIM));
                self.needs_gap = true;
            }
            Event::TaskListMarker(is_done) => {
                self.inline(if is_done { "☑ " } else { "☐ " }, Style::PLAIN);
            }
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag) {
        match tag {
            Tag::Paragraph => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.styles.push(heading(level));
            }
            Tag::BlockQuote(_) => {
                self.gap();
                self.prefixes.push(Line::of("▎ ", Style::DIM));
            }
            Tag::CodeBlock(kind) => {
                self.end_text();
                self.gap();
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => {
                        info.split([' ', ',', '{']).next().unwrap_or_default()
                    }
                    CodeBlockKind::Indented => "",
                };
                self.code = Some(Highlighter::new(language));
            }
            Tag::List(first) => {
                self.end_text();
                if self.lists.is_empty() {
                    self.gap();
                }
                self.needs_gap = false;
                self.lists.push(first);
            }
            Tag::Item => self.start_item(),
            Tag::Emphasis => self.styles.push(Style { italic: true, ..Style::PLAIN }),
            Tag::Strong => self.styles.push(Style::BOLD),
            Tag::Strikethrough => self.styles.push(Style { strike: true, ..Style::PLAIN }),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.styles.push(Style {
                    underline: true,
                    fg: Some(Color::Ansi(4)),
                    ..Style::PLAIN
                });
                self.links.push((dest_url.into_string(), String::new()));
            }
            Tag::Table(alignments) => {
                self.gap();
                self.table = Some(Table::new(alignments));
            }
            Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.start_row();
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => {
                self.end_text();
                self.needs_gap = true;
            }
            TagEnd::Heading(_) => {
                self.end_text();
                self.styles.pop();
                self.needs_gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.prefixes.pop();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => {
                self.code = None;
                self.needs_gap = true;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.needs_gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_text();
                if let Some(marker) = self.marker.take() {
                    // An empty item.
                    self.prefixes.pop();
                    self.push_block(marker);
                } else {
                    self.prefixes.pop();
                }
                self.needs_gap = false;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                if let Some(table) = &mut self.table {
                    table.cell(cell);
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    let width: usize = self.prefixes.iter().map(Line::width).sum();
                    let lines = table.render(self.columns.saturating_sub(width));
                    lines.into_iter().for_each(|line| self.push_block(line));
                }
                self.needs_gap = true;
            }
            _ => {}
        }
    }

    fn start_item(&mut self) {
        self.end_text();
        let bullet = match self.lists.last_mut() {
            Some(Some(number)) => {
                let bullet = format!("{number}. ");
                *number += 1;
                bullet
            }
            _ => ["• ", "◦ ", "▪ "][self.lists.len().saturating_sub(1) % 3].to_owned(),
        };
        let marker = Line::of(bullet, Style::DIM);
        self.prefixes.push(Line::plain(" ".repeat(marker.width())));
        self.marker = Some(marker);
        self.needs_gap = false;
    }

    /// Shows where a link goes, unless its text says it already.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some((target, text)) = self.links.pop() else { return };
        let is_same = text == target || target.strip_prefix("mailto:") == Some(text.as_str());
        if !is_same && !target.is_empty() {
            self.inline(&format!(" ({target})"), Style::DIM);
        }
    }

    fn text(&mut self, text: &str) {
        let Some(mut highlighter) = self.code.take() else {
            if let Some((_, shown)) = self.links.last_mut() {
                shown.push_str(text);
            }
            return self.inline(text, Style::PLAIN);
        };
        for line in text.lines() {
            let line = code_line(&mut highlighter, line, 0);
            self.push_block(line);
        }
        self.code = Some(highlighter);
    }

    /// HTML is shown as it is, line by line.
    fn raw(&mut self, html: &str) {
        for (index, line) in html.split('\n').enumerate() {
            if index > 0 {
                self.end_text();
            }
            self.inline(line, Style::DIM);
        }
    }

    fn inline(&mut self, text: &str, style: Style) {
        let style = self.style().with(style);
        self.text.push(Span::new(text, style));
    }

    fn gap(&mut self) {
        if self.needs_gap && self.marker.is_none() {
            let prefix: Line =
                self.prefixes.iter().flat_map(|line| line.spans().to_vec()).collect();
            let is_bare = prefix.text().trim().is_empty();
            self.done.push(if is_bare { Line::default() } else { prefix });
        }
        self.needs_gap = false;
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let text = std::mem::take(&mut self.text);
        let (first, rest) = self.edges();
        self.done.extend(wrap(&text, self.columns, &first, &rest));
    }

    /// Adds a line that is not wrapped.
    fn push_block(&mut self, line: Line) {
        let (mut first, _) = self.edges();
        first.extend(line.spans().to_vec());
        self.done.push(first);
    }

    /// Returns what the next line and the lines after it start with.
    fn edges(&mut self) -> (Line, Line) {
        let join = |lines: &[Line]| -> Line {
            lines.iter().flat_map(|line| line.spans().to_vec()).collect()
        };
        let rest = join(&self.prefixes);
        let Some(marker) = self.marker.take() else { return (rest.clone(), rest) };
        let outer = self.prefixes.len().saturating_sub(1);
        let mut first = join(&self.prefixes[..outer]);
        first.extend(marker.spans().to_vec());
        (first, rest)
    }
}

fn heading(level: HeadingLevel) -> Style {
    match level {
        HeadingLevel::H1 => {
            Style { bold: true, underline: true, fg: Some(Color::Ansi(5)), ..Style::PLAIN }
        }
        HeadingLevel::H2 => Style { bold: true, fg: Some(Color::Ansi(5)), ..Style::PLAIN },
        _ => Style::BOLD,
    }
}
