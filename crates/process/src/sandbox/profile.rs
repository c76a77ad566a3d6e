//! What a command may touch. Plain values; the mechanisms beside this file make it so.

use std::path::{Path, PathBuf};

/// What a command may touch. What is not named can be read and not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Folders that can be written, by their real paths: what has become a link since is refused.
    pub writable: Vec<PathBuf>,
    /// Paths inside them that cannot, whether they exist or not.
    pub protected: Vec<PathBuf>,
    /// Paths whose contents cannot be seen.
    pub hidden: Vec<PathBuf>,
    /// Folders that are empty and the command's own, where the level can do that.
    pub private: Vec<PathBuf>,
    /// Whether others can be reached over the network.
    pub network: Network,
    /// How much of the machine it may use.
    pub limits: Limits,
}

/// Whether others can be reached over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Nobody.
    Off,
    /// Everybody, over IP.
    On,
}

/// How much of the machine one command may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, for each of its processes, and for all together where the system can count that.
    pub memory: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Bytes of one file, and of everything in its private temporary folder.
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
    /// Makes the profile of a command that writes to these folders only, with temporary folders of its own and no
    /// network.
    #[must_use]
    pub fn writing_to(writable: Vec<PathBuf>) -> Profile {
        Profile {
            writable,
            protected: Vec::new(),
            hidden: Vec::new(),
            private: vec!["/tmp".into(), "/var/tmp".into()],
            network: Network::Off,
            limits: Limits::default(),
        }
    }
}

/// Returns the places below a home folder where people and programs keep secrets.
#[must_use]
pub fn secret_places(home: &Path) -> Vec<PathBuf> {
    SECRETS.iter().map(|place| home.join(place)).collect()
}

/// Keys, tokens, passwords, cookies and histories.
const SECRETS: [&str; 78] = [
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
    "Library/Keychains",
];
