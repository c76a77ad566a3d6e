//! Stdin and stdout as channels.
//!
//! A thread for each works everywhere. If both are pipes, as with most editors, two tasks avoid the threads and a context
//! switch for every message.

#[cfg(target_os = "linux")]
mod pipe;

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::options::Pipes;

/// The size of a read.
const READ: usize = 64 * 1024;
/// How many reads may wait for the dispatcher. Full: the reader waits, and finally the client.
const READS: usize = 4;
/// The size of a write: small enough that progress of a slow client is noticed.
const WRITE: usize = 16 * 1024;
/// A batch buffer larger than this is freed after use.
const MAX_CAPACITY: usize = 256 * 1024;

/// Starts the reader and the writer of this process, as tasks if possible.
///
/// # Errors
/// Fails if a thread cannot be started.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unused_variables, reason = "only pipes of Linux are served by tasks")
)]
pub fn pipes(tasks: &mut JoinSet<()>) -> std::io::Result<Pipes> {
    #[cfg(target_os = "linux")]
    if let Some(ends) = pipe::Ends::open() {
        return Ok(ends.connect(tasks));
    }
    connect(std::io::stdin(), std::io::stdout())
}

/// Starts threads that read and write any two streams. They end with their streams, or with the process.
///
/// # Errors
/// Fails if a thread cannot be started.
pub fn connect(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> std::io::Result<Pipes> {
    let (to_dispatcher, from_client) = mpsc::channel(READS);
    let (to_writer, batches) = mpsc::channel(1);
    let (to_ack, written) = mpsc::channel(1);
    thread("read", move || read(input, &to_dispatcher))?;
    let progress = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&progress);
    thread("write", move || write(output, batches, &to_ack, &counter))?;
    Ok(Pipes { input: from_client, output: to_writer, written, progress })
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // The threads only copy, so a small stack is enough.
    std::thread::Builder::new().name(name.to_owned()).stack_size(128 * 1024).spawn(work).map(drop)
}

fn read(input: impl Read, to_dispatcher: &mpsc::Sender<Vec<u8>>) {
    // The buffer is not zeroed, so that unused memory is never touched.
    let mut input = BufReader::with_capacity(READ, input);
    loop {
        let bytes = match input.fill_buf() {
            Ok([]) => return,
            Ok(bytes) => bytes.to_vec(),
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(err) => {
                tracing::error!("cannot read stdin: {err}");
                return;
            }
        };
        input.consume(bytes.len());
        if to_dispatcher.blocking_send(bytes).is_err() {
            return;
        }
    }
}

fn write(
    mut output: impl Write,
    mut batches: mpsc::Receiver<Vec<u8>>,
    to_ack: &mpsc::Sender<std::io::Result<Vec<u8>>>,
    progress: &AtomicU64,
) {
    while let Some(batch) = batches.blocking_recv() {
        let mut chunks = batch.chunks(WRITE);
        let written = chunks.try_for_each(|chunk| {
            output.write_all(chunk).and_then(|()| output.flush())?;
            progress.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let written = written.map(|()| emptied(batch));
        let has_failed = written.is_err();
        if to_ack.blocking_send(written).is_err() || has_failed {
            return;
        }
    }
}

/// Prepares a written batch for reuse.
fn emptied(mut batch: Vec<u8>) -> Vec<u8> {
    batch.clear();
    batch.shrink_to(MAX_CAPACITY);
    batch
}
