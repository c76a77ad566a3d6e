//! The user's keys: one file in the data folder, readable by the user alone; and `purlin auth`.

pub(crate) mod opencode;

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use providers::ApiKey;
use serde_json::{Value, json};

use crate::cli::say;
use crate::config::{Config, problem_of_provider};
use crate::env;

/// What `purlin auth` was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthCommand {
    /// Keep a key.
    Login(Option<String>),
    /// Forget a key.
    Logout(String),
    /// Ask whether the keys that OpenCode keeps may be used.
    Import,
    /// Show whose keys there are.
    List,
}

/// Runs `purlin auth`.
///
/// # Errors
/// Says what cannot be read or written.
pub fn run(command: &AuthCommand) -> anyhow::Result<ExitCode> {
    let file = file()?;
    match command {
        AuthCommand::Login(provider) => {
            let provider = match provider {
                Some(provider) => provider.clone(),
                None => {
                    ask("Provider (anthropic, openai, google, openrouter or your own): ", false)?
                }
            };
            anyhow::ensure!(!provider.is_empty(), "no provider was named");
            let (config, problems) = Config::load(None);
            if let Some(problem) = problem_of_provider(&provider, &config.provider) {
                // A provider of the user's own may be what is wrong there.
                problems.iter().for_each(|problem| eprintln!("{problem}"));
                anyhow::bail!("no key is kept for {problem}");
            }
            let key = ApiKey::new(&ask(&format!("Key for {provider}: "), true)?);
            anyhow::ensure!(!key.is_empty(), "no key was given");
            let mut keys = load_from(&file)?;
            keys.insert(provider.clone(), key);
            save(&file, &keys)?;
            eprintln!("The key for {provider} is kept in {}.", file.display());
        }
        AuthCommand::Logout(provider) => {
            let mut keys = load_from(&file)?;
            anyhow::ensure!(keys.remove(provider).is_some(), "there is no key for {provider}");
            save(&file, &keys)?;
            eprintln!("The key for {provider} is forgotten.");
        }
        AuthCommand::Import => opencode::import()?,
        AuthCommand::List => {
            let mut text = String::new();
            for provider in load_from(&file)?.keys() {
                text.push_str(&format!("{provider}\tkept in {}\n", file.display()));
            }
            for variable in env::keys().keys() {
                text.push_str(&format!("{variable}\tset in the environment\n"));
            }
            for provider in opencode::borrowed().keys() {
                text.push_str(&format!("{provider}\tkept by OpenCode\n"));
            }
            if text.is_empty() {
                text.push_str("There are no keys. `purlin auth login` keeps one.\n");
            }
            say(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the keys that are kept. A file that cannot be read is reported and counts as none.
pub(crate) fn load() -> BTreeMap<String, ApiKey> {
    file().and_then(|file| load_from(&file)).unwrap_or_else(|err| {
        tracing::warn!("the stored keys cannot be used: {err:#}");
        BTreeMap::new()
    })
}

fn file() -> anyhow::Result<PathBuf> {
    let folder = env::data_folder().context("there is no home folder to keep keys in")?;
    Ok(folder.join("auth.json"))
}

fn load_from(file: &Path) -> anyhow::Result<BTreeMap<String, ApiKey>> {
    let key = |entry: &Value| Some(ApiKey::new(entry.get("key")?.as_str()?));
    let entries = entries_of(file)?;
    Ok(entries.iter().filter_map(|(id, entry)| Some((id.clone(), key(entry)?))).collect())
}

fn entries_of(file: &Path) -> anyhow::Result<serde_json::Map<String, Value>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(err) => return Err(err).with_context(|| file.display().to_string()),
    };
    // The parser's own words may repeat what it read, so they stay out.
    let Ok(Value::Object(entries)) = serde_json::from_str(&text) else {
        anyhow::bail!("{} is damaged", file.display());
    };
    Ok(entries)
}

/// The log-ins to MCP servers, in the same file as the keys.
pub(crate) struct McpVault;

impl mcp::oauth::Vault for McpVault {
    fn load(&self, entry: &str) -> Option<String> {
        let entries = file().and_then(|file| entries_of(&file)).ok()?;
        let login = entries.get(&mcp_entry(entry))?.get("login")?;
        Some(login.to_string())
    }

    fn save(&self, entry: &str, text: Option<&str>) -> Result<(), String> {
        let save = || {
            let file = file()?;
            let mut entries = entries_of(&file)?;
            match text {
                Some(text) => {
                    let login: Value = serde_json::from_str(text)?;
                    entries.insert(mcp_entry(entry), json!({ "type": "mcp", "login": login }));
                }
                None => drop(entries.remove(&mcp_entry(entry))),
            }
            save_entries(&file, entries)
        };
        save().map_err(|err: anyhow::Error| err.to_string())
    }
}

fn mcp_entry(login: &str) -> String {
    format!("mcp:{login}")
}

/// Writes the file anew, beside the old one, and puts it in its place: it is whole at any time.
fn save(file: &Path, keys: &BTreeMap<String, ApiKey>) -> anyhow::Result<()> {
    let mut entries = entries_of(file)?;
    // What is no key stays as it is: log-ins to MCP servers are kept here, too.
    entries.retain(|_, entry| entry.get("key").is_none());
    let keys = keys.iter();
    entries
        .extend(keys.map(|(id, key)| (id.clone(), json!({ "type": "api", "key": key.reveal() }))));
    save_entries(file, entries)
}

fn save_entries(file: &Path, entries: serde_json::Map<String, Value>) -> anyhow::Result<()> {
    let folder = file.parent().context("the file has no folder")?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let text = serde_json::to_string_pretty(&Value::Object(entries))?;
    let draft = folder.join(format!("auth.json.{}", std::process::id()));
    let written =
        write_private(&draft, text.as_bytes()).and_then(|()| std::fs::rename(&draft, file));
    if written.is_err() {
        // What is left of it holds keys.
        drop(std::fs::remove_file(&draft));
    }
    written.with_context(|| file.display().to_string())
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Asks on the terminal, or reads a line where there is none.
fn ask(question: &str, is_secret: bool) -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        eprint!("{question}");
    }
    let hidden = is_secret.then(Hidden::begin).flatten();
    let mut line = String::new();
    stdin.lock().read_line(&mut line)?;
    if hidden.is_some() {
        eprintln!();
    }
    Ok(line.trim().to_owned())
}

/// Keeps what is typed off the screen until it is dropped.
struct Hidden {
    #[cfg(unix)]
    before: rustix::termios::Termios,
}

#[cfg(unix)]
impl Hidden {
    fn begin() -> Option<Hidden> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &quiet).ok()?;
        Some(Hidden { before })
    }
}

#[cfg(unix)]
impl Drop for Hidden {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before).is_err() {
            tracing::warn!("the terminal still hides what is typed; `stty echo` mends it");
        }
    }
}

#[cfg(not(unix))]
impl Hidden {
    fn begin() -> Option<Hidden> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: I4
    #[test]
    fn keys_are_kept_for_the_user_alone() {
        let folder = std::env::temp_dir().join(format!("purlin-auth-{}", std::process::id()));
        let file = folder.join("auth.json");
        assert!(load_from(&file).unwrap().is_empty());
        let keys = BTreeMap::from([("anthropic".to_owned(), ApiKey::new("sk-1"))]);
        save(&file, &keys).unwrap();
        save(&file, &keys).unwrap();
        assert_eq!(load_from(&file).unwrap(), keys);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::write(&file, "{ sk-canary").unwrap();
        assert!(!format!("{:#}", load_from(&file).unwrap_err()).contains("canary"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
