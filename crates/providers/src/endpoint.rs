//! How a provider is reached: URL, format, key, headers, time limits.

use std::time::SystemTime;

use engine::ports::ModelError;

use crate::fault::Fault;
use crate::format::Format;
use crate::http::{CONTENT_TYPE, KeyHeader, Timing};
use crate::key::ApiKey;
use crate::sigv4::{self, AwsKeys, SigningScope, Unsigned};

/// How a provider is reached.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// Its display name.
    pub(crate) name: String,
    pub(crate) format: Format,
    pub(crate) base_url: String,
    pub(crate) key: Option<ApiKey>,
    /// What is wrong with its config, so that it cannot be asked.
    pub(crate) problem: Option<String>,
    /// Why the key in the config is empty, if it is.
    pub(crate) missing_key: Option<String>,
    pub(crate) needs_key: bool,
    pub(crate) headers: Headers,
    /// The words in the values of the user's headers: one may be a key, so they are masked in messages.
    pub(crate) secrets: Vec<ApiKey>,
    pub(crate) timing: Timing,
    /// A sentence that says how to set the key.
    pub(crate) advice: String,
    pub(crate) is_openrouter: bool,
    /// Whether the limit for an answer includes reasoning, which OpenAI's own chat endpoint demands.
    pub(crate) counts_reasoning: bool,
    /// Whether it is a server on this machine or in its network, which loads models and reads prompts slowly.
    pub(crate) is_nearby: bool,
    /// The version of Azure's older interface.
    pub(crate) api_version: Option<String>,
    /// What requests are signed with.
    pub(crate) aws: Option<AwsLogin>,
}

/// What requests to Amazon Bedrock are signed with.
#[derive(Debug, Clone)]
pub(crate) struct AwsLogin {
    pub(crate) keys: AwsKeys,
    pub(crate) region: String,
}

/// Headers for every request. Their values may be keys, so `Debug` shows only the names.
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
            Format::OpenAiResponses | Format::OpenAiChat | Format::BedrockConverse => {
                KeyHeader::Bearer
            }
            Format::AzureChat => KeyHeader::Named("api-key"),
            Format::Gemini => KeyHeader::Named("x-goog-api-key"),
        }
    }

    /// Returns the headers that sign a request, if the provider wants that. A bearer token needs no signature.
    pub(crate) fn sign(&self, url: &str, body: &[u8]) -> Result<Vec<(String, String)>, Fault> {
        let Some(aws) = self.aws.as_ref().filter(|_| self.key.is_none()) else {
            return Ok(Vec::new());
        };
        let url = reqwest::Url::parse(url)
            .map_err(|err| Fault::Rejected(format!("the base URL is invalid: {err}")))?;
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let request = Unsigned {
            method: "POST",
            host: &host,
            path: url.path(),
            query: url.query().unwrap_or_default(),
            content_type: Some(CONTENT_TYPE),
            body,
        };
        let (region, time) = (aws.region.as_str(), SystemTime::now());
        let scope = SigningScope { region, service: "bedrock", time };
        Ok(sigv4::sign(&request, &aws.keys, &scope))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url.trim_end_matches('/'))
    }

    /// Returns why the key is missing.
    pub(crate) fn no_key(&self) -> &str {
        self.missing_key.as_deref().unwrap_or("no key is set")
    }

    /// Describes a failure of this provider, for the user.
    pub(crate) fn explain(&self, fault: &Fault) -> String {
        self.mask_keys(&fault.explain(&self.name, &self.base_url))
    }

    /// Masks our keys in a provider's message.
    pub(crate) fn mask_keys(&self, message: &str) -> String {
        let aws = self.aws.iter().map(|aws| &aws.keys);
        let aws = aws.flat_map(|keys| std::iter::once(&keys.secret).chain(&keys.session));
        let keys = self.key.iter().chain(&self.secrets).chain(aws);
        keys.fold(message.to_owned(), |message, key| key.mask_in(&message))
    }

    /// Adds to an error what the user can do about it, and masks our keys in it.
    pub(crate) fn with_advice(&self, error: ModelError, advice: &str) -> ModelError {
        let add = |message: String, advice: &str| {
            let message = self.mask_keys(&message);
            match advice {
                "" => message,
                advice => format!("{}. {advice}", message.trim_end_matches('.')),
            }
        };
        match error {
            ModelError::AuthNeeded(message) => ModelError::AuthNeeded(add(message, &self.advice)),
            ModelError::ContextFull(message) => ModelError::ContextFull(add(message, advice)),
            ModelError::RateLimited(message) => ModelError::RateLimited(add(message, advice)),
            ModelError::Unavailable(message) => ModelError::Unavailable(add(message, advice)),
            ModelError::Incomplete(message) => ModelError::Incomplete(add(message, advice)),
            ModelError::Failed(message) => ModelError::Failed(add(message, advice)),
        }
    }
}
