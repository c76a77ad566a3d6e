//! `search` of a configuration: the search engine of the `web_search` tool.

use engine::words::Secret;
use serde_json::Value;

/// The number of results, and the most.
const RESULTS: u64 = 8;
const MOST_RESULTS: u64 = 20;

/// A search engine.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchConfig {
    /// Its name: `brave`, `tavily`, `exa` or `searxng`.
    pub provider: String,
    /// The address of its API, if not the public one.
    pub url: Option<String>,
    /// Its API key.
    pub key: Option<Secret>,
    /// The number of results.
    pub results: u64,
}

impl SearchConfig {
    pub(crate) fn read(value: &Value, problems: &mut Vec<String>) -> Option<SearchConfig> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
        let Some(provider) = text("provider") else {
            problems.push("`search` needs a `provider`".to_owned());
            return None;
        };
        if provider == "searxng" && text("url").is_none() {
            problems.push("`search` needs the `url` of the SearXNG server".to_owned());
            return None;
        }
        let results = value.get("results").and_then(Value::as_u64).unwrap_or(RESULTS);
        Some(SearchConfig {
            provider: provider.to_owned(),
            url: text("url").map(str::to_owned),
            key: text("apiKey").map(Secret::new),
            results: results.clamp(1, MOST_RESULTS),
        })
    }
}
