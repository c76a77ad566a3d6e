//! A model at a provider: joins a format to HTTP and is the engine's `Model`.

use std::sync::Arc;

use engine::ports::{Model, ModelError, ModelEvent, ModelStream, Request};
use futures_util::{StreamExt, stream};

use crate::exchange::Exchange;
use crate::format::{Format, Target};
use crate::http::{KeyHeader, Timing};
use crate::key::ApiKey;
use crate::pictures::{self, Fitted};

/// Where and how a provider is reached.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// What people call it.
    pub(crate) name: String,
    pub(crate) format: Format,
    pub(crate) base_url: String,
    pub(crate) key: Option<ApiKey>,
    /// Why the config's key is empty, if it is and should not be.
    pub(crate) missing_key: Option<String>,
    pub(crate) needs_key: bool,
    pub(crate) headers: Headers,
    /// What the user's headers hold, word by word: a key may be among it.
    pub(crate) secrets: Vec<ApiKey>,
    pub(crate) timing: Timing,
    /// How to set the key, for the user.
    pub(crate) advice: String,
    pub(crate) is_openrouter: bool,
}

/// Headers for every request. They may hold keys, so printing shows their names alone.
#[derive(Clone, Default)]
pub(crate) struct Headers(pub(crate) Vec<(String, String)>);

impl std::fmt::Debug for Headers {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Endpoint {
    pub(crate) fn key_header(&self) -> KeyHeader {
        match self.format {
            Format::AnthropicMessages => KeyHeader::Named("x-api-key"),
            Format::OpenAiResponses | Format::OpenAiChat => KeyHeader::Bearer,
            Format::Gemini => KeyHeader::Named("x-goog-api-key"),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url.trim_end_matches('/'))
    }

    /// Says why there is no key.
    pub(crate) fn no_key(&self) -> &str {
        self.missing_key.as_deref().unwrap_or("none is set")
    }

    /// Takes our keys out of words that the provider said.
    pub(crate) fn hide_keys(&self, words: &str) -> String {
        let keys = self.key.iter().chain(&self.secrets);
        keys.fold(words.to_owned(), |words, key| key.hide_in(&words))
    }

    /// Adds to a failure what the user can do about it, where we know; and takes our keys out of it.
    pub(crate) fn with_advice(&self, error: ModelError, advice: &str) -> ModelError {
        let say = |words: String, advice: &str| {
            let words = self.hide_keys(&words);
            match advice {
                "" => words,
                advice => format!("{}. {advice}", words.trim_end_matches('.')),
            }
        };
        match error {
            ModelError::AuthNeeded(words) => ModelError::AuthNeeded(say(words, &self.advice)),
            ModelError::ContextFull(words) => ModelError::ContextFull(say(words, advice)),
            ModelError::RateLimited(words) => ModelError::RateLimited(say(words, advice)),
            ModelError::Unavailable(words) => ModelError::Unavailable(say(words, advice)),
            ModelError::Incomplete(words) => ModelError::Incomplete(say(words, advice)),
            ModelError::Failed(words) => ModelError::Failed(say(words, advice)),
        }
    }
}

/// A model that is asked over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct RemoteModel {
    pub(crate) endpoint: Arc<Endpoint>,
    /// Its name at the provider.
    pub(crate) name: String,
    pub(crate) max_output: Option<u64>,
    pub(crate) can_think: bool,
    /// Whether it takes pictures; true where nobody knows.
    pub(crate) takes_pictures: bool,
    /// The pictures that it was sent.
    pub(crate) fitted: Fitted,
}

impl Model for RemoteModel {
    fn answer(&self, mut request: Request) -> ModelStream {
        let endpoint = &self.endpoint;
        if endpoint.needs_key && endpoint.key.as_ref().is_none_or(ApiKey::is_empty) {
            let words = format!("{} needs a key: {}", endpoint.name, endpoint.no_key());
            let error = endpoint.with_advice(ModelError::AuthNeeded(words), "");
            return stream::iter([Err(error)]).boxed();
        }
        if !pictures::are_in(&request) {
            return self.ask(request);
        }
        if !self.takes_pictures {
            let is_new = pictures::take_out(&mut request);
            let words = format!("{} takes no pictures; it is told that there was one", self.name);
            return told(is_new.then_some(words), self.ask(request));
        }
        let model = self.clone();
        stream::once(async move {
            let problems = model.fitted.fit(&mut request).await;
            told((!problems.is_empty()).then(|| problems.join("; ")), model.ask(request))
        })
        .flatten()
        .boxed()
    }
}

impl RemoteModel {
    fn ask(&self, request: Request) -> ModelStream {
        let endpoint = Arc::clone(&self.endpoint);
        let target = Target {
            name: &self.name,
            max_output: self.max_output,
            can_think: self.can_think,
            is_openrouter: endpoint.is_openrouter,
        };
        let body = match endpoint.format.encode(&request, &target) {
            Ok(body) => body,
            Err(err) => {
                let words = format!("the request could not be written: {err}");
                return stream::iter([Err(ModelError::Failed(words))]).boxed();
            }
        };
        let url = endpoint.url(&endpoint.format.path(&self.name));
        // In a box, because it changes hands with every event.
        let exchange = Box::new(Exchange::new(endpoint, request, url, body));
        let answer = stream::unfold(exchange, |mut exchange| async {
            exchange.next().await.map(|event| (event, exchange))
        });
        answer.boxed()
    }
}

/// Tells the user something before the answer.
fn told(words: Option<String>, answer: ModelStream) -> ModelStream {
    match words {
        Some(words) => stream::iter([Ok(ModelEvent::Waiting(words))]).chain(answer).boxed(),
        None => answer,
    }
}
