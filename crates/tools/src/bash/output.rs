//! What a command says: head and tail in memory, all of it in a file, and all of it readable.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use engine::ports::ExitStatus;
use process::Tail;
use serde_json::{Value, json};

/// How much of the beginning and of the end is kept in memory.
const HEAD: usize = 16 * 1024;
const TAIL: usize = 16 * 1024;
/// How much of it is kept in a file.
const SPILL: u64 = 64 * 1024 * 1024;

/// What a command has said so far.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: Tail,
    total: u64,
    /// Where all of it goes once it is more than the head; nothing if that cannot be written.
    spill: Option<Spill>,
    place: Option<PathBuf>,
}

#[derive(Debug)]
struct Spill {
    file: File,
    path: PathBuf,
    written: u64,
}

impl Capture {
    /// Makes a capture that spills into this file if it must.
    pub(super) fn new(place: Option<PathBuf>) -> Capture {
        Capture { head: Vec::new(), tail: Tail::new(TAIL), total: 0, spill: None, place }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = HEAD - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        if rest.is_empty() {
            return;
        }
        self.tail.push(rest);
        if let Some(place) = self.place.take() {
            self.spill = Spill::open(&place, &self.head);
        }
        if self.spill.as_mut().is_some_and(|spill| !spill.write(rest)) {
            // A full disk costs the file, not the command.
            self.spill = None;
        }
    }

    /// Returns what the model is told: everything, or head and tail and where the rest is.
    pub(super) fn text(self) -> String {
        let mut plain = Plain::default();
        let mut text = plain.push(&self.head);
        if !self.tail.is_truncated() {
            if let Some(spill) = self.spill {
                spill.remove();
            }
            return text + &plain.push(self.tail.text().as_bytes());
        }
        let left_out = self.total - (HEAD + TAIL) as u64;
        let place = match &self.spill {
            Some(spill) if spill.written < self.total => {
                format!("; the first {} bytes are in {}", spill.written, spill.path.display())
            }
            Some(spill) => format!("; all of it is in {}", spill.path.display()),
            None => String::new(),
        };
        text.push_str(&format!("\n… {left_out} bytes left out{place} …\n"));
        text + &Plain::default().push(self.tail.text().as_bytes())
    }
}

impl Spill {
    fn open(path: &Path, head: &[u8]) -> Option<Spill> {
        std::fs::create_dir_all(path.parent()?).ok()?;
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut spill = Spill { file: options.open(path).ok()?, path: path.to_owned(), written: 0 };
        spill.write(head).then_some(spill)
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        let room = usize::try_from(SPILL - self.written).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        self.written += bytes.len() as u64;
        self.file.write_all(bytes).is_ok()
    }

    fn remove(self) {
        // It holds nothing that was not told.
        std::fs::remove_file(self.path).ok();
    }
}

/// Adds how a command ended to what it said.
pub(super) fn ended(output: &str, status: &ExitStatus) -> String {
    let output = if output.is_empty() { "(no output)" } else { output.trim_end() };
    match (status.code, status.signal.as_deref()) {
        // Whoever uses more memory than there is, or than a command may, is ended so.
        (_, Some("SIGKILL")) => {
            format!("{output}\n(ended by SIGKILL, perhaps because it used too much memory)")
        }
        (_, Some(signal)) => format!("{output}\n(ended by {signal})"),
        (Some(code), None) => format!("{output}\n(exit code {code})"),
        (None, None) => format!("{output}\n(ended)"),
    }
}

/// Says how a command ended, for programs, as the protocol does for terminals.
pub(super) fn raw_of(status: &ExitStatus) -> Value {
    json!({ "exitCode": status.code, "signal": status.signal })
}

/// Turns bytes into text that steers no terminal: escape sequences and control characters are left out, also when
/// they come in pieces.
#[derive(Debug, Default)]
pub struct Plain {
    /// The bytes of a character that has not ended.
    partial: Vec<u8>,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Text,
    /// After an escape character.
    Escape,
    /// Inside a control sequence, which ends with a letter.
    Sequence,
    /// Inside a string for the terminal, which ends with a bell or an escape and a backslash.
    String,
    /// After an escape character inside such a string.
    StringEscape,
}

impl Plain {
    /// Takes the next bytes and returns the text in them.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.partial);
        let mut rest = bytes.as_slice();
        let mut out = String::with_capacity(rest.len());
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.take(text, &mut out);
                    rest = &[];
                }
                Err(err) => {
                    let (good, bad) = rest.split_at(err.valid_up_to());
                    self.take(std::str::from_utf8(good).unwrap_or_default(), &mut out);
                    let Some(length) = err.error_len() else {
                        self.partial = bad.to_vec();
                        break;
                    };
                    self.take("\u{fffd}", &mut out);
                    rest = &bad[length..];
                }
            }
        }
        out
    }

    fn take(&mut self, text: &str, out: &mut String) {
        for character in text.chars() {
            self.state = match (self.state, character) {
                (State::Text, '\u{1b}') => State::Escape,
                (State::Text, '\u{9b}') => State::Sequence,
                (State::Text, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => State::String,
                (State::Text, character) => {
                    if character == '\n' || character == '\t' || !character.is_control() {
                        out.push(character);
                    }
                    State::Text
                }
                (State::Escape, '[') => State::Sequence,
                (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::String,
                // Two-character sequences, some with a further character that is harmless.
                (State::Escape, _) => State::Text,
                (State::Sequence, '\u{40}'..='\u{7e}') => State::Text,
                // A line end cannot be part of one: whoever began it gave up.
                (State::Sequence | State::String, '\n') => {
                    out.push('\n');
                    State::Text
                }
                (State::Sequence, _) => State::Sequence,
                (State::String, '\u{7}' | '\u{9c}') => State::Text,
                (State::String, '\u{1b}') => State::StringEscape,
                (State::String, _) => State::String,
                (State::StringEscape, '\\') => State::Text,
                (State::StringEscape, _) => State::String,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T09, T10, T19
    #[test]
    fn what_steers_a_terminal_is_left_out_however_it_is_cut() {
        let said = "a\u{1b}[31mred\u{1b}[0m\u{1b}]52;c;aGk=\u{7}b\u{1b}]8;;x\u{1b}\\c\r\n\u{9b}2Jé\u{0}💛\u{1b}cz".as_bytes();
        let plain = "aredbc\né💛z";
        assert_eq!(Plain::default().push(said), plain);
        for cut in 0..said.len() {
            let mut out = Plain::default();
            let text = out.push(&said[..cut]) + &out.push(&said[cut..]);
            assert_eq!(text, plain, "cut at {cut}");
        }
        assert_eq!(Plain::default().push(b"a\xff\xfeb"), "a\u{fffd}\u{fffd}b");
        assert_eq!(Plain::default().push(b"\x1b[never\x1b]ended\nnext"), "ever\nnext");
    }

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("bash-output-{}-{name}", std::process::id())).join("out")
    }

    // R: T08
    #[test]
    fn head_tail_and_place_are_told_and_the_rest_is_in_the_file() {
        let path = place("long");
        let mut capture = Capture::new(Some(path.clone()));
        for number in 0..20_000 {
            capture.push(format!("line {number}\n").as_bytes());
        }
        let text = capture.text();
        assert!(text.starts_with("line 0\nline 1\n"), "{}", &text[..100]);
        assert!(text.ends_with("line 19999\n"));
        assert!(text.contains(&format!("all of it is in {}", path.display())), "{text}");
        assert!(text.len() < HEAD + TAIL + 200);
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept.lines().count(), 20_000);
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_fits_is_told_whole_and_leaves_no_file() {
        let path = place("short");
        let mut capture = Capture::new(Some(path.clone()));
        let said = "x".repeat(HEAD + 10);
        capture.push(said.as_bytes());
        assert!(path.exists());
        assert_eq!(capture.text(), said);
        assert!(!path.exists());
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    // R: T16
    #[test]
    fn a_file_that_cannot_be_written_costs_nothing_else() {
        let mut capture = Capture::new(Some("/proc/no/such/place".into()));
        capture.push(&vec![b'x'; HEAD + TAIL + 5]);
        assert!(capture.text().contains("5 bytes left out …"));
    }
}
