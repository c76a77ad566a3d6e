//! What a command may access. Plain values; the other files of this directory enforce it.

use std::path::{Path, PathBuf};

/// What a command may access. Everything else is read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Writable directories, as resolved paths: one that was replaced by a link is refused.
    pub writable: Vec<PathBuf>,
    /// Paths inside them that are read-only, whether they exist or not.
    pub protected: Vec<PathBuf>,
    /// Paths whose contents are not visible.
    pub hidden: Vec<PathBuf>,
    /// Directories that are replaced by empty ones of the command's own, at levels that can.
    pub private: Vec<PathBuf>,
    /// What is in those directories, and the command's temporary directory at other levels: a [`super::SharedDirectory`]. `None` for a
    /// new empty one for each command.
    pub temporary: Option<PathBuf>,
    /// Whether the network can be used.
    pub network: Network,
    /// Resource limits.
    pub limits: Limits,
}

/// Whether the network can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Not at all.
    Off,
    /// All IP addresses.
    On,
}

/// Resource limits of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory for each process, and for all together where the system supports that.
    pub memory: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Bytes of one file, and of all files in its private temporary directory.
    pub file_size: u64,
    /// Open files of each process.
    pub open_files: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        let gib = 1 << 30;
        Limits { memory: 8 * gib, processes: 2048, file_size: 4 * gib, open_files: 16 * 1024 }
    }
}

impl Profile {
    /// Makes the profile of a command that may write only to these directories, with private temporary directories and without network.
    #[must_use]
    pub fn writing_to(writable: Vec<PathBuf>) -> Profile {
        Profile {
            writable,
            protected: Vec::new(),
            hidden: Vec::new(),
            private: vec!["/tmp".into(), "/var/tmp".into()],
            temporary: None,
            network: Network::Off,
            limits: Limits::default(),
        }
    }
}

/// Returns the paths in a home directory where people and programs store secrets.
#[must_use]
pub fn secret_places(home: &Path) -> Vec<PathBuf> {
    SECRETS.iter().map(|place| home.join(place)).collect()
}

/// Keys, tokens, passwords, cookies, histories, and start-up files of shells.
const SECRETS: [&str; 151] = [
    ".ssh",
    ".gnupg",
    ".pki",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/doctl",
    ".config/hcloud",
    ".config/linode-cli",
    ".oci",
    ".bluemix",
    ".kube",
    ".docker",
    ".config/containers",
    ".config/helm",
    ".terraform.d",
    ".terraformrc",
    ".vault-token",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".git-credentials",
    ".config/git/credentials",
    ".netrc",
    "_netrc",
    ".authinfo",
    ".authinfo.gpg",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".pgpass",
    ".my.cnf",
    ".password-store",
    ".local/share/keyrings",
    ".config/op",
    ".config/Bitwarden",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".thunderbird",
    "snap/firefox",
    ".config/Signal",
    ".config/Slack",
    ".config/rclone",
    ".s3cfg",
    ".boto",
    ".config/sops",
    ".config/github-copilot",
    ".codex/auth.json",
    ".claude/.credentials.json",
    ".claude.json",
    ".gemini/oauth_creds.json",
    ".local/share/opencode/auth.json",
    ".cache/huggingface/token",
    ".kaggle",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".nuget/NuGet/NuGet.Config",
    ".sbt/.credentials",
    ".ivy2/.credentials",
    ".bitcoin",
    ".ethereum",
    ".electrum",
    ".python_history",
    ".psql_history",
    ".mysql_history",
    ".local/share/fish/fish_history",
    ".bash_history",
    ".zsh_history",
    ".node_repl_history",
    ".sqlite_history",
    ".rediscli_history",
    ".irb_history",
    ".lesshst",
    // Start-up files of shells, where people export keys.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".kshrc",
    ".tcshrc",
    ".config/fish/config.fish",
    ".config/fish/fish_variables",
    ".config/environment.d",
    ".pam_environment",
    ".envrc",
    ".secrets",
    // Programs from Flatpak and Snap, browsers among them.
    ".var/app",
    "snap/chromium",
    "snap/bitwarden",
    ".config/opera",
    ".config/discord",
    ".local/share/TelegramDesktop",
    ".config/keepassxc",
    ".config/1Password",
    ".config/age",
    ".age",
    ".config/wrangler",
    ".wrangler",
    ".config/netlify",
    ".netlify",
    ".config/heroku",
    ".local/share/com.vercel.cli",
    ".config/scw",
    ".config/flyctl",
    ".fly",
    ".config/exercism",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".config/pypoetry/auth.toml",
    ".config/uv/credentials",
    ".local/share/uv/credentials",
    ".config/hf",
    ".huggingface/token",
    ".config/configstore",
    ".config/rclone.conf",
    ".databrickscfg",
    ".snowflake",
    ".dbt/profiles.yml",
    ".ngrok2",
    ".config/ngrok",
    ".config/stripe",
    ".config/doppler",
    ".doppler",
    ".config/jira",
    ".jira.d",
    ".mc/config.json",
    ".cf",
    ".chef",
    ".ansible_vault_pass",
    ".rnd",
    ".wgetrc",
    ".curlrc",
    ".lftp",
    ".config/filezilla",
    ".config/remmina",
    ".local/share/remmina",
    ".local/share/atuin",
    "Library/Keychains",
];
