//! The log: lines on stderr that never block the program.
//!
//! A thread writes them from a bounded queue. If stderr is full or closed, lines are dropped and counted. The thread starts
//! with the first line: most runs log nothing.

use std::fmt::{Debug, Write as _};
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

use engine::words::iso_8601;
use engine::words::visible;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::env;

/// How many lines may wait. If it is full, further lines are dropped and counted.
const LINES: usize = 1024;

static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Reads the name of a level.
///
/// # Errors
/// Lists the valid names.
pub(crate) fn level(name: &str) -> Result<Level, String> {
    name.parse().map_err(|_| "must be one of error, warn, info, debug, trace".to_owned())
}

/// Starts logging at `given`, at the level of the environment, or at warnings.
pub fn start(given: Option<Level>) {
    let asked = env::log_level().filter(|_| given.is_none()).map(|name| level(&name));
    let level = given.or_else(|| asked.clone()?.ok()).unwrap_or(Level::WARN);
    if tracing::subscriber::set_global_default(Lines { level }).is_err() {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(Err(why)) = asked {
        tracing::warn!("$PURLIN_LOG: {why}");
    }
}

/// The queue to the thread that writes.
static QUEUE: LazyLock<SyncSender<String>> = LazyLock::new(|| {
    // If it is full, the line is dropped and counted.
    let (sender, lines) = sync_channel::<String>(LINES);
    let thread = std::thread::Builder::new().name("log".to_owned()).stack_size(128 * 1024);
    // Without a thread the queue has no reader, and every line is counted.
    drop(thread.spawn(move || write(lines)));
    sender
});

fn write(lines: Receiver<String>) {
    let mut stderr = std::io::stderr();
    for line in lines {
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        let note =
            if left_out > 0 { format!("({left_out} lines were dropped)\n") } else { String::new() };
        // If stderr is closed, nothing reads the lines.
        if stderr
            .write_all(note.as_bytes())
            .and_then(|()| stderr.write_all(line.as_bytes()))
            .is_err()
        {
            return;
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
    level: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        // The MCP library logs everything that is sent and received, at every level.
        about.is_event() && *about.level() <= self.level && !about.target().starts_with("rmcp")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        let now = iso_8601(SystemTime::now());
        let mut line = Line(format!("{now} {:>5}", event.metadata().level()));
        event.record(&mut line);
        if QUEUE.try_send(one_line(&line.0)).is_err() {
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

/// Escapes control characters and newlines, so that foreign text cannot control a terminal or forge a log line.
fn one_line(text: &str) -> String {
    visible(text).replace('\n', "\\n") + "\n"
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        if written.is_err() {
            self.0.push_str(" (cannot be written)");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_on_one_line_and_cannot_control_the_terminal() {
        assert_eq!(one_line("a\nb\u{1b}[2Jc"), "a\\nb\\u{1b}[2Jc\n");
    }
}
