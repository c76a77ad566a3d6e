//! The log: lines on stderr and in a file, which never block the program.
//!
//! A thread writes them from a bounded queue. If stderr is full or closed, lines are dropped and counted. The thread starts
//! with the first line. The file gets more than stderr, so that a problem can be looked at after it happened.

mod file;
mod line;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use self::file::LogFile;
pub(crate) use self::line::Line;
use crate::env;

/// How many lines may wait. If it is full, further lines are dropped and counted.
const LINES: usize = 1024;

/// How long the last lines may take when the process ends.
const FLUSH: Duration = Duration::from_millis(300);

static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// Whether anything was logged: otherwise there is no thread.
static HAS_LINES: AtomicBool = AtomicBool::new(false);
/// The file; set before the first line.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// How lines are written to stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// What is logged.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogOptions {
    /// The level on stderr; `None` for that of the environment, or warnings.
    pub level: Option<Level>,
    /// How lines are written to stderr.
    pub format: Format,
    /// Whether there is a file, too.
    pub has_file: bool,
    /// Writes nothing to stderr if it is a terminal: something is drawn there.
    pub is_drawn: bool,
}

/// Reads the name of a level.
///
/// # Errors
/// Lists the valid names.
pub(crate) fn level(name: &str) -> Result<Level, String> {
    name.parse().map_err(|_| "must be one of error, warn, info, debug, trace".to_owned())
}

/// Starts logging.
pub fn start(options: LogOptions) {
    let asked = env::log_level().filter(|_| options.level.is_none()).map(|name| level(&name));
    let stderr = options.level.or_else(|| asked.clone()?.ok()).unwrap_or(Level::WARN);
    let (file, problem) = match options.has_file {
        true => file_level(stderr),
        false => (None, None),
    };
    let is_drawn = options.is_drawn && std::io::stderr().is_terminal();
    let shown = (!is_drawn).then_some(stderr);
    let lines = Lines { stderr: shown, file, format: options.format };
    if tracing::subscriber::set_global_default(lines).is_err() {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(Err(why)) = asked {
        tracing::warn!("$PURLIN_LOG: {why}");
    }
    if let Some(why) = problem {
        tracing::warn!("$PURLIN_LOG_FILE: {why}");
    }
}

/// Returns the level of the file: at least information, and all that stderr gets. `None` if it is switched off.
fn file_level(stderr: Level) -> (Option<Level>, Option<String>) {
    let Some(path) = file_path() else { return (None, None) };
    let asked = env::log_file_level();
    if asked.as_deref() == Some("off") {
        return (None, None);
    }
    FILE.set(path).ok();
    match asked.map(|name| level(&name)) {
        Some(Ok(level)) => (Some(level), None),
        Some(Err(why)) => (Some(Level::INFO.max(stderr)), Some(why.replace("one of ", "off, "))),
        None => (Some(Level::INFO.max(stderr)), None),
    }
}

/// Returns the path of the file.
pub(crate) fn file_path() -> Option<PathBuf> {
    Some(env::directories().state?.join("log/purlin.log"))
}

/// Returns the files of the log, the oldest first.
pub(crate) fn files() -> Vec<PathBuf> {
    file_path().map(|path| file::all(&path)).unwrap_or_default()
}

/// What the thread is asked to do.
enum Job {
    Write(Queued),
    /// Tell when everything before is written.
    Flush(SyncSender<()>),
}

/// A line on its way to the thread, and where it goes.
struct Queued {
    line: Line,
    to_stderr: bool,
    to_file: bool,
    format: Format,
}

/// The queue to the thread that writes.
static QUEUE: LazyLock<SyncSender<Job>> = LazyLock::new(|| {
    // If it is full, the line is dropped and counted.
    let (sender, lines) = sync_channel::<Job>(LINES);
    let thread = std::thread::Builder::new().name("log".to_owned()).stack_size(128 * 1024);
    // Without a thread the queue has no reader, and every line is counted.
    drop(thread.spawn(move || write(&lines)));
    sender
});

/// Waits a moment for the last lines: the process is about to end.
pub fn flush() {
    if HAS_LINES.load(Ordering::Relaxed) {
        let (done, written) = sync_channel(1);
        if QUEUE.try_send(Job::Flush(done)).is_ok() {
            // Without an answer in time, the lines are lost.
            written.recv_timeout(FLUSH).ok();
        }
    }
}

fn write(jobs: &Receiver<Job>) {
    let mut stderr = Some(std::io::stderr());
    let is_terminal = std::io::stderr().is_terminal();
    let mut file = FILE.get().cloned().map(LogFile::new);
    for job in jobs {
        let Queued { mut line, to_stderr, to_file, format } = match job {
            Job::Write(queued) => queued,
            Job::Flush(done) => {
                // Fails only if nobody waits any more.
                done.try_send(()).ok();
                continue;
            }
        };
        line.mask();
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        if let (Some(file), true) = (&mut file, to_file) {
            if left_out > 0 {
                file.write(&Line::note(&format!("{left_out} lines were dropped")).json());
            }
            file.write(&line.json());
        }
        let Some(out) = stderr.as_mut().filter(|_| to_stderr) else { continue };
        let note =
            if left_out > 0 { format!("({left_out} lines were dropped)\n") } else { String::new() };
        let text = match format {
            Format::Text => line.text(is_terminal),
            Format::Json => line.json(),
        };
        // If stderr is closed, nothing reads the lines.
        if out.write_all(note.as_bytes()).and_then(|()| out.write_all(text.as_bytes())).is_err() {
            stderr = None;
        }
    }
}

/// Logs where a panic happened. Its message is omitted, since it may contain anything.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| match info.location() {
        Some(place) => tracing::error!("panicked at {}:{}", place.file(), place.line()),
        None => tracing::error!("panicked"),
    }));
}

/// Writes each event as a line. Ignores spans.
struct Lines {
    stderr: Option<Level>,
    file: Option<Level>,
    format: Format,
}

impl Lines {
    /// The most detailed level that is written anywhere.
    fn most(&self) -> Option<Level> {
        self.file.max(self.stderr)
    }
}

impl Subscriber for Lines {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        // The MCP library logs everything that is sent and received, at every level.
        about.is_event()
            && Some(*about.level()) <= self.most()
            && !about.target().starts_with("rmcp")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most().map_or(LevelFilter::OFF, LevelFilter::from))
    }

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        let queued = Queued {
            line: Line::of(event),
            to_stderr: self.stderr.is_some_and(|stderr| level <= stderr),
            to_file: self.file.is_some_and(|file| level <= file),
            format: self.format,
        };
        HAS_LINES.store(true, Ordering::Relaxed);
        if QUEUE.try_send(Job::Write(queued)).is_err() {
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
