//! Endless repetition: notices that the end of a text is the same few bytes again and again.
//!
//! Only exact repetition is noticed, and only far beyond what people write: lists, tables, rulers and tables of zeros in
//! code are shorter or differ from line to line. A model that counts while it loops is stopped by `max_tokens` alone.

/// The longest unit that is looked for, in bytes.
const MAX_UNIT: usize = 1024;
/// Up to this length a unit is a few tokens.
const SHORT_UNIT: usize = 16;
/// How many bytes a short unit must fill.
const SHORT_RUN: usize = 2 * 1024;
/// How many bytes a longer unit must fill.
const LONG_RUN: usize = 6 * 1024;
/// How often a longer unit must appear.
const MIN_TIMES: usize = 24;
/// How much of the text is remembered: the longest run that is needed.
const WINDOW: usize = MAX_UNIT * MIN_TIMES;
/// The text is checked each time it has grown by this many bytes.
const STRIDE: usize = 512;
/// A text that repeats itself has its last bytes, this many, also one unit earlier.
const PROBE: usize = 16;

/// Watches a text that arrives in chunks.
#[derive(Debug, Default)]
pub(crate) struct Repetition {
    /// The end of the text.
    tail: Vec<u8>,
    /// How many bytes arrived since the last check.
    unchecked: usize,
}

impl Repetition {
    /// Adds a chunk. Returns whether the text repeats itself without end.
    pub(crate) fn push(&mut self, chunk: &str) -> bool {
        self.tail.extend_from_slice(chunk.as_bytes());
        self.unchecked += chunk.len();
        if self.unchecked < STRIDE {
            return false;
        }
        self.unchecked = 0;
        if self.tail.len() > 2 * WINDOW {
            self.tail.drain(..self.tail.len() - WINDOW);
        }
        is_endless(&self.tail)
    }
}

/// Returns whether a text ends with one unit many times.
fn is_endless(text: &[u8]) -> bool {
    let Some(before) = text.len().checked_sub(PROBE) else { return false };
    let probe = &text[before..];
    (1..=MAX_UNIT.min(before)).any(|unit| {
        // The first byte alone rules out nearly every unit, and this runs for every answer.
        text[before - unit] == probe[0]
            && text[before - unit..].starts_with(probe)
            && run_of(text, unit) >= needed(unit)
    })
}

/// Returns how many bytes at the end of a text repeat with this period.
fn run_of(text: &[u8], unit: usize) -> usize {
    let pairs = text.iter().rev().zip(text.iter().rev().skip(unit));
    unit + pairs.take_while(|(one, other)| one == other).count()
}

fn needed(unit: usize) -> usize {
    if unit <= SHORT_UNIT { SHORT_RUN } else { LONG_RUN.max(unit * MIN_TIMES) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns after how many bytes a text is stopped.
    fn stopped_at(text: &str) -> Option<usize> {
        let mut watch = Repetition::default();
        let mut sent = 0;
        for chunk in text.chars().collect::<Vec<char>>().chunks(7) {
            let chunk: String = chunk.iter().collect();
            sent += chunk.len();
            if watch.push(&chunk) {
                return Some(sent);
            }
        }
        None
    }

    #[test]
    fn endless_text_is_noticed_early() {
        let sentence = "I will now run the tests again to see whether they pass. ";
        for (unit, limit) in [(".F", 3_000), ("\n", 3_000), ("the the ", 3_000), (sentence, 7_000)]
        {
            let text = format!("Some normal words first, which differ. {}", unit.repeat(20_000));
            let at = stopped_at(&text);
            assert!(at.is_some_and(|at| at < limit), "{unit:?}: {at:?}");
        }
        let paragraph: String = (0..15).map(|n| format!("Line {n} of a paragraph.\n")).collect();
        assert!(stopped_at(&paragraph.repeat(40)).is_some());
    }

    #[test]
    fn rulers_and_tables_of_zeros_are_not_endless() {
        let ruler = "=".repeat(500);
        let separator = format!("|{}\n", "---|".repeat(200));
        let zeros = format!("static TABLE: [u8; 256] = [{}];\n", "0x00, ".repeat(256));
        let rows = format!("    {}\n", "0, ".repeat(16)).repeat(64);
        let code = "    Ok(())\n}\n\n".repeat(20);
        for text in [ruler, separator, zeros, rows, code] {
            assert_eq!(stopped_at(&text), None, "{text}");
        }
    }

    /// Sources of this repository: prose, code and tables as people write them.
    #[test]
    fn real_text_code_and_tables_are_never_stopped() {
        let texts = [
            include_str!("catalogue.json"),
            include_str!("format/tests.rs"),
            include_str!("images/scale.rs"),
            include_str!("../../../docs/guide/models.md"),
            include_str!("../../../docs/guide/config-keys.md"),
            include_str!("../../../ARCHITECTURE.md"),
            include_str!("../../../Cargo.lock"),
        ];
        for text in texts {
            assert_eq!(stopped_at(text), None, "{}", &text[..60]);
        }
    }

    fn word() -> impl Strategy<Value = String> {
        proptest::string::string_regex("[a-z]{1,9}").unwrap()
    }

    proptest! {
        #[test]
        fn normal_text_is_never_stopped(words in proptest::collection::vec(word(), 500..3_000)) {
            prop_assert_eq!(stopped_at(&words.join(" ")), None);
        }

        #[test]
        fn long_lists_and_tables_are_never_stopped(count in 100_usize..3_000, name in word(), cell in word()) {
            let list: String = (0..count).map(|n| format!("{n}. {name}\n")).collect();
            prop_assert_eq!(stopped_at(&list), None);
            let table: String = (0..count).map(|n| format!("| {name} | {n} | {cell} | yes |\n")).collect();
            prop_assert_eq!(stopped_at(&table), None);
            let tests: String = (0..count)
                .map(|n| format!("    #[test]\n    fn {name}_{n}() {{\n        check({n});\n    }}\n"))
                .collect();
            prop_assert_eq!(stopped_at(&tests), None);
        }

        #[test]
        fn every_short_unit_without_end_is_stopped(unit in "\\PC{1,200}") {
            prop_assert!(stopped_at(&unit.repeat(30_000 / unit.len() + 30)).is_some());
        }
    }
}
