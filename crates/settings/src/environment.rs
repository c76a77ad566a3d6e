//! What the program knows of the user's machine: directories and variables.

use std::path::PathBuf;

/// The directories of the user, by the XDG rules. `None` without a home directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directories {
    /// The home directory.
    pub home: Option<PathBuf>,
    /// Our configuration.
    pub config: Option<PathBuf>,
    /// Our data: keys, rules, sessions.
    pub data: Option<PathBuf>,
    /// Our state, which can be lost without harm.
    pub state: Option<PathBuf>,
    /// Our cache.
    pub cache: Option<PathBuf>,
    /// OpenCode's configuration.
    pub opencode_config: Option<PathBuf>,
    /// OpenCode's data.
    pub opencode_data: Option<PathBuf>,
    /// Claude Code's settings.
    pub claude: Option<PathBuf>,
    /// The file of Claude Code with the user's MCP servers.
    pub claude_state: Option<PathBuf>,
    /// Codex's settings.
    pub codex: Option<PathBuf>,
}

impl Directories {
    /// Returns the directories with our configuration, keys, rules and sessions, which no tool may touch.
    #[must_use]
    pub fn private(&self) -> Vec<PathBuf> {
        self.config.iter().chain(&self.data).cloned().collect()
    }

    /// Returns the user's configuration file.
    #[must_use]
    pub fn config_file(&self) -> Option<PathBuf> {
        Some(self.config.as_ref()?.join("purlin.json"))
    }

    /// Returns the user's configuration files of OpenCode; the first that exists is in effect.
    #[must_use]
    pub fn opencode_configs(&self) -> Vec<PathBuf> {
        let names = ["opencode.json", "opencode.jsonc"];
        self.opencode_config
            .iter()
            .flat_map(|directory| names.map(|name| directory.join(name)))
            .collect()
    }

    /// Returns the user's settings of Claude Code.
    #[must_use]
    pub fn claude_settings(&self) -> Option<PathBuf> {
        Some(self.claude.as_ref()?.join("settings.json"))
    }

    /// Returns the user's configuration of Codex.
    #[must_use]
    pub fn codex_config(&self) -> Option<PathBuf> {
        Some(self.codex.as_ref()?.join("config.toml"))
    }

    /// Returns the file with the keys that OpenCode stores.
    #[must_use]
    pub fn opencode_keys(&self) -> Option<PathBuf> {
        Some(self.opencode_data.as_ref()?.join("auth.json"))
    }
}

/// What the configuration is read with.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Where the user's files are.
    pub directories: Directories,
    /// The variables that set configuration keys, such as `PURLIN_MODEL`.
    pub overrides: Vec<(String, String)>,
    /// Returns the value of an environment variable, for `{env:NAME}`.
    pub variable: fn(&str) -> Option<String>,
    /// The providers that are known without configuration.
    pub known_providers: Vec<&'static str>,
    /// The model that is always there.
    pub builtin_model: &'static str,
}
