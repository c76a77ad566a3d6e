//! Captures the output of a command: head and tail in memory, all of it in a file, without control characters.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use engine::words::ExitStatus;
use process::Tail;
use serde_json::{Value, json};

/// The most bytes of the beginning and of the end that stay in memory.
const MOST: usize = 16 * 1024;
/// Room for our own notes in the text for the model.
const WORDS: usize = 1024;
/// The most bytes that are saved to the file.
const SPILL: u64 = 64 * 1024 * 1024;

/// The output of a command so far.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: Tail,
    /// The most bytes of each of the two.
    end: usize,
    total: u64,
    /// The file for the full output, once it exceeds the head; `None` if it cannot be written.
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
    /// Makes a capture that writes long output to this file. Its text fits into `room` bytes, so that it is not cut again later.
    pub(super) fn new(place: Option<PathBuf>, room: usize) -> Capture {
        let end = (room.saturating_sub(WORDS) / 2).min(MOST);
        Capture { head: Vec::new(), tail: Tail::new(end), end, total: 0, spill: None, place }
    }

    /// Adds the next bytes.
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
            // With a full disk the file is dropped, and the command continues.
            self.spill = None;
        }
    }

    /// Returns the text for the model: everything, or head and tail, and at the end where the full output is.
    pub(super) fn text(self) -> String {
        let mut plain = Plain::default();
        let mut text = plain.push(&self.head);
        if !self.tail.is_truncated() {
            if let Some(spill) = self.spill {
                spill.remove();
            }
            return text + &plain.push(self.tail.text().as_bytes());
        }
        let omitted = self.total - 2 * self.end as u64;
        text.push_str(&format!("\n… {omitted} bytes omitted …\n"));
        text.push_str(Plain::default().push(self.tail.text().as_bytes()).trim_end());
        match &self.spill {
            Some(spill) if spill.written < self.total => {
                let (written, path) = (spill.written, spill.path.display());
                text.push_str(&format!("\n(the first {written} bytes: {path})"));
            }
            Some(spill) => text.push_str(&format!("\n(full output: {})", spill.path.display())),
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
        // Nothing is in it that was not returned already.
        std::fs::remove_file(self.path).ok();
    }
}

/// Adds the exit status to the output of a command.
pub(super) fn ended(output: &str, status: &ExitStatus) -> String {
    let output = if output.is_empty() { "(no output)" } else { output.trim_end() };
    match (status.code, status.signal.as_deref()) {
        // A process that uses too much memory is killed like this; a shell reports it as an exit code.
        (_, Some("SIGKILL")) => {
            format!("{output}\n(killed by SIGKILL, perhaps because it used too much memory)")
        }
        (Some(137), None) => {
            format!(
                "{output}\n(exit code 137, as after SIGKILL, perhaps because it used too much memory)"
            )
        }
        (_, Some(signal)) => format!("{output}\n(killed by {signal})"),
        (Some(code), None) => format!("{output}\n(exit code {code})"),
        (None, None) => format!("{output}\n(ended)"),
    }
}

/// Returns the exit status as JSON, as the protocol has it for terminals.
pub(super) fn raw_of(status: &ExitStatus) -> Value {
    json!({ "exitCode": status.code, "signal": status.signal })
}

/// Converts bytes to text without escape sequences and control characters, even if they arrive in chunks.
#[derive(Debug, Default)]
pub struct Plain {
    /// The bytes of an incomplete character.
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
    /// Inside a string for the terminal, which ends with BEL or ESC and a backslash.
    String,
    /// After an escape character inside such a string.
    StringEscape,
}

impl Plain {
    /// Adds the next bytes and returns the text in them.
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
                // Two-character sequences; a further character is harmless.
                (State::Escape, _) => State::Text,
                (State::Sequence, '\u{40}'..='\u{7e}') => State::Text,
                // A line end cannot be part of a sequence, so the sequence was abandoned.
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
    fn escape_sequences_are_removed_however_they_are_split() {
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

    /// A temporary directory, and a path in a new directory of it.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/out");
        (directory, path)
    }

    // Fault: T08
    #[test]
    fn long_output_has_head_tail_and_path_and_is_saved_to_the_file() {
        let (_directory, path) = place();
        let mut capture = Capture::new(Some(path.clone()), usize::MAX);
        for number in 0..20_000 {
            capture.push(format!("line {number}\n").as_bytes());
        }
        let text = capture.text();
        assert!(text.starts_with("line 0\nline 1\n"), "{}", &text[..100]);
        let end = format!("line 19999\n(full output: {})", path.display());
        assert!(text.ends_with(&end), "{text}");
        assert!(text.len() < 2 * MOST + 200);
        let saved = std::fs::read_to_string(&path).unwrap();
        assert_eq!(saved.lines().count(), 20_000);
    }

    // Fault: T08
    #[test]
    fn text_fits_into_the_room_and_counts_omitted_bytes() {
        let (_directory, path) = place();
        let mut capture = Capture::new(Some(path.clone()), 4000);
        // No path contains this character.
        capture.push(&[b'#'; 5000]);
        let text = capture.text();
        assert!(text.len() <= 4000, "{}", text.len());
        let shown = text.chars().filter(|character| *character == '#').count();
        assert!(text.contains(&format!("… {} bytes omitted …", 5000 - shown)), "{text}");
        assert_eq!(std::fs::read(&path).unwrap().len(), 5000);
    }

    #[test]
    fn short_output_is_complete_and_leaves_no_file() {
        let (_directory, path) = place();
        let mut capture = Capture::new(Some(path.clone()), usize::MAX);
        let said = "x".repeat(MOST + 10);
        capture.push(said.as_bytes());
        assert!(path.exists());
        assert_eq!(capture.text(), said);
        assert!(!path.exists());
    }

    // Fault: T16
    #[test]
    fn file_that_cannot_be_written_is_dropped() {
        let mut capture = Capture::new(Some("/proc/no/such/place".into()), usize::MAX);
        capture.push(&vec![b'x'; 2 * MOST + 5]);
        assert!(capture.text().contains("5 bytes omitted …"));
    }
}
