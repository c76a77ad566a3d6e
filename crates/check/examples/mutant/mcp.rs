//! The client's side of MCP, as little as the cases need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A server that is used.
pub(crate) enum Server {
    /// A process.
    Process { _child: Child, input: ChildStdin, output: BufReader<ChildStdout> },
    /// An address.
    Http { address: String, headers: String },
}

impl Server {
    /// Starts a server. Without its arguments, environment and headers if `is_bare`.
    pub(crate) fn start(server: &Value, is_bare: bool) -> Option<Server> {
        if server["type"] == "http" {
            let address = server["url"].as_str()?.strip_prefix("http://")?.strip_suffix("/mcp")?;
            let headers = server["headers"].as_array().into_iter().flatten();
            let headers = headers.filter(|_| !is_bare).filter_map(|header| {
                Some(format!("{}: {}\r\n", header["name"].as_str()?, header["value"].as_str()?))
            });
            return Some(Server::Http { address: address.to_owned(), headers: headers.collect() });
        }
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
        Some(Server::Process { _child: child, input, output })
    }

    pub(crate) fn begin(&mut self, lists: bool) {
        self.ask(1, "initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "mutant", "version": "1" } }));
        if lists {
            self.ask(2, "tools/list", json!({}));
        }
    }

    pub(crate) fn is_http(&self) -> bool {
        matches!(self, Server::Http { .. })
    }

    pub(crate) fn call(&mut self) {
        self.ask(3, "tools/call", json!({ "name": "probe", "arguments": {} }));
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        match self {
            Server::Process { input, output, .. } => {
                writeln!(input, "{message}").and_then(|()| input.flush()).ok();
                let mut line = String::new();
                output.read_line(&mut line).ok();
            }
            Server::Http { address, headers } => {
                let body = message.to_string();
                let length = body.len();
                let head = format!(
                    "POST /mcp HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n"
                );
                let mut stream = TcpStream::connect(&*address).unwrap();
                stream.write_all((head + &body).as_bytes()).unwrap();
                stream.read_to_string(&mut String::new()).ok();
            }
        }
    }
}
