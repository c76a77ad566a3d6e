//! An agent that is measured: the messages that benchmarks send, and their scripts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::child::{Child, Drained};
use super::programs::Programs;

/// The text of the model, again and again. The examples of `crates/purlin` send the same.
pub(crate) const TEXT_CHUNK: &str = "some twenty bytes of text ";

/// Every stream starts after a pause, so that many sessions have their prompts before the first text.
const START: &str = "model wait 100\n";

/// Whether Purlin stores its sessions on disk, which is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sessions {
    Stored,
    InMemory,
}

/// A running agent.
pub(crate) struct Agent {
    pub(crate) child: Child,
    last_id: u64,
}

impl Agent {
    /// Starts and initializes Purlin without rate limits, with a model that plays `script`.
    pub(crate) fn purlin(
        programs: &Programs,
        script: &Script,
        sessions: Sessions,
    ) -> Result<Agent> {
        // As editors start it: with the configuration of the user.
        let arguments: &[&str] = match sessions {
            Sessions::Stored => &["acp"],
            Sessions::InMemory => &["acp", "--forget"],
        };
        Agent::start(&programs.purlin, arguments, &script.directory)
    }

    /// Starts and initializes the agent built on the SDK. It answers each prompt with this many chunks.
    pub(crate) fn on_sdk(programs: &Programs, chunks: usize) -> Result<Agent> {
        Agent::start(&programs.echo_sdk, &[&chunks.to_string()], &crate::temporary::directory())
    }

    /// Starts and initializes any agent.
    pub(crate) fn start(program: &Path, arguments: &[&str], data: &Path) -> Result<Agent> {
        Agent::of(Child::start(program, arguments, data)?)
    }

    /// Initializes an agent that was started.
    pub(crate) fn of(child: Child) -> Result<Agent> {
        let mut agent = Agent { child, last_id: 0 };
        agent.initialize()?;
        Ok(agent)
    }

    /// Calls `initialize` and waits for its answer.
    fn initialize(&mut self) -> Result<()> {
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": { "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true },
            "clientInfo": { "name": "bench", "version": "0" },
        });
        self.call("initialize", &params)?;
        self.answer().map(drop)
    }

    /// Opens a session and returns its id.
    pub(crate) fn open(&mut self) -> Result<String> {
        self.open_in(Path::new("/tmp"), &json!([]))
    }

    /// Opens a session in a directory, with MCP servers, and returns its id.
    pub(crate) fn open_in(&mut self, cwd: &Path, servers: &Value) -> Result<String> {
        self.call("session/new", &json!({ "cwd": cwd, "mcpServers": servers }))?;
        let result = self.answer()?;
        let session = result["sessionId"].as_str().context("a session without an id")?;
        Ok(session.to_owned())
    }

    /// Sends a prompt and answers the agent's calls until the turn ends: permission is granted, writes succeed, and a read
    /// returns `file`, or an error if it is missing.
    pub(crate) fn converse(&mut self, session: &str, file: Option<&str>) -> Result<()> {
        self.prompt(session, "go")?;
        loop {
            let message: Value = serde_json::from_str(self.child.read()?)?;
            if message["id"] == self.last_id && message.get("method").is_none() {
                anyhow::ensure!(message["error"].is_null(), "refused: {}", message["error"]);
                return Ok(());
            }
            let status = &message["params"]["update"]["status"];
            anyhow::ensure!(status != "failed", "a call failed: {message}");
            let result = match (message["method"].as_str(), file) {
                (Some("fs/read_text_file"), Some(text)) => json!({ "result": { "content": text } }),
                (Some("fs/read_text_file"), None) => {
                    json!({ "error": { "code": -31700, "message": "File not found" } })
                }
                (Some("fs/write_text_file"), _) => json!({ "result": {} }),
                (Some("session/request_permission"), _) => {
                    let outcome = json!({ "outcome": "selected", "optionId": "once" });
                    json!({ "result": { "outcome": outcome } })
                }
                _ => continue,
            };
            let mut answer = json!({ "jsonrpc": "2.0", "id": message["id"] });
            if let (Some(answer), Some(result)) = (answer.as_object_mut(), result.as_object()) {
                answer.extend(result.clone());
            }
            self.child.write(&answer.to_string())?;
        }
    }

    /// Closes a session.
    pub(crate) fn close(&mut self, session: &str) -> Result<()> {
        self.call("session/close", &json!({ "sessionId": session }))?;
        self.answer().map(drop)
    }

    /// Sends a prompt, answers every permission request with "always", and reads up to the answer. Returns the lines.
    pub(crate) fn allow(&mut self, session: &str, text: &str) -> Result<Vec<String>> {
        self.prompt(session, text)?;
        let mut lines = Vec::new();
        loop {
            let line = self.child.read()?.to_owned();
            let message: Value = serde_json::from_str(&line)?;
            if message["method"] == "session/request_permission" {
                let outcome = json!({ "outcome": "selected", "optionId": "always" });
                let yes = json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "outcome": outcome } });
                self.child.write(&yes.to_string())?;
            } else if message["id"] == self.last_id {
                anyhow::ensure!(message["error"].is_null(), "refused: {}", message["error"]);
                return Ok(lines);
            }
            lines.push(line);
        }
    }

    /// Sends a prompt without waiting.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> Result<()> {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        self.call("session/prompt", &params)
    }

    /// Cancels the turn of a session.
    pub(crate) fn cancel(&mut self, session: &str) -> Result<()> {
        let note = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
        self.child.write(&note.to_string())
    }

    /// Reads until this many prompts are answered.
    pub(crate) fn drain(&mut self, answers: usize) -> Result<Drained> {
        self.child.drain(answers)
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<()> {
        self.last_id += 1;
        let call =
            json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.child.write(&call.to_string())
    }

    /// Reads up to the answer of the last call and returns its result.
    fn answer(&mut self) -> Result<Value> {
        loop {
            let mut message: Value = serde_json::from_str(self.child.read()?)?;
            if message["id"] == self.last_id {
                anyhow::ensure!(message["error"].is_null(), "refused: {}", message["error"]);
                return Ok(message["result"].take());
            }
        }
    }
}

/// A script for Purlin's model, and a user's configuration with that model and without rate limits, in a directory that also
/// has Purlin's data.
pub(crate) struct Script {
    pub(crate) directory: PathBuf,
}

impl Script {
    /// Writes the files.
    pub(crate) fn write(text: &str) -> Result<Script> {
        let directory =
            crate::temporary::directory().join(format!("purlin-bench-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("purlin"))?;
        let model = directory.join("model.acp");
        // A large window, so that nothing is compacted during the measurement.
        std::fs::write(&model, format!("model window 1000000000000\n{text}"))?;
        let rates =
            ["updates_per_minute", "prompts_per_minute", "reads_per_minute", "writes_per_minute"];
        let limits: Value = rates.into_iter().map(|rate| (rate.to_owned(), json!(0))).collect();
        let config = json!({ "model": format!("script:{}", model.display()), "limits": limits });
        std::fs::write(directory.join("purlin/purlin.json"), config.to_string())?;
        Ok(Script { directory })
    }

    /// One message of this many chunks for each prompt. Chunks that wait are merged.
    pub(crate) fn one_message(chunks: usize) -> Result<Script> {
        Script::write(&format!("{START}model chunks {chunks} \"{TEXT_CHUNK}\"\nmodel loop\n"))
    }

    /// This many chunks that cannot be merged, for each prompt: text and thought alternate.
    pub(crate) fn alternating(chunks: usize) -> Result<Script> {
        let pair = format!("model text \"{TEXT_CHUNK}\"\nmodel thought \"{TEXT_CHUNK}\"\n");
        Script::write(&format!("{START}{}model loop\n", pair.repeat(chunks / 2)))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if let Err(err) = std::fs::remove_dir_all(&self.directory) {
            eprintln!("xtask: cannot remove {}: {err}", self.directory.display());
        }
    }
}
