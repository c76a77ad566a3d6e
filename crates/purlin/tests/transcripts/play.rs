//! How a transcript is found, read and played: in this process, or against a program.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use check::schema;
use client::script::{ProgramSetup, Replay, play, play_program};
use client::transcript::{Transcript, TranscriptStep};
use fake_model::FakeModel;
use serde_json::json;
use wire::acp::dialect::Dialect;

use crate::in_process;

/// Directories of `conformance/` that hold something else than transcripts.
const NO_CHAPTERS: [&str; 2] = ["judge", "schema"];

/// The chapters that are also recorded and replayed; that takes time, so not all are.
const REPLAYED: [&str; 5] = ["agents", "context", "custom", "prompt", "session"];

/// A transcript and where it is.
pub(crate) struct Loaded {
    /// Its chapter and name, such as `wire/not_json`.
    name: String,
    path: PathBuf,
    pub(crate) transcript: Transcript,
}

/// Returns the directory of all transcripts.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

/// Returns the names of all transcripts, such as `wire/not_json`: every `.acp` file in a chapter.
///
/// Files beside the chapters are not transcripts: they are the beginnings that transcripts `use`.
pub(crate) fn names() -> Vec<String> {
    let mut names = Vec::new();
    for chapter in std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = chapter.file_name().unwrap().to_string_lossy().into_owned();
        if !chapter.is_dir() || NO_CHAPTERS.contains(&name.as_str()) {
            continue;
        }
        for file in std::fs::read_dir(&chapter).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|ending| ending == "acp") {
                names.push(format!("{name}/{}", file.file_stem().unwrap().to_string_lossy()));
            }
        }
    }
    names.sort();
    names
}

/// Reads a transcript, or says what is wrong with it.
pub(crate) fn load(name: &str) -> Result<Loaded, String> {
    let path = directory().join(format!("{name}.acp"));
    let text = std::fs::read_to_string(&path).map_err(|err| format!("{name}: {err}"))?;
    let used = |used: &str| std::fs::read_to_string(directory().join(format!("{used}.acp"))).ok();
    let transcript = Transcript::parse(&text, &used).map_err(|err| format!("{name}: {err}"))?;
    Ok(Loaded { name: name.to_owned(), path, transcript })
}

impl Loaded {
    /// Returns whether it can be played in this process. Files and exit codes need a process of their own.
    pub(crate) fn fits_in_process(&self) -> bool {
        let has_files = self
            .transcript
            .lines()
            .iter()
            .any(|line| matches!(line.step, TranscriptStep::File { .. }));
        !has_files && self.transcript.exit().is_none() && !self.is_chat()
    }

    /// Returns whether it is also recorded and replayed.
    pub(crate) fn is_replayed(&self) -> bool {
        let chapter = self.name.split('/').next().unwrap_or_default();
        REPLAYED.contains(&chapter)
    }

    /// Returns whether the model is behind HTTP, in the format of OpenAI Chat Completions.
    fn is_chat(&self) -> bool {
        self.transcript.has_tag("chat")
    }

    /// Returns whether the agent stores its sessions. All other transcripts run without a store.
    fn is_stored(&self) -> bool {
        self.name.starts_with("stored/") || self.transcript.has_tag("stored")
    }

    /// Plays it against an agent in this process.
    pub(crate) async fn in_process(&self) {
        let work = tempfile::tempdir().unwrap();
        let data = self.is_stored().then(|| tempfile::tempdir().unwrap());
        let data = data.as_ref().map(|data| data.path().to_owned());
        let agent = in_process::start(&self.transcript, work.path(), data);
        let played = play(&self.transcript, work.path(), agent.output, agent.input).await;
        self.judge(&played);
    }

    /// Plays it against the built program.
    pub(crate) async fn against_the_program(&self) {
        self.judge(&self.played_by_the_program(None).await);
    }

    /// Plays it against the built program, which records it to a directory. A replay must give the same output.
    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    pub(crate) async fn recorded_and_replayed(&self) {
        let directory = tempfile::tempdir().unwrap();
        self.judge(&self.played_by_the_program(Some(directory.path())).await);
        let recordings: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert!(!recordings.is_empty(), "nothing was recorded");
        for recording in recordings {
            let mut replay = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"));
            let output = replay.arg("replay").arg(recording.unwrap().path()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.starts_with("Identical: "), "{}: {text}", self.name);
        }
    }

    async fn played_by_the_program(&self, record: Option<&Path>) -> Replay {
        let played = play_program(&self.transcript, |stage| {
            let (model, config) = match self.is_chat() {
                true => ("fake/fake".to_owned(), Some(self.serve_chat(stage))),
                false => (format!("script:{}", stage.script.display()), stage.config.clone()),
            };
            let mut args = vec!["acp".to_owned(), "--model".to_owned(), model];
            if let Some(config) = &config {
                args.extend(["--config".to_owned(), config.display().to_string()]);
            }
            if !self.is_stored() {
                args.push("--forget".to_owned());
            }
            if let Some(directory) = record {
                // A transcript may start the program several times.
                let name = std::fs::read_dir(directory).unwrap().count().to_string();
                args.extend(["--record".to_owned(), directory.join(name).display().to_string()]);
            }
            process::Spec::new(env!("CARGO_BIN_EXE_purlin"), &stage.directory)
                .args(args)
                .env("XDG_DATA_HOME", stage.directory.with_file_name("data"))
        })
        .await;
        played.unwrap()
    }

    /// Serves the `model` lines over HTTP. Returns the path of a configuration with that server.
    fn serve_chat(&self, stage: &ProgramSetup) -> PathBuf {
        let mut script = String::new();
        let mut is_open = false;
        for line in self.transcript.script(&stage.directory).lines() {
            let step = line.trim().strip_prefix("model ").filter(|step| *step != "end");
            match step {
                Some(step) => script.push_str(&format!("{step}\n")),
                // Like the scripted model: any other line ends an answer.
                None if is_open => script.push_str("---\n"),
                None => {}
            }
            is_open = step.is_some();
        }
        let url = FakeModel::start(&script).unwrap().url();
        let mut config = self.transcript.config().cloned().unwrap_or_else(|| json!({}));
        config["provider"] = json!({ "fake": {
            "npm": "@ai-sdk/openai-compatible",
            "options": { "baseURL": url },
            "models": { "fake": { "limit": { "context": 32_000, "output": 4_000 } } },
        } });
        let path = stage.directory.with_file_name("chat.json");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Fails on what differs from the transcript and on what does not fit the official schema.
    ///
    /// With `UPDATE_EXPECT` set, rewrites the transcript instead of comparing.
    fn judge(&self, played: &Replay) {
        let path = self.path.display();
        // The schema is v1's; the other dialects have none.
        let is_v1 = Dialect::ALL
            .iter()
            .all(|dialect| !self.transcript.has_tag(&format!("dialect-{}", dialect.name())));
        if is_v1 {
            let faults = schema::faults(&played.seen, &self.sent_methods());
            assert!(faults.is_empty(), "{path}:\n{}", faults.join("\n"));
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            self.rewrite(&played.updated);
            return;
        }
        assert!(played.passed(), "{path}:\n{}", played.report());
    }

    /// Returns the method of each call that the client sends, by its id.
    fn sent_methods(&self) -> HashMap<String, String> {
        let mut methods = HashMap::new();
        for line in self.transcript.lines() {
            if let TranscriptStep::Send(message) = &line.step
                && let (Some(id), Some(method)) =
                    (message.get("id"), message.get("method").and_then(|method| method.as_str()))
            {
                methods.insert(id.to_string(), method.to_owned());
            }
        }
        methods
    }

    /// Replaces the file in one step: the same transcript may be read by another test at this moment.
    fn rewrite(&self, text: &str) {
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &self.path).unwrap();
    }
}

/// The player works with any agent; here it plays against one built on the protocol's official SDK.
// R: Q1
pub(crate) async fn foreign_agent_is_played_against() {
    let test = std::env::current_exe().unwrap();
    let agent = test.ancestors().nth(2).unwrap().join("examples/echo_sdk");
    let agent = agent.with_extension(std::env::consts::EXE_EXTENSION);
    let black_box = load("prompt/black_box").unwrap();
    let played =
        play_program(&black_box.transcript, |stage| process::Spec::new(&agent, &stage.directory));
    let played = played.await.unwrap();
    assert!(played.passed(), "{}", played.report());
    // The player must also notice differences: this transcript has answers of Purlin alone.
    let own = load("initialize/handshake").unwrap();
    let played =
        play_program(&own.transcript, |stage| process::Spec::new(&agent, &stage.directory));
    assert!(!played.await.unwrap().passed());
}
