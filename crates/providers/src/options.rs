//! What the user's config may say of a provider: the keys of OpenCode's `provider`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::key::ApiKey;

/// One provider of the config. Keys that we have no use for are ignored.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProviderOptions {
    /// The package that OpenCode would load; says which format is spoken.
    pub npm: Option<String>,
    /// What people call it.
    pub name: Option<String>,
    /// How it is reached.
    pub options: Connection,
    /// Its models, by name.
    pub models: BTreeMap<String, ModelOptions>,
}

/// How a provider is reached.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Connection {
    /// Where it is.
    #[serde(rename = "baseURL")]
    pub base_url: Option<String>,
    /// Its key.
    pub api_key: Option<ApiKey>,
    /// Why there is nothing in the key: what it names is not there.
    #[serde(skip)]
    pub missing_key: Option<String>,
    /// Headers for every request. They may hold keys.
    pub headers: BTreeMap<String, ApiKey>,
    /// Milliseconds until the first byte.
    #[serde(deserialize_with = "millis")]
    pub header_timeout: Option<u64>,
    /// Milliseconds from one byte to the next.
    #[serde(deserialize_with = "millis")]
    pub chunk_timeout: Option<u64>,
    /// Milliseconds that the waits before a retry begin with. Ours, not OpenCode's.
    pub retry_delay: Option<u64>,
}

/// What is known of a model.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelOptions {
    /// Its name at the provider, where the config calls it otherwise.
    pub id: Option<String>,
    /// What people call it.
    pub name: Option<String>,
    /// How much it can hold.
    pub limit: Limit,
    /// What it costs, in US dollars for a million tokens.
    pub cost: Option<Cost>,
    /// Whether it thinks.
    pub reasoning: Option<bool>,
    /// What it takes and gives.
    pub modalities: Option<Modalities>,
}

/// What a model takes, beside text: `image`, `audio`, `pdf`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Modalities {
    /// What it takes.
    pub input: Vec<String>,
}

/// How many tokens a model can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Limit {
    /// All together.
    pub context: Option<u64>,
    /// In an answer.
    pub output: Option<u64>,
}

/// What a model costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Read anew.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Put into the cache.
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
        Switch(#[expect(dead_code, reason = "only told apart from a number")] bool),
    }
    Ok(match Option::<Millis>::deserialize(from)? {
        Some(Millis::Number(number)) => Some(number),
        Some(Millis::Switch(_)) => Some(24 * 3_600 * 1_000),
        None => None,
    })
}
