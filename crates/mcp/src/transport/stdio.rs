//! The pipes of a local process: one message per line. A line that is too long or invalid does not affect the others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use process::{ChildStdin, ChildStdout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use wire::line::{Line, LineDecoder, SizeLimits};

use super::{MAX_MESSAGE, Pipe};
use crate::connection::{Failure, Inbox};
use crate::error::Error;

/// A process is ended after this many lines that are not messages.
const MAX_INVALID_LINES: usize = 100;
const CHUNK: usize = 64 * 1024;

/// The stdin of a process.
pub(crate) struct Stdio {
    /// Used by one writer at a time. If the process does not read, the other writers wait until their own deadlines.
    input: Arc<Mutex<Option<ChildStdin>>>,
}

impl Stdio {
    pub(crate) fn new(input: ChildStdin) -> Stdio {
        Stdio { input: Arc::new(Mutex::new(Some(input))) }
    }
}

impl Pipe for Stdio {
    fn send(&self, message: Vec<u8>, _call: Option<u64>) -> BoxFuture<'static, Result<(), Error>> {
        let input = Arc::clone(&self.input);
        async move {
            let written = match &mut *input.lock().await {
                Some(input) => input.write_all(&message).await,
                None => Err(io::ErrorKind::BrokenPipe.into()),
            };
            written.map_err(|err| Error::Unreachable(format!("its stdin is closed: {err}")))
        }
        .boxed()
    }

    fn end(&self) -> BoxFuture<'static, ()> {
        // A blocked write keeps the pipe open. The process is about to be killed anyway.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        std::future::ready(()).boxed()
    }
}

/// Reads the stdout of a process to its end. Sets `has_invalid_output` if too many lines are not messages.
pub(crate) async fn read(
    mut output: ChildStdout,
    inbox: Arc<Inbox>,
    has_invalid_output: Arc<AtomicBool>,
) {
    let mut lines = LineDecoder::new(SizeLimits {
        initialize: MAX_MESSAGE,
        new_session: MAX_MESSAGE,
        prompt: MAX_MESSAGE,
        prompt_data: 0,
        update: MAX_MESSAGE,
        file: MAX_MESSAGE,
        other: MAX_MESSAGE,
    });
    let mut chunk = vec![0; CHUNK];
    let mut invalid_lines = 0;
    while let Ok(count @ 1..) = output.read(&mut chunk).await {
        lines.feed(&chunk[..count]);
        while let Some(line) = lines.next_line() {
            let is_message = match line {
                Line::Whole(line) => inbox.receive(line),
                Line::TooLong(line) => {
                    let why = || Failure::Refused("its response is too large".to_owned());
                    let number = line.peek.id().and_then(|id| id.as_number());
                    number.map(|number| inbox.finish(number, Err(why()))).is_some()
                }
            };
            invalid_lines += usize::from(!is_message);
        }
        if invalid_lines > MAX_INVALID_LINES {
            has_invalid_output.store(true, Ordering::Relaxed);
            break;
        }
    }
    inbox.close();
}
