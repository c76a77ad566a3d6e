//! Stdin and stdout as pipes, read and written by tasks of the runtime.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{READ, READS, WRITE, emptied};
use crate::options::Pipes;

/// The default capacity of a pipe. A longer message needs several writes.
const USUAL: usize = 64 * 1024;
/// The capacity after a longer message; the most that an unprivileged process may set.
const WIDE: usize = 1024 * 1024;

/// Our ends of the two pipes.
pub(super) struct Ends {
    input: Receiver,
    output: Sender,
}

impl Ends {
    /// Opens both again, because `O_NONBLOCK` belongs to the open file, which other processes share with us. `None` if one of
    /// them is not a pipe.
    pub(super) fn open() -> Option<Ends> {
        let input = OpenOptions::new().open_receiver("/proc/self/fd/0").ok()?;
        let output = OpenOptions::new().open_sender("/proc/self/fd/1").ok()?;
        Some(Ends { input, output })
    }

    /// Starts the reader and the writer. They end with their pipes, or with the set.
    pub(super) fn connect(self, tasks: &mut JoinSet<()>) -> Pipes {
        let (to_dispatcher, from_client) = mpsc::channel(READS);
        let (to_writer, batches) = mpsc::channel(1);
        let (to_ack, written) = mpsc::channel(1);
        let progress = Arc::new(AtomicU64::new(0));
        tasks.spawn(read(self.input, to_dispatcher));
        tasks.spawn(write(self.output, batches, to_ack, Arc::clone(&progress)));
        Pipes { input: from_client, output: to_writer, written, progress }
    }
}

async fn read(mut input: Receiver, to_dispatcher: mpsc::Sender<Vec<u8>>) {
    let mut buffer = Vec::with_capacity(READ);
    loop {
        match input.read_buf(&mut buffer).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(err) => {
                tracing::error!("cannot read stdin: {err}");
                return;
            }
        }
        let bytes = buffer.as_slice().to_vec();
        buffer.clear();
        if to_dispatcher.send(bytes).await.is_err() {
            return;
        }
    }
}

async fn write(
    mut output: Sender,
    mut batches: mpsc::Receiver<Vec<u8>>,
    to_ack: mpsc::Sender<io::Result<Vec<u8>>>,
    progress: Arc<AtomicU64>,
) {
    let mut is_wide = false;
    while let Some(batch) = batches.recv().await {
        if batch.len() > 2 * USUAL && !is_wide {
            widen(&output);
            is_wide = true;
        }
        let written = write_out(&mut output, &batch, &progress).await;
        let has_failed = written.is_err();
        if to_ack.send(written.map(|()| emptied(batch))).await.is_err() || has_failed {
            return;
        }
    }
}

/// Enlarges the pipe, so that a long message does not wake both sides for each part. If that fails, the pipe still works.
fn widen(output: &Sender) {
    if let Err(err) = rustix::pipe::fcntl_setpipe_size(output, WIDE) {
        tracing::debug!("cannot enlarge the pipe: {err}");
    }
}

async fn write_out(output: &mut Sender, batch: &[u8], progress: &AtomicU64) -> io::Result<()> {
    for chunk in batch.chunks(WRITE) {
        output.write_all(chunk).await?;
        progress.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
