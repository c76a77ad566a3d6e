//! The screen: finished lines go to the terminal's own scrollback once, a small live area below them is redrawn.
//!
//! Pure: [`Screen::frame`] returns the bytes to write. Only what changed is written, between the marks of synchronized
//! output, so that a terminal never shows half a frame. No alternate screen and no scroll regions.

use std::fmt::Write;

use unicode_segmentation::UnicodeSegmentation;

use crate::color::ColorLevel;
use crate::image::Picture;
use crate::style::{Line, Span};
use crate::text::{fit, grapheme_width};

const BEGIN: &str = "\u{1b}[?2026h";
const END: &str = "\u{1b}[?2026l";

/// The live area: its lines, and where the cursor is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// Its lines, from the top.
    pub lines: Vec<Line>,
    /// Row and column of the cursor; hidden without.
    pub cursor: Option<(usize, usize)>,
}

/// What is on the terminal below the finished lines.
#[derive(Debug)]
pub struct Screen {
    level: ColorLevel,
    columns: usize,
    rows: usize,
    shown: Vec<Line>,
    /// The row of the live area in which the terminal's cursor is, and its column.
    at: (usize, usize),
    is_cursor_hidden: bool,
}

impl Screen {
    /// Starts at the cursor, which must be at the start of a line.
    #[must_use]
    pub fn new(level: ColorLevel, columns: usize, rows: usize) -> Screen {
        Screen {
            level,
            columns: columns.max(1),
            rows: rows.max(1),
            shown: Vec::new(),
            at: (0, 0),
            is_cursor_hidden: false,
        }
    }

    /// Returns the bytes that print the finished lines and show the live area.
    pub fn frame(&mut self, finished: &[Line], live: &Live) -> String {
        let lines = self.visible(live);
        let mut out = String::new();
        if finished.is_empty() {
            self.update(&lines, &mut out);
        } else {
            self.replace(finished, &lines, &mut out);
        }
        self.shown = lines;
        self.place_cursor(live, &mut out);
        if out.is_empty() { out } else { format!("{BEGIN}{out}{END}") }
    }

    /// Returns the bytes that remove the live area; the cursor is then at the start of a line.
    pub fn leave(&mut self) -> String {
        let mut out = String::new();
        self.clear(&mut out);
        self.shown.clear();
        if self.is_cursor_hidden {
            out.push_str("\u{1b}[?25h");
            self.is_cursor_hidden = false;
        }
        out
    }

    /// The terminal was resized: returns the bytes that remove the live area, wherever the terminal moved it. A terminal
    /// wraps lines that no longer fit, so the area may now take more rows.
    pub fn resize(&mut self, columns: usize, rows: usize) -> String {
        let columns = columns.max(1);
        let rows_of = |line: &Line| line.width().max(1).div_ceil(columns);
        let above: usize = self.shown[..self.at.0.min(self.shown.len())].iter().map(rows_of).sum();
        let mut out = String::from("\r");
        // A cursor at the right edge stays in its row.
        let within = self.at.1.saturating_sub(1) / columns;
        up(above + within, &mut out);
        erase(self.shown.len().min(rows), &mut out);
        self.shown.clear();
        self.at = (0, 0);
        self.columns = columns;
        self.rows = rows.max(1);
        out
    }

    /// Returns the lines that fit: never wider than the terminal, and the last ones if there are too many.
    fn visible(&self, live: &Live) -> Vec<Line> {
        let skipped = live.lines.len().saturating_sub(self.rows);
        live.lines[skipped..].iter().map(|line| fit(line, self.columns)).collect()
    }

    /// Goes to the start of the live area and clears it.
    fn clear(&mut self, out: &mut String) {
        if self.shown.is_empty() && self.at == (0, 0) {
            return;
        }
        out.push('\r');
        up(self.at.0, out);
        erase(self.shown.len().min(self.rows), out);
        self.at = (0, 0);
    }

    /// Writes the finished lines over the live area, and the new live area below them. Nothing is erased before it is overwritten.
    fn replace(&mut self, finished: &[Line], lines: &[Line], out: &mut String) {
        out.push('\r');
        up(self.at.0, out);
        let mut left = self.shown.len();
        let last = lines.len().saturating_sub(1);
        let all = finished.iter().map(|line| (line, true));
        let all = all.chain(lines.iter().enumerate().map(|(row, line)| (line, row < last)));
        for (line, has_next) in all {
            let width = line.width();
            if left > 0 && width > self.columns {
                // A wide letter that does not fit at the right edge would leave what was there before.
                erase(left, out);
                left = 0;
            }
            if let Some(picture) = line.picture() {
                erase(left, out);
                left = 0;
                draw_picture(picture, out);
            }
            out.push_str(&line.to_ansi(self.level));
            // At the right edge the cursor is still in the last column, which must not be erased.
            if left > 0 && (width == 0 || !width.is_multiple_of(self.columns)) {
                out.push_str("\u{1b}[K");
            }
            left = left.saturating_sub(width.max(1).div_ceil(self.columns));
            if has_next {
                out.push_str("\r\n");
            }
        }
        self.at = (last, lines.last().map_or(0, Line::width));
        if left > 0 && self.at.1 < self.columns {
            out.push_str("\u{1b}[J");
        } else if left > 0 {
            out.push_str("\r\n\u{1b}[J\u{1b}[A");
            self.at.1 = 0;
        }
    }

    /// Rewrites the rows that differ, each from its first difference.
    fn update(&mut self, lines: &[Line], out: &mut String) {
        let shown = std::mem::take(&mut self.shown);
        for (row, line) in lines.iter().enumerate() {
            match shown.get(row) {
                Some(old) if old == line => {}
                Some(old) => {
                    let (column, rest) = difference(old, line);
                    self.go(row, column, out);
                    out.push_str(&rest.to_ansi(self.level));
                    if old.width() > line.width() {
                        out.push_str("\u{1b}[K");
                    }
                    self.at = (row, line.width());
                }
                None => {
                    // A new row may scroll the terminal, which only a line feed does.
                    if row > 0 {
                        self.go(row - 1, 0, out);
                        out.push_str("\r\n");
                    }
                    out.push_str(&line.to_ansi(self.level));
                    self.at = (row, line.width());
                }
            }
        }
        if shown.len() > lines.len() {
            if lines.is_empty() {
                self.go(0, 0, out);
                out.push_str("\u{1b}[J");
            } else {
                // Without leaving the last row: a cursor past the end of a full row is in it.
                self.go(lines.len(), 0, out);
                out.push_str("\u{1b}[J");
            }
        }
    }

    fn place_cursor(&mut self, live: &Live, out: &mut String) {
        let skipped = live.lines.len().saturating_sub(self.rows);
        let place = live.cursor.and_then(|(row, column)| Some((row.checked_sub(skipped)?, column)));
        match place {
            Some((row, column)) => {
                self.go(row, column.min(self.columns - 1), out);
                if self.is_cursor_hidden {
                    out.push_str("\u{1b}[?25h");
                    self.is_cursor_hidden = false;
                }
            }
            None if !self.is_cursor_hidden => {
                out.push_str("\u{1b}[?25l");
                self.is_cursor_hidden = true;
            }
            None => {}
        }
    }

    fn go(&mut self, row: usize, column: usize, out: &mut String) {
        if self.at == (row, column) && column < self.columns {
            return;
        }
        if row < self.at.0 {
            up(self.at.0 - row, out);
        } else if row > self.at.0 {
            // Writing to a string cannot fail.
            write!(out, "\u{1b}[{}B", row - self.at.0).ok();
        }
        if column == 0 {
            out.push('\r');
        } else if column != self.at.1 || self.at.1 >= self.columns {
            write!(out, "\u{1b}[{}G", column + 1).ok();
        }
        self.at = (row, column);
    }
}

/// Makes room for an image, shows it, and goes to its last row.
fn draw_picture(picture: &Picture, out: &mut String) {
    let below = picture.rows.saturating_sub(1);
    (0..below).for_each(|_| out.push_str("\r\n"));
    up(below, out);
    // Protocols differ in where they leave the cursor.
    out.push_str("\u{1b}7");
    out.push_str(&picture.sequence);
    out.push_str("\u{1b}8");
    (0..below).for_each(|_| out.push_str("\r\n"));
}

fn up(rows: usize, out: &mut String) {
    match rows {
        0 => {}
        1 => out.push_str("\u{1b}[A"),
        // Writing to a string cannot fail.
        rows => write!(out, "\u{1b}[{rows}A").unwrap_or(()),
    }
}

/// Erases everything from the start of this row. Some terminals store what is erased from the top of the screen in their
/// scrollback, so the first row is erased by itself.
fn erase(rows: usize, out: &mut String) {
    out.push_str(match rows {
        0 | 1 => "\u{1b}[J",
        _ => "\u{1b}[K\u{1b}[B\u{1b}[J\u{1b}[A",
    });
}

/// Returns the column of the first difference, and the new line from there.
fn difference(old: &Line, new: &Line) -> (usize, Line) {
    let cells = |line: &Line| -> Vec<(String, crate::style::Style)> {
        let split = |span: &Span| {
            let style = span.style();
            span.text().graphemes(true).map(|part| (part.to_owned(), style)).collect::<Vec<_>>()
        };
        line.spans().iter().flat_map(split).collect()
    };
    let (old, new) = (cells(old), cells(new));
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let column = new[..same].iter().map(|(part, _)| grapheme_width(part)).sum();
    let rest = new[same..].iter().map(|(part, style)| Span::new(part.as_str(), *style)).collect();
    (column, rest)
}

#[cfg(test)]
mod tests;
