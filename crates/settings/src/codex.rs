//! Codex: the MCP servers of the user's `config.toml`. Its other settings have no counterpart, or ask here anyway. While it cannot be
//! read, everything asks, as with the files of the other agents.

use std::path::Path;

use engine::permission::rules::AskFloor;
use serde_json::{Map, Value, json};

use crate::Environment;
use crate::config::sources::unknown_restrictions;
use crate::mcp_servers::McpServers;
use crate::moving::{Row, State};
use crate::toml;

/// What the file means.
#[derive(Debug, Default)]
pub(crate) struct Codex {
    /// Its servers.
    pub(crate) servers: McpServers,
    /// Which of their tools sessions have; see `Config::tools`.
    pub(crate) tools: Vec<(String, bool)>,
    /// What asks in any case, because the file cannot be read.
    pub(crate) floors: Vec<AskFloor>,
    /// What is wrong with it.
    pub(crate) problems: Vec<String>,
    /// What becomes of each setting.
    pub(crate) rows: Vec<Row>,
}

/// Reads the file, if it exists. A broken one starts no server, and everything asks.
pub(crate) fn read(file: &Path, environment: &Environment) -> Codex {
    let mut found = Codex::default();
    let shown = file.display().to_string();
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return found,
        Err(err) => return broken(&shown, &err.to_string()),
    };
    let mut members = match toml::parse(&text) {
        Ok(members) => members,
        Err((line, why)) => return broken(&shown, &format!("line {line}: {why}")),
    };
    if let Some(servers) = members.remove("mcp_servers") {
        let Value::Object(servers) = servers else {
            return broken(&shown, "`mcp_servers` is not a table");
        };
        found.add_servers(servers, &shown, environment);
    }
    for key in members.keys() {
        let (state, note) = match key.as_str() {
            "approval_policy" | "sandbox_mode" | "sandbox_workspace_write" => {
                (State::Changed, "edits and commands ask, and commands run in Purlin's own sandbox")
            }
            "model" | "model_provider" | "model_providers" | "profiles" | "profile" => {
                (State::NotSupported, "set `model` and `provider` in purlin.json")
            }
            _ => (State::NotSupported, ""),
        };
        found.rows.push(Row::new(&shown, key, state, note));
    }
    found
}

fn broken(shown: &str, why: &str) -> Codex {
    let note = "it cannot be read, so everything asks and none of its MCP servers starts";
    Codex {
        floors: vec![AskFloor::everything(unknown_restrictions(shown))],
        problems: vec![format!(
            "{shown}: {why}. Everything asks and none of its MCP servers starts until this is corrected."
        )],
        rows: vec![Row::new(shown, "(the whole file)", State::Changed, note)],
        ..Codex::default()
    }
}

impl Codex {
    fn add_servers(&mut self, servers: Map<String, Value>, shown: &str, environment: &Environment) {
        let mut ours = Map::new();
        for (name, server) in servers {
            self.restrict(&name, &server);
            let unclear = unclear_restrictions(&server);
            let unused = unused_keys(&server);
            let (state, note) = match (unclear.first(), unused.is_empty()) {
                (Some((key, why)), _) => (State::Changed, format!("turned off: `{key}` {why}")),
                (None, true) => (State::Taken, String::new()),
                (None, false) => (State::Changed, format!("without {}", unused.join(", "))),
            };
            self.rows.push(Row::new(shown, format!("mcp_servers.{name}"), state, note));
            self.problems.extend(unclear.iter().map(|(key, why)| {
                format!(
                    "{shown}: `mcp_servers.{name}.{key}` {why}. The server does not start until this is corrected."
                )
            }));
            let mut server = converted(&server, environment);
            if !unclear.is_empty() {
                server["enabled"] = Value::Bool(false);
            }
            ours.insert(name, server);
        }
        let mut wrong = Vec::new();
        self.servers = McpServers::read(Value::Object(ours), &mut wrong);
        self.problems.extend(wrong.iter().map(|why| format!("{shown}: {why}")));
    }

    /// Turns off the tools of a server that the user does not want.
    fn restrict(&mut self, name: &str, server: &Value) {
        let listed = |key: &str| {
            let names = server.get(key).and_then(Value::as_array);
            names.map(|names| names.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        };
        let public = |tool: &str| -> String {
            let letter =
                |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '*' { c } else { '_' };
            format!("{name}_{tool}").chars().map(letter).collect()
        };
        if let Some(enabled) = listed("enabled_tools") {
            self.tools.push((public("*"), false));
            self.tools.extend(enabled.iter().map(|tool| (public(tool), true)));
        }
        for tool in listed("disabled_tools").into_iter().flatten() {
            self.tools.retain(|(known, _)| *known != public(tool));
            self.tools.push((public(tool), false));
        }
    }
}

/// The keys of a server that are used.
const KNOWN: [&str; 12] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "enabled",
    "startup_timeout_sec",
    "enabled_tools",
    "disabled_tools",
];

fn unused_keys(server: &Value) -> Vec<String> {
    let keys = server.as_object().into_iter().flatten().map(|(key, _)| key);
    keys.filter(|key| !KNOWN.contains(&key.as_str())).map(|key| format!("`{key}`")).collect()
}

/// Returns the restrictions of a server that have the wrong type, each with what is wrong with it.
fn unclear_restrictions(server: &Value) -> Vec<(&'static str, &'static str)> {
    let is_names =
        |value: &Value| value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    let mut found = Vec::new();
    if server.get("enabled").is_some_and(|value| !value.is_boolean()) {
        found.push(("enabled", "must be true or false"));
    }
    for key in ["enabled_tools", "disabled_tools"] {
        if server.get(key).is_some_and(|value| !is_names(value)) {
            found.push((key, "must be a list of strings"));
        }
    }
    found
}

/// Converts a server to our form.
fn converted(server: &Value, environment: &Environment) -> Value {
    let mut ours = Map::new();
    for key in ["command", "args", "env", "cwd", "url", "enabled"] {
        if let Some(value) = server.get(key) {
            ours.insert(key.to_owned(), value.clone());
        }
    }
    let mut headers =
        server.get("http_headers").and_then(Value::as_object).cloned().unwrap_or_default();
    let of_variables = server.get("env_http_headers").and_then(Value::as_object);
    for (header, name) in of_variables.into_iter().flatten() {
        let value = name.as_str().and_then(environment.variable).unwrap_or_default();
        headers.insert(header.clone(), Value::String(value));
    }
    if let Some(name) = server.get("bearer_token_env_var").and_then(Value::as_str) {
        let token = (environment.variable)(name).unwrap_or_default();
        headers.insert("Authorization".to_owned(), format!("Bearer {token}").into());
    }
    if !headers.is_empty() {
        ours.insert("headers".to_owned(), Value::Object(headers));
    }
    if let Some(seconds) = server.get("startup_timeout_sec").and_then(Value::as_f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let milliseconds = (seconds.clamp(0.0, 3_600.0) * 1_000.0) as u64;
        ours.insert("timeout".to_owned(), json!(milliseconds));
    }
    Value::Object(ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directories;

    fn environment() -> Environment {
        Environment {
            directories: Directories::default(),
            overrides: Vec::new(),
            variable: |name| (name == "TOKEN").then(|| "t".to_owned()),
            known_providers: Vec::new(),
            builtin_model: "",
        }
    }

    fn read_text(text: &str) -> Codex {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.toml");
        std::fs::write(&file, text).unwrap();
        read(&file, &environment())
    }

    // R: M1
    #[test]
    fn servers_are_used_with_their_restrictions_and_the_rest_is_listed() {
        let found = read_text(
            "model = \"gpt-5\"\nsandbox_mode = \"read-only\"\n[mcp_servers.docs]\ncommand = \"npx\"\nargs = [\"x\"]\n\
             disabled_tools = [\"write file\"]\nscopes = []\n[mcp_servers.web]\nurl = \"https://h\"\n\
             bearer_token_env_var = \"TOKEN\"\nenabled_tools = [\"a\"]\n[mcp_servers.off]\ncommand = \"x\"\nenabled = false\n",
        );
        let names: Vec<&str> = found.servers.servers.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["docs", "web"]);
        assert!(found.servers.disabled.contains("off"));
        let restrictions = engine::words::Restrictions { tools: found.tools, rules: Vec::new() };
        assert!(restrictions.has_tool("docs_read") && !restrictions.has_tool("docs_write_file"));
        assert!(restrictions.has_tool("web_a") && !restrictions.has_tool("web_b"));
        let states: Vec<(&str, State)> =
            found.rows.iter().map(|row| (row.setting.as_str(), row.state)).collect();
        assert!(states.contains(&("mcp_servers.docs", State::Changed)), "{states:?}");
        assert!(states.contains(&("sandbox_mode", State::Changed)), "{states:?}");
        assert!(states.contains(&("model", State::NotSupported)), "{states:?}");
    }

    // R: T2
    #[test]
    fn server_with_a_restriction_that_is_not_understood_is_off_and_reported() {
        for (unclear, must) in [
            ("disabled_tools = \"write\"", "disabled_tools` must be a list of strings"),
            ("disabled_tools = [\"write\", 1]", "disabled_tools` must be a list of strings"),
            ("enabled_tools = { read = true }", "enabled_tools` must be a list of strings"),
            ("enabled = \"no\"", "enabled` must be true or false"),
        ] {
            let found = read_text(&format!(
                "[mcp_servers.a]\ncommand = \"x\"\n{unclear}\n[mcp_servers.b]\ncommand = \"x\"\n"
            ));
            let names = found.servers.servers.iter().map(|one| one.name.as_str());
            assert_eq!(names.collect::<Vec<_>>(), ["b"], "{unclear}");
            assert_eq!(found.problems.len(), 1, "{unclear}: {:?}", found.problems);
            assert!(found.problems[0].contains(must), "{:?}", found.problems);
            assert_eq!(found.rows[0].state, State::Changed, "{unclear}");
        }
    }

    // R: T2
    #[test]
    fn broken_file_starts_no_server_asks_for_everything_and_is_reported() {
        let found = read_text("[mcp_servers.a]\ncommand = \"x\"\n[mcp_servers.b\n");
        assert_eq!(found.servers, McpServers::default());
        assert!(found.problems[0].contains("line 3"), "{:?}", found.problems);
        assert_eq!((found.floors.len(), found.floors[0].key.as_str()), (1, "*"));
    }
}
