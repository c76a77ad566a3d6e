//! `purlin.json`: JSON with comments, in the user's configuration folder. A mistake in it is reported, never fatal.

pub(crate) mod permission;
mod substitute;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::permission::rules::{Rule, Source};
use providers::ProviderOptions;
use serde::Deserialize;
use serde_json::Value;
use wire::acp::dialect::Dialect;

use crate::env;
use crate::limits::Limits;
use crate::servers::UserServers;

/// What the file may hold.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Sizes, rates and time-outs; see docs/limits.md.
    pub limits: Limits,
    /// The model to use: `provider/model`, or `script:FILE`.
    pub model: Option<String>,
    /// The user's providers, as OpenCode has them; see docs/models.md.
    pub provider: BTreeMap<String, ProviderOptions>,
    /// The user's MCP servers, as OpenCode has them; see docs/mcp.md.
    #[serde(skip)]
    pub mcp: UserServers,
    /// Rules of permission, as OpenCode has them; see docs/permissions.md.
    #[serde(skip)]
    pub permission: Vec<Rule>,
    /// The dialect to speak, instead of the one that is recognised; see docs/dialects.md.
    #[serde(skip)]
    pub dialect: Option<Dialect>,
    /// The file that every message is written to; see docs/trace.md.
    pub trace: Option<PathBuf>,
}

impl Config {
    /// Reads the configuration: the given file, or the user's own.
    ///
    /// Returns it with what is wrong in it, for the log. What is wrong counts as not written.
    #[must_use]
    pub fn load(file: Option<PathBuf>) -> (Config, Vec<String>) {
        let is_given = file.is_some();
        let Some(path) = file.or_else(|| Some(env::config_folder()?.join("purlin.json"))) else {
            return (Config::default(), Vec::new());
        };
        let (mut config, problems) = match std::fs::read_to_string(&path) {
            Ok(text) => Config::parse(&text, &path),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound && !is_given => {
                (Config::default(), Vec::new())
            }
            Err(err) => {
                (Config::default(), vec![format!("{}: cannot be read: {err}", path.display())])
            }
        };
        if !is_given && config.provider.is_empty() {
            config.take_over(&env::opencode_configs());
        }
        (config, problems)
    }

    /// Takes providers, model and rules of permission from the user's OpenCode. Its other keys, and mistakes in it, are OpenCode's business.
    fn take_over(&mut self, files: &[PathBuf]) {
        let mut texts = files.iter().map(|path| (std::fs::read_to_string(path), path));
        let Some((Ok(text), path)) = texts.find(|(text, _)| text.is_ok()) else {
            return;
        };
        let (theirs, _) = Config::parse(&text, path);
        self.provider = theirs.provider;
        if self.permission.is_empty() {
            self.permission = theirs.permission;
        }
        if self.model.is_none() {
            self.model = theirs.model.filter(|model| !model.starts_with("script:"));
        }
    }

    fn parse(text: &str, path: &Path) -> (Config, Vec<String>) {
        let at = path.display();
        let value = match jsonc_parser::parse_to_serde_value::<Value>(
            text,
            &jsonc_parser::ParseOptions::default(),
        ) {
            Ok(value) => value,
            Err(err) => return (Config::default(), vec![format!("{at}: {err}")]),
        };
        let mut value = value;
        substitute::substitute(&mut value, path.parent().unwrap_or(Path::new("/")));
        let (config, problems) = Config::from_value(value);
        (config, problems.into_iter().map(|problem| format!("{at}: {problem}")).collect())
    }

    /// Reads a configuration that is already JSON; what is wrong counts as not written.
    #[must_use]
    pub fn from_value(value: Value) -> (Config, Vec<String>) {
        let mut problems = Vec::new();
        let mut config = Config::default();
        let Value::Object(members) = value else {
            return (config, vec!["must hold an object".to_owned()]);
        };
        for (key, value) in members {
            match key.as_str() {
                "$schema" => {}
                "limits" => config.limits = limits(value, &mut problems),
                "model" => match value {
                    Value::String(model) => config.model = Some(model),
                    _ => problems.push("`model` must be a text".to_owned()),
                },
                "provider" => config.provider = providers(value, &mut problems),
                "mcp" => config.mcp = UserServers::read(value, &mut problems),
                "permission" => {
                    config.permission = permission::rules(value, Source::User, &mut problems);
                }
                "trace" => match value {
                    Value::String(file) => config.trace = Some(PathBuf::from(file)),
                    _ => problems.push("`trace` must be the path of a file".to_owned()),
                },
                "dialect" => match value.as_str().and_then(Dialect::from_name) {
                    Some(dialect) => config.dialect = Some(dialect),
                    None => {
                        let names = Dialect::ALL.map(Dialect::name).join(", ");
                        problems.push(format!("`dialect` must be one of {names}"));
                    }
                },
                _ => problems.push(format!("`{key}` is not a key we know")),
            }
        }
        (config, problems)
    }
}

/// Reads the providers one by one, so that one mistake does not undo the others.
fn providers(value: Value, problems: &mut Vec<String>) -> BTreeMap<String, ProviderOptions> {
    let Value::Object(given) = value else {
        problems.push("`provider` must be an object".to_owned());
        return BTreeMap::new();
    };
    let mut known = BTreeMap::new();
    for (id, value) in given {
        // The value itself stays out of the message: it may hold a key.
        match serde_path_to_error::deserialize::<_, ProviderOptions>(value) {
            Ok(options) => {
                known.insert(id, options);
            }
            Err(err) => problems.push(format!("`provider.{id}.{}` has the wrong type", err.path())),
        }
    }
    known
}

/// Reads the limits one by one, so that one mistake does not undo the others.
fn limits(value: Value, problems: &mut Vec<String>) -> Limits {
    let Value::Object(given) = value else {
        problems.push("`limits` must be an object".to_owned());
        return Limits::default();
    };
    let mut known = serde_json::Map::new();
    for (key, value) in given {
        if !Limits::TABLE.iter().any(|(name, _, _)| *name == key) {
            problems
                .push(format!("`limits.{key}` is not a limit we know; docs/limits.md lists them"));
        } else if value.as_u64().is_none() {
            problems.push(format!("`limits.{key}` must be a whole number"));
        } else {
            known.insert(key, value);
        }
    }
    serde_json::from_value(Value::Object(known)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mistake_does_not_undo_the_rest() {
        let text = r#"{
            // comments are fine
            "limits": { "prompts_per_minute": 3, "max_prompt_bytes": "big", "typo": 1 },
            "modle": "x",
            "dialect": "latin",
        }"#;
        let (config, problems) = Config::parse(text, Path::new("purlin.json"));
        assert_eq!(config.limits.prompts_per_minute, 3);
        assert_eq!(config.limits.max_prompt_bytes, Limits::default().max_prompt_bytes);
        assert_eq!(
            problems,
            [
                "purlin.json: `limits.max_prompt_bytes` must be a whole number",
                "purlin.json: `limits.typo` is not a limit we know; docs/limits.md lists them",
                "purlin.json: `modle` is not a key we know",
                "purlin.json: `dialect` must be one of v1, message-reference, container",
            ]
        );
    }

    #[test]
    fn a_file_that_is_not_json_leaves_the_defaults() {
        let (config, problems) = Config::parse("{ nonsense", Path::new("purlin.json"));
        assert_eq!(config, Config::default());
        assert_eq!(problems.len(), 1);
    }
}
