//! `purlin.json`: JSON with comments, in the user's configuration directory. Mistakes are reported, never fatal.
//!
//! `config::keys` is the table of all keys, `config::sources` combines the layers. What a project's own file may say is
//! in `project`.

pub mod check;
pub mod edit;
pub mod import;
pub mod keys;
mod last_good;
pub mod permission;
pub mod schema;
pub mod sources;
mod substitute;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use engine::permission::rules::{AskFloor, Rule, Source};
use engine::words::{ProviderConfig, Secret, nearest};
use serde_json::{Map, Value};

use crate::chat::ChatConfig;
use crate::custom::Additions;
use crate::custom::hooks::Hook;
use crate::custom::tool_switches::ToolSwitches;
use crate::diagnostics::Diagnostics;
use crate::github::GitHubConfig;
use crate::limits::Limits;
use crate::mcp_servers::McpServers;
use crate::moving::Row;
use crate::providers;
use crate::search::SearchConfig;
use crate::workspace::WorkspaceConfig;
use crate::{Environment, claude, codex, custom};
use sources::{Origin, Sources};

/// The effective configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// Sizes, rates and time-outs; see docs/guide/limits.md.
    pub limits: Limits,
    /// The model to use: `provider/model`, or `script:FILE`.
    pub model: Option<String>,
    /// The model for small work, such as titles: `provider/model`.
    pub small_model: Option<String>,
    /// The user's providers, in OpenCode's form; see docs/guide/models.md.
    pub provider: BTreeMap<String, ProviderConfig>,
    /// The file with the providers, if that is OpenCode's.
    pub provider_file: Option<PathBuf>,
    /// The user's MCP servers, in OpenCode's form; see docs/guide/mcp.md.
    pub mcp: McpServers,
    /// Permission rules, in OpenCode's form; see docs/guide/permissions.md.
    pub permission: Vec<Rule>,
    /// What is asked for at least, because a file that may restrict it cannot be read.
    pub floors: Vec<AskFloor>,
    /// The files that this was read from, and those with keys that it names. No tool may touch them.
    pub files: Vec<PathBuf>,
    /// Patterns of tool names, each with whether sessions have such tools. The most specific pattern applies.
    pub tools: Vec<(String, bool)>,
    /// The only providers that are used; `None` for all.
    pub enabled_providers: Option<Vec<String>>,
    /// The providers that are not used.
    pub disabled_providers: Vec<String>,
    /// Paths and patterns of instruction files; see docs/internals/context.md.
    pub instructions: Vec<String>,
    /// Agents, slash commands and hooks; see docs/guide/custom.md.
    pub additions: Additions,
    /// The user's hooks of Claude Code.
    pub claude_hooks: Vec<Hook>,
    /// The MCP servers that the user added to Claude Code for one project each.
    pub local_servers: BTreeMap<PathBuf, McpServers>,
    /// The checkers and language servers; see docs/guide/diagnostics.md.
    pub diagnostics: Diagnostics,
    /// The search engine, if any.
    pub search: Option<SearchConfig>,
    /// How GitHub is reached.
    pub github: GitHubConfig,
    /// Where sessions work.
    pub workspace: WorkspaceConfig,
    /// The name that clients are given, if it should not be ours.
    pub agent_name: Option<String>,
    /// How the terminal client works.
    pub chat: ChatConfig,
    /// The name of the dialect, if it should not be detected; see docs/internals/dialects.md.
    pub dialect: Option<String>,
    /// The trace file; see docs/internals/trace.md.
    pub trace: Option<PathBuf>,
    /// Whether models and MCP servers get the context of the client's trace.
    pub trace_context: bool,
    /// The URL of the store, if it is not the data directory.
    pub store: Option<Secret>,
}

impl Config {
    /// Reads the configuration: the given file or the user's, and the variables.
    ///
    /// Returns it with its problems. Invalid values are ignored.
    #[must_use]
    pub fn load(file: Option<PathBuf>, environment: &Environment) -> (Config, Vec<String>) {
        let is_given = file.is_some();
        let mut sources = Sources::gather(file, environment);
        let mut value = std::mem::take(&mut sources.value);
        let mut missing_keys = Vec::new();
        for (key, value) in &mut value {
            if let Some(path) = sources.origin(key).and_then(Origin::file) {
                let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
                if key == "provider" {
                    missing_keys = missing_keys_of(value, &directory, environment);
                }
                substitute::substitute(value, &directory, environment, &mut sources.files);
            }
        }
        let home = environment.directories.home.as_deref();
        let (mut config, mut wrong) = Config::read(value, home);
        config.floors.append(&mut sources.floors);
        config.files = std::mem::take(&mut sources.files);
        if let Some(search) = config.search.as_mut().filter(|search| search.key.is_none()) {
            let variable = format!("{}_API_KEY", search.provider.to_ascii_uppercase());
            search.key = (environment.variable)(&variable).map(Secret::new);
        }
        for (id, missing) in missing_keys {
            if let Some(provider) = config.provider.get_mut(&id) {
                provider.options.missing_key = Some(missing);
            }
        }
        if let Some(Origin::OpenCode(path, _)) = sources.origin("provider") {
            config.provider_file = Some(path.clone());
        }
        wrong.extend(config.remove_unknown_models(environment));
        let mut problems = std::mem::take(&mut sources.problems);
        problems.extend(wrong.iter().map(|problem| sources.place(problem)));
        // A file that is given stands alone.
        if !is_given {
            config.add_other_agents(environment, &mut problems);
        }
        (config, problems)
    }

    /// Adds what the user set up for Claude Code and Codex. Returns what becomes of each setting.
    pub fn add_other_agents(
        &mut self,
        environment: &Environment,
        problems: &mut Vec<String>,
    ) -> Vec<Row> {
        let directories = &environment.directories;
        let mut rows = Vec::new();
        if let Some(file) = directories.claude_settings() {
            let shown = file.display().to_string();
            let found = match std::fs::read_to_string(&file) {
                Ok(text) => claude::read(&text, &shown, Source::User, directories.home.as_deref()),
                Err(err) if err.kind() == std::io::ErrorKind::NotFound => Default::default(),
                Err(err) => claude::unreadable(&shown, &err.to_string()),
            };
            self.permission.extend(found.rules);
            self.floors.extend(found.floors);
            self.claude_hooks.extend(found.hooks);
            problems.extend(found.problems);
            rows.extend(found.rows);
        }
        if let Some(file) = &directories.claude_state {
            let (servers, local) = claude::servers_of_user(file, environment, problems, &mut rows);
            self.mcp.extend_missing(servers);
            self.local_servers = local;
        }
        if let Some(file) = directories.codex_config() {
            let found = codex::read(&file, environment);
            self.mcp.extend_missing(found.servers);
            self.tools.extend(found.tools);
            self.floors.extend(found.floors);
            problems.extend(found.problems);
            rows.extend(found.rows);
        }
        rows
    }

    /// Returns the user's MCP servers for sessions in a directory.
    #[must_use]
    pub fn servers_for(&self, directory: &Path) -> McpServers {
        let mut servers = self.mcp.clone();
        if let Some(local) = self.local_servers.get(directory) {
            servers.disabled.extend(local.disabled.iter().cloned());
            servers.extend_missing(local.clone());
        }
        servers
    }

    /// Reads a configuration from JSON; invalid values are ignored.
    #[must_use]
    pub fn from_value(value: Value, home: Option<&Path>) -> (Config, Vec<String>) {
        let Value::Object(value) = value else {
            return (Config::default(), vec!["the configuration must be an object".to_owned()]);
        };
        let mut checked = check::Checked { value, ..check::Checked::default() };
        checked.remove_invalid();
        let mut problems: Vec<String> =
            checked.problems.into_iter().map(|(_, problem)| problem).collect();
        let (mut config, more) = Config::read(checked.value, home);
        problems.extend(more);
        if checked.is_broken || checked.has_unclear_hooks {
            config
                .floors
                .push(AskFloor::everything(sources::unknown_restrictions("The configuration")));
        }
        (config, problems)
    }

    /// Tells whether the user wants models of a provider.
    #[must_use]
    pub fn uses_provider(&self, id: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|known| known == id);
        self.enabled_providers.as_deref().is_none_or(is_in) && !is_in(&self.disabled_providers)
    }

    /// Removes models of unknown providers, and reports them.
    fn remove_unknown_models(&mut self, environment: &Environment) -> Vec<String> {
        let filter = self.clone();
        let Config { model, small_model, provider, .. } = self;
        let mut problems = Vec::new();
        for (key, model) in [("model", model), ("small_model", small_model)] {
            let problem = model.as_ref().and_then(|model| {
                let id = model.split_once('/')?.0;
                let is_ours = model.starts_with("script:") || *model == environment.builtin_model;
                let is_off = !is_ours && !filter.uses_provider(id);
                is_off.then(|| format!("names the provider `{id}`, which is turned off"))
            });
            let problem = problem.or_else(|| {
                model.as_ref().and_then(|model| problem_of_model(model, provider, environment))
            });
            if let Some(problem) = problem {
                *model = None;
                problems.push(format!("`{key}` {problem}"));
            }
        }
        problems
    }

    /// Reads members that were checked.
    fn read(members: Map<String, Value>, home: Option<&Path>) -> (Config, Vec<String>) {
        let mut problems = Vec::new();
        let mut config = Config::default();
        for (key, value) in members {
            match key.as_str() {
                "limits" => config.limits = serde_json::from_value(value).unwrap_or_default(),
                "model" => config.model = value.as_str().map(str::to_owned),
                "small_model" => config.small_model = value.as_str().map(str::to_owned),
                "provider" => config.provider = providers::read(value, &mut problems),
                "mcp" => config.mcp = McpServers::read(value, &mut problems),
                "permission" => {
                    config.permission = permission::rules(value, Source::User, home, &mut problems);
                }
                "trace" => config.trace = value.as_str().map(PathBuf::from),
                "trace_context" => config.trace_context = value == true,
                "tools" => {
                    let found = ToolSwitches::read(&value);
                    config.tools = found.tools;
                    let asks = found.asks.into_iter();
                    config.floors.extend(asks.map(|key| custom::unclear_tool("`tools`", key)));
                }
                "enabled_providers" => {
                    let names = Value::Array(sources::names(&value));
                    config.enabled_providers = serde_json::from_value(names).ok();
                }
                "disabled_providers" => {
                    let names = Value::Array(sources::names(&value));
                    config.disabled_providers = serde_json::from_value(names).unwrap_or_default();
                }
                "instructions" => {
                    config.instructions = serde_json::from_value(value).unwrap_or_default();
                }
                "agent" => config.additions.agent = custom::members(value),
                "command" => config.additions.command = custom::members(value),
                "hooks" => config.additions.hooks = value,
                "store" => config.store = value.as_str().map(Secret::new),
                "check" => config.diagnostics.read_check(&value, false),
                "lsp" => config.diagnostics.read_lsp(&value, false, &mut problems),
                "search" => config.search = SearchConfig::read(&value, &mut problems),
                "github" => config.github = GitHubConfig::read(&value),
                "workspace" => config.workspace = WorkspaceConfig::read(&value, &mut problems),
                "agent_name" => config.agent_name = value.as_str().map(str::to_owned),
                "chat" => config.chat = ChatConfig::read(&value),
                "dialect" => config.dialect = value.as_str().map(str::to_owned),
                // `$schema` is for editors.
                _ => {}
            }
        }
        (config, problems)
    }
}

/// Returns why a model cannot exist: its provider is unknown.
#[must_use]
pub fn problem_of_model(
    model: &str,
    configured: &BTreeMap<String, ProviderConfig>,
    environment: &Environment,
) -> Option<String> {
    if model.starts_with("script:") || model == environment.builtin_model {
        return None;
    }
    let Some((provider, _)) = model.split_once('/') else {
        return Some(format!("is `{model}`: expected `provider/model`"));
    };
    let problem = problem_of_provider(provider, configured, environment);
    problem.map(|problem| format!("has an {problem}"))
}

/// Returns what is wrong with the name of a provider.
#[must_use]
pub fn problem_of_provider(
    provider: &str,
    configured: &BTreeMap<String, ProviderConfig>,
    environment: &Environment,
) -> Option<String> {
    let builtin = &environment.known_providers;
    let own = configured.keys().map(String::as_str).filter(|id| !builtin.contains(id));
    let known: Vec<&str> = builtin.iter().copied().chain(own).collect();
    if known.contains(&provider) {
        return None;
    }
    let hint = match nearest(provider, known.iter().copied()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Known: {}.", known.join(", ")),
    };
    Some(format!("unknown provider `{provider}`. {hint}"))
}

/// Checks that a given configuration file can be read.
///
/// # Errors
/// Says why it cannot be read.
pub fn check_readable(file: Option<&Path>) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    let opened = std::fs::File::open(file);
    opened.map(drop).with_context(|| format!("cannot read {}", file.display()))
}

/// Returns the providers whose key references something that does not exist.
fn missing_keys_of(
    providers: &Value,
    directory: &Path,
    environment: &Environment,
) -> Vec<(String, String)> {
    let missing = |(id, provider): (&String, &Value)| {
        let key = provider["options"]["apiKey"].as_str()?;
        Some((id.clone(), substitute::missing_in(key, directory, environment)?))
    };
    providers.as_object().into_iter().flatten().filter_map(missing).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Directories;

    fn environment() -> Environment {
        Environment {
            directories: Directories::default(),
            overrides: Vec::new(),
            variable: |_| None,
            known_providers: vec!["anthropic", "openai"],
            builtin_model: "purlin/guide",
        }
    }

    #[test]
    fn mistake_in_one_key_does_not_affect_the_others() {
        let (config, problems) = Config::from_value(
            json!({
                "limits": { "prompts_per_minute": 3, "max_prompt_bytes": "big", "typo": 1 },
                "modle": "x",
                "dialect": "latin",
            }),
            None,
        );
        assert_eq!(config.limits.prompts_per_minute, 3);
        assert_eq!(config.limits.max_prompt_bytes, Limits::default().max_prompt_bytes);
        let mut problems = problems;
        problems.sort();
        assert_eq!(
            problems,
            [
                "`dialect` must be one of v1, message-reference, container",
                "`limits.max_prompt_bytes` must be a whole number",
                "`limits.typo` is not a known limit. See docs/guide/limits.md.",
                "`modle` is not a known key. Did you mean `model`?",
            ]
        );
    }

    #[test]
    fn model_of_an_unknown_provider_is_reported_with_the_nearest() {
        let configured = BTreeMap::from([("gate".to_owned(), ProviderConfig::default())]);
        let problem = |model: &str| problem_of_model(model, &configured, &environment());
        for model in ["anthropic/claude-x", "gate/any/thing", "script:a.acp", "purlin/guide"] {
            assert_eq!(problem(model), None, "{model}");
        }
        let near = problem("antropic/claude-x").unwrap();
        assert!(near.ends_with("unknown provider `antropic`. Did you mean `anthropic`?"), "{near}");
        let far = problem("somewhere/x").unwrap();
        assert!(far.contains("Known: anthropic, openai, ") && far.ends_with("gate."), "{far}");
        assert!(problem("sonnet").unwrap().ends_with("expected `provider/model`"));
    }

    #[test]
    fn problems_name_the_file_and_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("purlin.json");
        let text =
            "{\n  \"permission\": {\n    \"bash\": { \"rm *\": \"dney\" },\n  },\n  \"x\": 1\n}";
        std::fs::write(&file, text).unwrap();
        let (config, problems) = Config::load(Some(file.clone()), &environment());
        let at = file.display();
        assert_eq!(
            problems,
            [
                format!("{at}:5: `x` is not a known key"),
                format!(
                    "{at}:3: `permission.bash.rm *` must be allow, ask or deny. Did you mean `deny`? The value is ignored and `ask` applies."
                ),
            ]
        );
        assert_eq!(config.permission.len(), 1);
    }
}
