//! The catalogue: facts about the models of known providers, from a snapshot in the repository.
//!
//! `cargo xtask catalogue` updates the snapshot. It is parsed one provider at a time, when that provider is used. The
//! user's config and the server take precedence, and a model that is not in it still works.

use std::collections::BTreeMap;

use engine::words::Price;
use serde::Deserialize;
use serde_json::value::RawValue;

const SNAPSHOT: &str = include_str!("catalogue.json");

/// Facts about a model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) context: u64,
    pub(crate) output: u64,
    /// Input, output, cache read, cache write.
    cost: Option<[f64; 4]>,
    #[serde(default, rename = "think")]
    pub(crate) can_think: bool,
    /// Whether it accepts images.
    #[serde(default, rename = "image")]
    pub(crate) takes_images: bool,
    /// Its release date, as `2026-02-17`.
    #[serde(default)]
    pub(crate) date: String,
}

impl Entry {
    pub(crate) fn price(&self) -> Option<Price> {
        let [input, output, cache_read, cache_write] = self.cost?;
        Some(Price { input, output, cache_read, cache_write })
    }
}

/// Returns the models of a provider, by name.
pub(crate) fn models_of(provider: &str) -> BTreeMap<String, Entry> {
    #[derive(Deserialize)]
    struct Snapshot<'a> {
        #[serde(borrow)]
        providers: BTreeMap<&'a str, &'a RawValue>,
    }
    let models = serde_json::from_str::<Snapshot<'_>>(SNAPSHOT)
        .ok()
        .and_then(|snapshot| serde_json::from_str(snapshot.providers.get(provider)?.get()).ok());
    models.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    #[test]
    fn snapshot_is_small_and_valid() {
        assert!(SNAPSHOT.len() < 150_000, "{} bytes", SNAPSHOT.len());
        for row in ROWS.iter().filter(|row| !row.is_local() && !row.prefer.is_empty()) {
            let models = models_of(row.id);
            assert!(models.len() > 5, "{}", row.id);
            let is_present = |prefix: &&str| models.keys().any(|name| name.starts_with(prefix));
            assert!(row.prefer.iter().all(is_present), "{}", row.id);
        }
        let sonnet = &models_of("anthropic")["claude-sonnet-4-5"];
        assert_eq!((sonnet.context, sonnet.can_think), (200_000, true));
        assert_eq!(sonnet.price().map(|price| price.output), Some(15.0));
        assert!(models_of("nobody").is_empty());
    }
}
