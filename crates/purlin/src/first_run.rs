//! The first run of the terminal client: no model is available, so it says what it looked for and what it found, and the user
//! chooses. Runs on the plain terminal, before the client draws anything.

use std::path::Path;
use std::sync::Arc;

use engine::words::Secret;
use settings::credentials::{Credentials, opencode};
use settings::preferences::Preferences;

use crate::model_sources::ModelSources;
use crate::{auth, env, guide};

/// How the keys of well-known providers start; the first that fits is used.
const PREFIXES: [(&str, &str); 5] = [
    ("sk-ant-", "anthropic"),
    ("sk-or-", "openrouter"),
    ("AIza", "google"),
    ("sk-proj-", "openai"),
    ("sk-", "openai"),
];

/// What was found besides models.
#[derive(Debug, Default, PartialEq)]
struct Found {
    /// The providers of which OpenCode has keys.
    opencode: Vec<String>,
    has_claude_code: bool,
}

/// Lets the user connect a model, unless one is available.
///
/// # Errors
/// Fails if the terminal cannot be read.
pub(crate) fn connect_a_model() -> anyhow::Result<()> {
    if has_model()? {
        return Ok(());
    }
    let directories = env::directories();
    let found = Found {
        opencode: opencode::keys(&directories, &env::providers_with_keys()).into_keys().collect(),
        has_claude_code: directories.claude.as_deref().is_some_and(has_claude_login),
    };
    eprint!("{}", introduction(&found));
    loop {
        let said = auth::ask("> ", true)?;
        match said.as_str() {
            "" => return Ok(()),
            "o" if !found.opencode.is_empty() => {
                Preferences::change(&directories, |it| it.opencode_keys = Some(true))?;
                eprintln!("Using OpenCode's keys. `purlin auth import` changes this.\n");
                return Ok(());
            }
            "r" => match has_model()? {
                true => return Ok(()),
                false => eprintln!("Still nothing found."),
            },
            key if key.len() < 8 => eprintln!("This is neither a choice nor a key."),
            key => match save(&Secret::new(key)) {
                Ok(text) => {
                    eprintln!("{text}\n");
                    return Ok(());
                }
                Err(err) => eprintln!("{err:#}. Try another one."),
            },
        }
    }
}

/// Returns whether the agent would find a model: a provider that can be used, or a server on this machine.
fn has_model() -> anyhow::Result<bool> {
    let (config, _) = env::load_config(None);
    if config.model.is_some() {
        return Ok(true);
    }
    let sources = ModelSources::new(config, None, Arc::from([guide::choice()]));
    if sources.has_usable_provider() {
        return Ok(true);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let models = runtime.block_on(sources.finder()());
    Ok(models.iter().any(|model| model.id.as_str() != guide::ID))
}

fn has_claude_login(directory: &Path) -> bool {
    directory.join(".credentials.json").is_file()
}

fn introduction(found: &Found) -> String {
    let mut text = String::from(
        "No model is connected yet.\n\
         Not found: API keys (in the environment, or saved by `purlin auth login`), and servers on this machine\n\
         (Ollama, LM Studio, llama.cpp, vLLM).\n",
    );
    if !found.opencode.is_empty() {
        let names = found.opencode.join(", ");
        text.push_str(&format!("Found: OpenCode's API keys for {names}.\n"));
    }
    if found.has_claude_code {
        text.push_str(
            "Found: a login of Claude Code. It is valid in Claude Code only; Purlin needs an API key.\n",
        );
    }
    text.push_str("\nPaste an API key (it is not shown), or type a letter and press Enter:\n");
    if !found.opencode.is_empty() {
        text.push_str("  o      use OpenCode's keys\n");
    }
    text.push_str(
        "  r      look again, for example after starting a server\n  \
           Enter  continue without a model; `/tour` shows what a turn is like\n",
    );
    text
}

/// Tries a key and saves it. Returns what to say.
fn save(key: &Secret) -> anyhow::Result<String> {
    let known = PREFIXES.iter().find(|(prefix, _)| key.reveal().starts_with(prefix));
    let provider = match known {
        Some((_, provider)) => (*provider).to_owned(),
        None => auth::ask("Provider (anthropic, openai, google, openrouter or your own): ", false)?,
    };
    let (config, _) = env::load_config(None);
    let problem =
        settings::config::problem_of_provider(&provider, &config.provider, &env::environment());
    if let Some(problem) = problem {
        anyhow::bail!("the key was not saved: {problem}");
    }
    let tried = auth::try_key(config.provider, &provider, key)?;
    let credentials = Credentials::new(&env::directories())?;
    credentials.set_key(&provider, key)?;
    Ok(format!("Saved the key for {provider} in {}. {tried}", credentials.file().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn introduction_offers_what_was_found() {
        let nothing = introduction(&Found::default());
        assert!(!nothing.contains("OpenCode") && nothing.contains("/tour"), "{nothing}");
        let found = Found { opencode: vec!["openai".to_owned()], has_claude_code: true };
        let text = introduction(&found);
        assert!(text.contains("keys for openai") && text.contains("  o  "), "{text}");
        assert!(text.contains("Claude Code only"), "{text}");
    }
}
