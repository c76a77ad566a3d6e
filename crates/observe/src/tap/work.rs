//! The work of the tap's thread: turns what it gets into records, and gives them to the trace, the log and the readers.

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::Duration;

use wire::line::{Line, LineDecoder, SizeLimits};

use super::runs::Run;
use super::{LogRecord, TapOptions};
#[cfg(unix)]
use crate::live::Reader;
use crate::mask::mask_text;
use crate::record::{Direction, ProcessInfo, Record, SpanRecord};
use crate::recorder::Recorder;
use crate::sessions::Sessions;

/// Of a longer line only the length is recorded.
const MAX_LINE: usize = 1024 * 1024;
/// How many of the last spans are kept, for a page about the last turn.
const MAX_RECENT: usize = 500;
/// How often a reader who did not keep up is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// A message to the thread.
pub(super) enum Chunk {
    Bytes {
        time: u64,
        direction: Direction,
        lost: u64,
        bytes: Vec<u8>,
    },
    Span(Box<SpanRecord>),
    Recent(SyncSender<Vec<SpanRecord>>),
    #[cfg(unix)]
    Reader(std::os::unix::net::UnixStream),
    End,
}

/// What the thread works with.
pub(super) struct Work {
    out: Option<BufWriter<Box<dyn Write + Send>>>,
    log: Option<LogRecord>,
    process: ProcessInfo,
    #[cfg(unix)]
    readers: Vec<Reader>,
    is_wanted: Arc<AtomicBool>,
    recorder: Recorder,
    inbound: Lines,
    outbound: Lines,
    run: Run,
    sessions: Sessions,
    recent: VecDeque<SpanRecord>,
}

impl Work {
    pub(super) fn new(options: TapOptions, is_wanted: Arc<AtomicBool>) -> Work {
        Work {
            out: options.out.map(BufWriter::new),
            log: options.log,
            process: options.process,
            #[cfg(unix)]
            readers: Vec::new(),
            is_wanted,
            recorder: Recorder::new(options.forced),
            inbound: Lines::new(),
            outbound: Lines::new(),
            run: Run::default(),
            sessions: Sessions::default(),
            recent: VecDeque::new(),
        }
    }

    /// Works until the end.
    pub(super) fn run(mut self, received: &Receiver<Chunk>) {
        loop {
            let chunk = match received.try_recv() {
                Err(TryRecvError::Empty) => {
                    // While nothing happens the file is complete, for those who follow it.
                    self.flush();
                    self.wait(received)
                }
                chunk => chunk.ok(),
            };
            match chunk {
                Some(Chunk::Bytes { time, direction, lost, bytes }) => {
                    self.take_bytes(time, direction, lost, &bytes);
                }
                Some(Chunk::Span(span)) => self.take_span(*span),
                // Nobody waits for the answer any more if this fails.
                Some(Chunk::Recent(reply)) => {
                    reply.try_send(self.recent.iter().cloned().collect()).ok();
                }
                #[cfg(unix)]
                Some(Chunk::Reader(stream)) => self.add_reader(stream),
                Some(Chunk::End) | None => break,
            }
        }
        self.flush();
    }

    /// Waits for the next chunk. Meanwhile, readers who did not keep up are tried again.
    fn wait(&mut self, received: &Receiver<Chunk>) -> Option<Chunk> {
        #[cfg(unix)]
        while self.readers.iter().any(Reader::has_backlog) {
            match received.recv_timeout(RETRY) {
                Ok(chunk) => return Some(chunk),
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        received.recv().ok()
    }

    fn take_bytes(&mut self, time: u64, direction: Direction, lost: u64, bytes: &[u8]) {
        if lost > 0 {
            self.inbound.start_after_gap();
            self.outbound.start_after_gap();
            self.publish(&Record::Lost { time, lost });
        }
        let mut records = Vec::new();
        let has_runs = direction == Direction::Out && self.out.is_none() && self.log.is_none();
        let lines = match direction {
            Direction::In => &mut self.inbound,
            Direction::Out => &mut self.outbound,
        };
        lines.feed(bytes);
        while let Some(line) = lines.decoder.next_line() {
            match line {
                Line::Whole(line) if has_runs && self.run.takes(time, line) => {
                    records.extend(
                        Some(&mut self.run).filter(|run| run.is_long()).and_then(Run::take),
                    );
                }
                Line::Whole(line) => {
                    records.extend(self.run.take());
                    let first = records.len();
                    records.extend(self.recorder.take(time, direction, line));
                    if let Some(record) = records.get(first).filter(|_| has_runs) {
                        self.run.begin(line, record);
                    }
                }
                Line::TooLong(long) => {
                    records.extend(self.run.take());
                    records.push(Recorder::too_long(time, direction, long.size));
                }
            }
        }
        records.iter().for_each(|record| self.publish(record));
    }

    /// Passes the open run on.
    fn end_run(&mut self) {
        if let Some(record) = self.run.take() {
            self.publish(&record);
        }
    }

    fn take_span(&mut self, mut span: SpanRecord) {
        self.end_run();
        span.name = mask_text(&span.name);
        span.error = span.error.map(|error| mask_text(&error));
        let has_ended = span.duration_ms.is_some();
        let record = Record::Span(Box::new(span));
        self.publish(&record);
        if let (true, Record::Span(span)) = (has_ended, record) {
            if self.recent.len() == MAX_RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(*span);
        }
    }

    /// Gives a record to everybody. The trace gets only spans that have ended.
    fn publish(&mut self, record: &Record) {
        self.sessions.apply(record);
        if let Some(log) = &mut self.log {
            log(record);
        }
        let is_open = matches!(record, Record::Span(span) if span.duration_ms.is_none());
        if let Some(out) = self.out.as_mut().filter(|_| !is_open)
            && let Err(err) = print(out, record)
        {
            tracing::warn!("cannot write the trace: {err}");
            self.out = None;
        }
        #[cfg(unix)]
        if !self.readers.is_empty() {
            let mut line = crate::live::line_of(record);
            line.push(b'\n');
            self.readers.iter_mut().for_each(|reader| reader.send(&line));
        }
    }

    #[cfg(unix)]
    fn add_reader(&mut self, stream: std::os::unix::net::UnixStream) {
        let hello = Record::Process {
            time: self.process.started,
            process: Box::new(self.process.clone()),
            sessions: self.sessions.states().cloned().collect(),
        };
        let Some(mut reader) = Reader::new(stream).filter(|_| self.readers.len() < Reader::MAX)
        else {
            return;
        };
        if !self.is_wanted.swap(true, Ordering::Relaxed) {
            // The next bytes may begin in the middle of a line.
            self.recorder = Recorder::default();
            self.inbound.start_in_between();
            self.outbound = Lines::new();
        }
        reader.greet(&crate::live::line_of(&hello));
        self.readers.push(reader);
    }

    fn flush(&mut self) {
        self.end_run();
        if let Some(out) = &mut self.out
            && let Err(err) = out.flush()
        {
            tracing::warn!("cannot write the trace: {err}");
            self.out = None;
        }
        #[cfg(unix)]
        {
            self.readers.iter_mut().for_each(Reader::flush);
            self.readers.retain(Reader::is_there);
            if self.readers.is_empty() && self.out.is_none() && self.log.is_none() {
                self.is_wanted.store(false, Ordering::Relaxed);
            }
        }
    }
}

fn print(out: &mut impl Write, record: &Record) -> io::Result<()> {
    serde_json::to_writer(&mut *out, record)?;
    out.write_all(b"\n")
}

/// The lines of one direction.
struct Lines {
    decoder: LineDecoder,
    /// Set after a gap: the rest of an incomplete line must be skipped.
    skip_line: bool,
    /// Set when somebody begins to look: bytes that begin like a message are one.
    may_begin: bool,
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
        Lines { decoder: LineDecoder::new(limits), skip_line: false, may_begin: false }
    }

    fn start_after_gap(&mut self) {
        *self = Lines { skip_line: true, ..Lines::new() };
    }

    fn start_in_between(&mut self) {
        self.start_after_gap();
        self.may_begin = true;
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        if self.may_begin && bytes.first() == Some(&b'{') {
            self.skip_line = false;
        }
        self.may_begin = false;
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
