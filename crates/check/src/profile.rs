//! Profiles: how a known agent is pointed at the fake model, and what its tools are called.
//!
//! A profile is a small JSON file. In its strings, `$HOME` is the home of the run, `$WORK` the working directory, `$MODEL` the
//! URL of the model server and `$SCRIPT` the file with what the model says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use client::Transcript;
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

const KNOWN: [&str; 9] = [
    include_str!("../profiles/purlin.json"),
    include_str!("../profiles/opencode.json"),
    include_str!("../profiles/gemini-cli.json"),
    include_str!("../profiles/goose.json"),
    include_str!("../profiles/codex-acp.json"),
    include_str!("../profiles/claude-code-acp.json"),
    include_str!("../profiles/qwen-code.json"),
    include_str!("../profiles/kimi.json"),
    include_str!("../profiles/scripted.json"),
];

/// How to point an agent at the fake model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name, for `--profile NAME`.
    pub name: String,
    /// Programs that this profile is used for without `--profile`: the last part of a word of the command.
    #[serde(default)]
    pub programs: Vec<String>,
    /// What the model server speaks.
    pub model: ModelFormat,
    /// Arguments to add to the command.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables of the environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files to write: a JSON value, or text.
    #[serde(default)]
    pub files: BTreeMap<String, Value>,
    /// The authentication method to call after `initialize`.
    pub authenticate: Option<String>,
    /// What the agent's tools are called: `read`, `write`, `shell`, `mcp`.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolName>,
}

/// A tool of the agent. `$path`, `$content`, `$command`, `$server` and `$tool` stand for the values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolName {
    /// Its name.
    pub name: String,
    /// Its input.
    pub input: Value,
}

/// What the model server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFormat {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// No server: the agent reads the script itself.
    Script,
}

/// What a run gives to a profile.
#[derive(Debug, Clone)]
pub struct Place {
    /// The home.
    pub home: PathBuf,
    /// The working directory.
    pub work: PathBuf,
    /// The URL of the model server.
    pub model: String,
    /// The file with what the model says.
    pub script: PathBuf,
}

impl Profile {
    /// Finds a profile: a known name, or a file.
    ///
    /// # Errors
    /// Says what is wrong with the file.
    pub fn find(name: &str) -> Result<Profile, Error> {
        let bad = |reason: String| Error::Profile { path: name.into(), reason };
        for text in KNOWN {
            let profile: Profile =
                serde_json::from_str(text).map_err(|err| bad(err.to_string()))?;
            if profile.name == name {
                return Ok(profile);
            }
        }
        let text = std::fs::read_to_string(name).map_err(|err| {
            bad(format!("{err}. Known profiles: {}", Profile::names().join(", ")))
        })?;
        serde_json::from_str(&text).map_err(|err| bad(err.to_string()))
    }

    /// Returns the names of the known profiles.
    #[must_use]
    pub fn names() -> Vec<String> {
        let profiles = KNOWN.iter().filter_map(|text| serde_json::from_str::<Profile>(text).ok());
        profiles.map(|profile| profile.name).collect()
    }

    /// Finds the known profile of a command.
    #[must_use]
    pub fn of_command(command: &[String]) -> Option<Profile> {
        let mut profiles =
            KNOWN.iter().filter_map(|text| serde_json::from_str::<Profile>(text).ok());
        let words: Vec<&str> = command.iter().filter_map(|word| word.rsplit('/').next()).collect();
        profiles.find(|profile| profile.programs.iter().any(|name| words.contains(&name.as_str())))
    }

    /// Writes the files.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write_files(&self, place: &Place) -> Result<(), Error> {
        for (path, content) in &self.files {
            let path = PathBuf::from(place.fill(path));
            let content = match content {
                Value::String(text) => place.fill(text),
                other => place.fill(&other.to_string()),
            };
            let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            let written = written.and_then(|()| std::fs::write(&path, content));
            written.map_err(|source| Error::File { path, source })?;
        }
        Ok(())
    }

    /// Returns what the fake model says in a transcript, or which tool is missing in the profile.
    ///
    /// # Errors
    /// The reason why the transcript cannot be played.
    pub fn script(&self, transcript: &Transcript, directory: &Path) -> Result<String, String> {
        let mut script = "side \"A title\"\n".to_owned();
        let mut is_open = false;
        for line in transcript.script(directory).lines() {
            let step = line.trim().strip_prefix("model ").filter(|step| *step != "end");
            match step {
                Some(step) => {
                    script += &self.step(&client::script::repeated(step))?;
                    script.push('\n');
                }
                // As for the scripted model: any other line ends an answer.
                None if is_open => script.push_str("---\n"),
                None => {}
            }
            is_open = step.is_some();
        }
        Ok(script)
    }

    /// Returns the step of the fake model that calls a tool of this agent.
    ///
    /// # Errors
    /// Says that the profile names no such tool.
    pub(crate) fn tool_step(&self, name: &str, values: &Value) -> Result<String, String> {
        let missing = || format!("the profile {} names no tool for `{name}`", self.name);
        let tool = self.tools.get(name).ok_or_else(missing)?;
        let input = with_values(&tool.input, values);
        let name = with_values(&Value::from(&*tool.name), values);
        Ok(format!("tool {} {input}", name.as_str().unwrap_or_default()))
    }

    fn step(&self, step: &str) -> Result<String, String> {
        if let Some(call) = step.strip_prefix("do ") {
            let (name, values) = call.split_once(' ').unwrap_or((call, "{}"));
            let values: Value = serde_json::from_str(values).map_err(|err| err.to_string())?;
            return self.tool_step(name, &values);
        }
        let max_tokens = match self.model {
            ModelFormat::Chat => "length",
            ModelFormat::Responses => "max_output_tokens",
            ModelFormat::Gemini => "MAX_TOKENS",
            ModelFormat::Anthropic | ModelFormat::Script => "max_tokens",
        };
        Ok(step.replace("$max_tokens", max_tokens))
    }
}

impl Place {
    /// Replaces the placeholders in a text.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        text.replace("$HOME", &self.home.to_string_lossy())
            .replace("$WORK", &self.work.to_string_lossy())
            .replace("$MODEL", &self.model)
            .replace("$SCRIPT", &self.script.to_string_lossy())
    }
}

/// Replaces `$name` in strings by the values.
fn with_values(value: &Value, values: &Value) -> Value {
    match value {
        Value::String(text) => {
            let mut text = text.clone();
            for (name, value) in values.as_object().into_iter().flatten() {
                if let Some(value) = value.as_str() {
                    text = text.replace(&format!("${name}"), value);
                }
            }
            Value::String(text)
        }
        Value::Array(items) => items.iter().map(|item| with_values(item, values)).collect(),
        Value::Object(members) => Value::Object(
            members.iter().map(|(key, value)| (key.clone(), with_values(value, values))).collect(),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_profiles_are_valid_and_found_by_command() {
        assert_eq!(Profile::names().len(), KNOWN.len());
        let words = |command: &str| command.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let found = |command: &str| Profile::of_command(&words(command)).map(|found| found.name);
        assert_eq!(found("/usr/bin/purlin acp").as_deref(), Some("purlin"));
        assert_eq!(found("node x/opencode acp").as_deref(), Some("opencode"));
        assert_eq!(found("cat"), None);
    }

    #[test]
    fn tools_get_their_names_and_values() {
        let purlin = Profile::find("purlin").unwrap();
        let text = "model do read {\"path\":\"/w/a\"}\nmodel end\nmodel text \"x\"\n";
        let transcript = Transcript::parse(text, &|_| None).unwrap();
        let script = purlin.script(&transcript, Path::new("/tmp/w")).unwrap();
        assert!(
            script.contains("tool read {\"path\":\"/tmp/w/a\"}\n---\ntext \"x\"\n"),
            "{script}"
        );
        let text = "model do fly {}\n";
        let transcript = Transcript::parse(text, &|_| None).unwrap();
        let reason = purlin.script(&transcript, Path::new("/tmp/w")).unwrap_err();
        assert!(reason.contains("no tool for `fly`"), "{reason}");
    }
}
