//! A minimal relay between a model and a client: sends a request, reads its events, and writes an update for each.
//!
//! `plain_relay ADDRESS:PORT` waits for a line on stdin, requests one streamed chat completion from that server and
//! writes every text chunk as an update, then the answer to a prompt. It repeats this for each further line, so that
//! `cargo xtask bench` can drive it like an agent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use wire::acp::schema;

const BODY: &str = r#"{"model":"fake","stream":true,"messages":[{"role":"user","content":"go"}]}"#;

/// A notification, with its members in the order in which Purlin writes them.
#[derive(Serialize)]
struct Notification<'a> {
    jsonrpc: &'static str,
    method: &'static str,
    params: &'a schema::SessionNotification,
}

/// The used part of an event.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).context("usage: plain_relay ADDRESS:PORT")?;
    let stream = TcpStream::connect(&address)?;
    stream.set_nodelay(true)?;
    let mut server = BufReader::with_capacity(64 * 1024, stream);
    let mut id = 0;
    for line in std::io::stdin().lock().lines() {
        line?;
        id += 1;
        let length = BODY.len();
        write!(
            server.get_mut(),
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{BODY}"
        )?;
        relay(&mut server, id)?;
    }
    Ok(())
}

/// Reads one answer, chunk by chunk, and writes the updates of each.
fn relay(server: &mut BufReader<TcpStream>, id: u64) -> anyhow::Result<()> {
    let mut line = String::new();
    // The HTTP header is skipped.
    while line != "\r\n" {
        line.clear();
        anyhow::ensure!(
            server.read_line(&mut line)? > 0,
            "the connection ended in the HTTP header"
        );
    }
    let mut out = std::io::stdout().lock();
    let (mut events, mut lines) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        server.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).context("invalid chunk size")?;
        let begin = events.len();
        events.resize(begin + size, 0);
        server.read_exact(&mut events[begin..])?;
        server.read_exact(&mut [0; 2])?;
        if size == 0 {
            break;
        }
        let whole = events.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for event in events[..whole].split(|byte| *byte == b'\n') {
            if let Some(data) = event.strip_prefix(b"data: ") {
                update(data, &mut lines)?;
            }
        }
        events.drain(..whole);
        out.write_all(&lines)?;
        lines.clear();
    }
    writeln!(
        out,
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"stopReason\":\"end_turn\"}}}}"
    )?;
    Ok(())
}

/// Writes the update for one event, if it has text.
fn update(data: &[u8], lines: &mut Vec<u8>) -> anyhow::Result<()> {
    if data.starts_with(b"[DONE]") {
        return Ok(());
    }
    let event: Event = serde_json::from_slice(data)?;
    let texts = event.choices.into_iter().filter_map(|choice| choice.delta.content);
    for text in texts.filter(|text| !text.is_empty()) {
        let session: Arc<str> = "01890a5d-ac96-774b-bcce-b302099a8057".into();
        let message: Arc<str> = "01890a5d-ac96-774b-bcce-b302099a8058".into();
        let text = schema::ContentBlock::Text(schema::TextContent::new(text));
        let chunk = schema::ContentChunk::new(text).message_id(schema::MessageId::new(message));
        let update = schema::SessionUpdate::AgentMessageChunk(chunk);
        let params = schema::SessionNotification::new(schema::SessionId::new(session), update);
        let notification =
            Notification { jsonrpc: "2.0", method: "session/update", params: &params };
        serde_json::to_writer(&mut *lines, &notification)?;
        lines.push(b'\n');
    }
    Ok(())
}
