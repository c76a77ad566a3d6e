//! What sessions find on this machine: the sandbox, the environment of commands, the host of MCP servers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::words::SessionId;
use mcp::Host;
use process::container::Containers;
use process::sandbox::{Sandbox, secret_places};
use settings::Directories;
use tools::bash::{self, Bash};
use tools::scope::{Scope, hard_links};

use crate::mcp_servers;

/// What a machine is made of; the program reads it from its environment.
#[derive(Debug, Clone)]
pub struct MachineOptions {
    /// The program that becomes a sandboxed command: this one. Without it every command needs permission.
    pub helper: PathBuf,
    /// Where the user's files are.
    pub directories: Directories,
    /// The files that rules and keys come from, wherever they are.
    pub policy_files: Vec<PathBuf>,
    /// The directory for temporary files.
    pub temporary: PathBuf,
    /// Where programs are looked for.
    pub search: Vec<PathBuf>,
    /// The environment of commands.
    pub command_environment: Vec<(String, String)>,
    /// The environment of the programs that run containers.
    pub engine_environment: Vec<(OsString, OsString)>,
    /// The environment of MCP servers.
    pub server_environment: Vec<(OsString, OsString)>,
}

impl MachineOptions {
    /// Returns what no tool, no command and no MCP server may touch: our own directories, and the files that rules and keys
    /// come from, with links followed.
    pub(crate) fn private(&self) -> Vec<PathBuf> {
        let real = self.policy_files.iter().filter_map(|path| path.canonicalize().ok());
        self.directories.private().into_iter().chain(real).collect()
    }
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
    /// Links among the files that rules and keys come from.
    links: Vec<PathBuf>,
    /// Other places that commands must not see.
    hidden: Arc<[PathBuf]>,
    search: Arc<[PathBuf]>,
    environment: Arc<[(String, String)]>,
    /// The environment of the programs that run containers.
    pub(crate) engine_environment: Vec<(OsString, OsString)>,
    /// Our own directory for temporary files.
    scratch: PathBuf,
    /// Where long outputs of commands are stored.
    outputs: Option<PathBuf>,
}

impl Machine {
    /// Makes a machine. Starts nothing.
    #[must_use]
    pub fn new(options: MachineOptions) -> Machine {
        let sandbox = sandbox(&options);
        let scratch = scratch(&options);
        let outputs = options.directories.state.as_ref().map(|directory| directory.join("output"));
        let hidden = hidden(&options.directories);
        let private = options.private().into();
        let is_link = |path: &&PathBuf| path.is_symlink();
        let links = options.policy_files.iter().filter(is_link).cloned().collect();
        let host = Host::new(mcp_servers::host_options(&options, Arc::clone(&sandbox)));
        Machine {
            sandbox,
            scratch,
            host,
            home: options.directories.home.clone(),
            private,
            links,
            hidden: hidden.into(),
            search: options.search.into(),
            environment: options.command_environment.into(),
            engine_environment: options.engine_environment,
            outputs,
        }
    }

    /// Returns our own directory for temporary files.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Returns where programs are looked for.
    pub(crate) fn search(&self) -> &[PathBuf] {
        &self.search
    }

    /// Makes the scope of these directories: what tools may touch.
    pub(crate) fn scope(&self, roots: Vec<PathBuf>) -> Scope {
        Scope::new(roots)
            .with_home(self.home.as_deref())
            .without(&self.private)
            .with_hidden(Arc::clone(&self.hidden))
    }

    /// Makes the tool that runs commands. It protects our own files under all their names in the session's directories.
    #[must_use]
    pub fn bash(&self, session: &SessionId, directories: &[PathBuf]) -> Bash {
        self.bash_in(session, directories, None)
    }

    /// The same, with commands in containers.
    #[must_use]
    pub fn bash_in(
        &self,
        session: &SessionId,
        directories: &[PathBuf],
        containers: Option<Arc<Containers>>,
    ) -> Bash {
        let (names, _) = self.other_names(directories);
        let options = bash::Options {
            directories: directories.to_vec(),
            own: self.private.iter().cloned().chain(names).collect(),
            hidden: Arc::clone(&self.hidden),
            search: Arc::clone(&self.search),
            environment: Arc::clone(&self.environment),
            outputs: self.outputs(session),
            containers,
        };
        Bash::new(Arc::clone(&self.sandbox), options)
    }

    /// Finds other names of our own files in directories. Returns them, and whether everything was looked at.
    fn other_names(&self, directories: &[PathBuf]) -> (Vec<PathBuf>, bool) {
        hard_links::names_in(directories, &hard_links::ids(&self.private))
    }

    /// Returns why commands in these directories could change a file that rules or keys come from, so that all of them must
    /// ask: the sandbox protects files, not the links that lead to them.
    pub(crate) fn unprotected(&self, directories: &[PathBuf]) -> Option<String> {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let roots: Vec<PathBuf> = directories.iter().map(real).collect();
        let is_inside = |path: &Path| {
            let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
            directory.is_some_and(|directory| roots.iter().any(|root| directory.starts_with(root)))
        };
        let link = self.links.iter().find(|link| is_inside(link));
        if let Some(link) = link {
            return Some(format!(
                "{} is a link that your rules or keys are read through. A command could replace it, so every command asks.",
                link.display()
            ));
        }
        let (_, is_complete) = self.other_names(directories);
        (!is_complete).then(|| {
            "A file with your rules or keys has other names (hard links), which were not all found in this folder. \
             A command could change it, so every command asks."
                .to_owned()
        })
    }

    /// Returns where long outputs of a session's commands are stored.
    pub(crate) fn outputs(&self, session: &SessionId) -> Option<PathBuf> {
        Some(self.outputs.as_ref()?.join(session.as_str()))
    }
}

/// Makes the sandbox of a machine.
#[must_use]
pub fn sandbox(options: &MachineOptions) -> Arc<Sandbox> {
    Arc::new(Sandbox::new(options.helper.clone(), scratch(options)))
}

/// The file that says what a sandboxed command becomes lies among our own files, where no other command can touch it.
fn scratch(options: &MachineOptions) -> PathBuf {
    let scratch = options.directories.data.as_ref().map(|directory| directory.join("scratch"));
    scratch.unwrap_or_else(|| options.temporary.clone())
}

/// Returns the places beside our own that commands and MCP servers must not see.
pub(crate) fn hidden(directories: &Directories) -> Vec<PathBuf> {
    let secret = directories.home.as_deref().map_or_else(Vec::new, secret_places);
    let outputs = directories.state.as_ref().map(|directory| directory.join("output"));
    secret.into_iter().chain(outputs).collect()
}
