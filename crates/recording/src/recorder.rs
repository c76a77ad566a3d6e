//! Writes a recording.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{ENTRIES, OUTPUT};

/// A line without an end is passed on when it is longer than this.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// How secrets are masked.
#[derive(Debug, Clone, Copy)]
pub struct Masks {
    /// Masks a message of the protocol, by names and by what looks like a secret.
    pub message: fn(&mut Value),
    /// Masks what looks like a secret in a text.
    pub text: fn(&str) -> String,
}

impl Masks {
    /// Masks a line of the protocol. A line without a secret stays as it is.
    #[must_use]
    pub fn line(&self, line: &str) -> String {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return (self.text)(line) };
        let mut masked = message.clone();
        (self.message)(&mut masked);
        if masked == message { line.to_owned() } else { masked.to_string() }
    }

    /// Masks the strings of a value.
    pub(crate) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = (self.text)(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => members.values_mut().for_each(|member| self.value(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Writes what sessions depend on to a directory. A failure to write ends the recording, not the session.
pub struct Recorder {
    state: Mutex<State>,
    begun: Instant,
    masks: Masks,
}

struct State {
    /// `None` after a failure.
    files: Option<Files>,
    states: HashMap<String, Value>,
    ordinals: HashMap<String, u64>,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
}

struct Files {
    entries: BufWriter<File>,
    output: BufWriter<File>,
}

impl Recorder {
    /// Begins a recording in a directory, which is created if necessary and must have none yet.
    ///
    /// # Errors
    /// Says what cannot be created.
    pub fn new(directory: &Path, masks: Masks, header: &Value) -> std::io::Result<Recorder> {
        create_private(directory)?;
        let entries = BufWriter::new(new_file(&directory.join(ENTRIES))?);
        let output = BufWriter::new(new_file(&directory.join(OUTPUT))?);
        let files = Some(Files { entries, output });
        let state =
            State { files, states: HashMap::new(), ordinals: HashMap::new(), rest: Vec::new() };
        let recorder = Recorder { state: Mutex::new(state), begun: Instant::now(), masks };
        recorder.state("header", header);
        Ok(recorder)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the recording began.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    pub(crate) fn ordinal(&self, key: &str) -> u64 {
        count(&mut self.lock().ordinals, key)
    }

    /// Masks a value, for a key that is made of it.
    pub(crate) fn masks(&self) -> Masks {
        self.masks
    }

    /// Writes a result that a session waited for.
    pub fn step(&self, key: &str, value: &impl Serialize) {
        let value = self.masked(value);
        self.lock().write(&json!({ "step": key, "at": self.millis(), "value": value }));
    }

    /// Writes a value that differs each time.
    pub(crate) fn next(&self, key: &str, value: &impl Serialize) {
        let value = self.masked(value);
        self.lock().write(&json!({ "next": key, "value": value }));
    }

    /// Writes a value that may change now and then, if it is another than before.
    pub(crate) fn state(&self, key: &str, value: &impl Serialize) {
        let value = self.masked(value);
        let mut state = self.lock();
        if state.states.get(key) != Some(&value) {
            state.write(&json!({ "state": key, "value": value }));
            state.states.insert(key.to_owned(), value);
        }
    }

    fn masked(&self, value: &impl Serialize) -> Value {
        // What cannot be written is missing in the replay, which says so.
        let mut value = serde_json::to_value(value).unwrap_or_default();
        self.masks.value(&mut value);
        value
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes bytes of the client and returns the lines that are complete: only whole lines can be masked.
    #[must_use]
    pub fn whole_lines(&self, bytes: &[u8]) -> Vec<u8> {
        let mut state = self.lock();
        state.rest.extend_from_slice(bytes);
        match state.rest.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => {
                let rest = state.rest.split_off(end + 1);
                std::mem::replace(&mut state.rest, rest)
            }
            None if state.rest.len() > MAX_LINE => std::mem::take(&mut state.rest),
            None => Vec::new(),
        }
    }

    /// Returns what the client sent after its last whole line.
    #[must_use]
    pub fn last_bytes(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().rest)
    }

    /// Masks lines of the client as they are written to the recording; `None` if they are not UTF-8.
    #[must_use]
    pub fn mask_lines(&self, bytes: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut masked = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let content = line.strip_suffix('\n').unwrap_or(line);
            masked.push_str(&self.masks.line(content));
            masked.push_str(&line[content.len()..]);
        }
        Some(masked)
    }

    /// Writes lines that the client gets, and everything so far to the disk.
    pub fn sent(&self, lines: &[u8]) {
        let masked = self.mask_lines(lines).unwrap_or_default();
        let mut state = self.lock();
        state.with_files(|files| {
            files.output.write_all(masked.as_bytes())?;
            files.output.flush()?;
            files.entries.flush()
        });
    }

    /// Writes the end.
    pub fn end(&self) {
        let mut state = self.lock();
        state.write(&json!({ "state": "end", "value": true }));
        state.with_files(|files| files.entries.flush());
    }
}

impl State {
    fn write(&mut self, entry: &Value) {
        self.with_files(|files| writeln!(files.entries, "{entry}"));
    }

    fn with_files(&mut self, write: impl FnOnce(&mut Files) -> std::io::Result<()>) {
        let Some(files) = &mut self.files else { return };
        if let Err(err) = write(files) {
            tracing::error!("the recording ends here: {err}");
            self.files = None;
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Recorder")
    }
}

/// Returns how often a key was counted before.
pub(crate) fn count(ordinals: &mut HashMap<String, u64>, key: &str) -> u64 {
    match ordinals.get_mut(key) {
        Some(next) => {
            *next += 1;
            *next
        }
        None => {
            ordinals.insert(key.to_owned(), 0);
            0
        }
    }
}

fn create_private(directory: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

fn new_file(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
