//! The key `provider`: providers of models by name, in OpenCode's form.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::Secret;

/// One provider of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Provider {
    /// The package that OpenCode would load; determines the format.
    pub npm: Option<String>,
    /// The name that users see.
    pub name: Option<String>,
    /// How it is reached.
    pub options: Connection,
    /// Its models, by name.
    pub models: BTreeMap<String, Model>,
}

/// How a provider is reached.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Connection {
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
}

/// One model of a provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Model {
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
    /// What it accepts.
    pub modalities: Option<Modalities>,
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

/// Reads the providers one by one, so that a mistake in one does not affect the others.
pub(crate) fn read(value: Value, problems: &mut Vec<String>) -> BTreeMap<String, Provider> {
    let Value::Object(given) = value else {
        return BTreeMap::new();
    };
    let mut known = BTreeMap::new();
    for (id, value) in given {
        // The value itself stays out of the message: it may hold a key.
        match serde_path_to_error::deserialize::<_, Provider>(value) {
            Ok(provider) => {
                known.insert(id, provider);
            }
            Err(err) => problems.push(format!("`provider.{id}.{}` has the wrong type", err.path())),
        }
    }
    known
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
