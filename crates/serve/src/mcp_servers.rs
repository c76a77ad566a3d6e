//! MCP servers: those of clients and settings, converted for the host that runs them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use engine::ports::Extension;
use engine::words::{Secret, SessionId};
use mcp::{Command, Remote, ServerConfig, SessionServers, Transport};
use process::container::Containers;
use process::sandbox::Sandbox;
use serde_json::Value;
use settings::credentials::Credentials;
use settings::mcp_servers::{self as configured, McpServer as ConfiguredServer, McpServers};
use settings::{Directories, Project};
use wire::acp::schema::{self, McpServer};

use crate::machine::{self, MachineOptions};

/// The servers that a client requests for a session.
#[derive(Debug, Clone, Default)]
pub struct RequestedServers {
    pub(crate) servers: Vec<ServerConfig>,
    /// What is wrong with those that were left out.
    pub(crate) problems: Vec<String>,
}

impl RequestedServers {
    /// Reads the servers; those that cannot be used are left out and reported.
    pub(crate) fn new(servers: Vec<McpServer>, mut problems: Vec<String>) -> RequestedServers {
        let mut good = Vec::new();
        for server in servers {
            match server_in(server) {
                Ok(server) => good.push(server),
                Err(problem) => problems.push(problem),
            }
        }
        RequestedServers { servers: good, problems }
    }
}

/// Reads the problems that `wire` found.
pub(crate) fn problems_in(value: Option<Value>) -> Vec<String> {
    value.and_then(|problems| serde_json::from_value(problems).ok()).unwrap_or_default()
}

fn server_in(server: McpServer) -> Result<ServerConfig, String> {
    let pairs = |headers: Vec<schema::HttpHeader>| {
        headers.into_iter().map(|header| (header.name, Secret::new(header.value))).collect()
    };
    match server {
        McpServer::Stdio(stdio) => {
            let env = stdio.env.into_iter();
            let command = Command {
                program: stdio.command.to_string_lossy().into_owned(),
                args: stdio.args,
                env: env.map(|variable| (variable.name, Secret::new(variable.value))).collect(),
                cwd: None,
            };
            ServerConfig::command(&stdio.name, command)
        }
        McpServer::Http(http) => {
            let remote = Remote { url: http.url, headers: pairs(http.headers) };
            ServerConfig::remote(&http.name, Transport::Http(remote))
        }
        McpServer::Sse(sse) => {
            let remote = Remote { url: sse.url, headers: pairs(sse.headers) };
            ServerConfig::remote(&sse.name, Transport::Sse(remote))
        }
        _ => Err("a server has an unknown transport".to_owned()),
    }
}

/// Converts a server of the settings.
///
/// # Errors
/// Says what is wrong with it.
pub fn convert(server: &ConfiguredServer) -> Result<ServerConfig, String> {
    let remote = |remote: &configured::Remote| Remote {
        url: remote.url.clone(),
        headers: remote.headers.clone(),
    };
    let mut converted = match &server.transport {
        configured::Transport::Stdio { program, args, env, cwd } => {
            let (program, args, cwd) = (program.clone(), args.clone(), cwd.clone());
            ServerConfig::command(&server.name, Command { program, args, env: env.clone(), cwd })?
        }
        configured::Transport::Http(at) => {
            ServerConfig::remote(&server.name, Transport::Http(remote(at)))?
        }
        configured::Transport::Sse(at) => {
            ServerConfig::remote(&server.name, Transport::Sse(remote(at)))?
        }
    };
    converted.start = server.start;
    converted.is_shared = server.is_shared;
    converted.is_unsandboxed = server.is_unsandboxed;
    converted.is_in_container = server.is_in_container;
    Ok(converted)
}

/// The servers that a session has whatever its client requests: the user's, and those of a project that is trusted.
struct ConfiguredServers {
    servers: Vec<ServerConfig>,
    /// What is wrong with those that were left out.
    problems: Vec<String>,
    /// The names that the user does not want, even if a client requests them.
    disabled: BTreeSet<String>,
}

impl ConfiguredServers {
    fn new(user: &McpServers, project: Option<&Project>) -> ConfiguredServers {
        let (own, mut problems) = project.map(Project::servers).unwrap_or_default();
        let is_on = |name: &String| !user.disabled.contains(name) && !own.disabled.contains(name);
        let mut servers = Vec::new();
        for server in user.servers.iter().chain(&own.servers).filter(|server| is_on(&server.name)) {
            match convert(server) {
                Ok(server) => servers.push(server),
                Err(problem) => problems.push(problem),
            }
        }
        ConfiguredServers { servers, problems, disabled: user.disabled.clone() }
    }

    /// Returns the servers and problems of a session: first the client's, then the configured ones.
    fn after(&self, requested: RequestedServers) -> (Vec<ServerConfig>, Vec<String>) {
        let RequestedServers { mut servers, mut problems } = requested;
        servers.retain(|server| !self.disabled.contains(&server.name));
        servers.extend_from_slice(&self.servers);
        problems.extend_from_slice(&self.problems);
        (servers, problems)
    }
}

/// The servers of a session, some of which the client can replace.
pub(crate) struct ReplaceableServers {
    configured: ConfiguredServers,
    servers: Arc<SessionServers>,
}

impl ReplaceableServers {
    /// Chooses the servers of a session in these directories.
    pub(crate) fn new(
        host: &Arc<mcp::Host>,
        requested: RequestedServers,
        (user, project): (&McpServers, Option<&Project>),
        session: &SessionId,
        directories: &[PathBuf],
        containers: Option<Arc<Containers>>,
    ) -> ReplaceableServers {
        let configured = ConfiguredServers::new(user, project);
        let (servers, problems) = configured.after(requested);
        let servers = SessionServers::new(host, servers, problems, directories.to_vec());
        let servers = servers.with_session(session.as_str()).with_containers(containers);
        ReplaceableServers { configured, servers: Arc::new(servers) }
    }

    /// Returns the extension of the session's toolbox.
    pub(crate) fn extension(&self) -> Arc<dyn Extension> {
        Arc::clone(&self.servers) as Arc<dyn Extension>
    }

    /// Replaces the servers that the client requested.
    pub(crate) fn replace(&self, requested: RequestedServers) {
        let (servers, problems) = self.configured.after(requested);
        self.servers.replace(servers, problems);
    }
}

/// Makes the options of a host: what its servers get and how they are restricted.
#[must_use]
pub fn host_options(options: &MachineOptions, sandbox: Arc<Sandbox>) -> mcp::Options {
    mcp::Options {
        timing: mcp::Timing::default(),
        environment: options.server_environment.clone(),
        directory: options.temporary.clone(),
        login: mcp::oauth::Login::new(Arc::new(Vault(options.directories.clone()))),
        guard: process::Guard::default(),
        starter: mcp::Starter::default(),
        confinement: Some(confinement(options, sandbox)),
    }
}

/// The logins to MCP servers, stored with the user's other credentials.
pub struct Vault(pub Directories);

impl mcp::oauth::Vault for Vault {
    fn load(&self, entry: &str) -> Option<String> {
        Credentials::new(&self.0).ok()?.mcp_login(entry)
    }

    fn save(&self, entry: &str, text: Option<&str>) -> Result<(), String> {
        let saved = Credentials::new(&self.0).and_then(|store| store.set_mcp_login(entry, text));
        saved.map_err(|err| err.to_string())
    }
}

/// Restricts the programs of servers: they see neither secrets nor our own files, and write only to the directories of
/// their session, to temporary directories and to a directory of their own for caches.
fn confinement(options: &MachineOptions, sandbox: Arc<Sandbox>) -> mcp::Confinement {
    let directories = &options.directories;
    mcp::Confinement {
        sandbox,
        hidden: options.private().into_iter().chain(machine::hidden(directories)).collect(),
        writable: vec![options.temporary.clone()],
        caches: directories.cache.as_ref().map(|directory| directory.join("mcp")),
        protected: shell::AUTO_RUN.to_vec(),
    }
}
