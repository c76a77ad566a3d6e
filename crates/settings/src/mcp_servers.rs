//! The key `mcp`: MCP servers by name, in OpenCode's form.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use engine::words::Secret;
use serde_json::{Map, Value};

/// One MCP server of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// How long it may take to start before it is reported as late.
    pub start: Option<Duration>,
    /// Whether all sessions share one process.
    pub is_shared: bool,
    /// Whether it runs without the sandbox.
    pub is_unsandboxed: bool,
    /// Whether it runs in the session's container.
    pub is_in_container: bool,
}

/// How an MCP server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program on this machine.
    Stdio {
        /// The program.
        program: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables it gets beside the usual ones.
        env: Vec<(String, Secret)>,
        /// The directory it runs in.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http(Remote),
    /// The older HTTP with server-sent events.
    Sse(Remote),
}

/// A server on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Its address.
    pub url: String,
    /// Headers of every request.
    pub headers: Vec<(String, Secret)>,
}

/// The servers of one configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpServers {
    /// The servers that every session gets.
    pub servers: Vec<McpServer>,
    /// The names of servers that no session gets, no matter where they are configured.
    pub disabled: BTreeSet<String>,
}

impl McpServers {
    /// Reads `mcp`. A mistake in one server does not affect the others.
    pub fn read(value: Value, problems: &mut Vec<String>) -> McpServers {
        let mut found = McpServers::default();
        let Value::Object(entries) = value else {
            problems.push("`mcp` must be an object".to_owned());
            return found;
        };
        for (name, entry) in entries {
            // What is neither true nor false is reported elsewhere.
            if entry.get("enabled").is_some_and(|value| *value != Value::Bool(true)) {
                found.disabled.insert(name);
                continue;
            }
            match McpServer::read(&name, &entry) {
                Ok(server) => found.servers.push(server),
                Err(problem) => problems.push(format!("`mcp.{name}` {problem}")),
            }
        }
        found
    }

    /// Adds the servers of another program's configuration whose names are free. What it turns off concerns only itself.
    pub(crate) fn extend_missing(&mut self, other: McpServers) {
        for server in other.servers {
            let is_taken = self.servers.iter().any(|known| known.name == server.name);
            if !is_taken && !self.disabled.contains(&server.name) {
                self.servers.push(server);
            }
        }
    }

    /// Adds the servers of another configuration.
    pub fn extend(&mut self, other: McpServers) {
        self.servers.extend(other.servers);
        self.disabled.extend(other.disabled);
    }
}

impl McpServer {
    /// Reads one server.
    ///
    /// # Errors
    /// Says what is wrong with it, without repeating values: they may be secret.
    pub fn read(name: &str, entry: &Value) -> Result<McpServer, String> {
        let members = entry.as_object().ok_or("must be an object")?;
        let text = |key: &str| members.get(key).and_then(Value::as_str);
        let is_remote = members.contains_key("url") && !members.contains_key("command");
        let transport = match text("type") {
            Some("local" | "stdio") => stdio(members)?,
            Some("remote" | "http") => Transport::Http(remote(name, members)?),
            Some("sse") => Transport::Sse(remote(name, members)?),
            None if is_remote => Transport::Http(remote(name, members)?),
            None => stdio(members)?,
            Some(_) => {
                return Err("has an unknown `type`: expected local, remote, http or sse".to_owned());
            }
        };
        let is = |key: &str, value: bool| members.get(key) == Some(&Value::Bool(value));
        let start = members.get("timeout").and_then(Value::as_u64).map(Duration::from_millis);
        Ok(McpServer {
            name: name.to_owned(),
            transport,
            start,
            is_shared: is("shared", true),
            is_unsandboxed: is("sandbox", false),
            is_in_container: is("container", true),
        })
    }
}

fn stdio(members: &Map<String, Value>) -> Result<Transport, String> {
    let none = "has neither a `command` nor a `url`";
    let (program, mut args) = match members.get("command") {
        Some(Value::String(program)) => (program.clone(), Vec::new()),
        Some(Value::Array(words)) => {
            let mut words = strings(words, none)?.into_iter();
            (words.next().ok_or(none)?, words.collect())
        }
        _ => return Err(none.to_owned()),
    };
    if program.trim().is_empty() {
        return Err("has no command".to_owned());
    }
    match members.get("args") {
        None => {}
        Some(Value::Array(more)) => {
            args.extend(strings(more, "has `args` that are not a list of strings")?);
        }
        Some(_) => return Err("has `args` that are not a list of strings".to_owned()),
    }
    let env = members.get("env").or_else(|| members.get("environment"));
    let env = pairs(env, "has an `env` whose values are not strings")?;
    if env.iter().any(|(key, _)| key.is_empty() || key.contains(['=', '\0'])) {
        return Err("sets a variable with an invalid name".to_owned());
    }
    let cwd = members.get("cwd").and_then(Value::as_str).map(PathBuf::from);
    Ok(Transport::Stdio { program, args, env, cwd })
}

fn remote(name: &str, members: &Map<String, Value>) -> Result<Remote, String> {
    let url = members.get("url").and_then(Value::as_str).ok_or("has no `url`")?.to_owned();
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(format!("the `url` of `{name}` must start with http:// or https://"));
    }
    Ok(Remote {
        url,
        headers: pairs(members.get("headers"), "has `headers` that are not strings")?,
    })
}

fn strings(values: &[Value], wrong: &str) -> Result<Vec<String>, String> {
    let texts = values.iter().map(|value| value.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(|| wrong.to_owned())
}

/// Reads an object of strings, or a list of objects with `name` and `value`.
fn pairs(value: Option<&Value>, wrong: &str) -> Result<Vec<(String, Secret)>, String> {
    let pair = |name: &str, value: &Value| Some((name.to_owned(), Secret::new(value.as_str()?)));
    let read = match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Object(pairs)) => pairs.iter().map(|(name, value)| pair(name, value)).collect(),
        Some(Value::Array(pairs)) => pairs
            .iter()
            .map(|entry| pair(entry.get("name")?.as_str()?, entry.get("value")?))
            .collect(),
        Some(_) => None,
    };
    read.ok_or_else(|| wrong.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // R: M1
    #[test]
    fn servers_are_read_in_the_form_of_opencode() {
        let mut problems = Vec::new();
        let mut servers = McpServers::read(
            json!({
                "near": { "type": "local", "command": ["node", "a.js"], "environment": { "A": "1" }, "cwd": "/w" },
                "far": { "type": "remote", "url": "https://h/mcp", "headers": { "K": "v" }, "timeout": 900 },
                "old": { "type": "sse", "url": "http://h/sse", "shared": true },
                "asleep": { "type": "local", "command": [], "enabled": false },
                "bad": { "type": "local", "command": [] },
                "worse": 7,
                "odd": { "type": "carrier-pigeon" },
                "env": { "command": "c", "env": { "SECRET": 1 } },
                "args": { "command": "c", "args": [1] },
            }),
            &mut problems,
        );
        servers.servers.sort_by(|one, other| one.name.cmp(&other.name));
        problems.sort();
        let names: Vec<&str> = servers.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["far", "near", "old"]);
        assert_eq!(servers.disabled, BTreeSet::from(["asleep".to_owned()]));
        assert_eq!(
            problems,
            [
                "`mcp.args` has `args` that are not a list of strings",
                "`mcp.bad` has neither a `command` nor a `url`",
                "`mcp.env` has an `env` whose values are not strings",
                "`mcp.odd` has an unknown `type`: expected local, remote, http or sse",
                "`mcp.worse` must be an object"
            ]
        );
        assert_eq!(servers.servers[0].start, Some(Duration::from_millis(900)));
        assert!(servers.servers[2].is_shared);
        let Transport::Stdio { program, args, cwd, .. } = &servers.servers[1].transport else {
            panic!("a local server is a program");
        };
        assert_eq!((program.as_str(), &args[..]), ("node", &["a.js".to_owned()][..]));
        assert_eq!(*cwd, Some(PathBuf::from("/w")));
    }
}
