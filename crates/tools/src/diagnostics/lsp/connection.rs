//! The conversation with a running language server. Its task owns the process; dropping it kills the server.
//!
//! Servers push diagnostics when they like, are asked for them, or both. They are taken when the server has answered and was quiet for a
//! while: no news about the file, no work in progress, and, where the server reports it, nothing left to load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use process::{Child, ChildStdin, ChildStdout, Tail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::{Diagnostic, LanguageServer};
use super::{Job, frame};

/// How long a server must be quiet: after news about the file, and without any. A server that has reported nothing at all yet may
/// still be loading the project without saying so; it gets all of its time.
const QUIET: Duration = Duration::from_millis(700);
const SILENT: Duration = Duration::from_millis(3000);
/// How many messages wait for a server that does not read. When it is full, the server is ended.
const OUTGOING: usize = 64;
/// The most diagnostics of a file, and the most characters of one.
const MOST: usize = 200;
const MOST_CHARACTERS: usize = 1000;
/// The most kinds of work in progress that are tracked.
const MOST_WORK: usize = 1000;
/// The id of the first request.
const INITIALIZE: u64 = 1;
/// How long the last words of a server that ends are waited for.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How many messages of the server wait for us. When it is full, no more are read.
const INCOMING: usize = 16;

pub(super) struct Connection {
    incoming: mpsc::Receiver<Value>,
    outgoing: mpsc::Sender<Vec<u8>>,
    /// The pipes and the other ends of the channels, until they are in use.
    pipes: Option<Pipes>,
    child: Child,
    errors: Arc<Mutex<Tail>>,
    root: String,
    initialization: Value,
    timeout: Duration,
    is_initialised: bool,
    /// The version of each open file.
    open: BTreeMap<String, u64>,
    /// What the server has in progress.
    work: BTreeSet<String>,
    /// Whether it has loaded the project, if it reports that.
    is_loaded: Option<bool>,
    /// Why it cannot work, if it reports that.
    trouble: Option<String>,
    /// Whether it must be asked for diagnostics.
    is_pulled: bool,
    /// Whether it was seen to report diagnostics, or took too long to be waited for again.
    has_settled: bool,
    /// The last id of a request of ours.
    last_id: u64,
}

struct Pipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
    to_write: mpsc::Receiver<Vec<u8>>,
    was_read: mpsc::Sender<Value>,
}

/// The file that is looked at.
struct Current {
    job: Job,
    deadline: Instant,
    version: u64,
    /// When the server was last heard of about it.
    since: Instant,
    /// What the server sent by itself, and what it answered.
    pushed: Option<Vec<Diagnostic>>,
    pulled: Option<Vec<Diagnostic>>,
    /// The request that it has not answered.
    pending: Option<u64>,
}

impl Current {
    fn has_news(&self) -> bool {
        self.pushed.is_some() || self.pulled.is_some()
    }
}

/// Returns the URI of a file.
pub(super) fn uri_of(file: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in file.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                uri.push(byte.into());
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

impl Connection {
    pub(super) fn new(
        mut child: Child,
        root: &Path,
        options: &LanguageServer,
        errors: Arc<Mutex<Tail>>,
    ) -> Result<Connection, String> {
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("it has no input and output".to_owned());
        };
        let (outgoing, to_write) = mpsc::channel(OUTGOING);
        let (was_read, incoming) = mpsc::channel(INCOMING);
        Ok(Connection {
            incoming,
            outgoing,
            pipes: Some(Pipes { stdin, stdout, to_write, was_read }),
            child,
            errors,
            root: uri_of(root),
            initialization: options.initialization.clone(),
            timeout: options.timeout,
            is_initialised: false,
            open: BTreeMap::new(),
            work: BTreeSet::new(),
            is_loaded: None,
            trouble: None,
            is_pulled: false,
            has_settled: false,
            last_id: INITIALIZE,
        })
    }

    /// Serves jobs until the server ends or there are no more.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let Some(Pipes { mut stdin, stdout, mut to_write, was_read }) = self.pipes.take() else {
            return;
        };
        let stderr = self.child.stderr.take();
        let write = async move {
            while let Some(bytes) = to_write.recv().await {
                if stdin.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        // A message that is read in part must not be lost, so this is never interrupted.
        let read = async move {
            let mut stdout = BufReader::new(stdout);
            loop {
                match frame::read(&mut stdout).await {
                    Ok(Some(message)) => {
                        if was_read.send(message).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(err) => {
                        tracing::info!("a language server cannot be understood: {err}");
                        return;
                    }
                }
            }
        };
        let errors = Arc::clone(&self.errors);
        let listen = async move {
            let Some(mut stderr) = stderr else { return };
            let mut buffer = vec![0; 8 * 1024];
            while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
                errors.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..read]);
            }
        };
        let serve = async {
            let ended = self.serve(&mut jobs).await;
            if let Err(why) = ended {
                tracing::info!("a language server ended: {why}");
            }
        };
        let work = async {
            tokio::select! {
                () = serve => {}
                () = write => {}
                () = read => {}
            }
        };
        let mut listen = std::pin::pin!(listen);
        tokio::select! {
            () = work => {
                // Its last words say why it ended; a process that it left behind may keep the pipe open.
                timeout(LAST_WORDS, listen).await.ok();
            }
            () = async { (&mut listen).await; std::future::pending().await } => {}
        }
    }

    async fn serve(&mut self, jobs: &mut mpsc::Receiver<Job>) -> Result<(), String> {
        self.initialise().await?;
        let mut current: Option<Current> = None;
        loop {
            let wake = current.as_ref().map_or_else(Instant::now, |current| self.done_at(current));
            tokio::select! {
                message = self.incoming.recv() => {
                    self.take(&message.ok_or("it closed its output")?, &mut current)?;
                }
                job = jobs.recv(), if current.is_none() => {
                    let Some(job) = job else { return Ok(()) };
                    current = Some(self.begin(job)?);
                }
                () = sleep_until(wake), if current.is_some() => {
                    if let Some(current) = current.take() {
                        self.finish(current);
                    }
                }
            }
        }
    }

    /// Returns when the wait for a file is over, as far as is known now.
    fn done_at(&self, current: &Current) -> Instant {
        let is_busy = self.is_loaded == Some(false) || !self.work.is_empty();
        if is_busy || current.pending.is_some() {
            return current.deadline;
        }
        let quiet = match current.has_news() {
            true => QUIET,
            false if self.has_settled || self.is_loaded == Some(true) => SILENT,
            false => return current.deadline,
        };
        (current.since + quiet).min(current.deadline)
    }

    fn finish(&mut self, current: Current) {
        let (has_news, is_late) = (current.has_news(), Instant::now() >= current.deadline);
        self.has_settled |= is_late;
        let parts = [current.pushed, current.pulled];
        let found: Vec<Diagnostic> = parts.into_iter().flatten().flatten().collect();
        let found = match &self.trouble {
            Some(trouble) if found.is_empty() => Err(trouble.clone()),
            None if is_late && !has_news => Err(format!(
                "nothing within {} s; it may still be loading the project",
                self.timeout.as_secs()
            )),
            _ => Ok(found),
        };
        // Nobody may wait any more: the turn was cancelled.
        current.job.reply.send(found).ok();
    }

    async fn initialise(&mut self) -> Result<(), String> {
        let root = &self.root;
        let params = json!({
            "processId": null,
            "clientInfo": { "name": "purlin" },
            "rootUri": root,
            "workspaceFolders": [{ "uri": root, "name": "project" }],
            "initializationOptions": self.initialization,
            "capabilities": {
                "textDocument": {
                    "publishDiagnostics": { "versionSupport": true },
                    "diagnostic": { "dynamicRegistration": false },
                    "synchronization": { "didSave": true },
                },
                "window": { "workDoneProgress": true },
                "workspace": {
                    "configuration": true,
                    "workspaceFolders": true,
                    "diagnostics": { "refreshSupport": true },
                },
                "experimental": { "serverStatusNotification": true },
            },
        });
        self.call(INITIALIZE, "initialize", &params)?;
        let patience = self.timeout;
        let answered = async {
            while !self.is_initialised {
                let message = self.incoming.recv().await;
                self.take(&message.ok_or("it closed its output")?, &mut None)?;
            }
            Ok(())
        };
        match timeout(patience, answered).await {
            Ok(answered) => answered,
            Err(_) => Err("it did not answer `initialize` in time".to_owned()),
        }
    }

    /// Sends the text of a file.
    fn begin(&mut self, job: Job) -> Result<Current, String> {
        let version = self.open.get(&job.uri).map_or(1, |version| version + 1);
        let (uri, text) = (&job.uri, &job.text);
        let (method, params) = match version {
            1 => {
                let language = language_of(uri);
                let document =
                    json!({ "uri": uri, "languageId": language, "version": 1, "text": text });
                ("textDocument/didOpen", json!({ "textDocument": document }))
            }
            _ => {
                let document = json!({ "uri": uri, "version": version });
                let params =
                    json!({ "textDocument": document, "contentChanges": [{ "text": text }] });
                ("textDocument/didChange", params)
            }
        };
        self.notify(method, params)?;
        self.notify("textDocument/didSave", json!({ "textDocument": { "uri": uri } }))?;
        self.open.insert(job.uri.clone(), version);
        let now = Instant::now();
        let mut current = Current {
            job,
            deadline: now + self.timeout,
            version,
            since: now,
            pushed: None,
            pulled: None,
            pending: None,
        };
        self.pull(&mut current)?;
        Ok(current)
    }

    /// Asks for the diagnostics of a file, if the server must be asked.
    fn pull(&mut self, current: &mut Current) -> Result<(), String> {
        if !self.is_pulled {
            return Ok(());
        }
        self.last_id += 1;
        current.pending = Some(self.last_id);
        let params = json!({ "textDocument": { "uri": current.job.uri } });
        self.call(self.last_id, "textDocument/diagnostic", &params)
    }

    fn take(&mut self, message: &Value, current: &mut Option<Current>) -> Result<(), String> {
        let (method, id) = (message["method"].as_str(), message.get("id"));
        match (method, id) {
            (None, Some(id)) if *id == json!(INITIALIZE) => {
                if let Some(error) = message.get("error") {
                    return Err(self.refused(error));
                }
                self.is_pulled = !message["result"]["capabilities"]["diagnosticProvider"].is_null();
                self.notify("initialized", json!({}))?;
                self.is_initialised = true;
            }
            (None, Some(id)) => {
                if let Some(current) = current
                    && current.pending.is_some_and(|pending| *id == json!(pending))
                {
                    self.answered(message, current)?;
                }
            }
            (None, _) => {}
            (Some("workspace/configuration"), Some(id)) => {
                let count = message["params"]["items"].as_array().map_or(0, Vec::len);
                let none = vec![Value::Null; count.min(MOST_WORK)];
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": none }))?;
            }
            (Some(method), Some(id)) => {
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": null }))?;
                if method == "workspace/diagnostic/refresh"
                    && let Some(current) = current
                {
                    self.pull(current)?;
                }
            }
            (Some("$/progress"), None) => {
                let params = &message["params"];
                let token = params["token"].to_string();
                match params["value"]["kind"].as_str() {
                    Some("begin") if self.work.len() < MOST_WORK => drop(self.work.insert(token)),
                    Some("end") => drop(self.work.remove(&token)),
                    _ => {}
                }
                note(current);
            }
            (Some("experimental/serverStatus"), None) => {
                let params = &message["params"];
                self.is_loaded = params["quiescent"].as_bool();
                let is_well = params["health"] == "ok";
                self.trouble = params["message"].as_str().filter(|_| !is_well).map(one_line);
                note(current);
            }
            (Some("textDocument/publishDiagnostics"), None) => {
                let params = &message["params"];
                if let Some(current) = current
                    && params["uri"] == current.job.uri.as_str()
                    // An older version is still being reported when the next one is on its way.
                    && params["version"].as_u64().is_none_or(|version| version >= current.version)
                {
                    current.since = Instant::now();
                    current.pushed = Some(read_all(&params["diagnostics"]));
                    self.has_settled = true;
                }
            }
            (Some(_), None) => {}
        }
        Ok(())
    }

    /// Takes the answer to a request for diagnostics.
    fn answered(&mut self, message: &Value, current: &mut Current) -> Result<(), String> {
        (current.pending, current.since) = (None, Instant::now());
        if message["error"]["data"]["retriggerRequest"] == true {
            return self.pull(current);
        }
        if message.get("error").is_none() {
            current.pulled = Some(read_all(&message["result"]["items"]));
            self.has_settled = true;
        }
        Ok(())
    }

    /// Saves why the server does not start, as its last words.
    fn refused(&self, error: &Value) -> String {
        let why = error["message"].as_str().unwrap_or("it refused to start");
        let why = one_line(why);
        let line = format!("\n{why}\n");
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(line.as_bytes());
        why
    }

    fn call(&self, id: u64, method: &str, params: &Value) -> Result<(), String> {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    fn notify(&self, method: &str, params: Value) -> Result<(), String> {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    fn send(&self, message: &Value) -> Result<(), String> {
        let sent = self.outgoing.try_send(frame::encode(message));
        sent.map_err(|_| "it does not read its input".to_owned())
    }
}

/// Notes that the server is still at work.
fn note(current: &mut Option<Current>) {
    if let Some(current) = current {
        current.since = Instant::now();
    }
}

/// Returns the beginning of a text as one line.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MOST_CHARACTERS).collect()
}

fn read_all(diagnostics: &Value) -> Vec<Diagnostic> {
    let all = diagnostics.as_array().into_iter().flatten();
    all.filter_map(read_one).take(MOST).collect()
}

/// Reads a diagnostic. Information and hints are left out.
fn read_one(one: &Value) -> Option<Diagnostic> {
    let severity = one["severity"].as_u64().unwrap_or(1);
    let start = &one["range"]["start"];
    let code = match &one["code"] {
        Value::String(code) => format!("{code}: "),
        Value::Number(code) => format!("{code}: "),
        _ => String::new(),
    };
    let message = format!("{code}{}", one_line(one["message"].as_str()?));
    (severity <= 2).then_some(Diagnostic {
        line: start["line"].as_u64()? + 1,
        column: start["character"].as_u64()? + 1,
        is_error: severity == 1,
        message,
    })
}

/// Returns the protocol's name for the language of a file. Servers for one language do not need it.
fn language_of(uri: &str) -> &str {
    match uri.rsplit('.').next().unwrap_or_default() {
        "rs" => "rust",
        "py" | "pyi" => "python",
        "ts" | "mts" | "cts" => "typescript",
        "tsx" => "typescriptreact",
        "js" | "mjs" | "cjs" => "javascript",
        "jsx" => "javascriptreact",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri_of(Path::new("/a b/é.rs")), "file:///a%20b/%C3%A9.rs");
    }

    #[test]
    fn diagnostics_are_read_and_hints_left_out() {
        let at = json!({ "start": { "line": 2, "character": 4 } });
        let all = json!([
            { "range": at, "severity": 1, "code": "E0308", "message": "mismatched\ntypes" },
            { "range": at, "severity": 2, "message": "unused" },
            { "range": at, "severity": 4, "message": "a hint" },
            { "message": "without a range" },
        ]);
        let found = read_all(&all);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].message, "E0308: mismatched types");
        assert_eq!((found[0].line, found[0].column, found[1].is_error), (3, 5, false));
    }
}
