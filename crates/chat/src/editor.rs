//! The input: text with a cursor, undo, and placeholders for long pastes. Pure.

use std::collections::HashMap;

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use crate::clean::clean;
use crate::text::grapheme_width;

/// A paste with more characters or lines becomes a placeholder.
const LONG_PASTE: usize = 1000;
const LONG_PASTE_LINES: usize = 12;

/// How many steps can be undone.
const MAX_UNDO: usize = 200;

/// The text that is being written.
#[derive(Debug, Default)]
pub struct Editor {
    text: String,
    /// A byte position in the text, between two grapheme clusters.
    cursor: usize,
    undo: Vec<(String, usize)>,
    redo: Vec<(String, usize)>,
    /// The last change inserted a letter, so that the next one belongs to the same step.
    is_typing: bool,
    killed: String,
    pastes: HashMap<String, String>,
    /// The column to keep while moving up and down.
    column: Option<usize>,
}

/// The text in rows of a given width, and where the cursor is.
#[derive(Debug, PartialEq, Eq)]
pub struct EditorView {
    /// The rows.
    pub rows: Vec<String>,
    /// Row and column of the cursor.
    pub cursor: (usize, usize),
}

impl Editor {
    /// Returns the text, with placeholders.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the position of the cursor in the text.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns the text with its pastes.
    #[must_use]
    pub fn full_text(&self) -> String {
        let mut text = self.text.clone();
        for (placeholder, paste) in &self.pastes {
            text = text.replace(placeholder, paste);
        }
        text
    }

    /// Replaces the text; the cursor is at its end.
    pub fn set(&mut self, text: &str) {
        self.save();
        self.text = clean(text);
        self.cursor = self.text.len();
    }

    /// Empties the text and returns it with its pastes.
    pub fn take(&mut self) -> String {
        let text = self.full_text();
        *self = Editor { killed: std::mem::take(&mut self.killed), ..Editor::default() };
        text
    }

    /// Inserts what was typed.
    pub fn insert(&mut self, text: &str) {
        if !self.is_typing || text.contains(char::is_whitespace) {
            self.save();
        }
        self.is_typing = true;
        self.put(&clean(text));
    }

    /// Inserts pasted text, or a placeholder for it if it is long.
    pub fn paste(&mut self, text: &str) {
        self.save();
        let text = clean(text);
        let lines = text.lines().count();
        if text.chars().count() <= LONG_PASTE && lines <= LONG_PASTE_LINES {
            return self.put(&text);
        }
        let number = self.pastes.len() + 1;
        let placeholder = match lines {
            0 | 1 => format!("[Pasted {} characters #{number}]", text.chars().count()),
            lines => format!("[Pasted {lines} lines #{number}]"),
        };
        self.put(&placeholder);
        self.pastes.insert(placeholder, text);
    }

    fn put(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        // A combining character may have joined the one before it.
        self.cursor = self.boundary(self.cursor);
        self.column = None;
    }

    fn save(&mut self) {
        self.is_typing = false;
        self.redo.clear();
        if self.undo.last().is_none_or(|(text, _)| *text != self.text) {
            self.undo.push((self.text.clone(), self.cursor));
        }
        if self.undo.len() > MAX_UNDO {
            self.undo.remove(0);
        }
    }

    /// Undoes the last change.
    pub fn undo(&mut self) {
        self.is_typing = false;
        while let Some(before) = self.undo.pop() {
            if before.0 != self.text {
                self.redo.push((std::mem::take(&mut self.text), self.cursor));
                (self.text, self.cursor) = before;
                return;
            }
        }
    }

    /// Redoes what was undone.
    pub fn redo(&mut self) {
        if let Some(after) = self.redo.pop() {
            self.undo.push((std::mem::take(&mut self.text), self.cursor));
            (self.text, self.cursor) = after;
        }
    }

    fn boundary(&self, at: usize) -> usize {
        let mut cursor = GraphemeCursor::new(at, self.text.len(), true);
        match cursor.is_boundary(&self.text, 0) {
            Ok(true) => at,
            _ => cursor.next_boundary(&self.text, 0).ok().flatten().unwrap_or(self.text.len()),
        }
    }

    fn before(&self) -> usize {
        let before = self.text[..self.cursor].grapheme_indices(true).next_back();
        before.map_or(0, |(at, _)| at)
    }

    fn after(&self) -> usize {
        let next = self.text[self.cursor..].graphemes(true).next();
        self.cursor + next.map_or(0, str::len)
    }

    fn remove(&mut self, from: usize, to: usize) -> String {
        self.save();
        let removed: String = self.text.drain(from..to).collect();
        self.cursor = from;
        self.column = None;
        removed
    }

    /// Deletes before the cursor; a placeholder goes as a whole.
    pub fn backspace(&mut self) {
        let placeholder = self.pastes.keys().find(|name| self.text[..self.cursor].ends_with(*name));
        let from = placeholder.map_or_else(|| self.before(), |name| self.cursor - name.len());
        self.remove(from, self.cursor);
    }

    /// Deletes after the cursor.
    pub fn delete(&mut self) {
        let to = self.after();
        self.remove(self.cursor, to);
    }

    /// Deletes the word before the cursor.
    pub fn kill_word(&mut self) {
        let from = self.word_left_of();
        self.killed = self.remove(from, self.cursor);
    }

    /// Deletes to the end of the line, or joins it with the next.
    pub fn kill_line(&mut self) {
        let end = self.line_end();
        let to = if end == self.cursor { self.after() } else { end };
        self.killed = self.remove(self.cursor, to);
    }

    /// Deletes to the start of the line.
    pub fn kill_to_start(&mut self) {
        let from = self.line_start();
        self.killed = self.remove(from, self.cursor);
    }

    /// Inserts what was deleted last.
    pub fn yank(&mut self) {
        self.save();
        let killed = self.killed.clone();
        self.put(&killed);
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn word_left_of(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before.unicode_word_indices().next_back().map_or(0, |(at, word)| {
            // Marks after the last word are a step of their own.
            if at + word.len() < before.len() { at + word.len() } else { at }
        })
    }

    fn go(&mut self, to: usize) {
        self.cursor = to;
        self.column = None;
        self.is_typing = false;
    }

    /// Moves one character left.
    pub fn left(&mut self) {
        self.go(self.before());
    }

    /// Moves one character right.
    pub fn right(&mut self) {
        self.go(self.after());
    }

    /// Moves one word left.
    pub fn word_left(&mut self) {
        self.go(self.word_left_of());
    }

    /// Moves one word right.
    pub fn word_right(&mut self) {
        let rest = &self.text[self.cursor..];
        let end = rest.unicode_word_indices().next().map(|(at, word)| at + word.len());
        self.go(self.cursor + end.unwrap_or(rest.len()));
    }

    /// Moves to the start of the next word.
    pub fn next_word(&mut self) {
        let rest = &self.text[self.cursor..];
        let kind = |char: char| (char.is_whitespace(), char.is_alphanumeric() || char == '_');
        let first = rest.chars().next().map(kind);
        let after = rest.find(|char| Some(kind(char)) != first).unwrap_or(rest.len());
        let space = rest[after..].find(|char: char| !char.is_whitespace());
        let skips = match first {
            Some((true, _)) => 0,
            _ => space.unwrap_or(rest.len() - after),
        };
        self.go(self.boundary(self.cursor + after + skips));
    }

    /// Moves behind the last letter.
    pub fn go_to_end(&mut self) {
        self.go(self.text.len());
    }

    /// Deletes what is between two positions of the cursor.
    pub fn kill_between(&mut self, from: usize, to: usize) {
        self.killed = self.remove(from, to);
    }

    /// Moves to the start of the line.
    pub fn home(&mut self) {
        self.go(self.line_start());
    }

    /// Moves to the end of the line.
    pub fn end(&mut self) {
        self.go(self.line_end());
    }

    /// Moves a row up; returns false in the first.
    pub fn up(&mut self, columns: usize) -> bool {
        self.vertical(columns, -1)
    }

    /// Moves a row down; returns false in the last.
    pub fn down(&mut self, columns: usize) -> bool {
        self.vertical(columns, 1)
    }

    fn vertical(&mut self, columns: usize, step: isize) -> bool {
        let rows = self.rows(columns);
        let at = rows.iter().rposition(|row| row.start <= self.cursor).unwrap_or(0);
        let width = |text: &str| text.graphemes(true).map(grapheme_width).sum::<usize>();
        let column = self.column.unwrap_or_else(|| width(&self.text[rows[at].start..self.cursor]));
        let Some(target) = at.checked_add_signed(step).and_then(|row| rows.get(row)) else {
            return false;
        };
        let mut used = 0;
        let mut to = target.start;
        for grapheme in self.text[target.start..target.end].graphemes(true) {
            if used + grapheme_width(grapheme) > column {
                break;
            }
            used += grapheme_width(grapheme);
            to += grapheme.len();
        }
        self.go(to);
        self.column = Some(column);
        true
    }

    /// Returns the text in rows of this width. The last column is for the cursor.
    #[must_use]
    pub fn view(&self, columns: usize) -> EditorView {
        let rows = self.rows(columns);
        let at = rows.iter().rposition(|row| row.start <= self.cursor).unwrap_or(0);
        let before = &self.text[rows[at].start..self.cursor];
        let column = before.graphemes(true).map(grapheme_width).sum();
        let texts = rows.iter().map(|row| self.text[row.start..row.end].to_owned());
        EditorView { rows: texts.collect(), cursor: (at, column) }
    }

    fn rows(&self, columns: usize) -> Vec<std::ops::Range<usize>> {
        let columns = columns.max(2);
        let mut rows = Vec::new();
        let (mut start, mut used, mut at) = (0, 0, 0);
        for grapheme in self.text.graphemes(true) {
            if grapheme == "\n" {
                rows.push(start..at);
                (start, used) = (at + 1, 0);
            } else {
                let width = grapheme_width(grapheme);
                if used + width >= columns {
                    rows.push(start..at);
                    (start, used) = (at, 0);
                }
                used += width;
            }
            at += grapheme.len();
        }
        rows.push(start..at);
        rows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn editor(text: &str) -> Editor {
        let mut editor = Editor::default();
        editor.set(text);
        editor
    }

    #[test]
    fn text_is_edited_by_what_people_see() {
        let mut input = editor("ab👩\u{200d}🔬e\u{301}");
        input.backspace();
        assert_eq!(input.text(), "ab👩\u{200d}🔬");
        input.backspace();
        assert_eq!(input.text(), "ab");
        input.left();
        input.insert("x");
        assert_eq!(input.text(), "axb");
        input.delete();
        assert_eq!(input.text(), "ax");
    }

    #[test]
    fn words_and_lines_are_units() {
        let mut input = editor("one two-three\nfour");
        input.kill_word();
        assert_eq!(input.text(), "one two-three\n");
        input.yank();
        input.home();
        input.left();
        input.word_left();
        input.kill_to_start();
        assert_eq!(input.text(), "three\nfour");
        input.kill_line();
        assert_eq!(input.text(), "\nfour");
        input.undo();
        assert_eq!(input.text(), "three\nfour");
        input.redo();
        assert_eq!(input.text(), "\nfour");
    }

    #[test]
    fn long_paste_is_a_placeholder() {
        let mut input = editor("look: ");
        let long: String = (0..20).map(|line| format!("line {line}\n")).collect();
        input.paste(&long);
        assert_eq!(input.text(), "look: [Pasted 20 lines #1]");
        assert_eq!(input.full_text(), format!("look: {long}"));
        input.backspace();
        assert_eq!(input.text(), "look: ");
        input.paste("a\u{1b}[31mb");
        assert_eq!(input.take(), "look: ab");
        assert_eq!(input.text(), "");
    }

    #[test]
    fn rows_keep_their_column() {
        let mut input = editor("abcdef\nxy\n中文中文");
        assert_eq!(input.view(5).rows, ["abcd", "ef", "xy", "中文", "中文"]);
        assert_eq!(input.view(5).cursor, (4, 4));
        assert!(input.up(20) && input.up(20));
        assert_eq!(input.cursor(), 6);
        assert!(!input.up(20));
    }

    proptest! {
        #[test]
        fn cursor_stays_between_characters(steps in proptest::collection::vec((0u8..14, "\\PC{0,3}"), 0..40)) {
            let mut input = Editor::default();
            for (step, text) in steps {
                match step {
                    0..=3 => input.insert(&text),
                    4 => input.left(),
                    5 => input.right(),
                    6 => input.word_left(),
                    7 => input.word_right(),
                    8 => input.backspace(),
                    9 => input.delete(),
                    10 => { input.up(7); }
                    11 => { input.down(7); }
                    12 => input.undo(),
                    _ => input.kill_word(),
                }
                prop_assert!(input.text().is_char_boundary(input.cursor()));
                let view = input.view(7);
                prop_assert!(view.cursor.0 < view.rows.len());
            }
        }
    }
}
