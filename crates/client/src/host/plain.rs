//! Removes escape sequences from the output of a terminal: agents want its text.

/// What was read so far of a sequence. Any bytes in, in any chunks.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) enum Plain {
    /// Text.
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and a byte that another one follows, such as `ESC ( B`.
    Intermediate,
    /// After `ESC [`, until its last byte.
    Control,
    /// After `ESC ]` and the like, until BEL or `ESC \`.
    String,
    /// After an ESC in such a string.
    StringEscape,
}

impl Plain {
    /// Returns the text of the next bytes.
    pub(super) fn filter(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            *self = match (*self, byte) {
                (Plain::String, 0x07) => Plain::Text,
                (Plain::String, 0x1b) => Plain::StringEscape,
                (Plain::String, _) => Plain::String,
                (Plain::StringEscape, b'\\') => Plain::Text,
                (_, 0x1b) => Plain::Escape,
                (Plain::Escape | Plain::StringEscape, b'[') => Plain::Control,
                (Plain::Escape | Plain::StringEscape, b']' | b'P' | b'_' | b'^' | b'X') => {
                    Plain::String
                }
                (Plain::Escape | Plain::Intermediate, 0x20..=0x2f) => Plain::Intermediate,
                (Plain::Control, 0x20..=0x3f) => Plain::Control,
                (Plain::Escape | Plain::StringEscape | Plain::Intermediate | Plain::Control, _)
                    if (0x20..=0x7e).contains(&byte) =>
                {
                    Plain::Text
                }
                _ => {
                    if byte >= 0x20 && byte != 0x7f || matches!(byte, b'\n' | b'\r' | b'\t') {
                        text.push(byte);
                    }
                    Plain::Text
                }
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_removed_in_any_chunks() {
        let raw = "\u{1b}[31mred\u{1b}[m é\u{1b}]0;title\u{7}\u{1b}]8;;x\u{1b}\\link\u{1b}(B\u{1b}7\r\n\u{8}ok\t";
        let expected = "red élink\r\nok\t";
        assert_eq!(String::from_utf8(Plain::default().filter(raw.as_bytes())).unwrap(), expected);
        let mut plain = Plain::default();
        let one_by_one: Vec<u8> =
            raw.bytes().flat_map(|byte| plain.filter(std::slice::from_ref(&byte))).collect();
        assert_eq!(String::from_utf8(one_by_one).unwrap(), expected);
    }
}
