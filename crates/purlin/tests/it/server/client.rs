//! A server under test, and a client that speaks ACP to it over a WebSocket.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

/// `purlin serve` on a free port. Killed when it is dropped.
pub(crate) struct Server {
    child: Mutex<Child>,
    pub(crate) address: String,
    pub(crate) token: Option<String>,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--model"]);
        command.arg(format!("script:{}", directory.join("script.acp").display())).args(arguments);
        command.env("HOME", directory).env("XDG_DATA_HOME", directory.join("data"));
        command.env("XDG_STATE_HOME", directory.join("state"));
        command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("Listening on ws") {
            line.clear();
            assert!(printed.read_line(&mut line).unwrap() > 0, "the server did not start");
        }
        // Nobody reads the log of the server, but it must be able to write it.
        std::thread::spawn(move || std::io::copy(&mut printed, &mut std::io::sink()));
        let address = line.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Server { child: Mutex::new(child), address, token: None }
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.lock().unwrap().id();
        kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), signal).unwrap();
    }

    /// As a crash of the machine would.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        self.exit_status();
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn exit_status(&self) -> ExitStatus {
        self.child.lock().unwrap().wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        child.kill().ok();
        child.wait().ok();
    }
}

/// A client with one WebSocket.
pub(crate) struct Client {
    socket: WebSocket<TcpStream>,
    last_id: u64,
    pub(crate) answers_permission: bool,
}

impl Client {
    /// Connects and initializes.
    pub(crate) fn connect(server: &Server) -> Client {
        let mut client = Client::open_socket(server).expect("the server accepts the client");
        let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        let reply = client.call("initialize", &params, &mut Vec::new());
        assert_eq!(reply["result"]["protocolVersion"], 1, "{reply}");
        client
    }

    /// Opens the socket only; the error is the status that the server answers with.
    pub(crate) fn open_socket(server: &Server) -> Result<Client, u16> {
        let mut request = format!("ws://{}/acp", server.address).into_client_request().unwrap();
        if let Some(token) = &server.token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", value);
        }
        let stream = TcpStream::connect(&server.address).unwrap();
        match tokio_tungstenite::tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Client { socket, last_id: 0, answers_permission: true }),
            Err(tokio_tungstenite::tungstenite::HandshakeError::Failure(
                tokio_tungstenite::tungstenite::Error::Http(response),
            )) => Err(response.status().as_u16()),
            Err(err) => panic!("{err}"),
        }
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.socket.send(Message::text(call.to_string())).unwrap();
        id
    }

    /// Returns the next message; `None` when the server is gone. Allows whatever it is asked.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let message = loop {
            match self.socket.read().ok()? {
                Message::Text(text) => break serde_json::from_str::<Value>(&text).unwrap(),
                Message::Close(_) => return None,
                _ => {}
            }
        };
        if message["method"] == "session/request_permission" && self.answers_permission {
            let outcome = json!({ "outcome": "selected", "optionId": "once" });
            let result = json!({ "outcome": outcome });
            let reply = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            self.socket.send(Message::text(reply.to_string())).unwrap();
        }
        Some(message)
    }

    /// Calls, and returns the answer; everything before it is added to `seen`.
    pub(crate) fn call(&mut self, method: &str, params: &Value, seen: &mut Vec<Value>) -> Value {
        let id = self.send(method, params);
        loop {
            let message = self.next().expect("the server is gone");
            if message.get("method").is_none() && message["id"] == id {
                return message;
            }
            seen.push(message);
        }
    }

    /// Opens a session.
    pub(crate) fn open(&mut self, directory: &Path) -> String {
        let params = json!({ "cwd": directory, "mcpServers": [] });
        let made = self.call("session/new", &params, &mut Vec::new());
        made["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }
}

/// Returns the number of an update.
pub(crate) fn seq_of(message: &Value) -> Option<u64> {
    message["params"]["_meta"]["seq"].as_u64()
}

/// Returns the number of the last update that has one.
pub(crate) fn last_seq(messages: &[Value]) -> Option<u64> {
    messages.iter().filter_map(seq_of).next_back()
}

/// Returns the text of the agent.
pub(crate) fn text_of(messages: &[Value]) -> String {
    let updates = messages.iter().map(|message| &message["params"]["update"]);
    let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
}

/// A script of numbered words, with a pause after each few.
pub(crate) fn numbered_script(words: usize, pause_after: usize) -> String {
    let line = |number: usize| {
        let wait = if number.is_multiple_of(pause_after) { "model wait 5\n" } else { "" };
        format!("model text \"w{number} \"\n{wait}")
    };
    (0..words).map(line).collect()
}
