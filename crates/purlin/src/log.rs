//! The log: lines on stderr that can never hold anything up.
//!
//! Written by a thread of its own behind a bounded queue; when stderr is full or closed, lines are counted, not waited for.
//! The thread starts with the first line: most runs say nothing.

use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use crate::env;

/// How many lines may wait. Full: further lines are counted and left out.
const LINES: usize = 1024;

static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Reads the name of a level.
///
/// # Errors
/// Says which there are.
pub(crate) fn level(name: &str) -> Result<Level, String> {
    name.parse().map_err(|_| "there are error, warn, info, debug and trace".to_owned())
}

/// Starts logging at `given`, at the level of the environment, or at warnings.
pub fn start(given: Option<Level>) {
    let asked = env::log_level().filter(|_| given.is_none()).map(|name| level(&name));
    let level = given.or_else(|| asked.clone()?.ok()).unwrap_or(Level::WARN);
    // The MCP library repeats what servers say and what they are sent, at every level.
    let ours = Targets::new().with_default(level).with_target("rmcp", LevelFilter::OFF);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        .with_writer(|| Line { text: Vec::new() })
        .finish()
        .with(ours);
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(Err(why)) = asked {
        tracing::warn!("$PURLIN_LOG is no log level: {why}");
    }
}

/// The queue to the thread that writes.
static QUEUE: LazyLock<SyncSender<Vec<u8>>> = LazyLock::new(|| {
    // Full: the line is counted and left out.
    let (sender, lines) = sync_channel::<Vec<u8>>(LINES);
    let thread = std::thread::Builder::new().name("log".to_owned()).stack_size(128 * 1024);
    // Without a thread the queue has no reader, and every line is counted.
    drop(thread.spawn(move || write(lines)));
    sender
});

fn write(lines: Receiver<Vec<u8>>) {
    let mut stderr = std::io::stderr();
    for line in lines {
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        let note = if left_out > 0 {
            format!("({left_out} lines were left out)\n")
        } else {
            String::new()
        };
        // Nobody reads stderr: then nobody misses the lines.
        if stderr.write_all(note.as_bytes()).and_then(|()| stderr.write_all(&line)).is_err() {
            return;
        }
    }
}

/// Logs a panic by its place. Its words stay out: they may hold anything.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| match info.location() {
        Some(place) => tracing::error!("panicked at {}:{}", place.file(), place.line()),
        None => tracing::error!("panicked"),
    }));
}

/// One line, queued when it is whole.
struct Line {
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        match QUEUE.try_send(std::mem::take(&mut self.text)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                LEFT_OUT.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
