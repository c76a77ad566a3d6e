//! The search engines: how each is asked and what it answers.

use reqwest::header::ACCEPT;
use reqwest::{Client, RequestBuilder, Url};
use serde_json::{Value, json};

/// A search engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchEngine {
    /// Brave Search.
    Brave,
    /// Tavily.
    Tavily,
    /// Exa.
    Exa,
    /// A SearXNG server.
    SearXng,
}

/// One result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) title: String,
    pub(super) url: String,
    pub(super) text: String,
}

impl SearchEngine {
    /// Finds an engine by its name in the configuration.
    #[must_use]
    pub fn find(name: &str) -> Option<SearchEngine> {
        let all =
            [SearchEngine::Brave, SearchEngine::Tavily, SearchEngine::Exa, SearchEngine::SearXng];
        all.into_iter().find(|engine| engine.name() == name)
    }

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SearchEngine::Brave => "brave",
            SearchEngine::Tavily => "tavily",
            SearchEngine::Exa => "exa",
            SearchEngine::SearXng => "searxng",
        }
    }

    pub(super) fn needs_key(self) -> bool {
        self != SearchEngine::SearXng
    }

    /// Returns the variable that its key is read from.
    pub(super) fn variable(self) -> &'static str {
        match self {
            SearchEngine::Brave => "BRAVE_API_KEY",
            SearchEngine::Tavily => "TAVILY_API_KEY",
            SearchEngine::Exa => "EXA_API_KEY",
            SearchEngine::SearXng => "",
        }
    }

    /// Returns the public address of its API.
    pub(super) fn address(self) -> &'static str {
        match self {
            SearchEngine::Brave => "https://api.search.brave.com",
            SearchEngine::Tavily => "https://api.tavily.com",
            SearchEngine::Exa => "https://api.exa.ai",
            SearchEngine::SearXng => "",
        }
    }

    pub(super) fn request(
        self,
        client: &Client,
        mut base: Url,
        key: &str,
        query: &str,
        results: u64,
    ) -> RequestBuilder {
        let path = match self {
            SearchEngine::Brave => "/res/v1/web/search",
            SearchEngine::Tavily | SearchEngine::Exa | SearchEngine::SearXng => "/search",
        };
        base.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
        let count = results.to_string();
        let request = match self {
            SearchEngine::Brave => {
                base.query_pairs_mut().append_pair("q", query).append_pair("count", &count);
                client.get(base).header("X-Subscription-Token", key)
            }
            SearchEngine::SearXng => {
                base.query_pairs_mut().append_pair("q", query).append_pair("format", "json");
                let request = client.get(base);
                if key.is_empty() { request } else { request.bearer_auth(key) }
            }
            SearchEngine::Tavily => {
                let body = json!({ "query": query, "max_results": results });
                client.post(base).bearer_auth(key).body(body.to_string())
            }
            SearchEngine::Exa => {
                let contents = json!({ "highlights": true });
                let body = json!({ "query": query, "numResults": results, "contents": contents });
                client.post(base).header("x-api-key", key).body(body.to_string())
            }
        };
        let request = request.header(ACCEPT, "application/json");
        match self {
            SearchEngine::Tavily | SearchEngine::Exa => {
                request.header("Content-Type", "application/json")
            }
            SearchEngine::Brave | SearchEngine::SearXng => request,
        }
    }

    /// Reads the results.
    ///
    /// # Errors
    /// Fails if the answer has another form.
    pub(super) fn read(self, answer: &Value) -> Result<Vec<Found>, String> {
        let (results, text) = match self {
            // Without results, the member is missing.
            SearchEngine::Brave if answer["type"] == "search" && answer["web"].is_null() => {
                return Ok(Vec::new());
            }
            SearchEngine::Brave => (&answer["web"]["results"], "description"),
            SearchEngine::Tavily | SearchEngine::SearXng => (&answer["results"], "content"),
            SearchEngine::Exa => (&answer["results"], "text"),
        };
        let results = results.as_array().ok_or("the answer has no results")?;
        let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let found = results.iter().filter_map(|one| {
            let highlights = one["highlights"].as_array().into_iter().flatten();
            let highlights: Vec<&str> = highlights.filter_map(Value::as_str).collect();
            let text =
                if highlights.is_empty() { string(&one[text]) } else { highlights.join(" … ") };
            let url = one["url"].as_str()?.to_owned();
            Some(Found { title: string(&one["title"]), url, text })
        });
        Ok(found.collect())
    }
}
