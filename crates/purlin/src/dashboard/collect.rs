//! Finds the agents that run, through their sockets, and puts what they report on the board.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use observe::Record;
use observe::board::Board;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::SharedBoard;
use super::push::SpanSender;

/// How often new agents are looked for, and processes are measured.
const PERIOD: Duration = Duration::from_millis(500);
/// A longer line is none of ours, and its sender is left.
const MAX_LINE: u64 = 4 * 1024 * 1024;
/// More agents are not watched.
const MAX_AGENTS: usize = 500;

/// Collects until it is dropped.
pub(super) async fn collect(directory: PathBuf, board: SharedBoard, spans: Option<SpanSender>) {
    let mut watched: HashSet<PathBuf> = HashSet::new();
    let mut readers: JoinSet<PathBuf> = JoinSet::new();
    let mut measured = Instant::now();
    loop {
        while let Some(ended) = readers.try_join_next() {
            if let Ok(path) = ended {
                watched.remove(&path);
            }
        }
        for path in sockets(&directory) {
            if watched.len() < MAX_AGENTS && watched.insert(path.clone()) {
                readers.spawn(watch(path, board.clone(), spans.clone()));
            }
        }
        let passed = measured.elapsed();
        if passed >= Duration::from_secs(1) {
            measured = Instant::now();
            measure(&board, passed.as_secs_f64());
        }
        lock(&board).tick(now());
        tokio::time::sleep(PERIOD).await;
    }
}

/// Returns the time: milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn lock(board: &SharedBoard) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
}

/// Puts all records of an agent on the board, until it ends. Returns its socket.
async fn watch(path: PathBuf, board: SharedBoard, spans: Option<SpanSender>) -> PathBuf {
    let stream = match UnixStream::connect(&path).await {
        Ok(stream) => stream,
        Err(err) => {
            // Nobody listens: its process was killed and could not remove it.
            if err.kind() == std::io::ErrorKind::ConnectionRefused {
                std::fs::remove_file(&path).ok();
            }
            return path;
        }
    };
    let mut input = BufReader::new(stream);
    let (mut line, mut pid) = (Vec::new(), None);
    loop {
        line.clear();
        let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) || !line.ends_with(b"\n") {
            break;
        }
        let Some(record) = Record::parse(&String::from_utf8_lossy(&line)) else { continue };
        if let Record::Process { process, .. } = &record {
            pid = Some(process.pid);
        }
        if let Some(pid) = pid {
            lock(&board).take(pid, &record);
        }
        if let (Some(spans), Record::Span(span)) = (&spans, record)
            && span.duration_ms.is_some()
        {
            spans.send(*span);
        }
    }
    if let Some(pid) = pid {
        lock(&board).ended(pid, now());
    }
    path
}

/// Notes what the processes use, where the system tells it.
fn measure(board: &SharedBoard, seconds: f64) {
    let mut board = lock(board);
    for pid in board.running() {
        let Some((parent, memory, cpu)) = usage(pid) else { continue };
        board.measured(pid, &parent, memory, cpu, seconds);
    }
}

/// Returns the name of a process's parent, its memory in bytes, and its CPU time in seconds.
fn usage(pid: u32) -> Option<(String, u64, f64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the numbers come after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let parent = number(1)?;
    // Linux counts in hundredths of a second and, on all common machines, in pages of 4 KiB.
    let cpu = (number(11)? + number(12)?) as f64 / 100.0;
    let memory = number(21)? * 4096;
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
    Some((name.trim().to_owned(), memory, cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O3
    #[test]
    #[cfg(target_os = "linux")]
    fn own_process_uses_memory_and_has_a_parent() {
        let (parent, memory, _) = usage(std::process::id()).unwrap();
        assert!(!parent.is_empty() && memory > 100_000, "{parent} {memory}");
        assert_eq!(usage(u32::MAX), None);
    }
}
