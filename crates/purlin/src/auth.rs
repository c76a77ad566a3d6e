//! `purlin auth`: manages the user's API keys.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use engine::ports::ModelError;
use engine::words::{ProviderConfig, Secret, visible};
use providers::{KeyCheck, Options};
use settings::config::problem_of_provider;
use settings::credentials::{Credentials, opencode};
use settings::github::GitHubConfig;
use settings::preferences::Preferences;
use tools::forge::login;
use tools::web_search::SearchEngine;

use crate::env;
use crate::stdout::print;

/// A subcommand of `purlin auth`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthCommand {
    /// Save a key.
    Login(Option<String>),
    /// Remove a key.
    Logout(String),
    /// Ask whether OpenCode's keys may be used.
    Import,
    /// List the providers with keys.
    List,
}

/// Runs `purlin auth`.
///
/// # Errors
/// Says what cannot be read or written.
pub fn run(command: &AuthCommand) -> anyhow::Result<ExitCode> {
    let credentials = Credentials::new(&env::directories())?;
    let file = credentials.file();
    let config = env::load_and_report(None);
    match command {
        AuthCommand::Login(provider) => {
            let provider = match provider {
                Some(provider) => provider.clone(),
                None => {
                    ask("Provider (anthropic, openai, google, openrouter or your own): ", false)?
                }
            };
            anyhow::ensure!(
                !provider.is_empty(),
                "no provider given; name one, as in `purlin auth login anthropic`"
            );
            if provider == "github" {
                return github_login(&config.github, &credentials);
            }
            let is_search = SearchEngine::find(&provider).is_some();
            if let Some(problem) =
                problem_of_provider(&provider, &config.provider, &env::environment())
                    .filter(|_| !is_search)
            {
                anyhow::bail!("the key was not saved: {problem}");
            }
            let key = ask(&format!("Key for {provider}: "), true)?;
            anyhow::ensure!(!key.is_empty(), "no key given");
            let key = Secret::new(key);
            let tried = match is_search {
                true => "It is used for `web_search`; see docs/guide/tools.md.".to_owned(),
                false => try_key(config.provider, &provider, &key)?,
            };
            credentials.set_key(&provider, &key)?;
            eprintln!("Saved the key for {provider} in {}. {tried}", file.display());
        }
        AuthCommand::Logout(provider) => {
            anyhow::ensure!(credentials.remove_key(provider)?, "no key stored for {provider}");
            eprintln!("Removed the key for {provider}.");
        }
        AuthCommand::Import => import()?,
        AuthCommand::List => {
            let mut text = String::new();
            for provider in credentials.keys()?.keys() {
                text.push_str(&format!("{provider}\tstored in {}\n", file.display()));
            }
            for variable in env::keys().keys() {
                text.push_str(&format!("{variable}\tset in the environment\n"));
            }
            let borrowed = opencode::borrowed(&env::directories(), &env::providers_with_keys());
            for provider in borrowed.keys() {
                text.push_str(&format!("{provider}\tfrom OpenCode\n"));
            }
            if text.is_empty() {
                text.push_str("No keys. Add one with `purlin auth login`.\n");
            }
            print(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs in to GitHub: by the device flow if a client id is configured, else with a token that the user enters.
fn github_login(config: &GitHubConfig, credentials: &Credentials) -> anyhow::Result<ExitCode> {
    let host = config.host.clone().unwrap_or_else(|| "github.com".to_owned());
    let token = match &config.client_id {
        Some(client_id) => {
            let scheme = if host.starts_with("127.0.0.1:") { "http" } else { "https" };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let show = |url: &str, code: &str| {
                eprintln!("Open {} and enter the code {}", visible(url), visible(code));
            };
            let site = format!("{scheme}://{host}");
            let login = login::login(&site, client_id, show);
            runtime.block_on(login).map_err(|why| anyhow::anyhow!("no token: {why}"))?
        }
        None => {
            eprintln!(
                "Without `github.clientId` in the configuration, enter a personal access token."
            );
            Secret::new(ask(&format!("Token for {host}: "), true)?)
        }
    };
    anyhow::ensure!(!token.reveal().is_empty(), "no token given");
    credentials.set_key(&GitHubConfig::entry_of(&host), &token)?;
    eprintln!("Saved the token for {host} in {}.", credentials.file().display());
    Ok(ExitCode::SUCCESS)
}

/// Time-out for trying a key.
const TRY_LIMIT: Duration = Duration::from_secs(10);

/// Tries a key with a request that costs nothing. Returns what was found out; fails if the provider rejects the key.
pub(crate) fn try_key(
    mut configured: BTreeMap<String, ProviderConfig>,
    id: &str,
    key: &Secret,
) -> anyhow::Result<String> {
    // The config is the first place that is looked at, so this key is used and no other.
    configured.entry(id.to_owned()).or_default().options.api_key = Some(key.clone());
    let settings = env::provider_settings();
    let options = Options { configured, settings, ..Options::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(match runtime.block_on(options.provider(id).check_key(TRY_LIMIT)) {
        Ok(KeyCheck::Works(Some(owner))) => format!("The key works and belongs to {owner}."),
        Ok(KeyCheck::Works(None)) => "The key works.".to_owned(),
        Ok(KeyCheck::NotPossible) => {
            "It was not tried: this provider has no request that costs nothing.".to_owned()
        }
        Err(ModelError::AuthNeeded(why)) => anyhow::bail!("the key was not saved: {why}"),
        Err(err) => format!("It could not be tried: {err}."),
    })
}

/// Asks whether OpenCode's keys may be used, and saves the answer.
fn import() -> anyhow::Result<()> {
    let directories = env::directories();
    let names: Vec<String> =
        opencode::keys(&directories, &env::providers_with_keys()).into_keys().collect();
    anyhow::ensure!(!names.is_empty(), "OpenCode has no API keys that can be used here");
    let question = format!(
        "OpenCode has API keys for {}. May Purlin use them if it finds no others? [y/N] ",
        names.join(", ")
    );
    if !std::io::stdin().is_terminal() {
        eprintln!("{question}");
    }
    let is_yes = matches!(ask(&question, false)?.to_lowercase().as_str(), "y" | "yes");
    Preferences::change(&directories, |preferences| preferences.opencode_keys = Some(is_yes))?;
    match is_yes {
        true => eprintln!("Purlin will use them. Run `purlin auth import` to change this."),
        false => eprintln!("Purlin will not use them. Run `purlin auth import` to change this."),
    }
    Ok(())
}

/// Asks on the terminal, or reads a line from stdin if it is none.
pub(crate) fn ask(question: &str, is_secret: bool) -> anyhow::Result<String> {
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

/// Hides what is typed until it is dropped.
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
            tracing::warn!("the terminal still hides what you type; run `stty echo` to restore it");
        }
    }
}

#[cfg(not(unix))]
impl Hidden {
    fn begin() -> Option<Hidden> {
        None
    }
}
