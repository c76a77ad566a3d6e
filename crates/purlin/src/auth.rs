//! `purlin auth`: manages the user's API keys.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use settings::Secret;
use settings::config::problem_of_provider;
use settings::credentials::{Credentials, opencode};
use settings::preferences::Preferences;

use crate::cli::say;
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
    let credentials = Credentials::new(&env::directories())?;
    let file = credentials.file();
    match command {
        AuthCommand::Login(provider) => {
            let provider = match provider {
                Some(provider) => provider.clone(),
                None => {
                    ask("Provider (anthropic, openai, google, openrouter or your own): ", false)?
                }
            };
            anyhow::ensure!(!provider.is_empty(), "no provider was named");
            let (config, problems) = env::load_config(None);
            if let Some(problem) =
                problem_of_provider(&provider, &config.provider, &env::environment())
            {
                // A provider of the user's own may be what is wrong there.
                problems.iter().for_each(|problem| eprintln!("{problem}"));
                anyhow::bail!("no key is kept for {problem}");
            }
            let key = ask(&format!("Key for {provider}: "), true)?;
            anyhow::ensure!(!key.is_empty(), "no key was given");
            credentials.set_key(&provider, &Secret::new(key))?;
            eprintln!("The key for {provider} is kept in {}.", file.display());
        }
        AuthCommand::Logout(provider) => {
            anyhow::ensure!(credentials.remove_key(provider)?, "there is no key for {provider}");
            eprintln!("The key for {provider} is forgotten.");
        }
        AuthCommand::Import => import()?,
        AuthCommand::List => {
            let mut text = String::new();
            for provider in credentials.keys()?.keys() {
                text.push_str(&format!("{provider}\tkept in {}\n", file.display()));
            }
            for variable in env::keys().keys() {
                text.push_str(&format!("{variable}\tset in the environment\n"));
            }
            let borrowed = opencode::borrowed(&env::directories(), &env::providers_with_keys());
            for provider in borrowed.keys() {
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

/// Asks whether OpenCode's keys may be used, and saves the answer.
fn import() -> anyhow::Result<()> {
    let directories = env::directories();
    let names: Vec<String> =
        opencode::keys(&directories, &env::providers_with_keys()).into_keys().collect();
    anyhow::ensure!(!names.is_empty(), "OpenCode keeps no API keys that can be used here");
    let question = format!(
        "OpenCode keeps API keys for {}. May Purlin use them where it finds no others? [y/N] ",
        names.join(", ")
    );
    if !std::io::stdin().is_terminal() {
        eprintln!("{question}");
    }
    let is_yes = matches!(ask(&question, false)?.to_lowercase().as_str(), "y" | "yes");
    Preferences::change(&directories, |preferences| preferences.opencode_keys = Some(is_yes))?;
    match is_yes {
        true => eprintln!("They are used from now on; `purlin auth import` asks again."),
        false => eprintln!("They are not used; `purlin auth import` asks again."),
    }
    Ok(())
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
