//! The built program as a child process: lines in, lines out, every wait with a deadline.
//!
//! The tests decide what is sent and expected. `agent::linux` inspects the process from outside.

#[cfg(target_os = "linux")]
pub(crate) mod linux;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::containers::User;
use crate::directory::Directory;

/// How long a test waits for anything. Far longer than anything should take: the machine may be busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Environment variables with API keys of providers.
const KEYS: [&str; 6] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "OPENROUTER_API_KEY",
];

/// How to start the program.
pub(crate) struct Start {
    /// The script of the model; without one the configuration chooses the model.
    script: Option<String>,
    env: Vec<(&'static str, String)>,
    config: Value,
    log: Option<&'static str>,
    stderr: Stdio,
    is_read: bool,
    offers_files: bool,
    /// Where sessions and saved permissions are stored.
    data: Option<PathBuf>,
    /// A shell command that runs before the shell is replaced by the program.
    before: Option<&'static str>,
    /// Where its sessions are recorded.
    recording: Option<PathBuf>,
    /// Who runs it, with which copy of the program.
    user: Option<(User, PathBuf)>,
}

/// A running program and our ends of its pipes.
pub(crate) struct Agent {
    child: Option<Child>,
    input: Option<ChildStdin>,
    /// The output, if the test does not read it.
    unread: Option<ChildStdout>,
    lines: Option<Receiver<Vec<u8>>>,
    gate: Arc<Gate>,
    /// Messages that were read while the test waited for another one.
    seen: VecDeque<Value>,
    last_id: u64,
    offers_files: bool,
    directory: Directory,
}

/// Controls the thread that reads the output.
#[derive(Default)]
struct Gate {
    reading: Mutex<Reading>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Reading {
    #[default]
    On,
    Paused,
    Closed,
}

impl Start {
    /// Sets the content of the configuration file.
    pub(crate) fn config(mut self, config: Value) -> Start {
        self.config = config;
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &'static str, value: &str) -> Start {
        self.env.push((name, value.to_owned()));
        self
    }

    /// Sets the log level and where the log goes.
    pub(crate) fn log(mut self, level: &'static str, stderr: Stdio) -> Start {
        self.log = Some(level);
        self.stderr = stderr;
        self
    }

    /// Records the sessions to a directory.
    pub(crate) fn recording_to(mut self, directory: &Path) -> Start {
        self.recording = Some(directory.to_owned());
        self
    }

    /// Does not read the output; see [`Agent::take_output`].
    pub(crate) fn unread(mut self) -> Start {
        self.is_read = false;
        self
    }

    /// Announces file reads and writes at initialize.
    pub(crate) fn with_files(mut self) -> Start {
        self.offers_files = true;
        self
    }

    /// Stores sessions and saved permissions in this directory; a relative path is inside the agent's own directory.
    pub(crate) fn storing_in(mut self, data: &Path) -> Start {
        self.data = Some(data.to_owned());
        self
    }

    /// Runs a shell command such as `ulimit` before the shell is replaced by the program.
    #[cfg(unix)]
    pub(crate) fn before(mut self, before: &'static str) -> Start {
        self.before = Some(before);
        self
    }

    /// Runs a copy of the program as another user.
    pub(crate) fn run_by(mut self, user: &User, program: &Path) -> Start {
        self.user = Some((user.clone(), program.to_owned()));
        self
    }

    /// Starts the program and sends nothing.
    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    pub(crate) fn start(self) -> Agent {
        let parent = self.user.as_ref().map(|(user, _)| &*user.home);
        let parent = parent.unwrap_or(Path::new(env!("CARGO_TARGET_TMPDIR")));
        let directory = Directory::below(parent);
        let script = directory.join("script.acp");
        let config = directory.join("user.json");
        std::fs::write(&config, self.config.to_string()).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_purlin"));
        let program = self.user.as_ref().map_or(program, |(_, program)| program);
        let mut command = match self.before {
            Some(before) => {
                let mut shell = std::process::Command::new("sh");
                shell.arg("-c").arg(format!("{before}; exec \"$0\" \"$@\"")).arg(program);
                shell
            }
            None => std::process::Command::new(program),
        };
        command.arg("acp");
        command.arg("--config").arg(&config);
        if let Some(text) = &self.script {
            let text = text.replace("\"/w/", &format!("\"{}/", directory.display()));
            let text = text.replace("\"/w\"", &format!("\"{}\"", directory.display()));
            std::fs::write(&script, text).unwrap();
            command.arg("--model").arg(format!("script:{}", script.display()));
        } else {
            // The environment of a user without keys and configuration.
            for name in KEYS {
                command.env_remove(name);
            }
            command
                .env("HOME", directory.path())
                .env_remove("XDG_CONFIG_HOME")
                .env_remove("XDG_DATA_HOME");
        }
        match &self.data {
            Some(data) => command.env("XDG_DATA_HOME", directory.join(data)),
            None => command.arg("--forget"),
        };
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(level) = self.log {
            command.args(["--log", level]);
        }
        if let Some(directory) = &self.recording {
            command.arg("--record").arg(directory);
        }
        #[cfg(unix)]
        if let Some((user, _)) = &self.user {
            user.own(&directory);
            std::os::unix::process::CommandExt::uid(&mut command, user.id);
            std::os::unix::process::CommandExt::gid(&mut command, user.id);
            command.current_dir(directory.path());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(self.stderr);
        let mut child = command.spawn().unwrap();
        let mut agent = Agent {
            input: child.stdin.take(),
            unread: child.stdout.take(),
            child: Some(child),
            lines: None,
            gate: Arc::default(),
            seen: VecDeque::new(),
            last_id: 0,
            offers_files: self.offers_files,
            directory,
        };
        if self.is_read {
            agent.read();
        }
        agent
    }

    /// Starts the program and initializes the connection.
    pub(crate) fn ready(self) -> Agent {
        let mut agent = self.start();
        agent.initialize();
        agent
    }

    /// Starts the program, initializes the connection and opens a session.
    pub(crate) fn session(self) -> (Agent, String) {
        let mut agent = self.ready();
        let session = agent.open();
        (agent, session)
    }
}

impl Agent {
    /// Prepares a program whose model plays `script`; `/w` at the start of a string in it is [`Agent::directory`].
    pub(crate) fn playing(script: &str) -> Start {
        Start {
            script: Some(script.to_owned()),
            env: Vec::new(),
            config: json!({ "limits": { "prompts_per_minute": 0 } }),
            log: None,
            stderr: Stdio::null(),
            is_read: true,
            offers_files: false,
            data: None,
            before: None,
            recording: None,
            user: None,
        }
    }

    /// Prepares a program whose configuration chooses the model.
    pub(crate) fn configured(config: Value) -> Start {
        Start { script: None, config, ..Agent::playing("") }
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Returns the agent's own directory, which is also the working directory of its sessions.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn read(&mut self) {
        let output = BufReader::new(self.unread.take().unwrap());
        let (sender, lines) = channel();
        self.lines = Some(lines);
        let gate = Arc::clone(&self.gate);
        std::thread::spawn(move || gate.read(output, &sender));
    }

    /// Stops reading the output. Lines that were already read still arrive.
    pub(crate) fn pause(&mut self) {
        self.gate.set(Reading::Paused);
    }

    /// Continues to read the output.
    pub(crate) fn resume(&mut self) {
        self.gate.set(Reading::On);
    }

    /// Closes the output after the current line.
    pub(crate) fn close_output(&mut self) {
        self.gate.set(Reading::Closed);
    }

    /// Takes the unread output.
    pub(crate) fn take_output(&mut self) -> ChildStdout {
        self.unread.take().unwrap()
    }

    /// Takes the input, for a writer that may block.
    pub(crate) fn take_input(&mut self) -> ChildStdin {
        self.input.take().unwrap()
    }

    /// Sets the input again.
    pub(crate) fn set_input(&mut self, input: ChildStdin) {
        self.input = Some(input);
    }

    /// Takes the error output.
    pub(crate) fn take_stderr(&mut self) -> ChildStderr {
        self.child.as_mut().unwrap().stderr.take().unwrap()
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Sends one message.
    pub(crate) fn send(&mut self, message: &Value) {
        self.send_bytes(line(message).as_bytes());
    }

    /// Sends a call and returns its id.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> u64 {
        let id = self.fresh_id();
        self.send(&json!({ "id": id, "method": method, "params": params }));
        id
    }

    /// Returns an id that no call of this connection has used.
    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends a notification.
    pub(crate) fn note(&mut self, method: &str, params: Value) {
        self.send(&json!({ "method": method, "params": params }));
    }

    /// Answers a call of the program.
    pub(crate) fn answer(&mut self, id: &Value, result: Value) {
        self.send(&json!({ "id": id, "result": result }));
    }

    /// Answers a call of the program with an error.
    pub(crate) fn refuse(&mut self, id: &Value, code: i32) {
        self.send(&json!({ "id": id, "error": { "code": code, "message": "no" } }));
    }

    /// Returns the next line unparsed, or `None` at the end of the output.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        match self.lines.as_ref().unwrap().recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program said nothing for {DEADLINE:?}"),
        }
    }

    /// Returns the next message, first those that were read while waiting for others.
    pub(crate) fn next(&mut self) -> Value {
        self.seen.pop_front().unwrap_or_else(|| self.next_fresh())
    }

    fn next_fresh(&mut self) -> Value {
        message(&self.next_line().expect("the program ended its output"))
    }

    /// Returns the first message that is wanted. Messages before it are left for [`Agent::take_seen`].
    pub(crate) fn find(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&is_wanted) {
            return self.seen.remove(at).unwrap();
        }
        loop {
            let message = self.next_fresh();
            if is_wanted(&message) {
                return message;
            }
            self.seen.push_back(message);
        }
    }

    /// Returns the reply to a call.
    pub(crate) fn reply(&mut self, id: u64) -> Value {
        self.find(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Returns the program's next call of this method.
    pub(crate) fn asked(&mut self, method: &str) -> Value {
        self.find(|message| message["method"] == method && message.get("id").is_some())
    }

    /// Calls and returns the result.
    pub(crate) fn result(&mut self, method: &str, params: Value) -> Value {
        let id = self.call(method, params);
        let reply = self.reply(id);
        assert!(reply.get("error").is_none(), "{method}: {reply}");
        reply["result"].clone()
    }

    /// Calls and returns the error.
    pub(crate) fn error(&mut self, method: &str, params: Value) -> Value {
        let id = self.call(method, params);
        let reply = self.reply(id);
        assert!(reply.get("result").is_none(), "{method}: {reply}");
        reply["error"].clone()
    }

    /// Returns the messages that were read while the test waited for others, and clears them.
    pub(crate) fn take_seen(&mut self) -> Vec<Value> {
        self.seen.drain(..).collect()
    }

    /// Initializes the connection.
    pub(crate) fn initialize(&mut self) -> Value {
        let files =
            json!({ "readTextFile": self.offers_files, "writeTextFile": self.offers_files });
        self.result(
            "initialize",
            json!({
                "protocolVersion": 1, "clientCapabilities": { "fs": files },
                "clientInfo": { "name": "test", "version": "1" },
            }),
        )
    }

    /// Opens a session, waits for its list of commands and returns its id.
    pub(crate) fn open(&mut self) -> String {
        let params = json!({ "cwd": self.directory.path(), "mcpServers": [] });
        let session = self.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
        self.find(|message| {
            message["params"]["sessionId"] == *session
                && message["params"]["update"]["sessionUpdate"] == "available_commands_update"
        });
        session
    }

    /// Sends a prompt and returns its id.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.call("session/prompt", prompt(session, text))
    }

    /// Closes the input.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for the end of the process, and fails if that takes longer than `most`.
    pub(crate) fn wait(&mut self, most: Duration) -> ExitStatus {
        let pid = self.pid();
        let mut child = self.child.take().unwrap();
        let (sender, ended) = channel();
        std::thread::spawn(move || sender.send(child.wait().unwrap()));
        ended.recv_timeout(most).unwrap_or_else(|_| {
            kill(pid);
            panic!("the program did not end within {most:?}")
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.gate.set(Reading::Closed);
        if let Some(mut child) = self.child.take() {
            // The process may have ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[cfg(unix)]
fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    // The process may have ended already.
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap_or_default();
}

#[cfg(not(unix))]
fn kill(_: u32) {}

/// Returns a message as a line; `"jsonrpc": "2.0"` is added.
pub(crate) fn line(message: &Value) -> String {
    let mut message = message.clone();
    message["jsonrpc"] = json!("2.0");
    format!("{message}\n")
}

/// Reads a line of the program, which must be a message.
pub(crate) fn message(line: &[u8]) -> Value {
    let message: Value = serde_json::from_slice(line)
        .unwrap_or_else(|err| panic!("{err}: {}", String::from_utf8_lossy(line)));
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    message
}

/// The parameters of a prompt with one text.
pub(crate) fn prompt(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] })
}

/// Returns the kind of an update, and nothing for any other message.
pub(crate) fn update_kind(message: &Value) -> &str {
    match message["method"].as_str() {
        Some("session/update") => message["params"]["update"]["sessionUpdate"].as_str().unwrap(),
        _ => "",
    }
}

/// Returns the text of the model for a session in these messages.
pub(crate) fn text_of<'a>(session: &str, messages: impl IntoIterator<Item = &'a Value>) -> String {
    messages
        .into_iter()
        .filter(|message| message["params"]["sessionId"] == session)
        .filter(|message| update_kind(message) == "agent_message_chunk")
        .map(|message| message["params"]["update"]["content"]["text"].as_str().unwrap())
        .collect()
}

/// Waits until a condition holds, and fails if that takes longer than `most`.
///
/// For conditions of other processes, the kernel or the file system, which send no event. Elsewhere a test sleeps only where the time itself is tested.
pub(crate) fn wait_until(what: &str, most: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + most;
    while !holds() {
        assert!(Instant::now() < end, "not within {most:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs `work` and fails if it took longer than `most`.
pub(crate) fn within<T>(most: Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    assert!(start.elapsed() <= most, "took {:?}, allowed are {most:?}", start.elapsed());
    done
}

impl Gate {
    fn set(&self, reading: Reading) {
        *self.reading.lock().unwrap() = reading;
        self.changed.notify_all();
    }

    /// Reads lines to the end, unless paused or closed.
    fn read(&self, mut output: impl BufRead, lines: &Sender<Vec<u8>>) {
        loop {
            let reading = self.reading.lock().unwrap();
            let is_paused = |reading: &mut Reading| *reading == Reading::Paused;
            if *self.changed.wait_while(reading, is_paused).unwrap() == Reading::Closed {
                return;
            }
            let mut line = Vec::new();
            let count = output.read_until(b'\n', &mut line).unwrap_or(0);
            if count == 0 || lines.send(line).is_err() {
                return;
            }
        }
    }
}
