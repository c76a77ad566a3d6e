//! Styled lines: what everything on the screen is made of.
//!
//! A [`Span`] cleans its text when it is made, so a [`Line`] never holds a character that could control the terminal.

use std::sync::Arc;

use crate::clean::is_harmless;
use crate::color::{ColorLevel, sequence};
use crate::image::Picture;
use crate::text::width;

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// One of the 16 colours of the user's palette.
    Ansi(u8),
    /// Red, green and blue.
    Rgb(u8, u8, u8),
}

/// How text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// The colour of the letters; `None` is the terminal's own.
    pub fg: Option<Color>,
    /// The colour behind them.
    pub bg: Option<Color>,
    /// Bold.
    pub bold: bool,
    /// Dim.
    pub dim: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Struck through.
    pub strike: bool,
    /// Foreground and background swapped.
    pub reverse: bool,
}

impl Style {
    /// A style that is only dim.
    pub const DIM: Style = Style { dim: true, ..Style::PLAIN };
    /// A style that is only bold.
    pub const BOLD: Style = Style { bold: true, ..Style::PLAIN };
    /// The terminal's own style.
    pub const PLAIN: Style = Style {
        fg: None,
        bg: None,
        bold: false,
        dim: false,
        italic: false,
        underline: false,
        strike: false,
        reverse: false,
    };

    /// Returns a style with one of the 16 colours.
    #[must_use]
    pub const fn ansi(number: u8) -> Style {
        Style { fg: Some(Color::Ansi(number)), ..Style::PLAIN }
    }

    /// Returns this style with what the other one sets.
    #[must_use]
    pub fn with(self, other: Style) -> Style {
        Style {
            fg: other.fg.or(self.fg),
            bg: other.bg.or(self.bg),
            bold: self.bold || other.bold,
            dim: self.dim || other.dim,
            italic: self.italic || other.italic,
            underline: self.underline || other.underline,
            strike: self.strike || other.strike,
            reverse: self.reverse || other.reverse,
        }
    }
}

/// Whether the terminal's background is dark. Decides the backgrounds of diffs; all other colours are the user's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// Light letters on dark.
    #[default]
    Dark,
    /// Dark letters on light.
    Light,
}

/// Text of one style, without control characters and line breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    text: String,
    style: Style,
}

impl Span {
    /// Makes a span. Tabs become spaces; other characters that could control the terminal are removed.
    pub fn new(text: impl Into<String>, style: Style) -> Span {
        let mut text = text.into();
        if !text.chars().all(is_harmless) {
            let spaced = text.replace('\t', "    ").replace('\n', " ");
            text = spaced.chars().filter(|char| is_harmless(*char)).collect();
        }
        Span { text, style }
    }

    /// Makes a span in the terminal's own style.
    pub fn plain(text: impl Into<String>) -> Span {
        Span::new(text, Style::PLAIN)
    }

    /// Returns its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns its style.
    #[must_use]
    pub fn style(&self) -> Style {
        self.style
    }

    /// Returns the span with what this style sets.
    #[must_use]
    pub fn styled(mut self, style: Style) -> Span {
        self.style = self.style.with(style);
        self
    }
}

/// One line of spans.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    spans: Vec<Span>,
    /// An image in place of text.
    picture: Option<Arc<Picture>>,
}

impl Line {
    /// Makes a line of one span.
    pub fn of(text: impl Into<String>, style: Style) -> Line {
        let mut line = Line::default();
        line.push(Span::new(text, style));
        line
    }

    /// Makes a line in the terminal's own style.
    pub fn plain(text: impl Into<String>) -> Line {
        Line::of(text, Style::PLAIN)
    }

    /// Makes a line that is an image. Only finished lines can be.
    #[must_use]
    pub fn image(picture: Picture) -> Line {
        Line { spans: Vec::new(), picture: Some(Arc::new(picture)) }
    }

    /// Returns its image.
    #[must_use]
    pub fn picture(&self) -> Option<&Picture> {
        self.picture.as_deref()
    }

    /// Adds a span at the end; one of the same style is joined with the last.
    pub fn push(&mut self, span: Span) {
        if span.text.is_empty() {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.style == span.style => last.text.push_str(&span.text),
            _ => self.spans.push(span),
        }
    }

    /// Returns the line with this span at the end.
    #[must_use]
    pub fn then(mut self, span: Span) -> Line {
        self.push(span);
        self
    }

    /// Returns its spans.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns whether it has no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns how many columns it takes.
    #[must_use]
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| width(&span.text)).sum()
    }

    /// Returns the text alone.
    #[must_use]
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Returns the line with what this style sets, in all its spans.
    #[must_use]
    pub fn styled(self, style: Style) -> Line {
        self.spans.into_iter().map(|span| span.styled(style)).collect()
    }

    /// Returns the line with escape sequences for its styles. It leaves the terminal without style.
    #[must_use]
    pub fn to_ansi(&self, level: ColorLevel) -> String {
        let mut ansi = String::new();
        let mut is_styled = false;
        for span in &self.spans {
            let sequence = sequence(span.style, level);
            if is_styled {
                ansi.push_str("\u{1b}[m");
            }
            is_styled = !sequence.is_empty();
            ansi.push_str(&sequence);
            ansi.push_str(&span.text);
        }
        if is_styled {
            ansi.push_str("\u{1b}[m");
        }
        ansi
    }
}

impl FromIterator<Span> for Line {
    fn from_iter<I: IntoIterator<Item = Span>>(spans: I) -> Line {
        let mut line = Line::default();
        spans.into_iter().for_each(|span| line.push(span));
        line
    }
}

impl Extend<Span> for Line {
    fn extend<I: IntoIterator<Item = Span>>(&mut self, spans: I) {
        spans.into_iter().for_each(|span| self.push(span));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_printed_with_as_few_sequences_as_possible() {
        let line = Line::plain("a")
            .then(Span::plain("b"))
            .then(Span::new("c", Style::BOLD))
            .then(Span::plain("d"));
        assert_eq!(line.to_ansi(ColorLevel::Ansi16), "ab\u{1b}[1mc\u{1b}[md");
        assert_eq!(line.to_ansi(ColorLevel::None), "abcd");
        assert_eq!(line.width(), 4);
    }

    #[test]
    fn span_holds_no_control_characters() {
        assert_eq!(Span::plain("a\u{1b}[2Jb\tc\nd\u{202e}").text(), "a[2Jb    c d");
    }
}
