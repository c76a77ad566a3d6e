//! Removes from text what could control a terminal or disguise the text.
//!
//! Models, tools, files and servers write this text. Escape sequences (colours, titles, clipboard access, links), all
//! control characters, characters that reverse the order of text and invisible tag characters are removed. [`Cleaner`]
//! works on a stream: a sequence that is split between two chunks is still removed. Newlines and tabs stay.

/// The longest control string, such as a title, that is skipped. A longer one is text again: nobody may hide an answer
/// behind an unfinished sequence.
const MAX_SEQUENCE: usize = 4096;

/// Cleans a stream of text, chunk by chunk.
#[derive(Debug, Default, Clone)]
pub struct Cleaner {
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// In a control sequence, such as a colour: until its final letter.
    Sequence(usize),
    /// In a control string, such as a title: until BEL or ESC `\`.
    ControlString(usize),
    /// After ESC in a control string.
    StringEscape,
}

impl Cleaner {
    /// Returns the harmless part of the next chunk.
    pub fn push(&mut self, chunk: &str) -> String {
        let mut text = String::with_capacity(chunk.len());
        for char in chunk.chars() {
            self.step(char, &mut text);
        }
        text
    }

    fn step(&mut self, char: char, text: &mut String) {
        self.state = match (self.state, char) {
            (State::Escape, '\\') | (State::StringEscape, '\\') => State::Text,
            (State::Escape | State::StringEscape, '[') => State::Sequence(0),
            (State::Escape | State::StringEscape, ']' | 'P' | 'X' | '^' | '_') => {
                State::ControlString(0)
            }
            (State::Escape | State::StringEscape, ' '..='/') => State::Escape,
            (State::Escape | State::StringEscape, '0'..='~') => State::Text,
            (State::Sequence(length), ' '..='?') if length < MAX_SEQUENCE => {
                State::Sequence(length + 1)
            }
            (State::Sequence(_), '@'..='~') => State::Text,
            (State::ControlString(_), '\u{7}' | '\u{9c}') => State::Text,
            (State::ControlString(_), '\u{1b}') => State::StringEscape,
            (State::ControlString(length), other) if length < MAX_SEQUENCE && other != '\n' => {
                State::ControlString(length + 1)
            }
            (_, '\u{1b}') => State::Escape,
            (_, '\u{9b}') => State::Sequence(0),
            (_, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => State::ControlString(0),
            (_, other) => {
                if is_harmless(other) || matches!(other, '\n' | '\t') {
                    text.push(other);
                }
                State::Text
            }
        };
    }
}

/// Cleans a whole text. Newlines and tabs stay.
#[must_use]
pub fn clean(text: &str) -> String {
    Cleaner::default().push(text)
}

/// Cleans a text and joins its lines; runs of white space become one space.
#[must_use]
pub fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the lines of a program's output as a terminal would leave them: a carriage return starts the line again, so of a
/// progress bar the last state is left.
#[must_use]
pub fn output_lines(text: &str) -> Vec<String> {
    let last_state = |line: &str| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        clean(line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or_default())
    };
    text.trim_end_matches('\n').split('\n').map(last_state).collect()
}

/// Returns whether a character may be printed. Letters written from right to left may; marks that reverse other text may not.
pub(crate) fn is_harmless(char: char) -> bool {
    !char.is_control()
        && !matches!(char,
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}'
            | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_are_removed_whole() {
        assert_eq!(clean("a\u{1b}[31mred\u{1b}[0m b"), "ared b");
        assert_eq!(clean("\u{1b}]0;title\u{7}x\u{1b}]52;c;aGk=\u{1b}\\y\u{9d}8;;u\u{9c}z"), "xyz");
        assert_eq!(clean("\u{1b}Pq#0\u{1b}\\a\u{1b}(Bb\u{1b}7c\u{9b}2Jd"), "abcd");
        assert_eq!(
            clean("a\u{202e}b\u{2066}c\u{e0041}👩\u{200d}🔬 שלום\t\n"),
            "abc👩\u{200d}🔬 שלום\t\n"
        );
    }

    #[test]
    fn unfinished_sequence_hides_no_more_than_its_line() {
        assert_eq!(clean("\u{1b}]0;hidden\nshown"), "\nshown");
        let long = format!("\u{1b}]0;{}shown", "x".repeat(MAX_SEQUENCE));
        assert!(clean(&long).ends_with("shown"));
    }

    #[test]
    fn progress_bar_leaves_its_last_state() {
        assert_eq!(output_lines("10%\r50%\r100%\nok\r\n"), ["100%", "ok"]);
    }

    proptest! {
        #[test]
        fn nothing_dangerous_is_left(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = String::from_utf8_lossy(&bytes);
            let cleaned = clean(&text);
            prop_assert!(cleaned.chars().all(|char| is_harmless(char) || matches!(char, '\n' | '\t')));
        }

        #[test]
        fn chunks_do_not_matter(text in "([\u{1b}\\[\\]\u{7}m;0-9a-c\n\u{9b}\u{202e}]|\u{1b}\\[3|é){0,40}", cut in 0usize..80) {
            let cut = text.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(text.len());
            let mut cleaner = Cleaner::default();
            let parts = cleaner.push(&text[..cut]) + &cleaner.push(&text[cut..]);
            prop_assert_eq!(parts, clean(&text));
        }
    }
}
