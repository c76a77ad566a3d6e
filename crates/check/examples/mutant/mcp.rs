//! The client's side of MCP, as little as the cases need.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A server that was started.
pub(crate) struct Server {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server. Without its arguments and environment if `is_bare`.
    pub(crate) fn start(server: &Value, is_bare: bool) -> Option<Server> {
        let mut command = Command::new(server["command"].as_str()?);
        let words = server["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        command.args(words.map(|word| {
            if is_bare { word.replace("check-argument", "x") } else { word.to_owned() }
        }));
        for variable in server["env"].as_array().into_iter().flatten() {
            command.env(variable["name"].as_str()?, variable["value"].as_str()?);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        Some(Server { _child: child, input, output })
    }

    pub(crate) fn begin(&mut self, lists: bool) {
        self.ask(1, "initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "mutant", "version": "1" } }));
        if lists {
            self.ask(2, "tools/list", json!({}));
        }
    }

    pub(crate) fn call(&mut self) {
        self.ask(3, "tools/call", json!({ "name": "probe", "arguments": {} }));
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{message}").and_then(|()| self.input.flush()).ok();
        let mut line = String::new();
        self.output.read_line(&mut line).ok();
    }
}
