//! What sessions find on this machine: the sandbox, the environment of commands, the host of MCP servers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use engine::words::SessionId;
use mcp::Host;
use process::sandbox::{Sandbox, secret_places};
use settings::Directories;
use tools::bash::{self, Bash};
use tools::scope::Scope;

use crate::mcp_servers;

/// What a machine is made of; the program reads it from its environment.
#[derive(Debug, Clone)]
pub struct MachineOptions {
    /// The program that becomes a sandboxed command: this one. Without it every command needs permission.
    pub helper: PathBuf,
    /// Where the user's files are.
    pub directories: Directories,
    /// The directory for temporary files.
    pub temporary: PathBuf,
    /// Where programs are looked for.
    pub search: Vec<PathBuf>,
    /// The environment of commands.
    pub command_environment: Vec<(String, String)>,
    /// The environment of MCP servers.
    pub server_environment: Vec<(OsString, OsString)>,
}

/// What all sessions share.
pub struct Machine {
    /// Restricts commands and MCP servers.
    pub sandbox: Arc<Sandbox>,
    /// Runs the MCP servers.
    pub host: Arc<Host>,
    home: Option<PathBuf>,
    /// Our own configuration and data, which no tool may touch.
    private: Arc<[PathBuf]>,
    /// Other places that commands must not see.
    hidden: Arc<[PathBuf]>,
    search: Arc<[PathBuf]>,
    environment: Arc<[(String, String)]>,
    /// Where long outputs of commands are stored.
    outputs: Option<PathBuf>,
}

impl Machine {
    /// Makes a machine. Starts nothing.
    #[must_use]
    pub fn new(options: MachineOptions) -> Machine {
        let sandbox = sandbox(&options);
        let outputs = options.directories.state.as_ref().map(|folder| folder.join("output"));
        let hidden = hidden(&options.directories);
        let host = Host::new(mcp_servers::host_options(&options, Arc::clone(&sandbox)));
        Machine {
            sandbox,
            host,
            home: options.directories.home.clone(),
            private: options.directories.private().into(),
            hidden: hidden.into(),
            search: options.search.into(),
            environment: options.command_environment.into(),
            outputs,
        }
    }

    /// Makes the scope of these directories: what tools may touch.
    pub(crate) fn scope(&self, roots: Vec<PathBuf>) -> Scope {
        Scope::new(roots)
            .with_home(self.home.as_deref())
            .without(&self.private)
            .with_hidden(Arc::clone(&self.hidden))
    }

    /// Makes the tool that runs commands.
    #[must_use]
    pub fn bash(&self, session: &SessionId, folders: &[PathBuf]) -> Bash {
        let options = bash::Options {
            folders: folders.to_vec(),
            own: Arc::clone(&self.private),
            hidden: Arc::clone(&self.hidden),
            search: Arc::clone(&self.search),
            environment: Arc::clone(&self.environment),
            outputs: self.outputs(session),
        };
        Bash::new(Arc::clone(&self.sandbox), options)
    }

    /// Returns where long outputs of a session's commands are stored.
    pub(crate) fn outputs(&self, session: &SessionId) -> Option<PathBuf> {
        Some(self.outputs.as_ref()?.join(session.as_str()))
    }
}

/// Makes the sandbox of a machine.
#[must_use]
pub fn sandbox(options: &MachineOptions) -> Arc<Sandbox> {
    // The file that says what a sandboxed command becomes lies among our own files, where no other command can touch it.
    let scratch = options.directories.data.as_ref().map(|folder| folder.join("scratch"));
    let scratch = scratch.unwrap_or_else(|| options.temporary.clone());
    Arc::new(Sandbox::new(options.helper.clone(), scratch))
}

/// Returns the places beside our own that commands and MCP servers must not see.
pub(crate) fn hidden(directories: &Directories) -> Vec<PathBuf> {
    let secret = directories.home.as_deref().map_or_else(Vec::new, secret_places);
    let outputs = directories.state.as_ref().map(|folder| folder.join("output"));
    secret.into_iter().chain(outputs).collect()
}
