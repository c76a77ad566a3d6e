//! The configuration of a server and its transport. Values that may be secret are never printed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::words::Secret;

use crate::clean::clean_line;
use crate::error::Error;

/// The maximum length of a server's name, in bytes.
const MAX_NAME: usize = 80;

/// The configuration of one server of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerConfig {
    /// Its name, which is also the prefix of its tools' names.
    pub name: String,
    /// How to connect to it.
    pub transport: Transport,
    /// How long it may take to start before the user is notified, if not the default.
    pub start: Option<Duration>,
    /// Whether several sessions may share it, because it has no state between calls.
    pub is_shared: bool,
    /// Whether the user configured it to run outside the sandbox.
    pub is_unsandboxed: bool,
    /// Whether it runs in the session's container.
    pub is_in_container: bool,
}

/// How to connect to a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A program that we start, over its stdin and stdout.
    Command(Command),
    /// A remote server, over streamable HTTP.
    Http(Remote),
    /// A remote server, over the older HTTP with server-sent events.
    Sse(Remote),
}

/// A program and its arguments. No shell interprets them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Command {
    /// A path, or a name to look up in `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables, in addition to those that every server gets.
    pub env: Vec<(String, Secret)>,
    /// Its working directory, if not the session's.
    pub cwd: Option<PathBuf>,
}

impl std::fmt::Debug for Command {
    /// Prints only the number of arguments: they may contain keys.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Command { program, args, env, cwd } = self;
        let mut fields = out.debug_struct("Command");
        fields.field("program", program).field("args", &args.len());
        fields.field("env", env).field("cwd", cwd).finish()
    }
}

/// A remote server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Its URL.
    pub url: String,
    /// The headers of every request.
    pub headers: Vec<(String, Secret)>,
}

impl std::fmt::Debug for Remote {
    /// Prints only the host of the URL: the rest may contain keys.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = reqwest::Url::parse(&self.url).ok();
        let host = url.as_ref().and_then(reqwest::Url::host_str);
        out.debug_struct("Remote").field("host", &host).field("headers", &self.headers).finish()
    }
}

/// Programs that may download a package before they run it.
const PACKAGE_RUNNERS: [&str; 9] =
    ["npx", "npm", "pnpm", "yarn", "bunx", "uvx", "uv", "pipx", "docker"];

impl Command {
    /// Returns the name of the program if it is a package runner.
    pub(crate) fn package_runner(&self) -> Option<&str> {
        let name = Path::new(&self.program).file_stem()?.to_str()?;
        PACKAGE_RUNNERS.contains(&name).then_some(name)
    }
}

impl ServerConfig {
    /// Returns the error for a server that did not become ready in time.
    pub(crate) fn timed_out(&self, after: Duration, log: String) -> Error {
        let package_runner = match &self.transport {
            Transport::Command(command) => command.package_runner().map(str::to_owned),
            Transport::Http(_) | Transport::Sse(_) => None,
        };
        Error::TimedOut { after, package_runner, log }
    }

    /// Creates the configuration of a local server.
    ///
    /// # Errors
    /// Says what is wrong with it. The message names the server.
    pub fn command(name: &str, command: Command) -> Result<ServerConfig, String> {
        if command.program.trim().is_empty() {
            return Err(format!("`{name}` has no command"));
        }
        if command.env.iter().any(|(key, _)| key.is_empty() || key.contains(['=', '\0'])) {
            return Err(format!("`{name}` sets an environment variable with an invalid name"));
        }
        ServerConfig::new(name, Transport::Command(command))
    }

    /// Creates the configuration of a remote server.
    ///
    /// # Errors
    /// Says what is wrong with it. The message names the server.
    pub fn remote(name: &str, transport: Transport) -> Result<ServerConfig, String> {
        if let Transport::Http(remote) | Transport::Sse(remote) = &transport {
            let url = reqwest::Url::parse(&remote.url);
            if !url.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
                return Err(format!("the `url` of `{name}` must start with http:// or https://"));
            }
        }
        ServerConfig::new(name, transport)
    }

    fn new(name: &str, transport: Transport) -> Result<ServerConfig, String> {
        let name = clean_line(name, MAX_NAME);
        if name.is_empty() {
            return Err("an MCP server has no name".to_owned());
        }
        Ok(ServerConfig {
            name,
            transport,
            start: None,
            is_shared: false,
            is_unsandboxed: false,
            is_in_container: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_printed() {
        let command = Command {
            program: "node".to_owned(),
            args: vec!["--token=canary".to_owned()],
            env: vec![("TOKEN".to_owned(), Secret::new("canary"))],
            cwd: None,
        };
        let config = ServerConfig::command("a", command).unwrap();
        assert!(!format!("{config:?}").contains("canary"));
        let url = "https://me:canary@h/canary?k=canary".to_owned();
        let headers = vec![("K".to_owned(), Secret::new("canary"))];
        let config = ServerConfig::remote("b", Transport::Http(Remote { url, headers })).unwrap();
        assert!(!format!("{config:?}").contains("canary"));
    }

    // R: M2, S12
    #[test]
    fn timeout_error_explains_how_to_allow_more_time() {
        let late = |program: &str| {
            let command = Command { program: program.into(), args: vec![], env: vec![], cwd: None };
            let config = ServerConfig::command("a", command).unwrap();
            config.timed_out(Duration::from_secs(5), "npm warn".to_owned()).to_string()
        };
        assert_eq!(
            late("/usr/bin/npx"),
            "it did not answer within 5 s; `npx` downloads it at the first start and may not have finished; set \
             `timeout` (in milliseconds) in its configuration to allow more time; last output: npm warn"
        );
        assert!(!late("node").contains("downloads") && late("node").contains("`timeout`"));
    }

    #[test]
    fn invalid_configuration_is_rejected() {
        let remote = |url: &str| {
            let remote = Remote { url: url.to_owned(), headers: Vec::new() };
            ServerConfig::remote("far", Transport::Http(remote))
        };
        assert!(remote("http://h/mcp").is_ok());
        for url in ["", "h", "file:///etc/passwd", "ws://h/", "http://"] {
            assert!(remote(url).unwrap_err().contains("`far`"), "{url}");
        }
        let empty = Command { program: " ".into(), args: vec![], env: vec![], cwd: None };
        assert!(ServerConfig::command("a", empty.clone()).is_err());
        let invalid_variable =
            Command { program: "x".into(), env: vec![("A=B".into(), Secret::new(""))], ..empty };
        assert!(ServerConfig::command("a", invalid_variable).is_err());
    }
}
