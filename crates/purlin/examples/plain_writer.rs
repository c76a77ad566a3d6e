//! The least an agent can do to say something: a loop that writes updates to stdout and does nothing else.
//!
//! `plain_writer lines N` writes each line on its own, `plain_writer batches N` as many at once as fill 64 KiB. It
//! waits for a line on stdin first, and ends with the answer to a prompt, so `cargo xtask bench` drives it like an agent.

use std::io::{BufRead, Write};
use std::sync::Arc;

use serde::Serialize;
use wire::acp::schema;

const PIECE: &str = "some twenty bytes of text ";
const BATCH: usize = 64 * 1024;

/// A note, with its members in the order in which Purlin writes them.
#[derive(Serialize)]
struct Note<'a> {
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
    // Stays until its input ends, so that its times can be read.
    lines.next().transpose()?;
    Ok(())
}

fn write(count: usize, batch: usize) -> anyhow::Result<()> {
    let session: Arc<str> = "01890a5d-ac96-774b-bcce-b302099a8057".into();
    let message: Arc<str> = "01890a5d-ac96-774b-bcce-b302099a8058".into();
    // Passes whole lines on as they are, without a copy.
    let mut out = std::io::stdout().lock();
    let mut buffer = Vec::with_capacity(2 * BATCH);
    for _ in 0..count {
        let text = schema::ContentBlock::Text(schema::TextContent::new(PIECE));
        let chunk = schema::ContentChunk::new(text)
            .message_id(schema::MessageId::new(Arc::clone(&message)));
        let params = schema::SessionNotification::new(
            schema::SessionId::new(Arc::clone(&session)),
            schema::SessionUpdate::AgentMessageChunk(chunk),
        );
        let note = Note { jsonrpc: "2.0", method: "session/update", params: &params };
        serde_json::to_writer(&mut buffer, &note)?;
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
