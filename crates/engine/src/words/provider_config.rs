//! A provider of models as the user configured it.
//!
//! `settings` reads it and `providers` uses it; neither may depend on the other. The names of its keys are OpenCode's.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::profile::Profile;
use super::secret::Secret;

/// One provider of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProviderConfig {
    /// The package that OpenCode would load; determines the format.
    pub npm: Option<String>,
    /// The name that users see.
    pub name: Option<String>,
    /// How it is reached.
    pub options: ConnectionConfig,
    /// Its models, by name.
    pub models: BTreeMap<String, ModelConfig>,
}

/// How a provider is reached.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConnectionConfig {
    /// Its address.
    #[serde(rename = "baseURL")]
    pub base_url: Option<String>,
    /// Its key.
    pub api_key: Option<Secret>,
    /// Why the key is empty: the variable or file that it names does not exist.
    #[serde(skip)]
    pub missing_key: Option<String>,
    /// Headers of every request. They may hold keys.
    pub headers: BTreeMap<String, Secret>,
    /// Milliseconds until the first byte.
    #[serde(deserialize_with = "milliseconds")]
    pub header_timeout: Option<u64>,
    /// Milliseconds between two chunks.
    #[serde(deserialize_with = "milliseconds")]
    pub chunk_timeout: Option<u64>,
    /// Milliseconds before the first retry. Ours, not OpenCode's.
    pub retry_delay: Option<u64>,
    /// Milliseconds that retries after rate limits and server errors may take in all. Ours, not OpenCode's.
    pub retry_timeout: Option<u64>,
    /// The resource of Azure OpenAI.
    pub resource_name: Option<String>,
    /// The version of Azure OpenAI's older interface.
    pub api_version: Option<String>,
    /// The region of Amazon Bedrock.
    pub region: Option<String>,
}

/// One model of a provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelConfig {
    /// Its name at the provider, if the configuration uses another.
    pub id: Option<String>,
    /// The name that users see.
    pub name: Option<String>,
    /// How many tokens it accepts.
    pub limit: TokenLimit,
    /// What it costs, in US dollars for a million tokens.
    pub cost: Option<Cost>,
    /// Whether it can think.
    pub reasoning: Option<bool>,
    /// Its profile. A key of ours, not of OpenCode's.
    pub profile: Option<Profile>,
    /// What it accepts.
    pub modalities: Option<Modalities>,
    /// What is sent with every request.
    pub options: ModelOptions,
}

/// Options of a model that are sent with every request, where the format has them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ModelOptions {
    /// How much it thinks, in the provider's own word, unless the user chose a level.
    pub reasoning_effort: Option<String>,
    /// Anthropic's setting for thinking, unless the user chose a level.
    pub thinking: Option<Value>,
    /// How much its answers vary.
    pub temperature: Option<f64>,
}

/// What a model accepts beside text: `image`, `audio`, `pdf`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Modalities {
    /// What it accepts.
    pub input: Vec<String>,
}

/// How many tokens a model accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TokenLimit {
    /// Request and answer together.
    pub context: Option<u64>,
    /// In an answer.
    pub output: Option<u64>,
}

/// What a model costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Input.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input from the cache.
    pub cache_read: f64,
    /// Input that is written to the cache.
    pub cache_write: f64,
}

/// OpenCode writes `false` for no limit.
fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Milliseconds {
        Number(u64),
        Switch(#[expect(dead_code, reason = "only distinguished from a number")] bool),
    }
    Ok(match Option::<Milliseconds>::deserialize(from)? {
        Some(Milliseconds::Number(number)) => Some(number),
        Some(Milliseconds::Switch(_)) => Some(24 * 3_600 * 1_000),
        None => None,
    })
}
