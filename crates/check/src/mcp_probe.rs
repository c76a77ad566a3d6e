//! A small MCP server on stdin and stdout. It writes to a file what is asked of it, so that cases can see it.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::path::Path;

use serde_json::{Value, json};

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
        let method = message["method"].as_str().unwrap_or_default();
        writeln!(log, "{method}")?;
        let Some(id) = message.get("id") else { continue };
        let result = match method {
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
                writeln!(output, "{}", json!({ "jsonrpc": "2.0", "id": id, "error": error }))?;
                output.flush()?;
                continue;
            }
        };
        writeln!(output, "{}", json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
        output.flush()?;
    }
    writeln!(log, "ended")
}
