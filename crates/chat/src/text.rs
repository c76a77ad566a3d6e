//! Measures and wraps text by what people see: grapheme clusters and terminal columns.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::style::{Line, Span, Style};

/// Returns how many columns a text takes.
#[must_use]
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.graphemes(true).map(grapheme_width).sum() }
}

/// Returns how many columns a grapheme cluster takes; terminals give a cluster no more than two.
#[must_use]
pub fn grapheme_width(grapheme: &str) -> usize {
    UnicodeWidthStr::width(grapheme).min(2)
}

/// Cuts a line to a number of columns; `…` marks the cut.
#[must_use]
pub fn fit(line: &Line, columns: usize) -> Line {
    if line.width() <= columns {
        return line.clone();
    }
    let mut cut = Line::default();
    let mut room = columns.saturating_sub(1);
    'spans: for span in line.spans() {
        let mut text = String::new();
        for grapheme in span.text().graphemes(true) {
            let Some(rest) = room.checked_sub(grapheme_width(grapheme)) else {
                cut.push(Span::new(text, span.style()));
                break 'spans;
            };
            room = rest;
            text.push_str(grapheme);
        }
        cut.push(Span::new(text, span.style()));
    }
    if columns > 0 {
        cut.push(Span::new("…", Style::DIM));
    }
    cut
}

/// Wraps a line at spaces. The first line starts with `first`, the others with `rest`; prefixes that leave no room are left
/// out. Words that are longer than a line are broken.
#[must_use]
pub fn wrap(line: &Line, columns: usize, first: &Line, rest: &Line) -> Vec<Line> {
    let columns = columns.max(1);
    let prefix = |prefix: &Line| {
        if prefix.width() * 2 <= columns { prefix.clone() } else { Line::default() }
    };
    let (first, rest) = (prefix(first), prefix(rest));
    let mut wrapper = Wrapper { columns, rest, done: Vec::new(), line: first, used: 0, start: 0 };
    wrapper.used = wrapper.line.width();
    wrapper.start = wrapper.used;
    let mut word: Vec<Span> = Vec::new();
    let mut word_width = 0;
    let mut spaces: Vec<Span> = Vec::new();
    for span in line.spans() {
        for part in span.text().split_word_bounds() {
            let part_width = width(part);
            let piece = Span::new(part, span.style());
            if part.chars().all(|char| char == ' ') {
                wrapper.place(&mut spaces, &mut word, &mut word_width);
                spaces.push(piece);
            } else if part_width == 2 && part.chars().count() == 1 {
                // Scripts with wide letters have no spaces; a line may break between any two.
                wrapper.place(&mut spaces, &mut word, &mut word_width);
                word.push(piece);
                word_width = 2;
            } else {
                word.push(piece);
                word_width += part_width;
            }
        }
    }
    wrapper.place(&mut spaces, &mut word, &mut word_width);
    wrapper.done.push(wrapper.line);
    wrapper.done
}

struct Wrapper {
    columns: usize,
    rest: Line,
    done: Vec<Line>,
    line: Line,
    used: usize,
    /// The columns of the prefix of the current line.
    start: usize,
}

impl Wrapper {
    /// Puts a word on the line, after its spaces, or on the next line, without them.
    fn place(&mut self, spaces: &mut Vec<Span>, word: &mut Vec<Span>, word_width: &mut usize) {
        if word.is_empty() {
            return;
        }
        let gap: usize = spaces.iter().map(|span| width(span.text())).sum();
        let is_first = self.used == self.start;
        if self.used + gap + *word_width > self.columns && !is_first {
            self.break_line();
        } else if self.used + gap < self.columns {
            self.line.extend(spaces.drain(..));
            self.used += gap;
        }
        spaces.clear();
        *word_width = 0;
        for span in word.drain(..) {
            if self.used + width(span.text()) <= self.columns {
                self.used += width(span.text());
                self.line.push(span);
                continue;
            }
            for grapheme in span.text().graphemes(true) {
                let size = grapheme_width(grapheme);
                if self.used + size > self.columns && self.used > self.start {
                    self.break_line();
                }
                self.used += size;
                self.line.push(Span::new(grapheme, span.style()));
            }
        }
    }

    fn break_line(&mut self) {
        self.done.push(std::mem::replace(&mut self.line, self.rest.clone()));
        self.used = self.line.width();
        self.start = self.used;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrapped(text: &str, columns: usize) -> Vec<String> {
        let prefix = Line::default();
        wrap(&Line::plain(text), columns, &prefix, &prefix).iter().map(Line::text).collect()
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("中文字符 ab", 5), ["中文", "字符", "ab"]);
        assert_eq!(wrapped("  indented text", 10), ["  indented", "text"]);
    }

    #[test]
    fn prefixes_hang() {
        let wrapped = wrap(&Line::plain("a b c"), 4, &Line::plain("- "), &Line::plain("  "));
        let lines: Vec<String> = wrapped.iter().map(Line::text).collect();
        assert_eq!(lines, ["- a", "  b", "  c"]);
    }

    #[test]
    fn long_lines_are_cut_visibly() {
        assert_eq!(fit(&Line::plain("abcdef"), 4).text(), "abc…");
        assert_eq!(fit(&Line::plain("中文字"), 4).text(), "中…");
        assert_eq!(fit(&Line::plain("abcd"), 4).text(), "abcd");
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide_and_no_letter_is_lost(text in "\\PC{0,60}", columns in 2usize..30) {
            let lines = wrapped(&text, columns);
            for line in &lines {
                prop_assert!(width(line) <= columns, "{line:?}");
            }
            let letters = |text: &str| text.chars().filter(|char| *char != ' ' && is_kept(*char)).collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }

    fn is_kept(char: char) -> bool {
        crate::clean::is_harmless(char)
    }
}
