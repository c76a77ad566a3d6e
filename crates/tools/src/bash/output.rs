//! What a command says: head and tail in memory, all of it in a file, and all of it readable.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use engine::words::ExitStatus;
use process::Tail;
use serde_json::{Value, json};

/// How much of the beginning and of the end is kept in memory, at most.
const MOST: usize = 16 * 1024;
/// What is left for words of ours in what the model is told.
const WORDS: usize = 1024;
/// How much of it is kept in a file.
const SPILL: u64 = 64 * 1024 * 1024;

/// What a command has said so far.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: Tail,
    /// How long each of the two may become.
    end: usize,
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
    /// Makes a capture that spills into this file if it must. What it tells fits into `room` bytes, so that it is cut once
    /// and the count is true.
    pub(super) fn new(place: Option<PathBuf>, room: usize) -> Capture {
        let end = (room.saturating_sub(WORDS) / 2).min(MOST);
        Capture { head: Vec::new(), tail: Tail::new(end), end, total: 0, spill: None, place }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.end - self.head.len();
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

    /// Returns what the model is told: everything, or head and tail, and last, where nothing cuts it off, where the rest is.
    pub(super) fn text(self) -> String {
        let mut plain = Plain::default();
        let mut text = plain.push(&self.head);
        if !self.tail.is_truncated() {
            if let Some(spill) = self.spill {
                spill.remove();
            }
            return text + &plain.push(self.tail.text().as_bytes());
        }
        let left_out = self.total - 2 * self.end as u64;
        text.push_str(&format!("\n… {left_out} bytes left out …\n"));
        text.push_str(Plain::default().push(self.tail.text().as_bytes()).trim_end());
        match &self.spill {
            Some(spill) if spill.written < self.total => {
                let (written, path) = (spill.written, spill.path.display());
                text.push_str(&format!("\n(the first {written} bytes are in {path})"));
            }
            Some(spill) => text.push_str(&format!("\n(all of it is in {})", spill.path.display())),
            None => {}
        }
        text
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
        // Whoever uses more memory than there is, or than a command may, is ended so; a shell tells it as a code.
        (_, Some("SIGKILL")) => {
            format!("{output}\n(ended by SIGKILL, perhaps because it used too much memory)")
        }
        (Some(137), None) => {
            format!("{output}\n(exit code 137, as after SIGKILL: perhaps too much memory was used)")
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

    // Fault: T09, T10
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

    // Fault: T08
    #[test]
    fn head_tail_and_place_are_told_and_the_rest_is_in_the_file() {
        let path = place("long");
        let mut capture = Capture::new(Some(path.clone()), usize::MAX);
        for number in 0..20_000 {
            capture.push(format!("line {number}\n").as_bytes());
        }
        let text = capture.text();
        assert!(text.starts_with("line 0\nline 1\n"), "{}", &text[..100]);
        let end = format!("line 19999\n(all of it is in {})", path.display());
        assert!(text.ends_with(&end), "{text}");
        assert!(text.len() < 2 * MOST + 200);
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept.lines().count(), 20_000);
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    // Fault: T08
    #[test]
    fn what_is_told_fits_into_the_room_and_counts_what_is_missing() {
        let path = place("small");
        let mut capture = Capture::new(Some(path.clone()), 4000);
        capture.push(&[b'x'; 5000]);
        let text = capture.text();
        assert!(text.len() <= 4000, "{}", text.len());
        let shown = text.chars().filter(|character| *character == 'x').count();
        assert!(text.contains(&format!("… {} bytes left out …", 5000 - shown)), "{text}");
        assert_eq!(std::fs::read(&path).unwrap().len(), 5000);
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_fits_is_told_whole_and_leaves_no_file() {
        let path = place("short");
        let mut capture = Capture::new(Some(path.clone()), usize::MAX);
        let said = "x".repeat(MOST + 10);
        capture.push(said.as_bytes());
        assert!(path.exists());
        assert_eq!(capture.text(), said);
        assert!(!path.exists());
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    // Fault: T16
    #[test]
    fn a_file_that_cannot_be_written_costs_nothing_else() {
        let mut capture = Capture::new(Some("/proc/no/such/place".into()), usize::MAX);
        capture.push(&vec![b'x'; 2 * MOST + 5]);
        assert!(capture.text().contains("5 bytes left out …"));
    }
}
