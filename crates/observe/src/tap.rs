//! The tap: wraps a reader or a writer and sends a copy of the bytes to a thread that writes the trace.
//!
//! It never slows the pipe down: what the thread cannot keep up with is dropped and counted. It exists only while tracing.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wire::acp::dialect::Dialect;
use wire::line::{Line, LineDecoder, SizeLimits};

use crate::record::{Direction, Record, Recorder};

/// How many chunks may wait to be written. When the channel is full, a chunk is dropped and counted.
const CHUNKS: usize = 64;
/// Of a longer line only the length is recorded.
const MAX_LINE: usize = 1024 * 1024;
/// How long writing the last chunks may take.
const END_WAIT: Duration = Duration::from_secs(1);

/// A trace that is being written. Clones share it.
#[derive(Debug, Clone)]
pub struct Tap {
    chunks: SyncSender<Chunk>,
    lost: Arc<AtomicU64>,
    ended: Arc<Mutex<Receiver<()>>>,
}

/// A message to the thread.
#[derive(Debug)]
enum Chunk {
    Bytes { time: u64, direction: Direction, lost: u64, bytes: Vec<u8> },
    End,
}

impl Tap {
    /// Starts a trace in a file that only its owner can read. `forced` is the dialect that the configuration demands.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or the thread cannot be started.
    pub fn open(file: &Path, forced: Option<Dialect>) -> io::Result<Tap> {
        let mut options = File::options();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Tap::to(options.open(file)?, forced)
    }

    /// Starts a trace that is written to `out`.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn to(out: impl Write + Send + 'static, forced: Option<Dialect>) -> io::Result<Tap> {
        let (chunks, received) = sync_channel(CHUNKS);
        let (done, ended) = sync_channel(1);
        let work = move || {
            if let Err(err) = write_records(&received, BufWriter::new(out), forced) {
                tracing::warn!("cannot write the trace: {err}");
            }
            // Fails only if no caller waits for the end.
            done.try_send(()).ok();
        };
        std::thread::Builder::new().name("trace".to_owned()).spawn(work)?;
        Ok(Tap { chunks, lost: Arc::default(), ended: Arc::new(Mutex::new(ended)) })
    }

    /// Wraps a reader.
    pub fn inbound<R: Read>(&self, input: R) -> Tapped<R> {
        Tapped { pipe: input, direction: Direction::In, tap: self.clone() }
    }

    /// Wraps a writer.
    pub fn outbound<W: Write>(&self, output: W) -> Tapped<W> {
        Tapped { pipe: output, direction: Direction::Out, tap: self.clone() }
    }

    /// Ends the trace and waits up to a second for its last lines.
    pub fn end(&self) {
        // The thread also gets this time to write a backlog. What it has not written by then is lost.
        let mut end = Chunk::End;
        let begun = std::time::Instant::now();
        while let Err(std::sync::mpsc::TrySendError::Full(back)) = self.chunks.try_send(end) {
            if begun.elapsed() >= END_WAIT {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
            end = back;
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(END_WAIT) {
            tracing::warn!("the trace is incomplete: writing its file takes too long");
        }
    }

    fn take(&self, direction: Direction, bytes: &[u8]) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let chunk = Chunk::Bytes { time: now(), direction, lost, bytes: bytes.to_vec() };
        if self.chunks.try_send(chunk).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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
            self.tap.take(self.direction, &buffer[..count]);
        }
        Ok(count)
    }
}

impl<W: Write> Write for Tapped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Recorded before it is written: the client's answer may be read before `write_all` returns.
        self.tap.take(self.direction, bytes);
        self.pipe.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

/// The lines of one direction.
struct Lines {
    decoder: LineDecoder,
    /// Set after a gap: the rest of an incomplete line must be skipped.
    skip_line: bool,
}

impl Lines {
    fn new() -> Lines {
        let limits = SizeLimits {
            initialize: MAX_LINE,
            new_session: MAX_LINE,
            prompt: MAX_LINE,
            prompt_data: 0,
            update: MAX_LINE,
            file: MAX_LINE,
            other: MAX_LINE,
        };
        Lines { decoder: LineDecoder::new(limits), skip_line: false }
    }

    fn start_after_gap(&mut self) {
        *self = Lines { skip_line: true, ..Lines::new() };
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        if self.skip_line {
            let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else {
                return;
            };
            self.skip_line = false;
            bytes = &bytes[at + 1..];
        }
        self.decoder.feed(bytes);
    }
}

/// The thread's loop: writes records until the end.
fn write_records(
    received: &Receiver<Chunk>,
    mut out: impl Write,
    forced: Option<Dialect>,
) -> io::Result<()> {
    let mut recorder = Recorder::new(forced);
    let (mut inbound, mut outbound) = (Lines::new(), Lines::new());
    loop {
        let chunk = match received.try_recv() {
            Err(TryRecvError::Empty) => {
                // While nothing happens the file is complete, for those who follow it.
                out.flush()?;
                received.recv().ok()
            }
            chunk => chunk.ok(),
        };
        let Some(Chunk::Bytes { time, direction, lost, bytes }) = chunk else {
            return out.flush();
        };
        if lost > 0 {
            inbound.start_after_gap();
            outbound.start_after_gap();
            print(&mut out, &Record::Lost { time, lost })?;
        }
        let lines = match direction {
            Direction::In => &mut inbound,
            Direction::Out => &mut outbound,
        };
        lines.feed(&bytes);
        while let Some(line) = lines.decoder.next_line() {
            match line {
                Line::Whole(line) => {
                    for record in recorder.take(time, direction, line) {
                        print(&mut out, &record)?;
                    }
                }
                Line::TooLong(long) => {
                    print(&mut out, &Recorder::too_long(time, direction, long.size))?;
                }
            }
        }
    }
}

fn print(out: &mut impl Write, record: &Record) -> io::Result<()> {
    serde_json::to_writer(&mut *out, record)?;
    out.write_all(b"\n")
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
        crate::show::read(&text).0
    }

    // R: O1
    #[test]
    fn message_in_chunks_is_recorded_whole() {
        let out = Shared::default();
        let tap = Tap::to(out.clone(), None).unwrap();
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
        let tap = Tap::to(BlockedFile(wait, out.clone()), None).unwrap();
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
