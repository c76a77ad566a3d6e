//! The pipes of a program: a message a line. A line that is too long or is no message never stops the others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use process::{ChildStdin, ChildStdout};
use rmcp::model::NumberOrString;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use wire::line::{Line, LineDecoder, SizeLimits};

use super::{MAX_MESSAGE, OpenCalls};

/// How many lines of a program may be no messages before it is given up.
const MAX_GARBAGE: usize = 100;
const CHUNK: usize = 64 * 1024;

/// The pipes of a program.
pub(crate) struct Stdio {
    /// One writer at a time. A program that does not read makes the others wait, and each of them has a deadline.
    input: Arc<Mutex<Option<ChildStdin>>>,
    output: ChildStdout,
    lines: LineDecoder,
    chunk: Vec<u8>,
    calls: OpenCalls,
    garbage: usize,
    is_garbage: Arc<AtomicBool>,
}

impl Stdio {
    /// Makes a transport. `is_garbage` is set when it ends because too much came that is no message.
    pub(crate) fn new(
        input: ChildStdin,
        output: ChildStdout,
        is_garbage: Arc<AtomicBool>,
    ) -> (Stdio, Arc<Mutex<Option<ChildStdin>>>) {
        let limits = SizeLimits {
            initialize: MAX_MESSAGE,
            new_session: MAX_MESSAGE,
            prompt: MAX_MESSAGE,
            prompt_data: 0,
            update: MAX_MESSAGE,
            file: MAX_MESSAGE,
            other: MAX_MESSAGE,
        };
        let input = Arc::new(Mutex::new(Some(input)));
        let stdio = Stdio {
            input: Arc::clone(&input),
            output,
            lines: LineDecoder::new(limits),
            chunk: vec![0; CHUNK],
            calls: OpenCalls::default(),
            garbage: 0,
            is_garbage,
        };
        (stdio, input)
    }

    /// Returns the next message among the bytes that came.
    fn next(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        while let Some(line) = self.lines.next_line() {
            let message = match line {
                Line::Whole(line) => super::read(line),
                Line::TooLong(line) => {
                    let id = line.peek.id().and_then(|id| i64::try_from(id.as_number()?).ok());
                    id.map(|id| {
                        super::broken_reply(NumberOrString::Number(id), "its answer is too long")
                    })
                }
            };
            match message {
                Some(message) if self.calls.is_wanted(&message) => return Some(message),
                Some(_) => {}
                None => self.garbage += 1,
            }
        }
        None
    }
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = Arc::clone(&self.input);
        self.calls.note_sent(&message);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            match &mut *input.lock().await {
                Some(input) => input.write_all(&line).await,
                None => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Some(message) = self.next() {
                return Some(message);
            }
            if self.garbage > MAX_GARBAGE {
                self.is_garbage.store(true, Ordering::Relaxed);
                return None;
            }
            match self.output.read(&mut self.chunk).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.lines.feed(&self.chunk[..count]),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // A write that is stuck keeps its pipe; the program is about to be killed.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        Ok(())
    }
}
