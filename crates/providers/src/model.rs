//! A model of a provider: implements the engine's `Model` with a format and HTTP.

use std::sync::Arc;

use engine::ports::{Model, ModelError, ModelEvent, ModelStream, Request};
use futures_util::{StreamExt, stream};

use crate::endpoint::Endpoint;
use crate::exchange::Exchange;
use crate::format::Target;
use crate::images::{self, Fitted};
use crate::key::ApiKey;

/// A model that is called over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct RemoteModel {
    pub(crate) endpoint: Arc<Endpoint>,
    /// The provider's name for it.
    pub(crate) name: String,
    pub(crate) max_output: Option<u64>,
    pub(crate) can_think: bool,
    /// Whether it accepts images; true if unknown.
    pub(crate) takes_images: bool,
    /// Messages whose images were already resized.
    pub(crate) fitted: Fitted,
}

impl Model for RemoteModel {
    fn answer(&self, mut request: Request) -> ModelStream {
        let endpoint = &self.endpoint;
        if endpoint.needs_key && endpoint.key.as_ref().is_none_or(ApiKey::is_empty) {
            let message = format!("{} needs an API key: {}", endpoint.name, endpoint.no_key());
            let error = endpoint.with_advice(ModelError::AuthNeeded(message), "");
            return stream::iter([Err(error)]).boxed();
        }
        if !images::has_any(&request) {
            return self.request_answer(request);
        }
        if !self.takes_images {
            let is_new = images::replace_all(&mut request);
            let message =
                format!("{} does not accept images, so it gets a note in their place", self.name);
            return with_notice(is_new.then_some(message), self.request_answer(request));
        }
        let model = self.clone();
        stream::once(async move {
            let problems = model.fitted.fit(&mut request).await;
            with_notice(
                (!problems.is_empty()).then(|| problems.join("; ")),
                model.request_answer(request),
            )
        })
        .flatten()
        .boxed()
    }
}

impl RemoteModel {
    fn request_answer(&self, request: Request) -> ModelStream {
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
                let message = format!("The request could not be serialised: {err}");
                return stream::iter([Err(ModelError::Failed(message))]).boxed();
            }
        };
        let url = endpoint.url(&endpoint.format.path(&self.name));
        // Boxed, because `unfold` moves it with every event.
        let exchange = Box::new(Exchange::new(endpoint, request, url, body));
        let answer = stream::unfold(exchange, |mut exchange| async {
            exchange.next().await.map(|event| (event, exchange))
        });
        answer.boxed()
    }
}

/// Shows a notice before the answer.
fn with_notice(message: Option<String>, answer: ModelStream) -> ModelStream {
    match message {
        Some(message) => stream::iter([Ok(ModelEvent::Waiting(message))]).chain(answer).boxed(),
        None => answer,
    }
}
