//! Shows a change of a file: unified, with line numbers, colours, and the changed words marked.
//!
//! Removed and added lines that belong together are compared word by word. The marks `-` and `+` carry the meaning without
//! colours too.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::clean::clean;
use crate::style::{Color, Line, Span, Style, Theme};

/// How many unchanged lines are shown around a change.
const CONTEXT: usize = 3;

/// Two lines are compared by words only if they are not longer than this.
const MAX_WORDS_LINE: usize = 2000;

/// A comparison that takes longer is finished roughly.
const DEADLINE: Duration = Duration::from_millis(200);

/// How much a change adds and removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiffSize {
    /// Added lines.
    pub added: usize,
    /// Removed lines.
    pub removed: usize,
}

/// A rendered change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// Its lines, hunks separated by a line with `⋮`.
    pub lines: Vec<Line>,
    /// How much it changes.
    pub size: DiffSize,
}

impl Diff {
    /// Returns the first lines, and a line that says how many are left out.
    #[must_use]
    pub fn first_lines(&self, limit: usize) -> Vec<Line> {
        // One more line takes no more room than saying that there is one.
        if self.lines.len() <= limit + 1 {
            return self.lines.clone();
        }
        let mut lines = self.lines[..limit].to_vec();
        lines.push(Line::of(format!("… {} more lines", self.lines.len() - limit), Style::DIM));
        lines
    }
}

struct Palette {
    added: Style,
    removed: Style,
    added_word: Style,
    removed_word: Style,
}

fn palette(theme: Theme) -> Palette {
    let style = |number: u8, bg: (u8, u8, u8)| Style {
        fg: Some(Color::Ansi(number)),
        bg: Some(Color::Rgb(bg.0, bg.1, bg.2)),
        ..Style::PLAIN
    };
    let (added, removed, added_word, removed_word) = match theme {
        Theme::Dark => ((16, 44, 24), (58, 20, 24), (28, 92, 44), (116, 32, 40)),
        Theme::Light => ((220, 250, 226), (255, 226, 226), (160, 234, 176), (255, 180, 184)),
    };
    Palette {
        added: style(2, added),
        removed: style(1, removed),
        added_word: Style { bold: true, ..style(2, added_word) },
        removed_word: Style { bold: true, ..style(1, removed_word) },
    }
}

/// A line with its mark and its number, and the byte ranges of changed words.
struct Row {
    tag: ChangeTag,
    number: usize,
    text: String,
    words: Vec<(bool, String)>,
}

/// Compares two texts; `old` is `None` for a new file.
#[must_use]
pub fn diff(old: Option<&str>, new: &str, theme: Theme) -> Diff {
    let (old, new) = (clean(old.unwrap_or_default()), clean(new));
    let diff = TextDiff::configure().timeout(DEADLINE).diff_lines(&old, &new);
    let palette = palette(theme);
    let mut lines = Vec::new();
    let mut size = DiffSize::default();
    let last_number = old.lines().count().max(new.lines().count());
    let digits = last_number.to_string().len();
    for (index, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 {
            lines.push(Line::of(format!("{:>digits$} ⋮", ""), Style::DIM));
        }
        let mut rows: Vec<Row> = Vec::new();
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let number = match change.tag() {
                ChangeTag::Delete => change.old_index(),
                ChangeTag::Equal | ChangeTag::Insert => change.new_index(),
            };
            match change.tag() {
                ChangeTag::Delete => size.removed += 1,
                ChangeTag::Insert => size.added += 1,
                ChangeTag::Equal => {}
            }
            let text = change.value().trim_end_matches(['\n', '\r']).to_owned();
            let number = number.unwrap_or_default() + 1;
            rows.push(Row { tag: change.tag(), number, text, words: Vec::new() });
        }
        mark_words(&mut rows);
        lines.extend(rows.iter().map(|row| row_line(row, digits, &palette)));
    }
    Diff { lines, size }
}

/// Compares each run of removed lines with the added lines after it, first with first and so on.
fn mark_words(rows: &mut [Row]) {
    let mut at = 0;
    while at < rows.len() {
        let run = |from: usize, tag: ChangeTag| {
            rows[from..].iter().take_while(|row| row.tag == tag).count()
        };
        let removed = run(at, ChangeTag::Delete);
        let added = run(at + removed, ChangeTag::Insert);
        if removed == 0 || added == 0 {
            at += removed.max(added).max(1);
            continue;
        }
        for pair in 0..removed.min(added) {
            let (old, new) = (at + pair, at + removed + pair);
            if let Some((old_words, new_words)) = compare_words(&rows[old].text, &rows[new].text) {
                rows[old].words = old_words;
                rows[new].words = new_words;
            }
        }
        at += removed + added;
    }
}

type Words = Vec<(bool, String)>;

/// Returns the words of both lines, each with whether it changed; `None` if the lines have little in common.
fn compare_words(old: &str, new: &str) -> Option<(Words, Words)> {
    if old.len().max(new.len()) > MAX_WORDS_LINE {
        return None;
    }
    let diff = TextDiff::configure().timeout(DEADLINE).diff_words(old, new);
    if diff.ratio() < 0.4 {
        return None;
    }
    let (mut old_words, mut new_words) = (Words::new(), Words::new());
    for change in diff.iter_all_changes() {
        let word = change.value().to_owned();
        match change.tag() {
            ChangeTag::Delete => old_words.push((true, word)),
            ChangeTag::Insert => new_words.push((true, word)),
            ChangeTag::Equal => {
                old_words.push((false, word.clone()));
                new_words.push((false, word));
            }
        }
    }
    Some((old_words, new_words))
}

fn row_line(row: &Row, digits: usize, palette: &Palette) -> Line {
    let number = format!("{:>digits$} ", row.number);
    let (mark, style, word_style) = match row.tag {
        ChangeTag::Equal => (" ", Style::PLAIN, Style::PLAIN),
        ChangeTag::Delete => ("-", palette.removed, palette.removed_word),
        ChangeTag::Insert => ("+", palette.added, palette.added_word),
    };
    let line = Line::of(number, Style::DIM).then(Span::new(mark, style));
    if row.words.is_empty() {
        return line.then(Span::new(row.text.as_str(), style));
    }
    row.words.iter().fold(line, |line, (is_changed, word)| {
        line.then(Span::new(word.as_str(), if *is_changed { word_style } else { style }))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::color::ColorLevel;

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn change_is_shown_with_context_and_numbers() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";
        let new = old.replace("2\n3", "two\n3").replacen("11\n", "", 1);
        let diff = diff(Some(old), &new, Theme::Dark);
        assert_eq!(
            texts(&diff.lines),
            [
                " 1  1", " 2 -2", " 2 +two", " 3  3", " 4  4", " 5  5", "   ⋮", " 8  8", " 9  9",
                "10  10", "11 -11", "11  12"
            ]
        );
        assert_eq!(diff.size, DiffSize { added: 1, removed: 2 });
        assert_eq!(texts(&diff.first_lines(2)), [" 1  1", " 2 -2", "… 10 more lines"]);
    }

    #[test]
    fn changed_words_are_marked() {
        let diff =
            diff(Some("let total = price * count;\n"), "let total = price + count;\n", Theme::Dark);
        let marked: Vec<&str> = diff
            .lines
            .iter()
            .flat_map(Line::spans)
            .filter(|span| span.style().bold)
            .map(Span::text)
            .collect();
        assert_eq!(marked, ["*", "+"]);
        assert!(diff.lines[0].to_ansi(ColorLevel::True).contains("48;2;116;32;40"));
    }

    #[test]
    fn new_file_is_all_added() {
        assert_eq!(texts(&diff(None, "a\nb", Theme::Light).lines), ["1 +a", "2 +b"]);
        assert_eq!(diff(Some("same\n"), "same\n", Theme::Dark).lines, []);
    }

    proptest! {
        #[test]
        fn no_control_bytes_come_out_and_every_new_line_is_counted(old in "([a-c\n\u{1b}\r]|\\PC){0,60}", new in "([a-c\n\u{1b}\r]|\\PC){0,60}") {
            let diff = diff(Some(&old), &new, Theme::Dark);
            for line in &diff.lines {
                prop_assert!(line.to_ansi(ColorLevel::None).chars().all(crate::clean::is_harmless));
            }
            let (old, new) = (clean(&old), clean(&new));
            let grown = diff.size.added as isize - diff.size.removed as isize;
            prop_assert_eq!(grown, new.split_inclusive('\n').count() as isize - old.split_inclusive('\n').count() as isize);
        }
    }
}
