//! The configuration of a server. Values that may be secret are never printed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clean::clean_line;
use crate::error::Error;

/// How long the name of a server may be.
const MAX_NAME: usize = 80;

/// The configuration of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerConfig {
    /// Its name for the user; also the prefix of its tools' names.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// How long it may take to start before a warning, if not the default.
    pub start: Option<Duration>,
    /// Whether several sessions may share it: it has no state between calls.
    pub is_shared: bool,
    /// Whether its program runs outside the sandbox, as the user configured.
    pub is_free: bool,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reach {
    /// A program that we start and talk to over its stdin and stdout.
    Command(Command),
    /// A remote server, over streamable HTTP.
    Http(Remote),
    /// A remote server, over the older HTTP with server-sent events.
    Sse(Remote),
}

/// A program. No shell is involved: each argument is passed as it is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Command {
    /// A path, or a name to look up in the search path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The environment variables it gets in addition to those of every server.
    pub env: Vec<(String, Secret)>,
    /// The folder it runs in, if not the session's.
    pub cwd: Option<PathBuf>,
}

impl std::fmt::Debug for Command {
    /// Arguments may contain keys and are not printed.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Command { program, args, env, cwd } = self;
        let mut fields = out.debug_struct("Command");
        fields.field("program", program).field("args", &args.len());
        fields.field("env", env).field("cwd", cwd).finish()
    }
}

/// A remote address.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Its address.
    pub url: String,
    /// The headers of every request.
    pub headers: Vec<(String, Secret)>,
}

impl std::fmt::Debug for Remote {
    /// The address may contain a key, so only its host is printed.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = reqwest::Url::parse(&self.url).ok();
        let host = url.as_ref().and_then(reqwest::Url::host_str);
        out.debug_struct("Remote").field("host", &host).field("headers", &self.headers).finish()
    }
}

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Makes one.
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// Returns the value. Use it for sending only.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("****")
    }
}

/// Programs that download another one before they start it.
const FETCHERS: [&str; 9] = ["npx", "npm", "pnpm", "yarn", "bunx", "uvx", "uv", "pipx", "docker"];

impl Command {
    /// Returns the name of the program if it downloads another one before it starts it.
    pub(crate) fn fetcher(&self) -> Option<&str> {
        let name = Path::new(&self.program).file_stem()?.to_str()?;
        FETCHERS.contains(&name).then_some(name)
    }
}

impl ServerConfig {
    /// Makes the error for a server that did not answer.
    pub(crate) fn silent(&self, after: Duration, log: String) -> Error {
        let fetcher = match &self.reach {
            Reach::Command(command) => command.fetcher().map(str::to_owned),
            Reach::Http(_) | Reach::Sse(_) => None,
        };
        Error::Silent { after, fetcher, log }
    }

    /// Makes the configuration of a program.
    ///
    /// # Errors
    /// A sentence that names the server.
    pub fn command(name: &str, command: Command) -> Result<ServerConfig, String> {
        if command.program.trim().is_empty() {
            return Err(format!("`{name}` has no command"));
        }
        if command.env.iter().any(|(key, _)| key.is_empty() || key.contains(['=', '\0'])) {
            return Err(format!("`{name}` sets a variable whose name cannot be one"));
        }
        ServerConfig::new(name, Reach::Command(command))
    }

    /// Makes the configuration of a remote server.
    ///
    /// # Errors
    /// A sentence that names the server.
    pub fn remote(name: &str, reach: Reach) -> Result<ServerConfig, String> {
        if let Reach::Http(remote) | Reach::Sse(remote) = &reach {
            let url = reqwest::Url::parse(&remote.url);
            if !url.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
                return Err(format!("the `url` of `{name}` must begin with http:// or https://"));
            }
        }
        ServerConfig::new(name, reach)
    }

    fn new(name: &str, reach: Reach) -> Result<ServerConfig, String> {
        let name = clean_line(name, MAX_NAME);
        if name.is_empty() {
            return Err("an MCP server has no name".to_owned());
        }
        Ok(ServerConfig { name, reach, start: None, is_shared: false, is_free: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_never_printed() {
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
        let config = ServerConfig::remote("b", Reach::Http(Remote { url, headers })).unwrap();
        assert!(!format!("{config:?}").contains("canary"));
    }

    // R: M2, S12
    #[test]
    fn error_of_a_slow_server_says_how_to_give_it_more_time() {
        let late = |program: &str| {
            let command = Command { program: program.into(), args: vec![], env: vec![], cwd: None };
            let config = ServerConfig::command("a", command).unwrap();
            config.silent(Duration::from_secs(5), "npm warn".to_owned()).to_string()
        };
        assert_eq!(
            late("/usr/bin/npx"),
            "it did not answer within 5 s; `npx` may still be downloading it (first start); set `timeout` in its \
             configuration (milliseconds) to give it more time; last log output: npm warn"
        );
        assert!(!late("node").contains("downloading") && late("node").contains("`timeout`"));
    }

    #[test]
    fn unusable_address_is_refused() {
        let remote = |url: &str| {
            let remote = Remote { url: url.to_owned(), headers: Vec::new() };
            ServerConfig::remote("far", Reach::Http(remote))
        };
        assert!(remote("http://h/mcp").is_ok());
        for url in ["", "h", "file:///etc/passwd", "ws://h/", "http://"] {
            assert!(remote(url).unwrap_err().contains("`far`"), "{url}");
        }
        let empty = Command { program: " ".into(), args: vec![], env: vec![], cwd: None };
        assert!(ServerConfig::command("a", empty.clone()).is_err());
        let named =
            Command { program: "x".into(), env: vec![("A=B".into(), Secret::new(""))], ..empty };
        assert!(ServerConfig::command("a", named).is_err());
    }
}
