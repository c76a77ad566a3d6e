//! `check` and `lsp` of a configuration: what tells the model about mistakes in a file that it changed.

use std::time::Duration;

use serde_json::Value;

/// The time-outs in seconds: of a checker and a language server that set none, and the longest.
const CHECK_SECONDS: u64 = 60;
const LSP_SECONDS: u64 = 20;
const MOST_SECONDS: u64 = 300;
/// The most checkers, and the most language servers.
const MOST: usize = 16;

/// The checkers and language servers of a configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnostics {
    /// The checkers.
    pub checkers: Vec<Checker>,
    /// The language servers.
    pub servers: Vec<LanguageServer>,
}

/// A command that checks files.
#[derive(Debug, Clone, PartialEq)]
pub struct Checker {
    /// Which files it is for.
    pub pattern: String,
    /// The command, for the shell.
    pub command: String,
    /// How long it may run.
    pub timeout: Duration,
    /// Whether it belongs to a project, which the user trusts.
    pub is_project: bool,
}

/// A language server, in OpenCode's form.
#[derive(Debug, Clone, PartialEq)]
pub struct LanguageServer {
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The ends of the names of its files.
    pub extensions: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// What it is initialised with.
    pub initialization: Value,
    /// How long its diagnostics are waited for.
    pub timeout: Duration,
    /// Whether it belongs to a project, which the user trusts.
    pub is_project: bool,
}

/// The servers that need no `command` and `extensions`.
const KNOWN: [(&str, &[&str], &[&str]); 4] = [
    ("rust", &["rust-analyzer"], &[".rs"]),
    ("pyright", &["pyright-langserver", "--stdio"], &[".py", ".pyi"]),
    (
        "typescript",
        &["typescript-language-server", "--stdio"],
        &[".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts"],
    ),
    ("gopls", &["gopls"], &[".go"]),
];

impl Diagnostics {
    /// Adds those of another configuration. A server with the same name is replaced.
    pub fn extend(&mut self, other: Diagnostics) {
        self.checkers.extend(other.checkers);
        self.servers.retain(|server| other.servers.iter().all(|new| new.name != server.name));
        self.servers.extend(other.servers);
    }

    /// Reads `check` of a configuration.
    pub fn read_check(&mut self, value: &Value, is_project: bool) {
        for (pattern, row) in value.as_object().into_iter().flatten().take(MOST) {
            let command = row.as_str().or_else(|| row.get("command")?.as_str());
            self.checkers.extend(command.map(|command| Checker {
                pattern: pattern.clone(),
                command: command.to_owned(),
                timeout: seconds(row, CHECK_SECONDS),
                is_project,
            }));
        }
    }

    /// Reads `lsp` of a configuration.
    pub fn read_lsp(&mut self, value: &Value, is_project: bool, problems: &mut Vec<String>) {
        for (name, row) in value.as_object().into_iter().flatten().take(MOST) {
            if row.get("disabled") == Some(&Value::Bool(true)) {
                continue;
            }
            let texts = |key: &str, known: &[&str]| -> Vec<String> {
                let given = row.get(key).and_then(Value::as_array);
                let given = given.map(|list| list.iter().filter_map(Value::as_str).collect());
                let given: Vec<&str> = given.unwrap_or_else(|| known.to_vec());
                given.into_iter().map(str::to_owned).collect()
            };
            let known = KNOWN.iter().find(|(known, ..)| known == name);
            let (_, program, ends) = known.copied().unwrap_or(("", &[], &[]));
            let (command, extensions) = (texts("command", program), texts("extensions", ends));
            if command.is_empty() || extensions.is_empty() {
                problems.push(format!(
                    "`lsp.{name}` needs `command` and `extensions`. Only rust, pyright, typescript and gopls have defaults."
                ));
                continue;
            }
            let environment = row.get("env").and_then(Value::as_object).into_iter().flatten();
            self.servers.push(LanguageServer {
                name: name.clone(),
                command,
                extensions,
                environment: environment
                    .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                    .collect(),
                initialization: row.get("initialization").cloned().unwrap_or_default(),
                timeout: seconds(row, LSP_SECONDS),
                is_project,
            });
        }
    }
}

fn seconds(row: &Value, default: u64) -> Duration {
    let seconds = row.get("timeout").and_then(Value::as_u64);
    Duration::from_secs(seconds.unwrap_or(default).clamp(1, MOST_SECONDS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_servers_have_defaults_and_others_need_a_command() {
        let (mut found, mut problems) = (Diagnostics::default(), Vec::new());
        let lsp = json!({
            "rust": {},
            "gopls": { "disabled": true },
            "own": { "command": ["own", "--stdio"], "extensions": [".own"], "timeout": 9000 },
            "unknown": { "command": ["x"] },
        });
        found.read_lsp(&lsp, true, &mut problems);
        found.read_check(
            &json!({ "*.py": "ruff check", "*.rs": { "command": "cargo check", "timeout": 5 } }),
            false,
        );
        found.servers.sort_by(|one, other| one.name.cmp(&other.name));
        let names: Vec<&str> = found.servers.iter().map(|server| &*server.name).collect();
        assert_eq!(names, ["own", "rust"]);
        assert_eq!(found.servers[1].command, ["rust-analyzer"]);
        assert_eq!(found.servers[0].timeout, Duration::from_secs(MOST_SECONDS));
        assert!(problems[0].starts_with("`lsp.unknown` needs"), "{problems:?}");
        let commands: Vec<(&str, u64)> =
            found.checkers.iter().map(|it| (&*it.command, it.timeout.as_secs())).collect();
        assert_eq!(commands, [("ruff check", 60), ("cargo check", 5)]);
    }
}
