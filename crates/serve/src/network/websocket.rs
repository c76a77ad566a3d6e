//! A WebSocket as the pipes of a connection: one text frame is one message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::MAX_MESSAGE;
use crate::options::Pipes;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// How often a silent client is pinged.
const PING: Duration = Duration::from_secs(15);
/// A client that sends nothing for so long, not even an answer to a ping, is gone.
const SILENCE: Duration = Duration::from_secs(45);
/// How long one write may take.
const STALLED: Duration = Duration::from_secs(60);
/// How many messages may wait for the dispatcher. Full: the socket is not read.
const READS: usize = 4;
/// The buffers of a socket. Small, because most sockets are idle.
const BUFFER: usize = 4 * 1024;

/// The end of a socket that moves its bytes.
pub(super) struct Pump {
    socket: Socket,
    input: mpsc::Sender<Vec<u8>>,
    batches: mpsc::Receiver<Vec<u8>>,
    to_ack: mpsc::Sender<std::io::Result<Vec<u8>>>,
    progress: Arc<AtomicU64>,
}

/// Takes over an upgraded socket.
pub(super) async fn open(upgraded: Upgraded) -> (Pump, Pipes) {
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_write_buffer_size(2 * MAX_MESSAGE)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let socket =
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let (input, from_client) = mpsc::channel(READS);
    // Has room for one: the dispatcher sends the next when the last is written.
    let (output, batches) = mpsc::channel(1);
    let (to_ack, written) = mpsc::channel(1);
    let progress = Arc::new(AtomicU64::new(0));
    let pipes = Pipes { input: from_client, output, written, progress: Arc::clone(&progress) };
    (Pump { socket, input, batches, to_ack, progress }, pipes)
}

impl Pump {
    /// Moves messages both ways until either end is closed.
    pub(super) async fn run(self) {
        let Pump { socket, input, batches, to_ack, progress } = self;
        let (sink, stream) = socket.split();
        tokio::select! {
            () = async { read(stream, input).await; std::future::pending().await } => {}
            () = write(sink, batches, &to_ack, &progress) => {}
        }
    }
}

/// Reads until the client is gone; the dispatcher notices that its input has ended.
async fn read(mut stream: futures_util::stream::SplitStream<Socket>, input: mpsc::Sender<Vec<u8>>) {
    while let Ok(Some(Ok(message))) = timeout(SILENCE, stream.next()).await {
        let text = match message {
            Message::Text(text) => text,
            Message::Close(_) => return,
            // Binary frames are not part of the protocol.
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {
                continue;
            }
        };
        if input.send(line_of(text.as_bytes())).await.is_err() {
            return;
        }
    }
}

/// Makes a line of a message. A line break can only be between the tokens of its JSON.
pub(super) fn line_of(message: &[u8]) -> Vec<u8> {
    let mut line: Vec<u8> = Vec::with_capacity(message.len() + 1);
    line.extend(
        message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }),
    );
    line.push(b'\n');
    line
}

async fn write(
    mut sink: futures_util::stream::SplitSink<Socket, Message>,
    mut batches: mpsc::Receiver<Vec<u8>>,
    to_ack: &mpsc::Sender<std::io::Result<Vec<u8>>>,
    progress: &AtomicU64,
) {
    loop {
        let batch = match timeout(PING, batches.recv()).await {
            Err(_) => {
                let ping = sink.send(Message::Ping(Bytes::new()));
                match timeout(STALLED, ping).await {
                    Ok(Ok(())) => continue,
                    _ => return,
                }
            }
            Ok(None) => break,
            Ok(Some(batch)) => batch,
        };
        let lines = batch.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for line in lines {
            let Ok(text) = Utf8Bytes::try_from(Bytes::copy_from_slice(line)) else { continue };
            match timeout(STALLED, sink.feed(Message::Text(text))).await {
                Ok(Ok(())) => progress.fetch_add(1, Ordering::Relaxed),
                _ => return,
            };
        }
        if !matches!(timeout(STALLED, sink.flush()).await, Ok(Ok(()))) {
            return;
        }
        let mut batch = batch;
        batch.clear();
        if to_ack.send(Ok(batch)).await.is_err() {
            break;
        }
    }
    let close = CloseFrame {
        code: CloseCode::Away,
        reason: Utf8Bytes::from_static("the connection has ended"),
    };
    drop(timeout(Duration::from_secs(1), sink.send(Message::Close(Some(close)))).await);
}
