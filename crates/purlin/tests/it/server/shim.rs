//! `purlin acp --connect`: an editor on pipes, a server behind a network that fails.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::assert_whole;
use super::client::{Server, numbered_script, text_of};
use crate::directory::Directory;

/// A network between the shim and a server, whose connections can be cut.
pub(crate) struct Network {
    pub(crate) address: String,
    target: Arc<Mutex<Option<String>>>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Network {
    pub(crate) fn to(server: &Server) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let target = Arc::new(Mutex::new(Some(server.address.clone())));
        let sockets: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let network = Network { address, target: target.clone(), sockets: sockets.clone() };
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                let target = target.lock().unwrap().clone();
                let Some(far) = target.and_then(|target| TcpStream::connect(target).ok()) else {
                    continue;
                };
                let ends = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                sockets.lock().unwrap().extend(ends);
                for (mut from, mut to) in
                    [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    std::thread::spawn(move || {
                        std::io::copy(&mut from, &mut to).ok();
                        to.shutdown(Shutdown::Both).ok();
                        from.shutdown(Shutdown::Both).ok();
                    });
                }
            }
        });
        network
    }

    pub(crate) fn cut(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            socket.shutdown(Shutdown::Both).ok();
        }
    }

    pub(crate) fn lead_to(&self, server: Option<&Server>) {
        *self.target.lock().unwrap() = server.map(|server| server.address.clone());
    }
}

/// An editor that starts the shim.
struct Editor {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Editor {
    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    fn start(directory: &Path, network: &Network) -> Editor {
        let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
        command.args(["acp", "--connect", &format!("ws://{}/acp", network.address)]);
        command.env("HOME", directory).env("XDG_DATA_HOME", directory.join("data"));
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut editor = Editor { child, input, output: BufReader::new(output), last_id: 0 };
        let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        let reply = editor.call("initialize", &params, &mut Vec::new());
        assert_eq!(reply["result"]["protocolVersion"], 1, "{reply}");
        editor
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{call}").unwrap();
        id
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the shim is gone");
        serde_json::from_str(&line).unwrap()
    }

    fn call(&mut self, method: &str, params: &Value, seen: &mut Vec<Value>) -> Value {
        let id = self.send(method, params);
        loop {
            let message = self.next();
            if message.get("method").is_none() && message["id"] == id {
                return message;
            }
            seen.push(message);
        }
    }

    fn open(&mut self, directory: &Path) -> String {
        let params = json!({ "cwd": directory, "mcpServers": [] });
        let made = self.call("session/new", &params, &mut Vec::new());
        made["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    fn prompt(&mut self, session: &str) -> u64 {
        self.send("session/prompt", &prompt(session))
    }
}

fn prompt(session: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] })
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Reads until so many words have come.
fn read_words(editor: &mut Editor, seen: &mut Vec<Value>, words: usize) {
    while text_of(seen).split_whitespace().count() < words {
        seen.push(editor.next());
    }
}

/// Reads until the answer to a call.
fn read_answer(editor: &mut Editor, seen: &mut Vec<Value>, id: u64) -> Value {
    loop {
        let message = editor.next();
        if message.get("method").is_none() && message["id"] == id {
            return message;
        }
        seen.push(message);
    }
}

fn count_users(seen: &[Value]) -> usize {
    let is_user =
        |message: &&Value| message["params"]["update"]["sessionUpdate"] == "user_message_chunk";
    seen.iter().filter(is_user).count()
}

// R: C2, S9, S10
#[test]
fn editor_sees_a_pause_when_the_network_is_cut() {
    let directory = Directory::new();
    directory.write("script.acp", &numbered_script(300, 2));
    let server = Server::start(&directory, &[]);
    let network = Network::to(&server);
    let mut editor = Editor::start(&directory, &network);
    let session = editor.open(&directory);
    let id = editor.prompt(&session);
    let mut seen = Vec::new();
    for words in [20, 80, 150] {
        read_words(&mut editor, &mut seen, words);
        network.cut();
    }
    let ended = read_answer(&mut editor, &mut seen, id);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert_whole(&text_of(&seen), 300);
    assert_eq!(count_users(&seen), 0);
}

// R: C2, S6, S9
#[test]
fn editor_sees_a_pause_when_the_server_is_killed() {
    let directory = Directory::new();
    directory.write("script.acp", &numbered_script(500, 2));
    let server = Server::start(&directory, &[]);
    let network = Network::to(&server);
    let mut editor = Editor::start(&directory, &network);
    let session = editor.open(&directory);
    let id = editor.prompt(&session);
    let mut seen = Vec::new();
    read_words(&mut editor, &mut seen, 20);
    directory.write("script.acp", "model text \"again\"\n");
    let next = Server::start(&directory, &[]);
    network.lead_to(Some(&next));
    server.kill();
    network.cut();
    let ended = read_answer(&mut editor, &mut seen, id);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    let text = text_of(&seen);
    let recorded = text.strip_suffix("again").unwrap_or_else(|| panic!("{text}"));
    assert_whole(recorded, recorded.split_whitespace().count());
    assert_eq!(count_users(&seen), 0);
}

// R: C2
#[test]
fn requests_fail_after_three_tries_and_the_next_one_tries_again() {
    let directory = Directory::new();
    directory.write("script.acp", "model text \"Hello.\"\nmodel loop\n");
    let server = Server::start(&directory, &[]);
    let network = Network::to(&server);
    let mut editor = Editor::start(&directory, &network);
    let session = editor.open(&directory);
    network.lead_to(None);
    network.cut();
    let failed = editor.call("session/prompt", &prompt(&session), &mut Vec::new());
    assert_eq!(failed["error"]["code"], -32000, "{failed}");
    network.lead_to(Some(&server));
    let mut seen = Vec::new();
    let ended = editor.call("session/prompt", &prompt(&session), &mut seen);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert_eq!(text_of(&seen), "Hello.");
}
