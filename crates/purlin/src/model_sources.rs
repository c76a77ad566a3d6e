//! The ladder: which models a session can use when it is opened.
//!
//! The model that was asked for; then every provider with a key or an entry in the user's config; then servers that run
//! on this machine; then the keys that OpenCode keeps, if the user agreed; then the guide. Nothing is looked for before a session needs it.

mod listed;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::hub::FindModels;
use engine::session::ModelChoice;
use engine::words::ModelId;
use futures_util::FutureExt;
use futures_util::future::join_all;
use providers::{ApiKey, Options, Provider, ProviderOptions};

use crate::auth::opencode;
use crate::cli::say;
use crate::config::Config;
use crate::{auth, env, guide};

/// How long servers on this machine have to answer.
const LOOK_AROUND: Duration = Duration::from_millis(200);
/// How long a provider of the config has to name its models, where the config names none.
const ASK: Duration = Duration::from_secs(1);
/// How long a provider has for the list of its models.
const LIST: Duration = Duration::from_secs(10);

/// Finds models, and remembers what it found.
#[derive(Debug)]
pub struct Ladder {
    configured: BTreeMap<String, ProviderOptions>,
    /// The model that was asked for, as `provider/model`.
    wanted: Option<String>,
    /// What there always is.
    fallback: Arc<[ModelChoice]>,
    /// Held only to look or to change, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Keys that the client gave us. They live as long as the process.
    given: BTreeMap<String, ApiKey>,
    found: Option<Arc<[ModelChoice]>>,
}

impl Ladder {
    /// Makes a ladder. Looks for nothing yet.
    #[must_use]
    pub fn new(
        configured: BTreeMap<String, ProviderOptions>,
        wanted: Option<String>,
        fallback: Arc<[ModelChoice]>,
    ) -> Arc<Ladder> {
        Arc::new(Ladder { configured, wanted, fallback, state: Mutex::default() })
    }

    /// Returns it in the form that the hub takes.
    #[must_use]
    pub fn finder(self: &Arc<Ladder>) -> FindModels {
        let ladder = Arc::clone(self);
        Arc::new(move || {
            let ladder = Arc::clone(&ladder);
            async move { ladder.models().await }.boxed()
        })
    }

    /// Uses a key from now on, for sessions that are opened later.
    pub(crate) fn give(&self, provider: &str, key: ApiKey) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.given.insert(provider.to_owned(), key);
        state.found = None;
    }

    /// Forgets the keys that the client gave.
    pub(crate) fn take_back(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }

    async fn models(&self) -> Arc<[ModelChoice]> {
        let known = self.state.lock().unwrap_or_else(PoisonError::into_inner).found.clone();
        if let Some(found) = known {
            return found;
        }
        if self.wanted.as_deref() == Some(guide::ID) {
            return Arc::clone(&self.fallback);
        }
        let mut options = self.options();
        let mut models = known_models(&options).await;
        if models.is_empty() && self.wanted.is_none() {
            models = providers::find_local(&options, LOOK_AROUND).await;
        }
        let wanted = self.wanted.as_deref().and_then(|id| id.split_once('/'));
        let lacks_key = wanted.is_some_and(|(id, _)| !options.provider(id).is_usable());
        if models.is_empty() || lacks_key {
            options.borrowed = opencode::borrowed();
        }
        if models.is_empty() && !options.borrowed.is_empty() {
            models = known_models(&options).await;
        }
        if let Some((provider, name)) = wanted {
            let provider = options.provider(provider);
            let wanted = provider.model(name);
            models.retain(|choice| choice.id != wanted.id);
            models.insert(0, wanted);
        }
        let is_real = !models.is_empty();
        if !is_real && opencode::offered().is_empty() {
            models.extend(self.fallback.iter().cloned());
        } else if !is_real {
            models.push(guide::choice_with_import());
        }
        let models: Arc<[ModelChoice]> = models.into();
        if is_real {
            // Where nothing was found, the next session looks again: a server may have been started.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.found = Some(Arc::clone(&models));
        }
        models
    }

    fn options(&self) -> Options {
        let mut stored = auth::load();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        stored.extend(state.given.iter().map(|(id, key)| (id.clone(), key.clone())));
        Options {
            configured: self.configured.clone(),
            stored,
            environment: env::keys(),
            places: env::model_servers(),
            listed: listed::load(),
            ..Options::default()
        }
    }

    /// Returns a model by its id, `provider/model`, if its provider can be used.
    pub(crate) fn model(&self, id: &str) -> Option<ModelChoice> {
        let (provider, name) = id.split_once('/')?;
        self.usable_provider(provider).map(|provider| provider.model(name))
    }

    /// Returns the model for small work at the provider of another.
    pub(crate) fn small_model_beside(&self, model: &ModelId) -> Option<ModelChoice> {
        let (provider, _) = model.as_str().split_once('/')?;
        self.usable_provider(provider)?.small_model()
    }

    fn usable_provider(&self, id: &str) -> Option<Provider> {
        let options = Options { borrowed: opencode::borrowed(), ..self.options() };
        Some(options.provider(id)).filter(Provider::is_usable)
    }
}

/// The models of all providers that can be used. Those of which nothing is known are asked, side by side.
async fn known_models(options: &Options) -> Vec<ModelChoice> {
    let usable: Vec<Provider> =
        options.providers().into_iter().filter(Provider::is_usable).collect();
    let lists = usable.iter().map(|provider| async {
        match provider.models() {
            models if models.is_empty() => provider.ask_models(ASK).await.unwrap_or_else(|err| {
                tracing::warn!("{err}");
                Vec::new()
            }),
            models => models,
        }
    });
    join_all(lists).await.into_iter().flatten().collect()
}

/// Tells whose key this is by how it begins.
pub(crate) fn provider_of_key(key: &str) -> Option<&'static str> {
    const BEGINNINGS: [(&str, &str); 4] =
        [("sk-ant-", "anthropic"), ("sk-or-", "openrouter"), ("AIza", "google"), ("sk-", "openai")];
    BEGINNINGS.iter().find(|(front, _)| key.starts_with(front)).map(|(_, provider)| *provider)
}

/// What is said of a provider that was just asked.
const ANSWERS: &str = "answers";

/// Runs `purlin models`: what can be used, and why the rest cannot.
///
/// # Errors
/// Only if stdout cannot be written.
pub fn print_models(
    config: Config,
    file: Option<&Path>,
    refresh: bool,
) -> anyhow::Result<ExitCode> {
    let ladder = Ladder::new(config.provider, config.model, Arc::new([]));
    let options = Options { borrowed: opencode::borrowed(), ..ladder.options() };
    let providers = options.providers();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lists =
        runtime.block_on(join_all(providers.iter().map(|provider| list(provider, refresh))));
    let is_fresh =
        |provider: &Provider, standing: &str| !provider.is_local() && standing == ANSWERS;
    let fresh = providers.iter().zip(&lists).filter(|(one, (standing, _))| is_fresh(one, standing));
    listed::keep(fresh.map(|(one, (_, models))| (one.id().to_owned(), one.listing(models))));
    // What is called `purlin.json` everywhere else is the file that was named.
    let own = file.or(config.provider_file.as_deref()).map(|file| file.display().to_string());
    let mut text = String::new();
    for (provider, (standing, models)) in providers.iter().zip(lists) {
        let standing = match &own {
            Some(own) => standing.replace(providers::OWN_FILE, own),
            None => standing,
        };
        text.push_str(&format!("{} ({}): {standing}\n", provider.name(), provider.id()));
        for model in models {
            let price = model.price.map_or_else(String::new, |price| {
                format!(", ${} in and ${} out for a million tokens", price.input, price.output)
            });
            text.push_str(&format!("  {}  {} tokens{price}\n", model.id, model.context_size));
        }
    }
    text.push_str(&format!(
        "Purlin: built in, no model; answers where there is none\n  {}\n",
        guide::ID
    ));
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the models that can be used, for each provider that has some. Who is far away is asked only if nothing is known.
pub(crate) async fn usable(config: &Config) -> Vec<(String, Vec<ModelChoice>)> {
    let ladder = Ladder::new(config.provider.clone(), config.model.clone(), Arc::new([]));
    let providers = ladder.options().providers();
    let lists = join_all(providers.iter().map(|provider| list(provider, false))).await;
    let named = providers
        .iter()
        .zip(lists)
        .map(|(provider, (_, models))| (provider.name().to_owned(), models));
    named.filter(|(_, models)| !models.is_empty()).collect()
}

/// What can be said of a provider: its standing and its models.
async fn list(provider: &Provider, refresh: bool) -> (String, Vec<ModelChoice>) {
    let known = if provider.is_usable() { provider.models() } else { Vec::new() };
    // One that has a list nowhere is asked for it, as a session does.
    let asks = provider.is_local() || (provider.is_usable() && (refresh || known.is_empty()));
    if !asks {
        return (provider.standing(), known);
    }
    let limit = if provider.is_local() { LOOK_AROUND } else { LIST };
    match provider.ask_models(limit).await {
        Ok(models) => (ANSWERS.to_owned(), models),
        Err(err) if provider.is_usable() => (err.to_string(), known),
        Err(_) => (provider.standing(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_whose_they_are() {
        assert_eq!(provider_of_key("sk-ant-api03-x"), Some("anthropic"));
        assert_eq!(provider_of_key("sk-or-v1-x"), Some("openrouter"));
        assert_eq!(provider_of_key("AIzaSy"), Some("google"));
        assert_eq!(provider_of_key("sk-proj-x"), Some("openai"));
        assert_eq!(provider_of_key("hf_x"), None);
    }
}
