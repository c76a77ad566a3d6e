//! The tap: stands between a pipe and its reader or writer and hands a copy of what passes to a thread that writes it down.
//!
//! Never holds the pipe up: what the thread cannot keep up with is dropped and counted. Where nobody traces there is no tap.

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

/// How many pieces may wait to be written down. Full: a piece is dropped and counted.
const PIECES: usize = 64;
/// A longer line is recorded by its length alone.
const MAX_LINE: usize = 1024 * 1024;
/// How long the last pieces may take to be written down.
const END: Duration = Duration::from_secs(1);

/// A trace that is being written. Clones share it.
#[derive(Debug, Clone)]
pub struct Tap {
    pieces: SyncSender<Piece>,
    lost: Arc<AtomicU64>,
    ended: Arc<Mutex<Receiver<()>>>,
}

/// Something that passed.
#[derive(Debug)]
enum Piece {
    Bytes { time: u64, direction: Direction, lost: u64, bytes: Vec<u8> },
    End,
}

impl Tap {
    /// Begins a trace in a file, which only its owner can read. `forced` is the dialect that is spoken whatever the client says.
    ///
    /// # Errors
    /// Fails if the file or the thread cannot be made.
    pub fn open(file: &Path, forced: Option<Dialect>) -> io::Result<Tap> {
        let mut options = File::options();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Tap::to(options.open(file)?, forced)
    }

    /// Begins a trace in anything that can be written to.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn to(out: impl Write + Send + 'static, forced: Option<Dialect>) -> io::Result<Tap> {
        let (pieces, passing) = sync_channel(PIECES);
        let (done, ended) = sync_channel(1);
        let work = move || {
            if let Err(err) = write_down(&passing, BufWriter::new(out), forced) {
                tracing::warn!("the trace cannot be written: {err}");
            }
            // Nobody may wait for it.
            done.try_send(()).ok();
        };
        std::thread::Builder::new().name("trace".to_owned()).spawn(work)?;
        Ok(Tap { pieces, lost: Arc::default(), ended: Arc::new(Mutex::new(ended)) })
    }

    /// Returns a reader that passes on what `input` gives.
    pub fn inbound<R: Read>(&self, input: R) -> Tapped<R> {
        Tapped { pipe: input, direction: Direction::In, tap: self.clone() }
    }

    /// Returns a writer that passes on to `output`.
    pub fn outbound<W: Write>(&self, output: W) -> Tapped<W> {
        Tapped { pipe: output, direction: Direction::Out, tap: self.clone() }
    }

    /// Ends the trace and waits a moment for its last lines.
    pub fn end(&self) {
        // A trace that is behind gets the moment, too; what it does not reach is lost with the process.
        let mut end = Piece::End;
        let begun = std::time::Instant::now();
        while let Err(std::sync::mpsc::TrySendError::Full(back)) = self.pieces.try_send(end) {
            if begun.elapsed() >= END {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
            end = back;
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(END) {
            tracing::warn!("the trace is not whole: its file takes too long to be written");
        }
    }

    fn take(&self, direction: Direction, bytes: &[u8]) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let piece = Piece::Bytes { time: now(), direction, lost, bytes: bytes.to_vec() };
        if self.pieces.try_send(piece).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A pipe with a tap.
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
        // Before it is written: the client's next message may come before we know that it was.
        self.tap.take(self.direction, bytes);
        self.pipe.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

/// One direction as it is put together again.
struct Lines {
    decoder: LineDecoder,
    /// Set behind a gap: the rest of a line whose front is lost is no line.
    is_torn: bool,
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
        Lines { decoder: LineDecoder::new(limits), is_torn: false }
    }

    fn tear(&mut self) {
        *self = Lines { is_torn: true, ..Lines::new() };
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        if self.is_torn {
            let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else {
                return;
            };
            self.is_torn = false;
            bytes = &bytes[at + 1..];
        }
        self.decoder.feed(bytes);
    }
}

/// Writes down what passes until the end.
fn write_down(
    passing: &Receiver<Piece>,
    mut out: impl Write,
    forced: Option<Dialect>,
) -> io::Result<()> {
    let mut recorder = Recorder::new(forced);
    let (mut inbound, mut outbound) = (Lines::new(), Lines::new());
    loop {
        let piece = match passing.try_recv() {
            Err(TryRecvError::Empty) => {
                // Whoever follows the file sees everything while nothing happens.
                out.flush()?;
                passing.recv().ok()
            }
            piece => piece.ok(),
        };
        let Some(Piece::Bytes { time, direction, lost, bytes }) = piece else {
            return out.flush();
        };
        if lost > 0 {
            inbound.tear();
            outbound.tear();
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
    fn what_passes_in_pieces_is_written_down_whole() {
        let out = Shared::default();
        let tap = Tap::to(out.clone(), None).unwrap();
        let call = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n";
        let mut input = tap.inbound(&call[..]);
        let mut piece = [0; 10];
        let mut read = Vec::new();
        while let count @ 1.. = input.read(&mut piece).unwrap() {
            read.extend_from_slice(&piece[..count]);
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

    /// A file that takes nothing until it is let go.
    struct Stuck(Receiver<()>, Shared);

    impl Write for Stuck {
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
    fn a_file_that_is_stuck_holds_nobody_up_and_the_gap_is_told() {
        let (go, wait) = sync_channel(0);
        let out = Shared::default();
        let tap = Tap::to(Stuck(wait, out.clone()), None).unwrap();
        let mut pipe = tap.outbound(io::sink());
        let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n", "m".repeat(2000));
        for _ in 0..PIECES * 3 {
            pipe.write_all(line.as_bytes()).unwrap();
        }
        drop(go);
        // Room comes when the thread gets on; then the next piece says what was lost.
        let is_told =
            |records: &[Record]| records.iter().any(|record| matches!(record, Record::Lost { .. }));
        while !is_told(&records(&out)) {
            pipe.write_all(line.as_bytes()).unwrap();
            std::thread::yield_now();
        }
        tap.end();
    }
}
