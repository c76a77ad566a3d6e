//! The screen on a real terminal emulator, scrollback included.

use proptest::prelude::*;

use super::*;
use crate::style::Style;

/// A terminal with so many rows and columns.
struct Emulator {
    parser: vt100::Parser,
    screen: Screen,
    bytes: usize,
}

impl Emulator {
    fn new(rows: u16, columns: u16) -> Emulator {
        let screen = Screen::new(ColorLevel::True, columns.into(), rows.into());
        Emulator { parser: vt100::Parser::new(rows, columns, 10_000), screen, bytes: 0 }
    }

    fn frame(&mut self, finished: &[&str], live: &[&str], cursor: Option<(usize, usize)>) {
        let lines =
            |texts: &[&str]| texts.iter().map(|text| Line::plain(*text)).collect::<Vec<_>>();
        let frame = self.screen.frame(&lines(finished), &Live { lines: lines(live), cursor });
        self.bytes += frame.len();
        self.parser.process(frame.as_bytes());
    }

    /// Returns everything: the scrollback and the screen, without empty lines at the end.
    fn all(&mut self) -> Vec<String> {
        let (rows, columns) = self.parser.screen().size();
        self.parser.screen_mut().set_scrollback(usize::MAX);
        let mut back = self.parser.screen().scrollback();
        let mut lines = Vec::new();
        while back > 0 {
            self.parser.screen_mut().set_scrollback(back);
            let shown: Vec<String> = self.parser.screen().rows(0, columns).collect();
            let count = back.min(rows.into());
            lines.extend(shown.into_iter().take(count));
            back -= count;
        }
        self.parser.screen_mut().set_scrollback(0);
        lines.extend(self.parser.screen().rows(0, columns));
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}

#[test]
fn finished_lines_are_in_the_scrollback_once() {
    let mut terminal = Emulator::new(5, 20);
    terminal.frame(&[], &["tail", "> "], Some((1, 2)));
    for number in 0..10 {
        terminal.frame(&[&format!("line {number}")], &["tail", "> ", "foot"], Some((1, 2)));
    }
    let mut expected: Vec<String> = (0..10).map(|number| format!("line {number}")).collect();
    expected.extend(["tail", "> ", "foot"].map(str::to_owned));
    assert_eq!(terminal.all(), expected);
    assert_eq!(terminal.parser.screen().cursor_position(), (3, 2));
}

#[test]
fn live_area_grows_and_shrinks() {
    let mut terminal = Emulator::new(6, 10);
    terminal.frame(&["a"], &["1", "2"], None);
    terminal.frame(&[], &["1", "2", "3", "4"], Some((0, 1)));
    assert_eq!(terminal.all(), ["a", "1", "2", "3", "4"]);
    terminal.frame(&[], &["one"], Some((0, 3)));
    assert_eq!(terminal.all(), ["a", "one"]);
    terminal.frame(&["b"], &[], None);
    assert_eq!(terminal.all(), ["a", "b"]);
    let bytes = terminal.screen.leave();
    terminal.parser.process(bytes.as_bytes());
    assert!(!terminal.parser.screen().hide_cursor());
}

#[test]
fn full_rows_lose_no_letter() {
    let mut terminal = Emulator::new(4, 4);
    terminal.frame(&[], &["abcd", "efgh", "x"], Some((2, 1)));
    terminal.frame(&["1234", "123456"], &["ijkl", "mnop"], Some((1, 3)));
    assert_eq!(terminal.all(), ["1234", "1234", "56", "ijkl", "mnop"]);
    terminal.frame(&[], &["ijkl", "mnoq"], Some((1, 3)));
    assert_eq!(terminal.all(), ["1234", "1234", "56", "ijkl", "mnoq"]);
}

#[test]
fn growing_text_costs_little_more_than_itself() {
    let mut terminal = Emulator::new(24, 80);
    let mut text = String::new();
    terminal.frame(&[], &["", "> "], Some((1, 2)));
    terminal.bytes = 0;
    for _ in 0..10 {
        text.push_str("words ");
        terminal.frame(&[], &[&text, "> "], Some((1, 2)));
    }
    // Cursor moves and the marks of a frame, but not the line again.
    assert!(terminal.bytes < 10 * (6 + 36), "{}", terminal.bytes);
    let before = terminal.bytes;
    terminal.frame(&[], &[&text, "> "], Some((1, 2)));
    assert_eq!(terminal.bytes, before, "an unchanged frame costs nothing");
}

// R: C1
#[test]
fn image_has_rows_of_its_own() {
    let mut terminal = Emulator::new(6, 20);
    terminal.frame(&["before"], &["> ", "foot"], Some((0, 2)));
    let picture = crate::image::Picture { sequence: "\u{1b}_Gx\u{1b}\\".to_owned(), rows: 3 };
    let lines = [Line::image(picture), Line::plain("after")];
    let live = Live { lines: vec![Line::plain("> "), Line::plain("foot")], cursor: Some((0, 2)) };
    let bytes = terminal.screen.frame(&lines, &live);
    assert_eq!(bytes.matches("\u{1b}_Gx").count(), 1);
    terminal.parser.process(bytes.as_bytes());
    assert_eq!(terminal.all(), ["before", "", "", "", "after", "> ", "foot"]);
    assert_eq!(terminal.parser.screen().cursor_position(), (4, 2));
}

proptest! {
    // Whatever was shown before, a frame shows exactly its lines below all finished ones.
    #[test]
    fn frames_leave_no_traces(
        frames in proptest::collection::vec(
            (proptest::collection::vec("[a-z中é ]{0,9}", 0..4), proptest::collection::vec("[a-z中é]{0,9}", 1..7), 0usize..7, 0usize..9), 1..12)
    ) {
        let mut terminal = Emulator::new(6, 8);
        let mut printed: Vec<String> = Vec::new();
        for (finished, live, row, column) in &frames {
            let lines: Vec<Line> = finished.iter().map(|text| Line::of(text.as_str(), Style::BOLD)).collect();
            let wrapped = lines.iter().flat_map(|line| hard_wrap(&line.text(), 8));
            printed.extend(wrapped);
            let live = Live {
                lines: live.iter().map(|text| Line::plain(text.as_str())).collect(),
                cursor: (*row < live.len()).then_some((*row, *column)),
            };
            let bytes = terminal.screen.frame(&lines, &live);
            terminal.parser.process(bytes.as_bytes());
            let mut expected = printed.clone();
            let skipped = live.lines.len().saturating_sub(6);
            expected.extend(live.lines[skipped..].iter().map(|line| fit(line, 8).text()));
            let trim = |lines: Vec<String>| {
                let mut lines: Vec<String> = lines.into_iter().map(|line| line.trim_end().to_owned()).collect();
                while lines.last().is_some_and(String::is_empty) { lines.pop(); }
                lines
            };
            prop_assert_eq!(trim(terminal.all()), trim(expected));
        }
    }
}

/// Wraps as a terminal does.
fn hard_wrap(text: &str, columns: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        let width = grapheme_width(grapheme);
        if used + width > columns {
            rows.push(String::new());
            used = 0;
        }
        used += width;
        if let Some(row) = rows.last_mut() {
            row.push_str(grapheme);
        }
    }
    rows
}
