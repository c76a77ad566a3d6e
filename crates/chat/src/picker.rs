//! A list to choose from, narrowed by typing. Pure.

use crate::clean::one_line;
use crate::complete::matches;
use crate::keys::{Key, KeyCode};
use crate::style::{Line, Span, Style};
use crate::text::{fit, wrap};

/// How many entries are shown at a time.
const SHOWN: usize = 8;

/// How many entries are printed at most where there is no cursor.
const NUMBERED: usize = 50;

/// An entry: what is shown, and what it stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice<T> {
    /// Its name.
    pub label: String,
    /// More about it, dim.
    pub detail: String,
    /// What it stands for.
    pub value: T,
}

impl<T> Choice<T> {
    /// Makes an entry. Its texts are cleaned.
    pub fn new(label: &str, detail: &str, value: T) -> Choice<T> {
        Choice { label: one_line(label), detail: one_line(detail), value }
    }
}

/// A list to choose from.
#[derive(Debug)]
pub struct Picker<T> {
    title: String,
    hint: String,
    choices: Vec<Choice<T>>,
    filter: String,
    selected: usize,
}

/// What a key did.
#[derive(Debug, PartialEq)]
pub enum Picked<T> {
    /// Nothing is chosen yet.
    Open,
    /// The list was closed.
    Closed,
    /// This was chosen.
    Chosen(T),
    /// A key that the list does not know, on this entry.
    Other(Key, T),
}

impl<T: Clone> Picker<T> {
    /// Opens a list at an entry.
    pub fn new(title: &str, choices: Vec<Choice<T>>, selected: usize) -> Picker<T> {
        let hint = "Enter chooses, Esc closes, type to search".to_owned();
        Picker { title: one_line(title), hint, choices, filter: String::new(), selected }
    }

    /// Says what else can be done.
    #[must_use]
    pub fn hint(mut self, hint: &str) -> Picker<T> {
        hint.clone_into(&mut self.hint);
        self
    }

    fn found(&self) -> Vec<&Choice<T>> {
        let text = |choice: &Choice<T>| format!("{} {}", choice.label, choice.detail);
        self.choices.iter().filter(|choice| matches(&self.filter, &text(choice))).collect()
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key) -> Picked<T> {
        let count = self.found().len();
        match key.code {
            KeyCode::Esc => return Picked::Closed,
            KeyCode::Char('c') if key.ctrl => return Picked::Closed,
            KeyCode::Enter => {
                let chosen = self.found().get(self.selected).map(|choice| choice.value.clone());
                return chosen.map_or(Picked::Open, Picked::Chosen);
            }
            KeyCode::Up => self.selected = (self.selected + count.max(1) - 1) % count.max(1),
            KeyCode::Char('p') if key.ctrl => {
                self.selected = (self.selected + count.max(1) - 1) % count.max(1);
            }
            KeyCode::Down | KeyCode::Tab => self.selected = (self.selected + 1) % count.max(1),
            KeyCode::Char('n') if key.ctrl => self.selected = (self.selected + 1) % count.max(1),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(SHOWN),
            KeyCode::PageDown => {
                self.selected = (self.selected + SHOWN).min(count.saturating_sub(1))
            }
            KeyCode::Backspace => {
                self.filter.pop();
                self.selected = 0;
            }
            KeyCode::Char(char) if !key.ctrl && !key.alt => {
                self.filter.push(char);
                self.selected = 0;
            }
            _ => {
                let chosen = self.found().get(self.selected).map(|choice| choice.value.clone());
                return chosen.map_or(Picked::Open, |value| Picked::Other(key, value));
            }
        }
        Picked::Open
    }

    /// Adds pasted text to the search.
    pub fn paste(&mut self, text: &str) {
        self.filter.push_str(&one_line(text));
        self.selected = 0;
    }

    /// Returns the lines.
    #[must_use]
    pub fn lines(&self, columns: usize) -> Vec<Line> {
        let found = self.found();
        let mut head = Line::of(self.title.as_str(), Style::BOLD);
        if !self.filter.is_empty() {
            head.push(Span::plain(format!(": {}", self.filter)));
        }
        let mut lines = vec![head];
        let from = self.selected.saturating_sub(SHOWN - 1);
        for (at, choice) in found.iter().enumerate().skip(from).take(SHOWN) {
            lines.push(fit(&row(&choice.label, &choice.detail, at == self.selected), columns));
        }
        if found.is_empty() {
            lines.push(Line::of("  No matches", Style::DIM));
        } else if found.len() > SHOWN {
            let place = format!("  {} of {}", self.selected + 1, found.len());
            lines.push(Line::of(place, Style::DIM));
        }
        let none = Line::default();
        lines.extend(wrap(&Line::of(self.hint.as_str(), Style::DIM), columns, &none, &none));
        lines
    }
}

/// A list on a terminal without a cursor: its entries have numbers, and lines are typed.
pub(crate) trait NumberedList {
    /// Returns the lines with numbers.
    fn numbered(&self, columns: usize) -> Vec<Line>;
    /// Selects the entry with this number, from 1; returns false if there is none.
    fn select(&mut self, number: usize) -> bool;
    /// Narrows the list to what contains a text.
    fn narrow(&mut self, text: &str);
}

impl<T: Clone> NumberedList for Picker<T> {
    fn numbered(&self, columns: usize) -> Vec<Line> {
        let found = self.found();
        let mut texts = vec![self.title.clone()];
        texts.extend(found.iter().take(NUMBERED).enumerate().map(|(at, choice)| {
            format!("{}. {}  {}", at + 1, choice.label, choice.detail).trim_end().to_owned()
        }));
        if found.len() > NUMBERED {
            texts.push(format!("{} more", found.len() - NUMBERED));
        }
        texts.push("Type a number, a text to search, or an empty line to close.".to_owned());
        let none = Line::default();
        texts.iter().flat_map(|text| wrap(&Line::plain(text), columns, &none, &none)).collect()
    }

    fn select(&mut self, number: usize) -> bool {
        let is_there = (1..=self.found().len()).contains(&number);
        if is_there {
            self.selected = number - 1;
        }
        is_there
    }

    fn narrow(&mut self, text: &str) {
        self.filter = one_line(text);
        self.selected = 0;
    }
}

/// Returns the line of an entry. The mark shows the selected one without colours too.
pub(crate) fn row(label: &str, detail: &str, is_selected: bool) -> Line {
    let style = if is_selected { Style { bold: true, ..Style::ansi(6) } } else { Style::PLAIN };
    let mark = if is_selected { "› " } else { "  " };
    let line = Line::of(mark, style).then(Span::new(label, style));
    if detail.is_empty() { line } else { line.then(Span::new(format!("  {detail}"), Style::DIM)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_narrows_the_list() {
        let choices = ["alpha", "beta", "gamma"].map(|name| Choice::new(name, "", name)).to_vec();
        let mut picker = Picker::new("Letter", choices, 1);
        assert_eq!(picker.key(Key::plain(KeyCode::Enter)), Picked::Chosen("beta"));
        picker.key(Key::plain(KeyCode::Char('g')));
        assert_eq!(picker.key(Key::plain(KeyCode::Enter)), Picked::Chosen("gamma"));
        picker.key(Key::plain(KeyCode::Char('q')));
        assert_eq!(picker.key(Key::plain(KeyCode::Enter)), Picked::Open);
        assert_eq!(picker.lines(20)[1].text(), "  No matches");
        assert_eq!(picker.key(Key::plain(KeyCode::Esc)), Picked::Closed);
    }
}
