//! A minimal writer: a loop that writes updates to stdout and does nothing else.
//!
//! `plain_writer lines N` writes each line on its own, `plain_writer batches N` in batches of 64 KiB. It first waits for a
//! line on stdin, and ends with the answer to a prompt, so that `cargo xtask bench` can drive it like an agent.

use std::io::{BufRead, Write};
use std::sync::Arc;

use serde::Serialize;
use wire::acp::schema;

const TEXT_CHUNK: &str = "some twenty bytes of text ";
const BATCH: usize = 64 * 1024;

/// A notification, with its members in the order in which Purlin writes them.
#[derive(Serialize)]
struct Notification<'a> {
    jsonrpc: &'static str,
    method: &'static str,
    params: &'a schema::SessionNotification,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [how, count] = arguments.as_slice() else {
        anyhow::bail!("usage: plain_writer lines|batches N");
    };
    let batch = match how.as_str() {
        "lines" => 0,
        "batches" => BATCH,
        other => anyhow::bail!("`{other}` is neither lines nor batches"),
    };
    let mut lines = std::io::stdin().lock().lines();
    lines.next().transpose()?;
    write(count.parse()?, batch)?;
    // Waits until its input ends, so that its CPU time can be read.
    lines.next().transpose()?;
    Ok(())
}

fn write(count: usize, batch: usize) -> anyhow::Result<()> {
    let session: Arc<str> = "01890a5d-ac96-774b-bcce-b302099a8057".into();
    let message: Arc<str> = "01890a5d-ac96-774b-bcce-b302099a8058".into();
    // `Stdout` writes whole lines without a copy.
    let mut out = std::io::stdout().lock();
    let mut buffer = Vec::with_capacity(2 * BATCH);
    for _ in 0..count {
        let text = schema::ContentBlock::Text(schema::TextContent::new(TEXT_CHUNK));
        let chunk = schema::ContentChunk::new(text)
            .message_id(schema::MessageId::new(Arc::clone(&message)));
        let params = schema::SessionNotification::new(
            schema::SessionId::new(Arc::clone(&session)),
            schema::SessionUpdate::AgentMessageChunk(chunk),
        );
        let notification =
            Notification { jsonrpc: "2.0", method: "session/update", params: &params };
        serde_json::to_writer(&mut buffer, &notification)?;
        buffer.push(b'\n');
        if buffer.len() > batch {
            out.write_all(&buffer)?;
            buffer.clear();
        }
    }
    buffer.extend_from_slice(
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"stopReason\":\"end_turn\"}}\n",
    );
    out.write_all(&buffer)?;
    Ok(())
}
