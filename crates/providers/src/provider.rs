//! A provider as the user configured it: a row of the table, the config and a key combined; and its models.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::ports::ModelChoice;
use engine::ports::ModelError;
use engine::words::{ModelConfig, ModelId, Price, ProviderConfig};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::{self, Entry};
use crate::connection;
use crate::endpoint::Endpoint;
use crate::fault::{Fault, printable};
use crate::format::Format;
use crate::http;
use crate::images::Fitted;
use crate::key::ApiKey;
use crate::model::{MOST_OUTPUT, RemoteModel};
use crate::rows::{ROWS, Row};
use crate::url::{is_nearby, is_openai};

/// The name of the user's configuration file in messages.
pub const OWN_FILE: &str = "purlin.json";

/// Where providers and their keys come from. Everything belongs to the user; nothing comes from a project.
#[derive(Debug, Default)]
pub struct Options {
    /// The user's config, by provider.
    pub configured: BTreeMap<String, ProviderConfig>,
    /// Keys the user stored with `purlin auth login`, by provider.
    pub stored: BTreeMap<String, ApiKey>,
    /// Keys in the environment, by variable.
    pub environment: BTreeMap<String, ApiKey>,
    /// Keys that OpenCode stores and the user allows us to use, by provider.
    pub borrowed: BTreeMap<String, ApiKey>,
    /// Settings in the environment that are no keys, by variable.
    pub settings: BTreeMap<String, String>,
    /// Where local servers may be, if not at the default, by provider.
    pub places: BTreeMap<String, Vec<String>>,
    /// The models that each provider listed when last asked.
    pub listed: BTreeMap<String, Vec<ListedModel>>,
}

/// A model in a provider's list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct ListedModel {
    /// The provider's name for it.
    pub name: String,
    /// Its context window in tokens.
    pub context: u64,
}

/// Returns the environment variables that may contain keys.
pub fn key_variables() -> impl Iterator<Item = &'static str> {
    ROWS.iter().flat_map(|row| row.variables).copied().chain(connection::AWS_KEYS)
}

/// Returns the environment variables with settings that are no keys.
pub fn setting_variables() -> impl Iterator<Item = &'static str> {
    connection::SETTINGS.into_iter()
}

/// Returns the providers that need a key: id and name.
pub fn keyed_providers() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROWS.iter().filter(|row| !row.is_local()).map(|row| (row.id, row.name))
}

/// The context window of a model if unknown.
const DEFAULT_CONTEXT: u64 = 32_768;

/// A provider.
#[derive(Debug, Clone)]
pub struct Provider {
    id: String,
    row: Option<&'static Row>,
    endpoint: Arc<Endpoint>,
    /// Models of the config, which take precedence over the catalogue.
    models: BTreeMap<String, ModelConfig>,
    /// The models that it listed when last asked.
    listed: Vec<ListedModel>,
    /// Whether it is in the user's config.
    is_configured: bool,
    /// Where the key comes from, for the user.
    key_source: String,
}

/// Returns the ids of the known providers.
#[must_use]
pub fn known_providers() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.id).collect()
}

impl Options {
    /// Returns every provider: first the known ones in the order of the table, then those that only the config has.
    #[must_use]
    pub fn providers(&self) -> Vec<Provider> {
        let known = ROWS.iter().map(|row| row.id);
        let configured_only = self.configured.keys().map(String::as_str);
        let configured_only = configured_only.filter(|id| Row::find(id).is_none());
        known.chain(configured_only).map(|id| self.provider(id)).collect()
    }

    /// Returns one provider. An unknown id gives a provider that is not usable.
    #[must_use]
    pub fn provider(&self, id: &str) -> Provider {
        let row = Row::find(id);
        let config = self.configured.get(id);
        let connection = config.map(|config| config.options.clone()).unwrap_or_default();
        let package = config.and_then(|config| config.npm.as_deref());
        let (format, mut problem) = connection::format(package, row);
        let place = self.places.get(id).and_then(|places| places.first());
        let aws = connection::aws_login(&connection, format, self);
        let base_url = connection::base_url(&connection, format, row, self).or(place.cloned());
        let base_url = base_url.or_else(|| Some(row?.base_url.to_owned()));
        let base_url = base_url.filter(|url| !url.is_empty());
        if base_url.is_none() {
            problem = Some(connection::missing_url(format).to_owned());
        }
        let given_key = connection.api_key.as_ref().map(|key| ApiKey::new(key.reveal()));
        let is_empty = given_key.as_ref().is_some_and(ApiKey::is_empty);
        let missing_key = is_empty.then(|| {
            connection.missing_key.clone().unwrap_or_else(|| "`options.apiKey` is empty".to_owned())
        });
        let (key, key_source) = self.key(row, id, given_key);
        let name = config.and_then(|config| config.name.clone());
        let name = name.unwrap_or_else(|| row.map_or(id, |row| row.name).to_owned());
        let variable = row.and_then(|row| row.variables.first());
        let advice = match variable {
            Some(_) if format == Format::BedrockConverse => {
                "Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                    .to_owned()
            }
            Some(variable) => format!("Set {variable} or run `purlin auth login {id}`"),
            None => format!(
                "Set `provider.{id}.options.apiKey` in {OWN_FILE} or run `purlin auth login {id}`"
            ),
        };
        let has_own_url = config.is_some_and(|config| config.options.base_url.is_some());
        let base_url = base_url.unwrap_or_default();
        let endpoint = Endpoint {
            name,
            format,
            counts_reasoning: format == Format::AzureChat || is_openai(&base_url),
            is_nearby: is_nearby(&base_url),
            api_version: connection.api_version.clone(),
            timing: connection::timing(&connection, &base_url),
            base_url,
            key,
            problem,
            missing_key,
            needs_key: row.is_some_and(|row| !row.is_local()) && !has_own_url,
            headers: connection::headers(&connection.headers, format),
            secrets: connection::secrets(&connection.headers),
            aws,
            advice,
            is_openrouter: id == "openrouter",
        };
        Provider {
            id: id.to_owned(),
            row,
            endpoint: Arc::new(endpoint),
            models: config.map(|config| config.models.clone()).unwrap_or_default(),
            listed: self.listed.get(id).cloned().unwrap_or_default(),
            is_configured: config.is_some(),
            key_source,
        }
    }

    fn key(&self, row: Option<&Row>, id: &str, given: Option<ApiKey>) -> (Option<ApiKey>, String) {
        if let Some(key) = given.filter(|key| !key.is_empty()) {
            return (Some(key), OWN_FILE.to_owned());
        }
        for variable in row.into_iter().flat_map(|row| row.variables) {
            if let Some(key) = self.environment.get(*variable) {
                return (Some(key.clone()), (*variable).to_owned());
            }
        }
        let stored_key = |keys: &BTreeMap<String, ApiKey>, by: &str| {
            keys.get(id).map(|key| (Some(key.clone()), by.to_owned()))
        };
        stored_key(&self.stored, "purlin auth login")
            .or_else(|| stored_key(&self.borrowed, "OpenCode"))
            .unwrap_or_default()
    }
}

impl Provider {
    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns its display name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.endpoint.name
    }

    /// Returns whether it can be used without first checking that it runs.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let has_key = self.endpoint.key.is_some() || self.endpoint.aws.is_some();
        let is_ready = has_key || !self.endpoint.needs_key;
        self.endpoint.problem.is_none() && is_ready && (self.is_configured || has_key)
    }

    /// Returns whether it is a server on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.row.is_some_and(Row::is_local)
    }

    /// Returns whether it has a list of models. With the others, the user names a model.
    #[must_use]
    pub fn has_list(&self) -> bool {
        !matches!(self.endpoint.format, Format::AzureChat | Format::BedrockConverse)
    }

    /// Returns the same provider at another base URL.
    pub(crate) fn at(&self, base_url: &str) -> Provider {
        let endpoint = Endpoint { base_url: base_url.to_owned(), ..(*self.endpoint).clone() };
        Provider { endpoint: Arc::new(endpoint), ..self.clone() }
    }

    /// Returns whether it is in the user's config.
    pub(crate) fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Returns where its key comes from, or why it cannot be used.
    #[must_use]
    pub fn status(&self) -> String {
        match (&self.endpoint.problem, self.is_usable(), self.key_source.is_empty()) {
            (Some(problem), _, _) => problem.clone(),
            (None, true, false) => format!("key from {}", self.key_source),
            (None, true, true) if self.endpoint.aws.is_some() => {
                "key from AWS_ACCESS_KEY_ID".to_owned()
            }
            (None, true, true) => match &self.endpoint.missing_key {
                Some(missing) => format!("no key: {missing}"),
                None => "no key needed".to_owned(),
            },
            (None, false, _) if self.is_local() => {
                format!("no server at {}", self.endpoint.base_url)
            }
            (None, false, _) => format!("no key. {}", self.endpoint.advice),
        }
    }

    /// Returns its known models: those of the config, then those of the catalogue, the best first.
    #[must_use]
    pub fn models(&self) -> Vec<ModelChoice> {
        let mut catalogue = catalogue::models_of(&self.id);
        let mut choices: Vec<ModelChoice> = Vec::new();
        for name in self.models.keys() {
            let entry = catalogue.remove(name);
            choices.push(self.choice(name, entry.as_ref(), None));
        }
        let mut rest: Vec<(String, Option<Entry>)> = if self.listed.is_empty() {
            catalogue.into_iter().map(|(name, entry)| (name, Some(entry))).collect()
        } else {
            let is_new = |listed: &&ListedModel| !self.models.contains_key(&listed.name);
            let listed = self.listed.iter().filter(is_new);
            listed.map(|listed| (listed.name.clone(), catalogue.remove(&listed.name))).collect()
        };
        let prefer = self.row.map_or(&[][..], |row| row.prefer);
        let rank = |name: &str| prefer.iter().position(|prefix| name.starts_with(prefix));
        rest.sort_by(|(a, x), (b, y)| {
            let key = |name: &str| rank(name).unwrap_or(usize::MAX);
            // The newest first; of names with and without a date the shorter one.
            let date = |entry: &Option<Entry>| {
                std::cmp::Reverse(entry.as_ref().map(|entry| entry.date.clone()))
            };
            (key(a), date(x), a.len(), a).cmp(&(key(b), date(y), b.len(), b))
        });
        choices.extend(rest.iter().map(|(name, entry)| self.choice(name, entry.as_ref(), None)));
        choices
    }

    /// Returns its cheapest model, for small tasks such as titles, if known.
    #[must_use]
    pub fn small_model(&self) -> Option<ModelChoice> {
        let small = self.row?.small;
        let models = self.models();
        let begins =
            |choice: &&ModelChoice, prefix: &str| self.provider_name(choice).starts_with(prefix);
        small.iter().find_map(|prefix| models.iter().find(|choice| begins(choice, prefix))).cloned()
    }

    /// Returns the provider's name for a model.
    fn provider_name<'a>(&self, choice: &'a ModelChoice) -> &'a str {
        choice.id.as_str().get(self.id.len() + 1..).unwrap_or_default()
    }

    /// Returns models in the form to store, for a later [`Options::listed`].
    #[must_use]
    pub fn listing(&self, models: &[ModelChoice]) -> Vec<ListedModel> {
        let listed = |choice: &ModelChoice| ListedModel {
            name: self.provider_name(choice).to_owned(),
            context: choice.context_size,
        };
        models.iter().map(listed).collect()
    }

    /// Returns a model by the provider's name for it, known or not.
    #[must_use]
    pub fn model(&self, name: &str) -> ModelChoice {
        self.choice(name, catalogue::models_of(&self.id).get(name), None)
    }

    /// `told`: the context window, as the server told it.
    fn choice(&self, name: &str, entry: Option<&Entry>, told: Option<u64>) -> ModelChoice {
        let override_options = self.models.get(name).cloned().unwrap_or_default();
        let options = override_options.options;
        let price = override_options.cost.map(|cost| Price {
            input: cost.input,
            output: cost.output,
            cache_read: cost.cache_read,
            cache_write: cost.cache_write,
        });
        let can_think = override_options
            .reasoning
            .unwrap_or_else(|| entry.is_some_and(|entry| entry.can_think))
            || options.reasoning_effort.is_some()
            || options.thinking.is_some();
        let display_name = override_options
            .name
            .unwrap_or_else(|| entry.map_or(name, |entry| &entry.name).to_owned());
        let listed = self.listed.iter().find(|listed| listed.name == name);
        let configured = override_options.limit.context;
        let context = configured.or(told).or(listed.map(|listed| listed.context));
        let context = context.or(entry.map(|entry| entry.context));
        let takes_images = match override_options.modalities {
            Some(modalities) => modalities.input.iter().any(|input| input == "image"),
            None => entry.is_none_or(|entry| entry.takes_images),
        };
        let known_output = entry.map(|entry| entry.output.min(MOST_OUTPUT));
        ModelChoice {
            id: ModelId::new(format!("{}/{name}", self.id)),
            name: format!("{}: {display_name}", self.endpoint.name),
            context_size: context.unwrap_or(DEFAULT_CONTEXT),
            price: price.or_else(|| entry?.price()),
            can_think,
            profile: override_options.profile,
            model: Arc::new(RemoteModel {
                endpoint: Arc::clone(&self.endpoint),
                name: override_options.id.unwrap_or_else(|| name.to_owned()),
                max_output: override_options.limit.output.or(known_output),
                context: context.unwrap_or(DEFAULT_CONTEXT),
                is_context_configured: configured.is_some(),
                options,
                learned: Arc::default(),
                can_think,
                takes_images,
                fitted: Fitted::default(),
            }),
        }
    }

    /// Asks the server which models it has.
    ///
    /// # Errors
    /// Fails if it does not answer within `limit`.
    pub async fn ask_models(&self, limit: Duration) -> Result<Vec<ModelChoice>, ModelError> {
        if !self.has_list() {
            return Ok(Vec::new());
        }
        let document = self.get("/models", limit).await?;
        let list: ModelList = serde_json::from_slice(&document.body).map_err(|err| {
            self.error(Fault::InvalidAnswer(format!("its list of models is invalid: {err}")))
        })?;
        let catalogue = catalogue::models_of(&self.id);
        let mut seen = BTreeSet::new();
        let choices = list.data.into_iter().chain(list.models).filter_map(|named| {
            let name = named.id.or(named.name)?;
            let name = name.strip_prefix("models/").unwrap_or(&name).to_owned();
            if !seen.insert(name.clone()) {
                return None;
            }
            let told = named.context.or(named.meta.and_then(|meta| meta.n_ctx));
            Some(self.choice(&name, catalogue.get(&name), told))
        });
        let mut choices: Vec<ModelChoice> = choices.collect();
        let prefer = self.row.map_or(&[][..], |row| row.prefer);
        choices.sort_by_key(|choice| {
            let name = self.provider_name(choice);
            prefer.iter().position(|prefix| name.starts_with(prefix)).unwrap_or(usize::MAX)
        });
        Ok(choices)
    }

    /// Tries the key with a request that costs nothing. Returns whose key it is, if the provider tells; `None` within if it
    /// has no such request.
    ///
    /// # Errors
    /// [`ModelError::AuthNeeded`] if the provider rejects the key; another if it cannot be asked.
    pub async fn check_key(&self, limit: Duration) -> Result<KeyCheck, ModelError> {
        match self.endpoint.format {
            Format::BedrockConverse => return Ok(KeyCheck::NotPossible),
            Format::AzureChat => drop(self.get("/v1/models", limit).await?),
            // Anybody gets OpenRouter's list of models.
            _ if self.endpoint.is_openrouter => {
                let document = self.get("/key", limit).await?;
                let key: Value = serde_json::from_slice(&document.body).unwrap_or_default();
                return Ok(KeyCheck::Works(key["data"]["label"].as_str().map(printable)));
            }
            _ => return Ok(KeyCheck::Works(self.get("/models", limit).await?.organisation)),
        }
        Ok(KeyCheck::Works(None))
    }

    async fn get(&self, path: &str, limit: Duration) -> Result<http::Document, ModelError> {
        let endpoint = &self.endpoint;
        let key = endpoint.key.as_ref().map(|key| (key, endpoint.key_header()));
        let document = http::get(&endpoint.url(path), key, &endpoint.headers.0, limit).await;
        document.map_err(|fault| self.error(fault))
    }

    fn error(&self, fault: Fault) -> ModelError {
        let message = self.endpoint.explain(&fault);
        self.endpoint.with_advice(fault.into_error(message, false), "")
    }
}

/// What is known of a key after it was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyCheck {
    /// It works; with its owner or label, if the provider tells.
    Works(Option<String>),
    /// The provider has no request that costs nothing.
    NotPossible,
}

#[derive(Deserialize)]
struct ModelList {
    #[serde(default)]
    data: Vec<NamedModel>,
    #[serde(default)]
    models: Vec<NamedModel>,
}

#[derive(Deserialize)]
struct NamedModel {
    id: Option<String>,
    name: Option<String>,
    #[serde(alias = "max_model_len", alias = "context_length", alias = "inputTokenLimit")]
    context: Option<u64>,
    meta: Option<ModelMeta>,
}

/// What llama.cpp adds to a model.
#[derive(Deserialize)]
struct ModelMeta {
    n_ctx: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(config: &str) -> Options {
        Options { configured: serde_json::from_str(config).unwrap(), ..Options::default() }
    }

    #[test]
    fn provider_with_a_key_in_the_environment_is_usable() {
        let mut options = Options::default();
        assert!(options.providers().iter().all(|provider| !provider.is_usable()));
        options.environment.insert("GOOGLE_API_KEY".to_owned(), ApiKey::new("k"));
        let usable: Vec<Provider> =
            options.providers().into_iter().filter(Provider::is_usable).collect();
        assert_eq!(usable.len(), 1);
        assert_eq!(
            (usable[0].id(), usable[0].status().as_str()),
            ("google", "key from GOOGLE_API_KEY")
        );
        let best = &usable[0].models()[0];
        assert!(best.id.as_str().starts_with("google/gemini-3"), "{}", best.id);
    }

    #[test]
    fn config_is_read_in_opencode_format() {
        let options = options(
            r#"{"gate": {
                "npm": "@ai-sdk/anthropic", "name": "Our gate",
                "options": {"baseURL": "https://gate.example/v1/", "apiKey": "sk-canary", "headers": {"X-Team": "sk-canary"}, "chunkTimeout": 5000, "headerTimeout": false},
                "models": {"fast": {"id": "claude-x", "name": "Fast", "limit": {"context": 9000, "output": 100}, "cost": {"input": 1, "output": 2}, "reasoning": true, "tool_call": true}}
            }, "odd": {"npm": "@ai-sdk/cohere"}, "unset": {"options": {"baseURL": "http://h", "apiKey": ""}}}"#,
        );
        assert_eq!(options.provider("unset").status(), "no key: `options.apiKey` is empty");
        let gate = options.provider("gate");
        assert!(gate.is_usable());
        assert_eq!(gate.endpoint.format, Format::AnthropicMessages);
        assert_eq!(gate.endpoint.url("/messages"), "https://gate.example/v1/messages");
        assert_eq!(gate.endpoint.timing.idle, Duration::from_secs(5));
        let fast = &gate.models()[0];
        assert_eq!((fast.id.as_str(), fast.name.as_str()), ("gate/fast", "Our gate: Fast"));
        assert_eq!((fast.context_size, fast.can_think), (9000, true));
        assert_eq!(fast.price.unwrap().output, 2.0);
        assert!(!options.provider("odd").is_usable());
        assert!(!format!("{options:?} {gate:?}").contains("sk-canary"));
    }

    #[test]
    fn best_model_comes_first_and_unknown_model_works() {
        let mut options = Options::default();
        options.stored.insert("anthropic".to_owned(), ApiKey::new("k"));
        let anthropic = options.provider("anthropic");
        assert_eq!(anthropic.models()[0].id.as_str(), "anthropic/claude-sonnet-4-6");
        let unknown = anthropic.model("claude-of-tomorrow");
        assert_eq!((unknown.price, unknown.context_size), (None, DEFAULT_CONTEXT));
        let small = anthropic.small_model().unwrap();
        assert_eq!(small.id.as_str(), "anthropic/claude-haiku-4-5");
        assert!(Options::default().provider("ollama").small_model().is_none());
    }

    #[test]
    fn list_of_the_provider_precedes_the_catalogue() {
        let mut options = Options::default();
        let names = ["claude-of-tomorrow", "claude-sonnet-4-6"];
        let listed = names.map(|name| ListedModel { name: name.to_owned(), context: 7 });
        options.listed.insert("anthropic".to_owned(), listed.to_vec());
        options.borrowed.insert("anthropic".to_owned(), ApiKey::new("k"));
        let anthropic = options.provider("anthropic");
        assert_eq!(anthropic.status(), "key from OpenCode");
        let models = anthropic.models();
        let ids: Vec<&str> = models.iter().map(|choice| choice.id.as_str()).collect();
        assert_eq!(ids, ["anthropic/claude-sonnet-4-6", "anthropic/claude-of-tomorrow"]);
        assert_eq!(models[1].context_size, 7);
        assert!(models[0].price.is_some());
        assert_eq!(anthropic.listing(&models)[0].name, "claude-sonnet-4-6");
    }
}
