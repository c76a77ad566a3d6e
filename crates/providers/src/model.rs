//! A model of a provider: implements the engine's `Model` with a format and HTTP.

use std::future::ready;
use std::sync::Arc;

use engine::ports::{Model, ModelError, ModelEvent, ModelStream, Request};
use engine::words::{ModelOptions, Profile};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};

use crate::endpoint::Endpoint;
use crate::exchange::Exchange;
use crate::format::{Format, Target};
use crate::images::{self, Fitted};
use crate::key::ApiKey;
use crate::learned::Learned;

/// A model that is called over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct RemoteModel {
    pub(crate) endpoint: Arc<Endpoint>,
    /// The provider's name for it.
    pub(crate) name: String,
    /// The longest answer to ask for, as the user or the catalogue says.
    pub(crate) max_output: Option<u64>,
    /// The size of its context window, as configured or assumed.
    pub(crate) context: u64,
    /// Whether the user's config has the size.
    pub(crate) is_context_configured: bool,
    pub(crate) options: ModelOptions,
    /// What the server told about it.
    pub(crate) learned: Arc<Learned>,
    pub(crate) can_think: bool,
    /// Whether it accepts images; true if unknown.
    pub(crate) takes_images: bool,
    /// Messages whose images were already resized.
    pub(crate) fitted: Fitted,
}

impl Model for RemoteModel {
    fn answer(&self, mut request: Request) -> ModelStream {
        let endpoint = &self.endpoint;
        if let Some(problem) = &endpoint.problem {
            let message = format!("{} cannot be used: {problem}", endpoint.name);
            return stream::iter([Err(ModelError::Failed(message))]).boxed();
        }
        if endpoint.needs_key
            && endpoint.aws.is_none()
            && endpoint.key.as_ref().is_none_or(ApiKey::is_empty)
        {
            let message = format!("{} needs an API key: {}", endpoint.name, endpoint.no_key());
            let error = endpoint.with_advice(ModelError::AuthNeeded(message), "");
            return stream::iter([Err(error)]).boxed();
        }
        let unsent = images::unsent_files(&request);
        if !images::has_any(&request) {
            return with_notice(unsent, self.request_answer(request));
        }
        if !self.takes_images {
            let is_new = images::replace_all(&mut request);
            let message =
                format!("{} does not accept images, so it gets a note in their place", self.name);
            let notices = unsent.into_iter().chain(is_new.then_some(message));
            return with_notice(joined(notices), self.request_answer(request));
        }
        let model = self.clone();
        stream::once(async move {
            let problems = model.fitted.fit(&mut request).await;
            let notices = unsent.into_iter().chain(problems);
            with_notice(joined(notices), model.request_answer(request))
        })
        .flatten()
        .boxed()
    }

    fn prepare(&self) -> BoxFuture<'_, ()> {
        if !endpoint_asks(&self.endpoint) {
            return ready(()).boxed();
        }
        self.learned.ask(&self.endpoint, &self.name).boxed()
    }

    fn sees_pictures(&self) -> bool {
        self.takes_images
    }

    fn window(&self) -> Option<u64> {
        let configured = self.is_context_configured.then_some(self.context);
        let known = configured.or(self.learned.window());
        match (known, self.learned.overflow_window()) {
            (Some(known), Some(most)) => Some(known.min(most)),
            (known, most) => known.or(most),
        }
    }
}

/// Joins notices to one; `None` without any.
fn joined(notices: impl Iterator<Item = String>) -> Option<String> {
    let notices: Vec<String> = notices.collect();
    (!notices.is_empty()).then(|| notices.join("; "))
}

/// Returns whether a server is asked about its models: those nearby, which speak the chat format.
fn endpoint_asks(endpoint: &Endpoint) -> bool {
    endpoint.is_nearby && endpoint.format == Format::OpenAiChat
}

impl RemoteModel {
    fn request_answer(&self, request: Request) -> ModelStream {
        let is_missing = endpoint_asks(&self.endpoint) && !request.tools.is_empty();
        let notice = is_missing.then(|| self.learned.tell_missing_tools()).flatten();
        // Boxed, because `unfold` moves it with every event.
        let exchange = Box::new(Exchange::new(self.clone(), request));
        let answer = stream::unfold(exchange, |mut exchange| async {
            exchange.next().await.map(|event| (event, exchange))
        });
        with_notice(notice, answer.boxed())
    }
}

impl RemoteModel {
    /// Serialises a request. `has_limit`: whether to send the limit for the answer.
    pub(crate) fn encode(&self, request: &Request, has_limit: bool) -> serde_json::Result<Vec<u8>> {
        let endpoint = &self.endpoint;
        let mut options = self.options.clone();
        // A small model that calls tools must not be creative. Servers begin with 0.8.
        let window = self.window().unwrap_or(self.context);
        if endpoint.is_nearby && Profile::of(&self.name, window) == Profile::Brief {
            options.temperature.get_or_insert(SMALL_TEMPERATURE);
        }
        let target = Target {
            name: &self.name,
            max_tokens: has_limit.then(|| self.max_tokens(request.tokens())),
            counts_reasoning: endpoint.counts_reasoning,
            can_think: self.can_think,
            has_progress: self.learned.has_progress(),
            options: &options,
            is_openrouter: endpoint.is_openrouter,
        };
        endpoint.format.encode(request, &target)
    }

    /// Returns the path of a request, below the base URL.
    pub(crate) fn path(&self) -> String {
        self.endpoint.format.path(&self.name, self.endpoint.api_version.as_deref())
    }

    /// Returns the longest answer to a request of this many tokens: the model's own limit, and at most what is left of
    /// the window.
    fn max_tokens(&self, request: u64) -> u64 {
        // The estimate may be too low.
        let left = self.window().unwrap_or(self.context).saturating_sub(request + request / 10);
        left.max(LEAST_OUTPUT).min(self.max_output.unwrap_or(MOST_OUTPUT))
    }
}

/// The longest answer that is asked for, unless the user's config says otherwise: no answer of an agent needs more.
pub(crate) const MOST_OUTPUT: u64 = 32_000;
/// How much the answers of small local models vary, unless the user's config says otherwise.
const SMALL_TEMPERATURE: f64 = 0.2;
/// The shortest one: with less, an answer is useless. The server says so if the window is full.
const LEAST_OUTPUT: u64 = 256;

/// Shows a notice before the answer.
fn with_notice(message: Option<String>, answer: ModelStream) -> ModelStream {
    match message {
        Some(message) => stream::iter([Ok(ModelEvent::Notice(message))]).chain(answer).boxed(),
        None => answer,
    }
}
