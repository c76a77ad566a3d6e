//! What a terminal sends: bytes become keys, pastes, and answers to our questions.
//!
//! Pure, and safe for any bytes: unknown sequences are skipped. A lone ESC may be the key or the start of a sequence that is
//! still on its way; the driver calls [`KeyParser::flush`] after a short wait.

/// A paste that is larger is cut.
const MAX_PASTE: usize = 4 * 1024 * 1024;

/// A longer sequence is skipped.
const MAX_SEQUENCE: usize = 256;

const PASTE_END: &[u8] = b"\x1b[201~";

/// One key, with what was held down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Which key.
    pub code: KeyCode,
    /// Control was held.
    pub ctrl: bool,
    /// Alt or Meta was held.
    pub alt: bool,
    /// Shift was held; letters are upper case anyway.
    pub shift: bool,
}

/// Which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyCode {
    /// A letter, or any other character.
    Char(char),
    /// Enter.
    Enter,
    /// Tab; with shift, the back tab.
    Tab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Escape.
    Esc,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
}

impl Key {
    /// A key alone.
    #[must_use]
    pub const fn plain(code: KeyCode) -> Key {
        Key { code, ctrl: false, alt: false, shift: false }
    }

    /// A letter with control.
    #[must_use]
    pub const fn ctrl(letter: char) -> Key {
        Key { code: KeyCode::Char(letter), ctrl: true, alt: false, shift: false }
    }

    /// A key with alt.
    #[must_use]
    pub const fn alt(code: KeyCode) -> Key {
        Key { code, ctrl: false, alt: true, shift: false }
    }
}

/// What the terminal sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A key.
    Key(Key),
    /// Pasted text, as it is.
    Paste(String),
    /// The background colour: red, green, blue. The answer to OSC 11.
    Background(u8, u8, u8),
    /// The terminal can show Sixel images. Part of the answer about what it can do.
    Sixel,
    /// Row and column of the cursor, from 1. The answer to a question about it.
    Position(usize, usize),
}

/// Splits the terminal's bytes.
#[derive(Debug, Default)]
pub struct KeyParser {
    bytes: Vec<u8>,
    paste: Option<Vec<u8>>,
}

enum Step {
    /// So many bytes were this input, or nothing of interest.
    Done(usize, Option<Input>),
    /// More bytes are needed.
    More,
}

impl KeyParser {
    /// Takes the next bytes and returns the inputs that are complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Input> {
        self.bytes.extend_from_slice(bytes);
        let mut inputs = Vec::new();
        loop {
            if self.paste.is_some() {
                match self.end_of_paste() {
                    Some(text) => inputs.push(Input::Paste(text)),
                    None => return inputs,
                }
                continue;
            }
            if self.bytes.is_empty() {
                return inputs;
            }
            if self.bytes.starts_with(b"\x1b[200~") {
                self.bytes.drain(..6);
                self.paste = Some(Vec::new());
                continue;
            }
            match step(&self.bytes) {
                Step::Done(length, input) => {
                    self.bytes.drain(..length);
                    inputs.extend(input);
                }
                Step::More if self.bytes.len() > MAX_SEQUENCE => self.bytes.clear(),
                Step::More => return inputs,
            }
        }
    }

    /// Returns whether an ESC waits for what may follow.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.bytes.is_empty() && self.paste.is_none()
    }

    /// Nothing followed: an ESC alone is the key, an unfinished sequence is dropped.
    pub fn flush(&mut self) -> Option<Input> {
        if !self.is_waiting() {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        match bytes.as_slice() {
            b"\x1b" => Some(Input::Key(Key::plain(KeyCode::Esc))),
            [0x1b, letter @ 0x20..=0x7e] => {
                Some(Input::Key(Key::alt(KeyCode::Char(char::from(*letter)))))
            }
            _ => None,
        }
    }

    fn end_of_paste(&mut self) -> Option<String> {
        let paste = self.paste.as_mut()?;
        let end = self.bytes.windows(PASTE_END.len()).position(|window| window == PASTE_END);
        // The last bytes may be the start of the end mark.
        let keep = PASTE_END.len() - 1;
        let taken = end.unwrap_or(self.bytes.len().saturating_sub(keep));
        let room = MAX_PASTE.saturating_sub(paste.len()).min(taken);
        paste.extend_from_slice(&self.bytes[..room]);
        self.bytes.drain(..taken);
        end?;
        self.bytes.drain(..PASTE_END.len());
        let text = String::from_utf8_lossy(&self.paste.take()?).replace("\r\n", "\n");
        Some(text.replace('\r', "\n"))
    }
}

fn key(code: KeyCode) -> Option<Input> {
    Some(Input::Key(Key::plain(code)))
}

fn step(bytes: &[u8]) -> Step {
    match bytes {
        [0x1b] => Step::More,
        [0x1b, b'[', rest @ ..] => control_sequence(rest),
        [0x1b, b'O'] => Step::More,
        [0x1b, b'O', letter, ..] => Step::Done(3, letter_key(*letter, 1)),
        [0x1b, b']' | b'P' | b'_' | b'^', rest @ ..] => control_string(rest),
        [0x1b, 0x1b, ..] => Step::Done(1, key(KeyCode::Esc)),
        [0x1b, rest @ ..] => match step(rest) {
            Step::Done(length, Some(Input::Key(key))) => {
                Step::Done(length + 1, Some(Input::Key(Key { alt: true, ..key })))
            }
            Step::Done(length, input) => Step::Done(length + 1, input),
            Step::More => Step::More,
        },
        [b'\r', ..] => Step::Done(1, key(KeyCode::Enter)),
        [b'\t', ..] => Step::Done(1, key(KeyCode::Tab)),
        [0x7f | 0x08, ..] => Step::Done(1, key(KeyCode::Backspace)),
        [0, ..] => Step::Done(1, Some(Input::Key(Key::ctrl(' ')))),
        [byte @ 0x01..=0x1a, ..] => {
            Step::Done(1, Some(Input::Key(Key::ctrl(char::from(byte + b'a' - 1)))))
        }
        [byte @ 0x1c..=0x1f, ..] => {
            Step::Done(1, Some(Input::Key(Key::ctrl(char::from(byte + b'4' - 0x1c)))))
        }
        _ => character(bytes),
    }
}

fn character(bytes: &[u8]) -> Step {
    let Some(first) = bytes.first() else { return Step::More };
    let length = match first {
        0..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return Step::Done(1, None),
    };
    let Some(encoded) = bytes.get(..length) else {
        let is_broken = bytes[1..].iter().any(|byte| !(0x80..=0xbf).contains(byte));
        return if is_broken { Step::Done(1, None) } else { Step::More };
    };
    match std::str::from_utf8(encoded).ok().and_then(|text| text.chars().next()) {
        Some(char) if !char.is_control() => Step::Done(length, key(KeyCode::Char(char))),
        Some(_) => Step::Done(length, None),
        None => Step::Done(1, None),
    }
}

/// After `ESC [`.
fn control_sequence(rest: &[u8]) -> Step {
    let Some(end) = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
        let is_broken = rest.iter().any(|byte| !(0x20..=0x3f).contains(byte));
        return if is_broken { Step::Done(2, None) } else { Step::More };
    };
    let (params, last) = (&rest[..end], rest[end]);
    if params.iter().any(|byte| !(0x20..=0x3f).contains(byte)) {
        return Step::Done(2, None);
    }
    let text = String::from_utf8_lossy(params);
    let mut numbers = text
        .split(';')
        .map(|part| part.split(':').next().unwrap_or("").parse::<u32>().unwrap_or(1));
    let first = numbers.next().unwrap_or(1);
    let modifier = numbers.next().unwrap_or(1);
    let input = match last {
        b'~' => match first {
            1 | 7 => with(KeyCode::Home, modifier),
            4 | 8 => with(KeyCode::End, modifier),
            3 => with(KeyCode::Delete, modifier),
            5 => with(KeyCode::PageUp, modifier),
            6 => with(KeyCode::PageDown, modifier),
            _ => None,
        },
        b'u' => code_key(first, modifier),
        b'c' if text.starts_with('?') => {
            text.split(';').skip(1).any(|attribute| attribute == "4").then_some(Input::Sixel)
        }
        b'R' if text.contains(';') => {
            let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
            Some(Input::Position(whole(first), whole(modifier)))
        }
        b'Z' => Some(Input::Key(Key { shift: true, ..Key::plain(KeyCode::Tab) })),
        letter => letter_key(letter, modifier),
    };
    Step::Done(2 + end + 1, input)
}

/// After ESC and the start of a string: until BEL or ESC `\`.
fn control_string(rest: &[u8]) -> Step {
    for (at, byte) in rest.iter().enumerate() {
        let length = match (byte, rest.get(at + 1)) {
            (0x07, _) => 1,
            (0x1b, Some(b'\\')) => 2,
            _ => continue,
        };
        return Step::Done(2 + at + length, background(&rest[..at]));
    }
    Step::More
}

/// Reads `11;rgb:ffff/ffff/ffff`.
fn background(answer: &[u8]) -> Option<Input> {
    let text = std::str::from_utf8(answer).ok()?.strip_prefix("11;rgb:")?;
    let mut parts = text.split('/').map(|part| u8::from_str_radix(part.get(..2)?, 16).ok());
    Some(Input::Background(parts.next()??, parts.next()??, parts.next()??))
}

fn letter_key(letter: u8, modifier: u32) -> Option<Input> {
    let code = match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'M' => KeyCode::Enter,
        _ => return None,
    };
    with(code, modifier)
}

/// A key by its code point, as terminals with the keyboard protocol of Kitty send it.
fn code_key(code: u32, modifier: u32) -> Option<Input> {
    let code = match code {
        13 => KeyCode::Enter,
        9 => KeyCode::Tab,
        127 | 8 => KeyCode::Backspace,
        27 => KeyCode::Esc,
        code => KeyCode::Char(char::from_u32(code).filter(|char| !char.is_control())?),
    };
    with(code, modifier)
}

fn with(code: KeyCode, modifier: u32) -> Option<Input> {
    let bits = modifier.saturating_sub(1);
    let (shift, alt, ctrl) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
    Some(Input::Key(Key { code, ctrl, alt, shift }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Input> {
        let mut parser = KeyParser::default();
        let mut inputs = parser.push(bytes);
        inputs.extend(parser.flush());
        inputs
    }

    #[test]
    fn keys_are_read() {
        let plain = |code| Input::Key(Key::plain(code));
        assert_eq!(keys(b"a\r"), [plain(KeyCode::Char('a')), plain(KeyCode::Enter)]);
        assert_eq!(keys("é".as_bytes()), [plain(KeyCode::Char('é'))]);
        assert_eq!(keys(b"\x1b"), [plain(KeyCode::Esc)]);
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[3~"),
            [KeyCode::Up, KeyCode::Down, KeyCode::Delete].map(plain)
        );
        assert_eq!(
            keys(b"\x03\x1b[99;5u"),
            [Input::Key(Key::ctrl('c')), Input::Key(Key::ctrl('c'))]
        );
        assert_eq!(keys(b"\x1bb"), [Input::Key(Key::alt(KeyCode::Char('b')))]);
        assert_eq!(keys(b"\x1b\r"), [Input::Key(Key::alt(KeyCode::Enter))]);
        let shifted = Key { shift: true, ..Key::plain(KeyCode::Enter) };
        assert_eq!(keys(b"\x1b[13;2u"), [Input::Key(shifted)]);
        let word = Key { ctrl: true, ..Key::plain(KeyCode::Left) };
        assert_eq!(keys(b"\x1b[1;5D"), [Input::Key(word)]);
    }

    #[test]
    fn pastes_and_answers_are_not_keys() {
        assert_eq!(
            keys(b"\x1b[200~a\r\nb\x1b[31m\x1b[201~c"),
            [Input::Paste("a\nb\u{1b}[31m".to_owned()), Input::Key(Key::plain(KeyCode::Char('c')))]
        );
        assert_eq!(
            keys(b"\x1b]11;rgb:1e1e/2f2f/ffff\x1b\\"),
            [Input::Background(0x1e, 0x2f, 0xff)]
        );
        assert_eq!(keys(b"\x1b[24;80R"), [Input::Position(24, 80)]);
        assert_eq!(keys(b"\x1b[?2026;2$y\x1b[?64;1c\x1b[I"), []);
        assert_eq!(keys(b"\x1b[?62;1;4c"), [Input::Sixel]);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunks_are_the_same(bytes in proptest::collection::vec(prop_oneof![
            Just(0x1bu8), Just(b'['), Just(b'~'), Just(b'2'), Just(b'0'), Just(b'1'), Just(b';'), any::<u8>()], 0..80), cut in 0usize..80) {
            let cut = cut.min(bytes.len());
            let mut parser = KeyParser::default();
            let mut inputs = parser.push(&bytes[..cut]);
            inputs.extend(parser.push(&bytes[cut..]));
            inputs.extend(parser.flush());
            prop_assert_eq!(inputs, keys(&bytes));
        }
    }
}
