//! `purlin mcp`: lists, adds, removes and tests the MCP servers of the configuration, and logs in to them.

mod login;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use mcp::{ServerConfig, Transport};
use serde_json::{Value, json};
use serve::mcp_servers::{self, Vault};
use settings::config::{check_readable, edit};
use settings::mcp_servers::McpServer;
use settings::quote_all;

use crate::count::count;
use crate::env;
use crate::stdout::print;

/// Shown if there is nothing to list or to test.
const NONE: &str = "No MCP servers configured. Add one with `purlin mcp add NAME -- COMMAND`.\n";

/// A subcommand of `purlin mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// List configured servers
    List,
    /// Add a server
    Add(Add),
    /// Remove a server and its login
    Remove {
        /// Server name
        name: String,
    },
    /// Connect to servers, and show their tools and response times
    Test {
        /// Server name; all servers if omitted
        name: Option<String>,
    },
    /// Log in to a remote server in a browser
    Login {
        /// Server name
        name: String,
    },
}

/// A server to add.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Server name; its tools get it as a prefix
    name: String,
    /// Address of a remote server
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<String>,
    /// Use the older HTTP+SSE transport
    #[arg(long, requires = "url")]
    sse: bool,
    /// HTTP header for a remote server; `{env:NAME}` is replaced by a variable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "url")]
    header: Vec<(String, String)>,
    /// Environment variable for a local server; `{env:NAME}` is replaced by a variable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// Share one server process between sessions
    #[arg(long)]
    shared: bool,
    /// Command and arguments of a local server, after `--`
    #[arg(last = true, required_unless_present = "url")]
    command: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs `purlin mcp`.
///
/// # Errors
/// Says what cannot be read, written or reached.
pub(crate) fn run(command: McpCommand, file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    // Adding the first server may create the file.
    if !matches!(command, McpCommand::Add(_)) {
        check_readable(file.as_deref())?;
    }
    let servers = Servers::load(file.clone());
    servers.problems.iter().for_each(|problem| eprintln!("{problem}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        McpCommand::List => list(&servers),
        McpCommand::Add(add) => {
            let name = add.name.clone();
            let entry = add.entry();
            let server = McpServer::read(&name, &entry).map_err(anyhow::Error::msg)?;
            mcp_servers::convert(&server).map_err(anyhow::Error::msg)?;
            let file = change(file, |servers| {
                servers.get(&name).into_iter().for_each(|old| old.remove());
                servers.append(&name, edit::input(entry));
                Ok(())
            })?;
            eprintln!(
                "Added `{name}` to {}. Test it with `purlin mcp test {name}`.",
                file.display()
            );
            Ok(ExitCode::SUCCESS)
        }
        McpCommand::Remove { name } => {
            let file = change(file, |servers| {
                let known = servers.get(&name);
                known.with_context(|| format!("unknown server `{name}`"))?.remove();
                Ok(())
            })?;
            if let Some(entry) = login_of(&servers, &name) {
                mcp::oauth::Vault::save(&vault(), &entry, None).map_err(anyhow::Error::msg)?;
            }
            eprintln!("Removed `{name}` from {}.", file.display());
            Ok(ExitCode::SUCCESS)
        }
        McpCommand::Test { name } => runtime.block_on(test(&servers, name.as_deref())),
        McpCommand::Login { name } => {
            let server = find(&servers, &name).map_err(|err| {
                let add = format!("`purlin mcp add {name} --url URL`");
                anyhow::anyhow!("{err}. To log in to a server of your editor, add it first: {add}")
            })?;
            runtime.block_on(login::run(server))
        }
    }
}

/// The servers of the configuration.
struct Servers {
    servers: Vec<ServerConfig>,
    disabled: BTreeSet<String>,
    problems: Vec<String>,
}

impl Servers {
    fn load(file: Option<PathBuf>) -> Servers {
        let (config, mut problems) = env::load_config(file);
        let mut servers = Vec::new();
        for server in &config.mcp.servers {
            match mcp_servers::convert(server) {
                Ok(server) => servers.push(server),
                Err(problem) => problems.push(problem),
            }
        }
        Servers { servers, disabled: config.mcp.disabled, problems }
    }
}

/// Returns where logins are stored.
fn vault() -> Vault {
    Vault(env::directories())
}

impl Add {
    /// Returns the server in the form of the configuration.
    fn entry(self) -> Value {
        let members = |pairs: Vec<(String, String)>| -> Value {
            pairs.into_iter().map(|(name, value)| (name, Value::String(value))).collect()
        };
        let mut entry = match self.url {
            Some(url) => {
                let kind = if self.sse { "sse" } else { "remote" };
                let mut entry = json!({ "type": kind, "url": url });
                if !self.header.is_empty() {
                    entry["headers"] = members(self.header);
                }
                entry
            }
            None => json!({ "type": "local", "command": self.command }),
        };
        if !self.env.is_empty() {
            entry["environment"] = members(self.env);
        }
        if self.shared {
            entry["shared"] = json!(true);
        }
        entry
    }
}

/// Returns the entry that the login to a server is stored under.
fn login_of(servers: &Servers, name: &str) -> Option<String> {
    let server = servers.servers.iter().find(|server| server.name == name)?;
    match &server.transport {
        Transport::Http(remote) | Transport::Sse(remote) => {
            Some(mcp::oauth::storage_key(name, &remote.url))
        }
        Transport::Command(_) => None,
    }
}

fn list(servers: &Servers) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for server in &servers.servers {
        let login = login_of(servers, &server.name);
        let is_in = login.is_some_and(|entry| mcp::oauth::Vault::load(&vault(), &entry).is_some());
        let note = if is_in { "\tlogged in" } else { "" };
        writeln!(out, "{}\t{}{note}", server.name, place(server))?;
    }
    for name in &servers.disabled {
        writeln!(out, "{name}\tdisabled")?;
    }
    if servers.servers.is_empty() && servers.disabled.is_empty() {
        write!(out, "{NONE}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns where a server is, as a shell would write it, without secrets.
fn place(server: &ServerConfig) -> String {
    match &server.transport {
        Transport::Command(command) => {
            let words = std::iter::once(&command.program).chain(&command.args);
            let mut words: Value = words.cloned().collect();
            observe::mask::mask(&mut words);
            quote_all(words.as_array().into_iter().flatten().filter_map(Value::as_str))
        }
        Transport::Http(remote) | Transport::Sse(remote) => {
            let mut shown = json!({ "url": remote.url });
            observe::mask::mask(&mut shown);
            shown["url"].as_str().unwrap_or_default().to_owned()
        }
    }
}

async fn test(servers: &Servers, name: Option<&str>) -> anyhow::Result<ExitCode> {
    let tested = match name {
        Some(name) => vec![find(servers, name)?],
        None => servers.servers.iter().collect(),
    };
    if tested.is_empty() {
        print(NONE)?;
    }
    let mut options = env::host_options();
    options.directory = std::env::current_dir().unwrap_or(options.directory);
    let mut code = ExitCode::SUCCESS;
    for server in tested {
        let probe = mcp::probe::probe(server.clone(), &options);
        tokio::pin!(probe);
        let soon = server.start.unwrap_or(options.timing.start);
        let found = match tokio::time::timeout(soon, &mut probe).await {
            Ok(found) => found,
            Err(_) => {
                let most = options.timing.start_limit.as_secs();
                let (name, late) = (&server.name, soon.as_secs());
                eprintln!("{name}: not ready after {late} s; waiting for {most} s more");
                probe.await
            }
        };
        match found {
            Ok(found) => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{}: OK", server.name)?;
                writeln!(out, "  started   {:>7.1} ms", millis(found.started))?;
                writeln!(out, "  listed    {:>7.1} ms", millis(found.listed))?;
                writeln!(out, "  round trip{:>7.1} ms", millis(found.ping))?;
                for (tool, what) in &found.tools {
                    writeln!(out, "  {tool}: {what}")?;
                }
                let prompts = count(found.prompts, "prompt", "prompts");
                let resources = count(found.resources, "resource", "resources");
                writeln!(out, "  {prompts}, {resources}")?;
                if found.omitted > 0 {
                    let tools = count(found.omitted, "more tool", "more tools");
                    writeln!(out, "  {tools} omitted")?;
                }
            }
            Err((error, log)) => {
                eprintln!("{}: {error}", server.name);
                log.lines().for_each(|line| eprintln!("  {line}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn millis(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn find<'a>(servers: &'a Servers, name: &str) -> anyhow::Result<&'a ServerConfig> {
    let found = servers.servers.iter().find(|server| server.name == name);
    found.with_context(|| format!("unknown server `{name}`; see `purlin mcp list`"))
}

/// Changes `mcp` in the configuration file and leaves the rest, comments included, as it is.
fn change(
    file: Option<PathBuf>,
    change: impl FnOnce(&jsonc_parser::cst::CstObject) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    edit::change(file, &env::directories(), |object| {
        change(&object.object_value_or_create("mcp").context("`mcp` is not an object")?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: M1
    #[test]
    fn adding_and_removing_a_server_leaves_the_rest_of_the_file() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        let file = directory.join("purlin.json");
        let before = "{\n  // mine\n  \"model\": \"openai/b\",\n}\n";
        std::fs::write(&file, before).unwrap();
        let add = |name: &str| Add {
            name: name.to_owned(),
            url: None,
            sse: false,
            header: Vec::new(),
            env: vec![("A".to_owned(), "1".to_owned())],
            shared: false,
            command: ["node", "my server.js", "--token", "canary"].map(str::to_owned).into(),
        };
        run(McpCommand::Add(add("near")), Some(file.clone())).unwrap();
        run(McpCommand::Add(add("near")), Some(file.clone())).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("// mine"), "{text}");
        let (config, _) = env::load_config(Some(file.clone()));
        assert_eq!(config.model.as_deref(), Some("openai/b"));
        let servers = Servers::load(Some(file.clone()));
        assert_eq!(servers.problems, [] as [String; 0]);
        assert_eq!(servers.servers.len(), 1);
        assert_eq!(place(&servers.servers[0]), "node 'my server.js' --token '****'");
        change(Some(file.clone()), |servers| {
            servers.get("near").unwrap().remove();
            Ok(())
        })
        .unwrap();
        assert!(Servers::load(Some(file.clone())).servers.is_empty());
        assert!(
            change(Some(file), |servers| servers.get("far").map(|_| ()).context("none")).is_err()
        );
    }
}
