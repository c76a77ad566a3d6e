//! The last bytes of a program's output, in bounded memory. Does no IO: the caller reads the pipe.

use std::collections::VecDeque;

/// The last bytes of an output.
#[derive(Debug)]
pub struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
    is_truncated: bool,
}

impl Tail {
    /// Makes a tail that keeps `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Tail {
        Tail { bytes: VecDeque::new(), limit, is_truncated: false }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let tail = &bytes[bytes.len().saturating_sub(self.limit)..];
        let excess = (self.bytes.len() + tail.len()).saturating_sub(self.limit);
        self.is_truncated |= excess > 0 || tail.len() < bytes.len();
        self.bytes.drain(..excess);
        self.bytes.extend(tail);
    }

    /// Tells whether the beginning was dropped.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Returns the tail as text. It starts at a whole character and is no longer than the limit.
    #[must_use]
    pub fn text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        let mut bytes = [front, back].concat();
        if self.is_truncated {
            // A character has at most three bytes after its first one.
            let cut = bytes.iter().take(3).take_while(|byte| is_inside_character(**byte)).count();
            bytes.drain(..cut);
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        // Replacement characters are longer than the bytes they replace.
        let start = text.ceil_char_boundary(text.len().saturating_sub(self.limit));
        text.drain(..start);
        text
    }
}

fn is_inside_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(limit: usize, chunks: &[&str]) -> (String, bool) {
        let mut tail = Tail::new(limit);
        for chunk in chunks {
            tail.push(chunk.as_bytes());
        }
        (tail.text(), tail.is_truncated())
    }

    #[test]
    fn tail_has_the_last_bytes() {
        assert_eq!(tail(5, &["ab", "cde"]), ("abcde".to_owned(), false));
        assert_eq!(tail(5, &["ab", "cdef"]), ("bcdef".to_owned(), true));
        assert_eq!(tail(3, &["x", "abcdef"]), ("def".to_owned(), true));
        assert_eq!(tail(0, &["x"]), (String::new(), true));
    }

    #[test]
    fn characters_are_never_cut() {
        assert_eq!(tail(4, &["aéé"]), ("éé".to_owned(), true));
        assert_eq!(tail(3, &["aéé"]), ("é".to_owned(), true));
        assert_eq!(tail(2, &["💛"]), (String::new(), true));
    }

    #[test]
    fn bytes_that_are_no_text_do_not_break_the_limit() {
        let mut tail = Tail::new(4);
        tail.push(&[0xff; 4]);
        assert!(tail.text().len() <= 4);
    }
}
