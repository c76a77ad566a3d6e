//! MCP servers: which ones a session gets, from the client, the user's configuration and a project that is trusted.

pub(crate) mod command;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use mcp::{Command, Host, Reach, Remote, Secret, ServerConfig, SessionServers};
use serde_json::Value;
use wire::acp::schema::{self, McpServer};

use crate::assemble::{Machine, OpenTools, Workspace};
use crate::{auth, env, project};

/// The servers that a client wants a session to have.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) servers: Vec<ServerConfig>,
    /// What is wrong with those that were left out.
    pub(crate) problems: Vec<String>,
}

impl Wanted {
    /// Reads the servers; those that cannot be used are left out and join the problems.
    pub(crate) fn new(servers: Vec<McpServer>, mut problems: Vec<String>) -> Wanted {
        let mut good = Vec::new();
        for server in servers {
            match server_in(server) {
                Ok(server) => good.push(server),
                Err(problem) => problems.push(problem),
            }
        }
        Wanted { servers: good, problems }
    }
}

/// Reads the problems that `wire` found.
pub(crate) fn problems_in(stowed: Option<Value>) -> Vec<String> {
    stowed.and_then(|problems| serde_json::from_value(problems).ok()).unwrap_or_default()
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
            ServerConfig::remote(&http.name, Reach::Http(remote))
        }
        McpServer::Sse(sse) => {
            let remote = Remote { url: sse.url, headers: pairs(sse.headers) };
            ServerConfig::remote(&sse.name, Reach::Sse(remote))
        }
        _ => Err("a server is reached in a way that is not known".to_owned()),
    }
}

/// The servers of the user's configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UserServers {
    /// Those that every session gets.
    pub servers: Vec<ServerConfig>,
    /// The names of those that no session gets, wherever they come from.
    pub off: BTreeSet<String>,
}

impl UserServers {
    /// Reads `mcp` of the configuration. A mistake in one server does not undo the others.
    pub(crate) fn read(value: Value, problems: &mut Vec<String>) -> UserServers {
        let mut found = UserServers::default();
        let Value::Object(entries) = value else {
            problems.push("`mcp` must be an object".to_owned());
            return found;
        };
        for (name, entry) in entries {
            if entry.get("enabled") == Some(&Value::Bool(false)) {
                found.off.insert(name);
                continue;
            }
            match read_one(&name, entry) {
                Ok(server) => found.servers.push(server),
                Err(problem) => problems.push(format!("`mcp.{name}` {problem}")),
            }
        }
        found
    }
}

fn read_one(name: &str, mut entry: Value) -> Result<ServerConfig, String> {
    let Some(members) = entry.as_object_mut() else {
        return Err("must be an object".to_owned());
    };
    members.insert("name".to_owned(), name.into());
    let is_shared = members.remove("shared") == Some(Value::Bool(true));
    let is_free = members.remove("sandbox") == Some(Value::Bool(false));
    let start = members.remove("timeout").and_then(|millis| millis.as_u64());
    let cwd = members.remove("cwd").and_then(|cwd| Some(PathBuf::from(cwd.as_str()?)));
    let mut server = server_in(wire::acp::mcp_servers::read(entry)?)?;
    server.is_shared = is_shared;
    server.is_free = is_free;
    server.start = start.map(std::time::Duration::from_millis);
    if let Reach::Command(command) = &mut server.reach {
        command.cwd = cwd;
    }
    Ok(server)
}

/// Makes the host of all servers. Starts none.
#[must_use]
pub fn host(machine: &Machine) -> Arc<Host> {
    Host::new(host_options(machine))
}

pub(crate) fn host_options(machine: &Machine) -> mcp::Options {
    mcp::Options {
        timing: mcp::Timing::default(),
        environment: env::for_servers(),
        folder: std::env::temp_dir(),
        login: mcp::oauth::Login::new(Arc::new(auth::McpVault)),
        guard: process::Guard::default(),
        starter: mcp::Starter::default(),
        confine: Some(confine(machine)),
    }
}

/// Where programs that fetch other programs keep them, below the home folder.
const CACHES: [&str; 8] = [
    ".cache",
    ".npm",
    ".bun",
    ".deno",
    ".yarn",
    ".local/share/pnpm",
    ".local/share/uv",
    "Library/Caches",
];

/// Which of them a program cannot do without.
const NEEDED: [(&str, &str); 6] = [
    ("npx", ".npm"),
    ("npm", ".npm"),
    ("bunx", ".bun"),
    ("uvx", ".cache"),
    ("uvx", ".local/share/uv"),
    ("pnpm", ".local/share/pnpm"),
];

/// What holds the programs of servers back: they see no secrets and nothing of ours, and write to their session's
/// folders, to temporary ones and to caches.
fn confine(machine: &Machine) -> mcp::Confine {
    let home = env::home();
    let caches = home.iter().flat_map(|home| CACHES.map(|cache| home.join(cache)));
    let needed = home.iter().flat_map(|home| NEEDED.map(|(of, cache)| (of, home.join(cache))));
    mcp::Confine {
        sandbox: Arc::clone(&machine.sandbox),
        hidden: machine.own.iter().chain(&*machine.hidden).cloned().collect(),
        writable: caches.chain([std::env::temp_dir()]).collect(),
        caches: needed.collect(),
    }
}

/// Adds the tools of MCP servers to those that a session has anyway.
#[must_use]
pub fn with_servers(tools: OpenTools, host: Arc<Host>, user: UserServers) -> OpenTools {
    Arc::new(move |workspace: Workspace| {
        let mut problems = workspace.problems.clone();
        let (mut own, wrong) = match workspace.folders.first() {
            Some(folder) => project::servers(folder),
            None => Default::default(),
        };
        problems.extend(wrong);
        // `shared` and `sandbox` are for the user to say, in the user's own file.
        for server in &mut own.servers {
            (server.is_shared, server.is_free) = (false, false);
        }
        let is_off = |name: &String| user.off.contains(name) || own.off.contains(name);
        let given = workspace.servers.iter().filter(|server| !user.off.contains(&server.name));
        let users = user.servers.iter().chain(&own.servers);
        let servers = given.chain(users.filter(|server| !is_off(&server.name))).cloned().collect();
        let roots = workspace.folders.clone();
        let tools = tools(workspace);
        Arc::new(SessionServers::new(&host, tools, servers, problems, roots))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // R: M1
    #[test]
    fn servers_are_read_as_opencode_writes_them() {
        let mut problems = Vec::new();
        let mut servers = UserServers::read(
            json!({
                "near": { "type": "local", "command": ["node", "a.js"], "environment": { "A": "1" }, "cwd": "/w" },
                "far": { "type": "remote", "url": "https://h/mcp", "headers": { "K": "v" }, "timeout": 900 },
                "old": { "type": "sse", "url": "http://h/sse", "shared": true },
                "asleep": { "type": "local", "command": [], "enabled": false },
                "bad": { "type": "local", "command": [] },
                "worse": 7,
            }),
            &mut problems,
        );
        servers.servers.sort_by(|one, other| one.name.cmp(&other.name));
        problems.sort();
        let names: Vec<&str> = servers.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["far", "near", "old"]);
        assert_eq!(servers.off, BTreeSet::from(["asleep".to_owned()]));
        assert_eq!(
            problems,
            [
                "`mcp.bad` (`bad`) has neither a `command` nor a `url`",
                "`mcp.worse` must be an object"
            ]
        );
        assert_eq!(servers.servers[0].start, Some(std::time::Duration::from_millis(900)));
        assert!(servers.servers[2].is_shared);
        let Reach::Command(command) = &servers.servers[1].reach else {
            panic!("a local server is a command");
        };
        assert_eq!(
            (command.program.as_str(), &command.args[..]),
            ("node", &["a.js".to_owned()][..])
        );
        assert_eq!(command.cwd, Some(PathBuf::from("/w")));
    }
}
