//! The encoding of text files, so that a change keeps it.
//!
//! UTF-8 with or without a byte order mark, and UTF-16 with one, are text. Everything else is binary.

/// The text of a file, and its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    /// Without the byte order mark.
    pub(crate) body: String,
    encoding: Encoding,
    has_mark: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Utf16Little,
    Utf16Big,
}

const MARK: &[u8] = &[0xef, 0xbb, 0xbf];

impl Text {
    /// Decodes bytes. Returns them with the reason if they are not text.
    pub(crate) fn decode(bytes: Vec<u8>) -> Result<Text, (Vec<u8>, &'static str)> {
        let wide = match bytes.as_slice() {
            [0xff, 0xfe, rest @ ..] => {
                Some((Encoding::Utf16Little, utf16(rest, u16::from_le_bytes)))
            }
            [0xfe, 0xff, rest @ ..] => Some((Encoding::Utf16Big, utf16(rest, u16::from_be_bytes))),
            _ => None,
        };
        if let Some((encoding, body)) = wide {
            let body = body.map_err(|why| (bytes, why))?;
            return Ok(Text { body, encoding, has_mark: true });
        }
        let has_mark = bytes.starts_with(MARK);
        let body = String::from_utf8(bytes).map_err(|err| (err.into_bytes(), "not UTF-8"))?;
        if body.contains('\0') {
            return Err((body.into_bytes(), "contains NUL characters"));
        }
        let body = if has_mark { body[MARK.len()..].to_owned() } else { body };
        Ok(Text { body, encoding: Encoding::Utf8, has_mark })
    }

    /// Encodes another body in the same encoding.
    pub(crate) fn encode(&self, body: &str) -> Vec<u8> {
        let mark = if self.has_mark { "\u{feff}" } else { "" };
        let units = mark.encode_utf16().chain(body.encode_utf16());
        match self.encoding {
            Encoding::Utf8 => [mark.as_bytes(), body.as_bytes()].concat(),
            Encoding::Utf16Little => units.flat_map(u16::to_le_bytes).collect(),
            Encoding::Utf16Big => units.flat_map(u16::to_be_bytes).collect(),
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, &'static str> {
    let pairs = bytes.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err("truncated UTF-16");
    }
    let units: Vec<u16> =
        pairs.filter_map(|pair| <[u8; 2]>::try_from(pair).ok()).map(unit).collect();
    let body = String::from_utf16(&units).map_err(|_| "invalid UTF-16")?;
    if body.contains('\0') { Err("contains NUL characters") } else { Ok(body) }
}

/// Tells whether bytes are the same but for line ends and a byte order mark, which an editor may drop or change.
pub(crate) fn is_same_text(one: &[u8], other: &[u8]) -> bool {
    fn plain(bytes: &[u8]) -> impl Iterator<Item = u8> {
        let mut bytes = bytes.strip_prefix(MARK).unwrap_or(bytes).iter().copied().peekable();
        std::iter::from_fn(move || match bytes.next() {
            Some(b'\r') if bytes.peek() == Some(&b'\n') => bytes.next(),
            next => next,
        })
    }
    one == other || plain(one).eq(plain(other))
}

/// Returns bytes as text to show, and the reason if they are not text.
pub(crate) fn body_of(bytes: Vec<u8>) -> (String, Option<&'static str>) {
    match Text::decode(bytes) {
        Ok(text) => (text.body, None),
        Err((bytes, why)) => (escape(&bytes), Some(why)),
    }
}

/// Shows bytes as text, with those that are not text as `\xNN`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\0'..='\u{8}' | '\u{b}'..='\u{1f}' if character != '\r' => {
                    out.push_str(&format!("\\x{:02x}", u32::from(character)));
                }
                _ => out.push(character),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// Returns how many lines a string has.
pub(crate) fn count_lines(body: &str) -> usize {
    let ends = memchr::memchr_iter(b'\n', body.as_bytes()).count();
    ends + usize::from(!body.is_empty() && !body.ends_with('\n'))
}

/// Returns the line ending that most lines have.
pub(crate) fn usual_ending(body: &str) -> &'static str {
    let all = memchr::memchr_iter(b'\n', body.as_bytes()).count();
    let with_return = body.matches("\r\n").count();
    if with_return * 2 > all { "\r\n" } else { "\n" }
}

/// Replaces all line endings.
pub(crate) fn with_ending(body: &str, ending: &str) -> String {
    let plain = if body.contains("\r\n") { body.replace("\r\n", "\n") } else { body.to_owned() };
    if ending == "\n" { plain } else { plain.replace('\n', ending) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Fault: F01, F02, F03, F08
    #[test]
    fn binary_content_is_recognised() {
        let refused = [
            (&b"caf\xe9"[..], "not UTF-8"),
            (b"a\0b", "contains NUL characters"),
            (&[0xff, 0xfe, 0x41], "truncated UTF-16"),
            (&[0xff, 0xfe, 0x00, 0xd8], "invalid UTF-16"),
        ];
        for (bytes, why) in refused {
            assert_eq!(Text::decode(bytes.to_vec()), Err((bytes.to_vec(), why)));
        }
        assert_eq!(Text::decode(vec![0xef, 0xbb, 0xbf, b'a']).unwrap().body, "a");
        assert_eq!(Text::decode(vec![0xfe, 0xff, 0x00, b'a']).unwrap().body, "a");
        assert_eq!(escape(b"a\xff\x1b\r\n\0"), "a\\xff\\x1b\r\n\\x00");
    }

    #[test]
    fn most_lines_decide_the_line_ending() {
        assert_eq!(usual_ending("a\r\nb\r\nc\n"), "\r\n");
        assert_eq!(usual_ending("a\nb"), "\n");
        assert_eq!(usual_ending(""), "\n");
        assert_eq!(with_ending("a\r\nb\n", "\r\n"), "a\r\nb\r\n");
    }

    proptest! {
        #[test]
        fn lines_are_counted_as_they_are_cut(body in "[a\r\n]*") {
            prop_assert_eq!(count_lines(&body), body.lines().count());
        }

        #[test]
        fn bytes_that_are_text_come_back(bytes in any::<Vec<u8>>()) {
            if let Ok(text) = Text::decode(bytes.clone()) {
                prop_assert_eq!(text.encode(&text.body), bytes);
            }
        }

        #[test]
        fn text_survives_every_encoding(body in "[^\0\u{feff}]*") {
            for mark in [&[][..], MARK] {
                let bytes = [mark, body.as_bytes()].concat();
                prop_assert_eq!(&Text::decode(bytes).unwrap().body, &body);
            }
            let wide = Text { body: body.clone(), encoding: Encoding::Utf16Big, has_mark: true };
            prop_assert_eq!(Text::decode(wide.encode(&body)).unwrap(), wide);
        }
    }
}
