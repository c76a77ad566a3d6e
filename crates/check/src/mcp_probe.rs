//! A small MCP server, on stdin and stdout or over HTTP. It writes to a file what is asked of it, so that cases can see it.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The longest body of a request that is read.
const LONGEST: usize = 1024 * 1024;

/// Serves until the input ends. `mark` is written to the file at the start.
///
/// # Errors
/// Fails if the file cannot be written, or the pipes are broken.
pub fn serve(
    file: &Path,
    mark: &str,
    input: impl BufRead,
    mut output: impl Write,
) -> std::io::Result<()> {
    let mut log = OpenOptions::new().create(true).append(true).open(file)?;
    writeln!(log, "started {mark}")?;
    for line in input.lines() {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        writeln!(log, "{}", message["method"].as_str().unwrap_or_default())?;
        let Some(reply) = reply(&message) else { continue };
        writeln!(output, "{reply}")?;
        output.flush()?;
    }
    writeln!(log, "ended")
}

/// Answers a message. Notifications have no answer.
fn reply(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "probe", "version": "1.0.0" },
        }),
        "tools/list" => json!({ "tools": [{
            "name": "probe", "description": "Answers with a word.",
            "inputSchema": { "type": "object", "properties": {} },
        }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": "probed" }] }),
        "ping" => json!({}),
        _ => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// The same server over streamable HTTP, on a free port of the loopback interface. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct HttpProbe {
    /// Its URL.
    pub(crate) url: String,
    /// The file that it writes to, once it is known.
    pub(crate) file: Arc<OnceLock<PathBuf>>,
    _serving: JoinSet<()>,
}

impl HttpProbe {
    /// Starts the server.
    pub(crate) async fn start() -> std::io::Result<HttpProbe> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/mcp", listener.local_addr()?);
        let file = Arc::new(OnceLock::new());
        let mut serving = JoinSet::new();
        let log = Arc::clone(&file);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                // A client that breaks its connection off is not our fault.
                connections.spawn(async move { drop(answer(stream, &log).await) });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(HttpProbe { url, file, _serving: serving })
    }
}

/// Answers one request and closes the connection.
async fn answer(stream: TcpStream, log: &OnceLock<PathBuf>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    stream.read_line(&mut request).await?;
    let (mut length, mut lines) = (0, Vec::new());
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().unwrap_or(0).min(LONGEST);
        } else if name.eq_ignore_ascii_case("x-check") {
            lines.push(format!("header {value}"));
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    lines.extend(message["method"].as_str().map(str::to_owned));
    if let Some(file) = log.get() {
        let mut log = OpenOptions::new().create(true).append(true).open(file)?;
        writeln!(log, "{}", lines.join("\n"))?;
    }
    let (status, body) = match (request.split(' ').next(), reply(&message)) {
        (Some("POST"), Some(reply)) => ("200 OK", reply.to_string()),
        (Some("POST"), None) => ("202 Accepted", String::new()),
        (Some("DELETE"), _) => ("200 OK", String::new()),
        _ => ("405 Method Not Allowed", String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
