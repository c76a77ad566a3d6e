//! Watching a running process: a Unix socket in a directory that only its user can enter.
//!
//! The process listens; whoever connects gets its records from then on, one JSON object per line, first a
//! [`Record::Process`]. The process never waits for a reader: one who does not keep up misses records, and gets their number.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::record::Record;
use crate::tap::Tap;

/// How much may wait for a reader. Beyond it records are dropped and counted.
const MAX_BACKLOG: usize = 1024 * 1024;
/// Longer strings of a message are cut: a reader draws pictures, and the trace has the rest.
const MAX_STRING: usize = 2000;
/// Longer messages come without their content.
const MAX_MESSAGE: usize = 16 * 1024;

/// Listens for readers on a socket in `directory`, and gives them to the tap. Returns the socket's path.
///
/// # Errors
/// Fails if the directory is not private or the socket cannot be made.
pub fn listen(directory: &Path, name: &str, tap: &Tap) -> io::Result<PathBuf> {
    make_private(directory)?;
    let path = directory.join(name);
    // A process of the same number that was killed left it behind.
    match std::fs::remove_file(&path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    let tap = tap.clone();
    let accept = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    tap.add_reader(stream);
                }
                Err(err) => {
                    tracing::debug!("nobody can watch this process any more: {err}");
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().name("live".to_owned()).stack_size(64 * 1024).spawn(accept)?;
    Ok(path)
}

/// Makes a directory that only its owner can enter. Refuses one that others can, or that is not ours.
fn make_private(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let about = std::fs::symlink_metadata(directory)?;
    let is_private = about.is_dir() && about.permissions().mode() & 0o077 == 0;
    if is_private && about.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the folder is not private"))
}

/// Somebody who watches.
pub(crate) struct Reader {
    /// `None` when they are gone.
    stream: Option<UnixStream>,
    backlog: Vec<u8>,
    lost: u64,
}

impl Reader {
    /// More readers are not served.
    pub(crate) const MAX: usize = 8;

    pub(crate) fn new(stream: UnixStream) -> Option<Reader> {
        stream.set_nonblocking(true).ok()?;
        Some(Reader { stream: Some(stream), backlog: Vec::new(), lost: 0 })
    }

    pub(crate) fn is_there(&self) -> bool {
        self.stream.is_some()
    }

    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Sends the first line, however long it is.
    pub(crate) fn greet(&mut self, line: &[u8]) {
        self.backlog.extend_from_slice(line);
        self.backlog.push(b'\n');
        self.flush();
    }

    /// Sends a line, or drops and counts it.
    pub(crate) fn send(&mut self, line: &[u8]) {
        if self.backlog.len() + line.len() > MAX_BACKLOG {
            self.flush();
        }
        if self.backlog.len() + line.len() > MAX_BACKLOG {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let time = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            let gap = Record::Lost { time, lost: std::mem::take(&mut self.lost) };
            self.backlog.extend(line_of(&gap));
            self.backlog.push(b'\n');
        }
        self.backlog.extend_from_slice(line);
    }

    /// Writes what the reader takes now.
    pub(crate) fn flush(&mut self) {
        let mut written = 0;
        while written < self.backlog.len() {
            let Some(stream) = &mut self.stream else { break };
            match stream.write(&self.backlog[written..]) {
                Ok(0) => self.stream = None,
                Ok(count) => written += count,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.stream = None,
            }
        }
        self.backlog.drain(..written);
        if self.backlog.is_empty() {
            self.backlog.shrink_to(MAX_MESSAGE);
        }
    }
}

/// Writes a record as a line for readers, with long content cut.
pub(crate) fn line_of(record: &Record) -> Vec<u8> {
    let short = match record {
        Record::Message(message) if message.bytes > MAX_STRING => {
            let mut message = message.clone();
            message.message.iter_mut().for_each(cut);
            let printed = message.message.as_ref().map_or(0, |content| content.to_string().len());
            message.message.take_if(|_| printed > MAX_MESSAGE);
            Some(Record::Message(message))
        }
        _ => None,
    };
    // A record can always be written.
    serde_json::to_vec(short.as_ref().unwrap_or(record)).unwrap_or_default()
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > MAX_STRING => {
            text.truncate(text.floor_char_boundary(MAX_STRING));
            text.push('…');
        }
        Value::Array(items) => items.iter_mut().for_each(cut),
        Value::Object(members) => members.values_mut().for_each(cut),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::record::{Direction, ProcessInfo};
    use crate::tap::TapOptions;

    // R: O3
    #[test]
    fn who_connects_gets_the_process_and_then_every_record() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("run");
        let process = ProcessInfo { pid: 7, ..ProcessInfo::default() };
        let tap = Tap::new(TapOptions { process, ..TapOptions::default() });
        let path = listen(&directory, "7.sock", &tap).unwrap();
        assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(!tap.is_wanted());
        let mut lines = BufReader::new(UnixStream::connect(path).unwrap()).lines();
        let first = Record::parse(&lines.next().unwrap().unwrap()).unwrap();
        assert!(matches!(first, Record::Process { process, .. } if process.pid == 7));
        assert!(tap.is_wanted());
        tap.bytes(Direction::Out, b"{\"method\":\"m\"}\n");
        let second = Record::parse(&lines.next().unwrap().unwrap()).unwrap();
        assert!(matches!(second, Record::Message(message) if message.bytes == 14));
        drop(lines);
        // It is noticed with the next records that nobody reads.
        while tap.is_wanted() {
            tap.bytes(Direction::Out, b"{\"method\":\"m\"}\n");
            std::thread::yield_now();
        }
    }

    // R: O3
    #[test]
    fn directory_that_others_can_enter_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("run");
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        let refused = listen(&directory, "7.sock", &Tap::new(TapOptions::default()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn reader_who_does_not_read_misses_records_and_is_told() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut reader = Reader::new(ours).unwrap();
        let line = format!("{{\"time\":1,\"lost\":{}}}\n", "0".repeat(1000));
        while reader.lost == 0 {
            reader.send(line.as_bytes());
        }
        assert!(reader.backlog.len() <= MAX_BACKLOG);
        let mut lines = BufReader::new(theirs).lines();
        let gap = loop {
            reader.flush();
            reader.send(line.as_bytes());
            reader.flush();
            if let Some(Record::Lost { lost: 1, .. }) =
                Record::parse(&lines.next().unwrap().unwrap())
            {
                break true;
            }
        };
        assert!(gap);
    }
}
