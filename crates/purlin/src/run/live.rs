//! The output of a command while it runs: the first lines at once, the last ones when it has ended.

use std::collections::VecDeque;

use chat::clean::output_lines;

use crate::count::count;

/// Lines of output that are shown: the first and the last ones.
const FIRST: usize = 12;
const LAST: usize = 8;

/// The width of a line of output, in characters.
const WIDTH: usize = 200;

/// The longest line that is kept while it has no end.
const MAX_PARTIAL: usize = 64 * 1024;

/// The output of one command.
#[derive(Debug, Default)]
pub(super) struct LiveOutput {
    /// The line that has no end yet.
    partial: String,
    shown: usize,
    /// The last lines that were not shown.
    last: VecDeque<String>,
    left_out: usize,
}

impl LiveOutput {
    /// Takes the next output and returns the lines to show now.
    pub(super) fn push(&mut self, data: &str) -> Vec<String> {
        self.partial.push_str(data);
        let end = match self.partial.rfind('\n') {
            Some(end) => end + 1,
            None if self.partial.len() > MAX_PARTIAL => self.partial.len(),
            None => return Vec::new(),
        };
        let rest = self.partial.split_off(end);
        let whole = std::mem::replace(&mut self.partial, rest);
        self.take(&whole)
    }

    /// Returns the lines that were not shown, at the end of the command.
    pub(super) fn end(&mut self) -> Vec<String> {
        let rest = std::mem::take(&mut self.partial);
        let mut lines = if rest.is_empty() { Vec::new() } else { self.take(&rest) };
        if self.left_out > 0 {
            lines.push(format!("… {} …", count(self.left_out, "line", "lines")));
        }
        lines.extend(self.last.drain(..));
        lines
    }

    fn take(&mut self, whole: &str) -> Vec<String> {
        let mut now = Vec::new();
        for line in output_lines(whole) {
            let line = narrow(&line);
            if self.shown < FIRST {
                self.shown += 1;
                now.push(line);
                continue;
            }
            self.last.push_back(line);
            if self.last.len() > LAST {
                self.last.pop_front();
                self.left_out += 1;
            }
        }
        now
    }
}

/// Returns the first and the last lines of output that is known as a whole. A line that says what the agent omitted is shown.
pub(super) fn shortened(lines: &[&str]) -> Vec<String> {
    let text = lines.join("\n");
    let lines = output_lines(&text);
    if lines.len() <= FIRST + LAST + 1 {
        return lines.iter().map(|line| narrow(line)).collect();
    }
    let (head, rest) = lines.split_at(FIRST);
    let (middle, tail) = rest.split_at(rest.len() - LAST);
    let is_mark = |line: &&String| line.starts_with("… ") && line.ends_with(" …");
    let mark = middle.iter().find(is_mark).cloned();
    let left_out = middle.len() - usize::from(mark.is_some());
    let gap = (left_out > 0).then(|| format!("… {} …", count(left_out, "line", "lines")));
    let head = head.iter().map(|line| narrow(line));
    let tail = tail.iter().map(|line| narrow(line));
    head.chain(mark).chain(gap).chain(tail).collect()
}

/// Cuts a line to the width. A line in parentheses is not cut: it may say where the full output is.
fn narrow(line: &str) -> String {
    let is_note = line.starts_with('(') && line.ends_with(')');
    if is_note { line.to_owned() } else { line.chars().take(WIDTH).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(range: std::ops::RangeInclusive<usize>) -> Vec<String> {
        range.map(|number| number.to_string()).collect()
    }

    #[test]
    fn first_lines_are_shown_at_once_and_the_last_ones_at_the_end() {
        let mut output = LiveOutput::default();
        assert_eq!(output.push("1\n2"), ["1"]);
        assert_eq!(output.push("\n"), ["2"]);
        let more: String = (3..=100).map(|line| format!("{line}\n")).collect();
        assert_eq!(output.push(&more), numbers(3..=12));
        assert_eq!(output.push("half"), [""; 0]);
        let mut end = vec!["… 81 lines …".to_owned()];
        end.extend(numbers(94..=100));
        end.push("half".to_owned());
        assert_eq!(output.end(), end);
        assert_eq!(LiveOutput::default().end(), [""; 0]);
    }

    #[test]
    fn progress_bar_is_one_line_and_control_sequences_are_removed() {
        let mut output = LiveOutput::default();
        assert_eq!(output.push("10%\r50%\r100%\r\n\u{1b}[31mred\n"), ["100%", "red"]);
    }

    #[test]
    fn whole_output_keeps_its_mark_and_its_note() {
        let long = numbers(1..=100);
        let lines: Vec<&str> = long.iter().map(String::as_str).collect();
        let mut expected = numbers(1..=12);
        expected.push("… 80 lines …".to_owned());
        expected.extend(numbers(93..=100));
        assert_eq!(shortened(&lines), expected);
        let mut marked = lines.clone();
        marked.insert(50, "… 9 bytes omitted …");
        expected.insert(12, "… 9 bytes omitted …".to_owned());
        assert_eq!(shortened(&marked), expected);
        let place = format!("(all of it is in /{})", "p".repeat(300));
        assert_eq!(shortened(&[&"x".repeat(300), &place]), ["x".repeat(200), place]);
    }
}
