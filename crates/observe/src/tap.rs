//! The tap: takes copies of the bytes of a connection, and spans, and hands their records on from a thread of its own.
//!
//! It never slows anybody down: what the thread cannot keep up with is dropped and counted. Bytes are copied only while
//! somebody wants messages: a trace file, the log, or a reader who watches. The thread starts with the first thing to do.

mod runs;
mod work;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wire::acp::dialect::Dialect;

use self::work::{Chunk, Work};
use crate::record::{Direction, ProcessInfo, Record, SpanRecord};

/// How many chunks may wait to be written. When the channel is full, a chunk is dropped and counted.
const CHUNKS: usize = 256;
/// How long writing the last chunks may take.
const END_WAIT: Duration = Duration::from_secs(1);

/// Logs a record.
pub type LogRecord = Box<dyn FnMut(&Record) + Send>;

/// What a tap does with records.
#[derive(Default)]
pub struct TapOptions {
    /// The trace.
    pub out: Option<Box<dyn Write + Send>>,
    /// Is given every record, to log it.
    pub log: Option<LogRecord>,
    /// The dialect that the configuration demands.
    pub forced: Option<Dialect>,
    /// Which process this is, for those who watch it.
    pub process: ProcessInfo,
}

impl TapOptions {
    /// Opens a trace that only its owner can read, or appends to it.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn trace_to(mut self, file: &Path) -> io::Result<TapOptions> {
        let mut options = File::options();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        self.out = Some(Box::new(options.open(file)?));
        Ok(self)
    }
}

/// A tap. Clones share it.
#[derive(Clone)]
pub struct Tap(Arc<Shared>);

struct Shared {
    /// What the thread will work with; taken when it starts.
    options: Mutex<Option<TapOptions>>,
    started: OnceLock<Thread>,
    /// Whether messages are wanted.
    is_wanted: Arc<AtomicBool>,
    lost: AtomicU64,
    /// The times at which it was made: spans need a clock that never goes back.
    anchor: (Instant, Duration),
}

struct Thread {
    chunks: SyncSender<Chunk>,
    ended: Mutex<Receiver<()>>,
}

impl Tap {
    /// Makes a tap. Nothing is started yet.
    #[must_use]
    pub fn new(options: TapOptions) -> Tap {
        let is_wanted = options.out.is_some() || options.log.is_some();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Tap(Arc::new(Shared {
            options: Mutex::new(Some(options)),
            started: OnceLock::new(),
            is_wanted: Arc::new(AtomicBool::new(is_wanted)),
            lost: AtomicU64::new(0),
            anchor: (Instant::now(), since_1970),
        }))
    }

    /// Returns the time since 1970, which never goes back.
    #[must_use]
    pub fn now(&self) -> Duration {
        let (made, since_1970) = self.0.anchor;
        since_1970 + made.elapsed()
    }

    /// Tells whether messages are wanted.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.is_wanted.load(Ordering::Relaxed)
    }

    /// Wraps a reader.
    pub fn inbound<R: Read>(&self, input: R) -> Tapped<R> {
        Tapped { pipe: input, direction: Direction::In, tap: self.clone() }
    }

    /// Wraps a writer.
    pub fn outbound<W: Write>(&self, output: W) -> Tapped<W> {
        Tapped { pipe: output, direction: Direction::Out, tap: self.clone() }
    }

    /// Takes bytes of the connection.
    pub fn bytes(&self, direction: Direction, bytes: &[u8]) {
        if !self.is_wanted() {
            return;
        }
        let time = u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX);
        let lost = self.0.lost.swap(0, Ordering::Relaxed);
        let chunk = Chunk::Bytes { time, direction, lost, bytes: bytes.to_vec() };
        if !self.send(chunk) {
            self.0.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    /// Takes a span, which has begun or ended.
    pub fn span(&self, span: SpanRecord) {
        if !self.send(Chunk::Span(Box::new(span))) {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the last spans, if the thread answers within a second.
    #[must_use]
    pub fn recent(&self) -> Vec<SpanRecord> {
        let (reply, answer) = sync_channel(1);
        if !self.send(Chunk::Recent(reply)) {
            return Vec::new();
        }
        answer.recv_timeout(END_WAIT).unwrap_or_default()
    }

    /// Ends the trace and waits up to a second for its last lines.
    pub fn end(&self) {
        let Some(thread) = self.0.started.get() else { return };
        // The thread also gets this time to write a backlog. What it has not written by then is lost.
        let mut end = Chunk::End;
        let begun = Instant::now();
        while let Err(std::sync::mpsc::TrySendError::Full(back)) = thread.chunks.try_send(end) {
            if begun.elapsed() >= END_WAIT {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
            end = back;
        }
        let ended = thread.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(END_WAIT) {
            tracing::warn!("the trace is incomplete: writing its file takes too long");
        }
    }

    /// Adds somebody who watches. Returns whether the thread took them.
    #[cfg(unix)]
    pub(crate) fn add_reader(&self, stream: std::os::unix::net::UnixStream) -> bool {
        self.send(Chunk::Reader(stream))
    }

    fn send(&self, chunk: Chunk) -> bool {
        self.0.started.get_or_init(|| self.start()).chunks.try_send(chunk).is_ok()
    }

    /// Starts the thread. If that fails, nothing reads the channel, and everything is lost and counted.
    fn start(&self) -> Thread {
        let (chunks, received) = sync_channel(CHUNKS);
        let (done, ended) = sync_channel(1);
        let options = self.0.options.lock().unwrap_or_else(PoisonError::into_inner).take();
        let work = Work::new(options.unwrap_or_default(), Arc::clone(&self.0.is_wanted));
        let run = move || {
            work.run(&received);
            // Fails only if no caller waits for the end.
            done.try_send(()).ok();
        };
        let thread = std::thread::Builder::new().name("trace".to_owned()).stack_size(256 * 1024);
        if let Err(err) = thread.spawn(run) {
            tracing::warn!("nothing is traced: {err}");
        }
        Thread { chunks, ended: Mutex::new(ended) }
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Tap(wanted: {})", self.is_wanted())
    }
}

/// A reader or writer with a tap.
#[derive(Debug)]
pub struct Tapped<P> {
    pipe: P,
    direction: Direction,
    tap: Tap,
}

impl<R: Read> Read for Tapped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.pipe.read(buffer)?;
        if count > 0 {
            self.tap.bytes(self.direction, &buffer[..count]);
        }
        Ok(count)
    }
}

impl<W: Write> Write for Tapped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Recorded before it is written: the client's answer may be read before `write_all` returns.
        self.tap.bytes(self.direction, bytes);
        self.pipe.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn records(shared: &Shared) -> Vec<Record> {
        let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
        text.lines().filter_map(Record::parse).collect()
    }

    fn tap_to(out: impl Write + Send + 'static) -> Tap {
        Tap::new(TapOptions { out: Some(Box::new(out)), ..TapOptions::default() })
    }

    // R: O1
    #[test]
    fn message_in_chunks_is_recorded_whole() {
        let out = Shared::default();
        let tap = tap_to(out.clone());
        let call = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n";
        let mut input = tap.inbound(&call[..]);
        let mut chunk = [0; 10];
        let mut read = Vec::new();
        while let count @ 1.. = input.read(&mut chunk).unwrap() {
            read.extend_from_slice(&chunk[..count]);
        }
        assert_eq!(read, call);
        let mut written = Vec::new();
        tap.outbound(&mut written)
            .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n")
            .unwrap();
        tap.end();
        let records = records(&out);
        let [Record::Message(call), Record::Message(answer)] = &records[..] else {
            panic!("{records:?}");
        };
        assert_eq!((call.direction, answer.direction), (Direction::In, Direction::Out));
        assert_eq!(answer.method.as_deref(), Some("m"));
        assert!(answer.duration_ms.is_some());
    }

    // R: O1, O2
    #[test]
    fn spans_are_recorded_when_they_end_and_without_secrets() {
        let out = Shared::default();
        let tap = tap_to(out.clone());
        let begun = SpanRecord {
            time: 1.5,
            span: "0a".to_owned(),
            kind: "command".to_owned(),
            name: "curl -H 'Authorization: Bearer canary-1-and-more'".to_owned(),
            ..SpanRecord::default()
        };
        tap.span(begun.clone());
        let error = Some("HTTP 401 for sk-canary-2-and-more".to_owned());
        tap.span(SpanRecord { duration_ms: Some(2.25), error, retries: 2, ..begun });
        tap.end();
        let records = records(&out);
        let [Record::Span(span)] = &records[..] else { panic!("{records:?}") };
        assert_eq!((span.time, span.duration_ms, span.retries), (1.5, Some(2.25), 2));
        assert_eq!(span.name, "curl -H 'Authorization: Bearer ****'");
        assert_eq!(span.error.as_deref(), Some("HTTP 401 for ****"));
    }

    #[test]
    fn nothing_is_copied_and_no_thread_started_while_nobody_wants_messages() {
        let tap = Tap::new(TapOptions::default());
        tap.outbound(io::sink()).write_all(b"{}\n").unwrap();
        assert!(tap.0.started.get().is_none());
    }

    /// A file that blocks until it is released.
    struct BlockedFile(Receiver<()>, Shared);

    impl Write for BlockedFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    // R: O1
    #[test]
    fn blocked_file_does_not_slow_the_pipe_and_the_gap_is_recorded() {
        let (go, wait) = sync_channel(0);
        let out = Shared::default();
        let tap = tap_to(BlockedFile(wait, out.clone()));
        let mut pipe = tap.outbound(io::sink());
        let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n", "m".repeat(2000));
        for _ in 0..CHUNKS * 3 {
            pipe.write_all(line.as_bytes()).unwrap();
        }
        drop(go);
        // When the thread continues there is room, and the next chunk reports the gap.
        let has_gap =
            |records: &[Record]| records.iter().any(|record| matches!(record, Record::Lost { .. }));
        while !has_gap(&records(&out)) {
            pipe.write_all(line.as_bytes()).unwrap();
            std::thread::yield_now();
        }
        tap.end();
    }
}
