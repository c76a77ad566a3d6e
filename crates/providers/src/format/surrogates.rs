//! Characters that a server splits between two chunks. Servers that cut UTF-16 text send one half of a character as `\ud83d` and the
//! other half with the next chunk; neither is a valid JSON string by itself.

use std::borrow::Cow;

/// Joins the halves of characters in the chunks of one answer.
#[derive(Debug, Default)]
pub(super) struct Surrogates {
    /// The first half of a character, from an earlier chunk.
    first: Option<u16>,
}

impl Surrogates {
    /// Returns the data of an event with whole characters only. A half that stays alone becomes U+FFFD, or is dropped at the end of the
    /// answer.
    pub(super) fn join<'a>(&mut self, data: &'a str) -> Cow<'a, str> {
        if !data.contains("\\u") {
            return Cow::Borrowed(data);
        }
        let mut joined = String::new();
        let mut copied = 0;
        let mut at = 0;
        while let Some(found) = data[at..].find('\\') {
            let here = at + found;
            let Some(unit) = unit_at(data, here) else {
                // An escape of another kind: the character after the backslash belongs to it.
                at = here + 1 + data[here + 1..].chars().next().map_or(0, char::len_utf8);
                continue;
            };
            at = here + UNIT;
            let next = unit_at(data, at).filter(|next| is_second(*next));
            match (is_first(unit), is_second(unit), next) {
                (true, _, Some(_)) => at += UNIT,
                (true, _, None) => {
                    joined.push_str(&data[copied..here]);
                    copied = at;
                    if self.first.replace(unit).is_some() {
                        joined.push_str(UNKNOWN);
                    }
                }
                (_, true, _) => {
                    joined.push_str(&data[copied..here]);
                    copied = at;
                    match self.first.take() {
                        Some(first) => joined.push_str(&format!("\\u{first:04x}\\u{unit:04x}")),
                        None => joined.push_str(UNKNOWN),
                    }
                }
                (false, false, _) => {}
            }
        }
        if copied == 0 {
            return Cow::Borrowed(data);
        }
        joined.push_str(&data[copied..]);
        Cow::Owned(joined)
    }
}

/// The length of `\u` with four digits.
const UNIT: usize = 6;
const UNKNOWN: &str = "\\ufffd";

/// Returns the number of the escape `\uXXXX` at a place.
fn unit_at(data: &str, at: usize) -> Option<u16> {
    let digits = data.get(at..at + UNIT)?.strip_prefix("\\u")?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

fn is_first(unit: u16) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

fn is_second(unit: u16) -> bool {
    (0xdc00..0xe000).contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(chunks: &[&str]) -> Vec<String> {
        let mut surrogates = Surrogates::default();
        let text = |chunk: &&str| {
            let data = format!("\"{chunk}\"");
            serde_json::from_str(&surrogates.join(&data)).unwrap()
        };
        chunks.iter().map(text).collect()
    }

    // R: W19
    #[test]
    fn halves_of_characters_are_joined_across_chunks() {
        assert_eq!(join(&[r"a\ud83d", r"\uDE00b"]), ["a", "😀b"]);
        assert_eq!(join(&[r"a\ud83d\ude00b\u00e4\n"]), ["a😀bä\n"]);
        assert_eq!(join(&[r"a\ud83d", "b", r"\ude00c"]), ["a", "b", "😀c"]);
        assert_eq!(join(&[r"\ude00\ud83d", r"\ud83d", "x"]), ["\u{fffd}", "\u{fffd}", "x"]);
        assert_eq!(
            join(&[r"\\ud83d", r"\\\ud83d", r"\\\\ude00 \ude00"]),
            [r"\ud83d", r"\", r"\\ude00 😀"]
        );
        assert_eq!(join(&[r"\ud83d\u0041", r"\ude00"]), ["A", "😀"]);
    }

    proptest::proptest! {
        #[test]
        fn any_escapes_become_valid_strings(units in proptest::collection::vec(0xd700_u16..=0xe0ff, 0..20), cut in 0_usize..20) {
            let escaped: Vec<String> = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let (one, two) = escaped.split_at(cut.min(escaped.len()));
            join(&[&one.concat(), &two.concat()]);
        }
    }
}
