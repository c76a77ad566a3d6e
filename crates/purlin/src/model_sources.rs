//! Model sources: which models a session can use when it is opened.
//!
//! In this order: the requested model; providers with a key or an entry in the configuration; servers on this machine;
//! providers with a key of OpenCode, if the user agreed; the guide. Nothing is looked for before a session needs it.

mod listed;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::hub::FindModels;
use engine::ports::Preferences as SavedPreferences;
use engine::ports::{ModelChoice, Settings};
use engine::words::{ModelId, Secret, Thinking};
use futures_util::FutureExt;
use futures_util::future::join_all;
use providers::{ApiKey, OWN_FILE, Options, Provider, find_local, locate_local};
use serve::ClientKeys;
use settings::Config;
use settings::credentials::{self, opencode};
use settings::preferences::Preferences;

use crate::stdout::print;
use crate::{env, guide};

/// Time-out for servers on this machine.
const LOOK_AROUND: Duration = Duration::from_millis(200);
/// Time-out for a provider that must be asked for its models when a session opens.
const ASK: Duration = Duration::from_secs(1);
/// Time-out for a provider's list of models on the command line.
const LIST: Duration = Duration::from_secs(10);

/// Finds models, and caches them.
#[derive(Debug)]
pub struct ModelSources {
    config: Config,
    /// The requested model, as `provider/model`.
    wanted: Option<String>,
    /// The models that are always available.
    fallback: Arc<[ModelChoice]>,
    /// Never locked across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Keys from the client. They are not stored.
    given: BTreeMap<String, ApiKey>,
    found: Option<Arc<[ModelChoice]>>,
    /// Where local servers were found.
    places: BTreeMap<String, Vec<String>>,
}

impl ModelSources {
    /// Makes the sources. Looks for nothing yet.
    #[must_use]
    pub fn new(
        config: Config,
        wanted: Option<String>,
        fallback: Arc<[ModelChoice]>,
    ) -> Arc<ModelSources> {
        Arc::new(ModelSources { config, wanted, fallback, state: Mutex::default() })
    }

    /// Returns the function that the hub calls.
    #[must_use]
    pub fn finder(self: &Arc<ModelSources>) -> FindModels {
        let sources = Arc::clone(self);
        Arc::new(move || {
            let sources = Arc::clone(&sources);
            async move { sources.models().await }.boxed()
        })
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
        let mut models = self.known_models(&options).await;
        let wanted = self.wanted.as_deref().and_then(|id| id.split_once('/'));
        let is_local_wanted = wanted.is_some_and(|(id, _)| options.provider(id).is_local());
        if is_local_wanted || (models.is_empty() && self.wanted.is_none()) {
            let places = locate_local(&options, LOOK_AROUND).await;
            options.places.extend(places.clone());
            self.state.lock().unwrap_or_else(PoisonError::into_inner).places = places;
        }
        if models.is_empty() && self.wanted.is_none() {
            models = find_local(&options, LOOK_AROUND).await;
            models.retain(|choice| {
                let provider = choice.id.as_str().split('/').next().unwrap_or_default();
                self.config.uses_provider(provider)
            });
        }
        let lacks_key = wanted.is_some_and(|(id, _)| !options.provider(id).is_usable());
        if models.is_empty() || lacks_key {
            options.borrowed = borrowed();
        }
        if models.is_empty() && !options.borrowed.is_empty() {
            models = self.known_models(&options).await;
        }
        if let Some((provider, name)) = wanted {
            let provider = options.provider(provider);
            let wanted = provider.model(name);
            models.retain(|choice| choice.id != wanted.id);
            models.insert(0, wanted);
        }
        let is_real = !models.is_empty();
        if !is_real
            && opencode::offered(&env::directories(), &env::providers_with_keys()).is_empty()
        {
            models.extend(self.fallback.iter().cloned());
        } else if !is_real {
            models.push(guide::choice_with_import());
        }
        let models: Arc<[ModelChoice]> = models.into();
        if is_real {
            // If nothing was found, the next session looks again: a server may have been started.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.found = Some(Arc::clone(&models));
        }
        models
    }

    fn options(&self) -> Options {
        let mut stored = keys(credentials::load_keys(&env::directories()));
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        stored.extend(state.given.iter().map(|(id, key)| (id.clone(), key.clone())));
        Options {
            configured: self.config.provider.clone(),
            stored,
            environment: env::keys(),
            settings: env::provider_settings(),
            places: env::model_servers().into_iter().chain(state.places.clone()).collect(),
            listed: listed::load(),
            ..Options::default()
        }
    }

    /// Returns whether a provider can be used without looking for servers on this machine.
    #[cfg(unix)]
    pub(crate) fn has_usable_provider(&self) -> bool {
        let options = Options { borrowed: borrowed(), ..self.options() };
        let is_wanted = |one: &Provider| one.is_usable() && self.config.uses_provider(one.id());
        options.providers().iter().any(is_wanted)
    }

    /// Returns a model by its id, `provider/model`, if its provider is available.
    pub(crate) fn model(&self, id: &str) -> Option<ModelChoice> {
        let (provider, name) = id.split_once('/')?;
        self.usable_provider(provider).map(|provider| provider.model(name))
    }

    /// Returns the model for small work at the provider of another.
    pub(crate) fn small_model_beside(&self, model: &ModelId) -> Option<ModelChoice> {
        let (provider, _) = model.as_str().split_once('/')?;
        self.usable_provider(provider)?.small_model()
    }

    /// Returns the models of all available providers that the user wants.
    async fn known_models(&self, options: &Options) -> Vec<ModelChoice> {
        let mut usable = options.providers();
        usable.retain(|one| one.is_usable() && self.config.uses_provider(one.id()));
        models_of(&usable).await
    }

    fn usable_provider(&self, id: &str) -> Option<Provider> {
        let options = Options { borrowed: borrowed(), ..self.options() };
        let is_wanted = |one: &Provider| one.is_usable() && self.config.uses_provider(one.id());
        Some(options.provider(id)).filter(is_wanted)
    }
}

/// Returns the models of providers. Providers without a known list are asked in parallel.
async fn models_of(usable: &[Provider]) -> Vec<ModelChoice> {
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

/// Converts keys by provider.
fn keys(stored: BTreeMap<String, Secret>) -> BTreeMap<String, ApiKey> {
    stored.into_iter().map(|(id, secret)| (id, ApiKey::new(secret.reveal()))).collect()
}

/// Returns the keys of OpenCode, if the user agreed that we use them.
fn borrowed() -> BTreeMap<String, ApiKey> {
    keys(opencode::borrowed(&env::directories(), &env::providers_with_keys()))
}

impl ClientKeys for ModelSources {
    fn give(&self, provider: &str, key: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.given.insert(provider.to_owned(), ApiKey::new(key));
        state.found = None;
    }

    fn forget(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }
}

/// The preferences of the user of this program.
pub(crate) struct UserPreferences {
    /// Where models come from.
    pub(crate) sources: Arc<ModelSources>,
    /// Whether configuration or command line name the model: then the last choice is not used.
    pub(crate) is_model_given: bool,
    /// The model for small work, as the configuration names it.
    pub(crate) small_model: Option<String>,
}

impl SavedPreferences for UserPreferences {
    fn model(&self) -> Option<ModelId> {
        if self.is_model_given {
            return None;
        }
        Preferences::load(&env::directories()).model()
    }

    fn thinking(&self) -> Option<Thinking> {
        Preferences::load(&env::directories()).thinking()
    }

    fn save(&self, model: &ModelId, thinking: Thinking) {
        let saved = Preferences::change(&env::directories(), |preferences| {
            preferences.set(model, thinking);
        });
        if let Err(err) = saved {
            tracing::warn!("cannot save the choice of {model}: {err:#}");
        }
    }

    fn small_model(&self, settings: &Settings) -> Option<ModelChoice> {
        match &self.small_model {
            Some(id) => self.sources.model(id),
            None => self.sources.small_model_beside(&settings.model),
        }
    }
}

/// The status of a provider that answered.
const ANSWERS: &str = "available";

/// Runs `purlin models`: lists available models, and explains why others are not available.
///
/// # Errors
/// Only if stdout cannot be written.
pub fn print_models(
    config: Config,
    file: Option<&Path>,
    refresh: bool,
) -> anyhow::Result<ExitCode> {
    let sources = ModelSources::new(config.clone(), config.model.clone(), Arc::new([]));
    let mut options = Options { borrowed: borrowed(), ..sources.options() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    options.places.extend(runtime.block_on(locate_local(&options, LOOK_AROUND)));
    let mut providers = options.providers();
    providers.retain(|provider| config.uses_provider(provider.id()));
    let lists =
        runtime.block_on(join_all(providers.iter().map(|provider| list(provider, refresh))));
    let is_fresh = |provider: &Provider, status: &str| !provider.is_local() && status == ANSWERS;
    let fresh = providers.iter().zip(&lists).filter(|(one, (status, _))| is_fresh(one, status));
    listed::save(fresh.map(|(one, (_, models))| (one.id().to_owned(), one.listing(models))));
    // Messages of the provider crate say `purlin.json`; here the actual file is known.
    let own = file.or(config.provider_file.as_deref()).map(|file| file.display().to_string());
    let mut text = String::new();
    for (provider, (status, models)) in providers.iter().zip(lists) {
        let status = match &own {
            Some(own) => status.replace(OWN_FILE, own),
            None => status,
        };
        text.push_str(&format!("{} ({}): {status}\n", provider.name(), provider.id()));
        for model in models {
            let price = model.price.map_or_else(String::new, |price| {
                format!(", ${} input and ${} output per million tokens", price.input, price.output)
            });
            text.push_str(&format!("  {}  {} tokens{price}\n", model.id, model.context_size));
        }
    }
    text.push_str(&format!(
        "Purlin: built in; answers if no model is available\n  {}\n",
        guide::ID
    ));
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the available models by provider. A remote provider is asked only if it has no known list.
pub(crate) async fn usable(config: &Config) -> Vec<(String, Vec<ModelChoice>)> {
    let sources = ModelSources::new(config.clone(), config.model.clone(), Arc::new([]));
    let mut options = sources.options();
    options.places.extend(locate_local(&options, LOOK_AROUND).await);
    let mut providers = options.providers();
    providers.retain(|provider| config.uses_provider(provider.id()));
    let lists = join_all(providers.iter().map(|provider| list(provider, false))).await;
    let named = providers
        .iter()
        .zip(lists)
        .map(|(provider, (_, models))| (provider.name().to_owned(), models));
    named.filter(|(_, models)| !models.is_empty()).collect()
}

/// Returns the status and the models of a provider.
async fn list(provider: &Provider, refresh: bool) -> (String, Vec<ModelChoice>) {
    let known = if provider.is_usable() { provider.models() } else { Vec::new() };
    if provider.is_usable() && !provider.has_list() {
        let id = provider.id();
        return (format!("{}; name a model as `{id}/MODEL`", provider.status()), known);
    }
    // A provider without a known list is asked, as a session does.
    let asks = provider.is_local() || (provider.is_usable() && (refresh || known.is_empty()));
    if !asks {
        return (provider.status(), known);
    }
    let limit = if provider.is_local() { LOOK_AROUND } else { LIST };
    match provider.ask_models(limit).await {
        Ok(models) => (ANSWERS.to_owned(), models),
        Err(err) if provider.is_usable() => (err.to_string(), known),
        Err(_) => (provider.status(), Vec::new()),
    }
}
