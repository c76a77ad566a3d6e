//! A provider in the user's config, with the keys of OpenCode's `provider`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::key::ApiKey;

/// One provider of the config. Other keys are ignored.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProviderOptions {
    /// The package that OpenCode would load; determines the format.
    pub npm: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// How to connect to it.
    pub options: Connection,
    /// Its models, by name.
    pub models: BTreeMap<String, ModelOptions>,
}

/// How to connect to a provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Connection {
    /// The base URL.
    #[serde(rename = "baseURL")]
    pub base_url: Option<String>,
    /// The API key.
    pub api_key: Option<ApiKey>,
    /// Why the key is empty: the variable or file that it refers to is missing.
    #[serde(skip)]
    pub missing_key: Option<String>,
    /// Headers for every request. Their values may be secret.
    pub headers: BTreeMap<String, ApiKey>,
    /// Time limit for the first byte, in milliseconds.
    #[serde(deserialize_with = "millis")]
    pub header_timeout: Option<u64>,
    /// Time limit between two reads, in milliseconds.
    #[serde(deserialize_with = "millis")]
    pub chunk_timeout: Option<u64>,
    /// The first wait before a retry, in milliseconds. OpenCode does not have this key.
    pub retry_delay: Option<u64>,
}

/// A model in the user's config.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelOptions {
    /// The provider's name for it, if the config uses another name.
    pub id: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// Its limits in tokens.
    pub limit: Limit,
    /// Its price, in US dollars per million tokens.
    pub cost: Option<Cost>,
    /// Whether it supports thinking.
    pub reasoning: Option<bool>,
    /// What kinds of input it accepts.
    pub modalities: Option<Modalities>,
}

/// What a model accepts besides text: `image`, `audio`, `pdf`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Modalities {
    /// The kinds of input.
    pub input: Vec<String>,
}

/// The limits of a model, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Limit {
    /// The context window.
    pub context: Option<u64>,
    /// The longest answer.
    pub output: Option<u64>,
}

/// The price of a model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Input that is not cached.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input that is read from the cache.
    pub cache_read: f64,
    /// Input that is written to the cache.
    pub cache_write: f64,
}

impl<'de> Deserialize<'de> for ApiKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ApiKey, D::Error> {
        Ok(ApiKey::new(&String::deserialize(from)?))
    }
}

/// OpenCode writes `false` for no limit.
fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Millis {
        Number(u64),
        Switch(#[expect(dead_code, reason = "only its type matters")] bool),
    }
    Ok(match Option::<Millis>::deserialize(from)? {
        Some(Millis::Number(number)) => Some(number),
        Some(Millis::Switch(_)) => Some(24 * 3_600 * 1_000),
        None => None,
    })
}
