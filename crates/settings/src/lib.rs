//! The settings of the user and of projects: configuration, trust, permission rules, custom agents and commands,
//! instructions, credentials.
//!
//! Reads and writes files and decides what is in effect. Runs nothing, and reads no environment: the program hands in an
//! [`Environment`]. Servers and providers are plain values here; `serve` and `purlin` turn them into what their crates need.

pub mod answer_store;
pub mod chat;
mod claude;
mod codex;
pub mod config;
pub mod credentials;
pub mod custom;
pub mod devcontainer;
pub mod diagnostics;
mod environment;
mod files;
#[cfg(test)]
mod fuzz;
pub mod github;
pub mod instructions;
pub mod limits;
pub mod mcp_servers;
pub mod moving;
pub mod preferences;
pub mod project;
mod providers;
mod quote;
pub mod search;
mod toml;
pub mod trust;
pub mod workspace;
pub mod worktrees;

pub use config::Config;
pub use environment::{Directories, Environment};
pub use files::{DiskReader, ReadText, write_whole};
pub use limits::Limits;
pub use project::Project;
pub use quote::quote_all;
pub use trust::Trust;

use std::path::PathBuf;
use std::sync::Arc;

/// Everything that sessions are opened with.
#[derive(Clone)]
pub struct Settings {
    /// The user's configuration.
    pub config: Config,
    /// What is wrong with it; every session shows this.
    pub problems: Vec<String>,
    /// Where the user's files are.
    pub directories: Directories,
    /// The directory that answers to permission questions are saved in; `None` saves none.
    pub answers: Option<PathBuf>,
    /// Reads the configuration files of projects.
    pub reader: Arc<dyn ReadText>,
}

impl Settings {
    /// Makes settings from a configuration that was loaded.
    #[must_use]
    pub fn new(config: Config, problems: Vec<String>, directories: Directories) -> Settings {
        let answers = directories.data.clone();
        Settings { config, problems, directories, answers, reader: Arc::new(DiskReader) }
    }

    /// Returns the files that rules and keys come from, as far as they exist: the configuration and what it names, saved
    /// answers, trust, keys, and the user's agents and commands.
    #[must_use]
    pub fn policy_files(&self) -> Vec<PathBuf> {
        let directories = &self.directories;
        let mut files = self.config.files.clone();
        files.extend(directories.config_file());
        files.extend(directories.opencode_configs());
        files.extend(directories.opencode_keys());
        files.extend(directories.claude_settings());
        files.extend(directories.claude_state.clone());
        files.extend(directories.codex_config());
        for data in directories.data.iter().chain(&self.answers) {
            files.extend(
                ["permissions.json", "trust.json", "auth.json"].map(|name| data.join(name)),
            );
        }
        files.extend(custom::files::paths_of_user(directories));
        files.retain(|file| file.symlink_metadata().is_ok());
        files.iter_mut().for_each(|file| {
            *file = std::path::absolute(&*file).unwrap_or_else(|_| file.clone());
        });
        files.sort();
        files.dedup();
        files
    }

    /// Reads a project of these settings.
    #[must_use]
    pub fn project(&self, directory: &std::path::Path) -> Project {
        Project::read(directory, &self.directories, &*self.reader)
    }
}
