//! Providers of the settings, converted for the crate that asks them.

use std::collections::BTreeMap;

use ::providers::{ApiKey, Connection, Cost, Limit, Modalities, ModelOptions, ProviderOptions};
use settings::Secret;
use settings::providers::{Model, Provider};

/// Converts the providers of a configuration.
pub(crate) fn convert(configured: BTreeMap<String, Provider>) -> BTreeMap<String, ProviderOptions> {
    configured.into_iter().map(|(id, provider)| (id, convert_one(provider))).collect()
}

/// Converts keys by provider.
pub(crate) fn keys(stored: BTreeMap<String, Secret>) -> BTreeMap<String, ApiKey> {
    stored.into_iter().map(|(id, secret)| (id, key(&secret))).collect()
}

fn key(secret: &Secret) -> ApiKey {
    ApiKey::new(secret.reveal())
}

fn convert_one(provider: Provider) -> ProviderOptions {
    let Provider { npm, name, options, models } = provider;
    let options = Connection {
        base_url: options.base_url,
        api_key: options.api_key.as_ref().map(key),
        missing_key: options.missing_key,
        headers: keys(options.headers),
        header_timeout: options.header_timeout,
        chunk_timeout: options.chunk_timeout,
        retry_delay: options.retry_delay,
    };
    let models = models.into_iter().map(|(name, model)| (name, convert_model(model))).collect();
    ProviderOptions { npm, name, options, models }
}

fn convert_model(model: Model) -> ModelOptions {
    let Model { id, name, limit, cost, reasoning, modalities } = model;
    ModelOptions {
        id,
        name,
        limit: Limit { context: limit.context, output: limit.output },
        cost: cost.map(|cost| Cost {
            input: cost.input,
            output: cost.output,
            cache_read: cost.cache_read,
            cache_write: cost.cache_write,
        }),
        reasoning,
        modalities: modalities.map(|modalities| Modalities { input: modalities.input }),
    }
}
