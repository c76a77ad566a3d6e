//! Failures of providers, classified by what to do about them.
//!
//! `http` and the formats report what happened. This module decides what the user reads; `retry` decides
//! what is tried again.

use std::time::Duration;

use engine::ports::ModelError;
use serde::Deserialize;
use serde_json::Value;

use crate::key::ELLIPSIS;
use crate::url::displayable_url;

/// A failure of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// No connection: name, network, TLS, reset.
    Unreachable(String),
    /// A connection that was kept open ended before the first byte of the answer.
    Lost(String),
    /// Connected, but received nothing for this long.
    TimedOut(Duration),
    /// A failure of the provider: 5xx, overloaded.
    ServerError(String),
    /// Too many requests; with the time to wait, if the provider sent one.
    RateLimited { wait: Option<Duration>, message: String },
    /// The account has no credit left. Waiting does not help.
    OutOfCredit(String),
    /// The API key is missing, wrong or lacks a permission.
    Auth(String),
    /// The conversation is too long.
    ContextFull(String),
    /// The request is invalid; a retry would fail as well.
    Rejected(String),
    /// The answer does not match the format.
    InvalidAnswer(String),
    /// The stream ended before the end of the answer.
    CutOff,
    /// The answer was complete and empty.
    EmptyAnswer,
}

impl Fault {
    /// Describes what happened, for the user.
    pub(crate) fn explain(&self, who: &str, base_url: &str) -> String {
        let with = |text: &str, message: &str| match message {
            "" => text.to_owned(),
            status if status.starts_with("HTTP ") => format!("{text} ({status})"),
            message => format!("{text}: {message}"),
        };
        match self {
            Fault::Unreachable(message) | Fault::Lost(message) => {
                let url = displayable_url(base_url).map(|url| format!(" at {url}"));
                with(&format!("{who} cannot be reached{}", url.unwrap_or_default()), message)
            }
            Fault::TimedOut(time) => format!("{who} sent nothing for {}", seconds(*time)),
            Fault::ServerError(message) => with(&format!("{who} is overloaded"), message),
            Fault::RateLimited { wait: Some(wait), message } => {
                with(&format!("{who}: rate limit reached, retry after {}", seconds(*wait)), message)
            }
            Fault::RateLimited { wait: None, message } => {
                with(&format!("{who}: rate limit reached"), message)
            }
            Fault::OutOfCredit(message) => {
                with(&format!("{who}: the account has no credit left"), message)
            }
            Fault::Auth(message) => with(&format!("{who} rejected the API key"), message),
            Fault::ContextFull(message) => {
                with("The conversation is too long for this model", message)
            }
            Fault::Rejected(message) => with(&format!("{who} rejected the request"), message),
            Fault::InvalidAnswer(message) => {
                with(&format!("{who} sent an invalid answer"), message)
            }
            Fault::CutOff => format!("The answer from {who} was cut off"),
            Fault::EmptyAnswer => format!("{who} sent an empty answer"),
        }
    }

    /// Returns what the user can do about it.
    pub(crate) fn advice(&self, was_shown: bool) -> &'static str {
        match self {
            Fault::OutOfCredit(_) => "Add credit or choose another model",
            Fault::RateLimited { wait: Some(_), .. } => {
                "Try again after that time, or choose another model"
            }
            Fault::RateLimited { wait: None, .. } => "Try again later or choose another model",
            Fault::ContextFull(_) => "Start a new session or choose a model with a larger context",
            // The endpoint adds how to set a key; a rejected request names its reason.
            Fault::Auth(_) | Fault::Rejected(_) => "",
            _ if was_shown => "The part that was shown is saved. Send a message to continue",
            Fault::Unreachable(_) | Fault::Lost(_) => "Check the network and the base URL",
            Fault::TimedOut(_) => {
                "Try again later. `headerTimeout` and `chunkTimeout` set how long to wait"
            }
            Fault::ServerError(_) => "Try again later or choose another model",
            Fault::InvalidAnswer(_) | Fault::CutOff | Fault::EmptyAnswer => {
                "Try again or choose another model"
            }
        }
    }

    /// Converts the failure to the engine's error, with a message for the user. `was_shown`: whether a part of the answer
    /// was shown.
    pub(crate) fn into_error(self, message: String, was_shown: bool) -> ModelError {
        match self {
            Fault::Auth(_) => ModelError::AuthNeeded(message),
            Fault::ContextFull(_) => ModelError::ContextFull(message),
            Fault::RateLimited { .. } | Fault::OutOfCredit(_) => ModelError::RateLimited(message),
            _ if was_shown => ModelError::Incomplete(message),
            Fault::Unreachable(_)
            | Fault::Lost(_)
            | Fault::TimedOut(_)
            | Fault::ServerError(_)
            | Fault::CutOff => ModelError::Unavailable(message),
            Fault::Rejected(_) | Fault::InvalidAnswer(_) | Fault::EmptyAnswer => {
                ModelError::Failed(message)
            }
        }
    }

    /// Classifies an answer with an error status.
    pub(crate) fn of_status(status: u16, wait: Option<Duration>, body: &str) -> Fault {
        let error = ErrorBody::parse(body);
        let wait = wait.or(error.wait);
        let fault = error.into_fault();
        match (status, fault) {
            // An explicit message in the body takes precedence over the status.
            (_, Some(fault @ (Fault::ContextFull(_) | Fault::OutOfCredit(_)))) => fault,
            (401 | 403, fault) => Fault::Auth(message_of(fault, status)),
            (429, fault) => Fault::RateLimited { wait, message: message_of(fault, status) },
            (408 | 409, fault) => Fault::ServerError(message_of(fault, status)),
            (413, fault) => Fault::ContextFull(message_of(fault, status)),
            (402, fault) => Fault::OutOfCredit(message_of(fault, status)),
            (500.., fault) => match wait {
                Some(wait) => {
                    Fault::RateLimited { wait: Some(wait), message: message_of(fault, status) }
                }
                None => Fault::ServerError(message_of(fault, status)),
            },
            (_, Some(fault)) => fault,
            (_, None) => Fault::Rejected(format!("HTTP {status}. Check the base URL")),
        }
    }

    /// Classifies an error inside a stream, after a status of 200.
    pub(crate) fn of_event(error: &Value) -> Fault {
        let fault = ErrorBody::of(error).into_fault();
        fault.unwrap_or_else(|| Fault::ServerError("an error without a message".to_owned()))
    }

    /// Returns whether the server rejects the limit for the answer that was sent.
    pub(crate) fn is_about_output_limit(&self) -> bool {
        let (Fault::Rejected(message) | Fault::ContextFull(message)) = self else { return false };
        LIMIT_WORDS.iter().any(|word| message.contains(word))
    }

    /// Classifies an exception in Amazon's event stream.
    pub(crate) fn of_exception(kind: &str, body: &str) -> Fault {
        let error = ErrorBody { kinds: kind.to_lowercase(), ..ErrorBody::parse(body) };
        let fault = error.into_fault();
        fault.unwrap_or_else(|| Fault::ServerError("an error without a message".to_owned()))
    }

    fn into_message(self) -> String {
        match self {
            Fault::Unreachable(message)
            | Fault::Lost(message)
            | Fault::ServerError(message)
            | Fault::RateLimited { message, .. }
            | Fault::OutOfCredit(message)
            | Fault::Auth(message)
            | Fault::ContextFull(message)
            | Fault::Rejected(message)
            | Fault::InvalidAnswer(message) => message,
            Fault::TimedOut(_) | Fault::CutOff | Fault::EmptyAnswer => String::new(),
        }
    }
}

fn message_of(fault: Option<Fault>, status: u16) -> String {
    fault.map_or_else(|| format!("HTTP {status}"), Fault::into_message)
}

fn seconds(time: Duration) -> String {
    match time.as_millis() {
        millis if millis < 10_000 => format!("{:.1} s", millis as f64 / 1000.0),
        millis => format!("{} s", millis / 1000),
    }
}

/// The parts that the error bodies of all providers have in common.
#[derive(Debug, Default)]
struct ErrorBody {
    /// Type, code and status, if present.
    kinds: String,
    message: String,
    wait: Option<Duration>,
}

impl ErrorBody {
    fn parse(body: &str) -> ErrorBody {
        match serde_json::from_str::<Value>(body) {
            Ok(Value::Array(list)) => list.first().map(ErrorBody::of).unwrap_or_default(),
            Ok(value) => ErrorBody::of(&value),
            // A web page, probably of a proxy. Its markup is of no use to the user; plain text is.
            Err(_) if body.trim_start().starts_with('<') => ErrorBody {
                message:
                    "received a web page instead of an answer. Check the base URL and the proxy"
                        .to_owned(),
                ..ErrorBody::default()
            },
            Err(_) => ErrorBody { message: printable(body), ..ErrorBody::default() },
        }
    }

    fn of(value: &Value) -> ErrorBody {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Inner {
            r#type: Value,
            code: Value,
            status: Value,
            message: Value,
            detail: Value,
            details: Value,
            n_ctx: Value,
        }
        let inner = match value.get("error") {
            Some(Value::String(message)) => {
                return ErrorBody { message: printable(message), ..ErrorBody::default() };
            }
            Some(inner @ Value::Object(_)) => inner,
            _ => value,
        };
        let inner: Inner = serde_json::from_value(inner.clone()).unwrap_or_default();
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let kinds = [&inner.r#type, &inner.code, &inner.status].map(text).join(" ").to_lowercase();
        let mut message = [&inner.message, &inner.detail].map(text).join("");
        if let Some(window) = inner.n_ctx.as_u64() {
            // llama.cpp tells the window here, and not always in the message.
            message.push_str(&format!(" (context size: {window})"));
        }
        let wait = inner.details.as_array().into_iter().flatten().find_map(|detail| {
            let delay = detail.get("retryDelay")?.as_str()?.strip_suffix('s')?;
            Duration::try_from_secs_f64(delay.parse().ok()?).ok()
        });
        ErrorBody { kinds, message: printable(&message), wait }
    }

    /// Classifies the error by its type and message. `None` if both are empty.
    fn into_fault(self) -> Option<Fault> {
        let kinds = self.kinds.as_str();
        let lower_message = self.message.to_lowercase();
        let has = |text: &str, any: &[&str]| any.iter().any(|word| text.contains(word));
        let message = if self.message.is_empty() { kinds.trim().to_owned() } else { self.message };
        if message.is_empty() {
            return None;
        }
        Some(if has(kinds, &CONTEXT_KINDS) || has(&lower_message, &CONTEXT_WORDS) {
            Fault::ContextFull(message)
        } else if has(kinds, &["insufficient_quota", "billing"])
            || has(&lower_message, &CREDIT_WORDS)
        {
            Fault::OutOfCredit(message)
        } else if has(kinds, &["rate_limit", "resource_exhausted", "throttling", "429"]) {
            Fault::RateLimited { wait: self.wait, message }
        } else if has(kinds, &AUTH_KINDS) || has(&lower_message, &AUTH_WORDS) {
            Fault::Auth(message)
        } else if has(kinds, &SERVER_KINDS) {
            Fault::ServerError(message)
        } else {
            Fault::Rejected(message)
        })
    }
}

const CONTEXT_KINDS: [&str; 3] =
    ["context_length_exceeded", "request_too_large", "exceed_context_size_error"];
const CONTEXT_WORDS: [&str; 7] = [
    "input is too long",
    "prompt is too long",
    "maximum context length",
    "exceeds the context",
    "context window",
    "input token count",
    "exceeds the available context size",
];
const LIMIT_WORDS: [&str; 6] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "maxTokens",
    "in the completion",
];
const CREDIT_WORDS: [&str; 3] = ["credit balance", "exceeded your current quota", "spend limit"];
const AUTH_KINDS: [&str; 10] = [
    "accessdenied",
    "expiredtoken",
    "unrecognizedclient",
    "authentication",
    "invalid_api_key",
    "permission",
    "unauthenticated",
    "unauthorized",
    "401",
    "403",
];
const AUTH_WORDS: [&str; 3] = ["api key not valid", "api key expired", "invalid api key"];
const SERVER_KINDS: [&str; 13] = [
    "streamerror",
    "notready",
    "overloaded",
    "server_error",
    "api_error",
    "internal",
    "unavailable",
    "timeout",
    "500",
    "502",
    "503",
    "504",
    "529",
];

/// At most this many characters of a provider's message are shown.
const MAX_MESSAGE: usize = 300;
/// Returns a provider's message without control characters, and shortened.
pub(crate) fn printable(text: &str) -> String {
    let clean = |character: char| if character.is_control() { ' ' } else { character };
    let mut message: String = text.trim().chars().map(clean).take(MAX_MESSAGE).collect();
    if text.trim().chars().count() > MAX_MESSAGE {
        message.push(ELLIPSIS);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_bodies_of_all_providers_are_read() {
        let cases = [
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                "ContextFull",
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                "ContextFull",
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum","status":"INVALID_ARGUMENT"}}"#,
                "ContextFull",
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                "OutOfCredit",
            ),
            (
                429,
                r#"[{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED","details":[{"@type":"x","retryDelay":"7s"}]}}]"#,
                "RateLimited { wait: Some(7s)",
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}"#,
                "Auth",
            ),
            (401, r#"{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}"#, "Auth"),
            (404, r#"{"error":"model 'x' not found"}"#, "Rejected(\"model 'x' not found\")"),
            (
                400,
                r#"{"object":"error","message":"bad tool","type":"BadRequestError","code":400}"#,
                "Rejected(\"bad tool\")",
            ),
            (422, r#"{"detail":"wrong field"}"#, "Rejected(\"wrong field\")"),
            (502, "<html><body>Bad gateway</body></html>", "ServerError(\"received a web page"),
            (500, "", "ServerError(\"HTTP 500\")"),
        ];
        for (status, body, expected) in cases {
            let fault = format!("{:?}", Fault::of_status(status, None, body));
            assert!(fault.starts_with(expected), "{body}: {fault}");
        }
    }

    #[test]
    fn error_inside_a_stream_is_classified_like_a_status() {
        let event = |text: &str| Fault::of_event(&serde_json::from_str(text).unwrap());
        assert!(matches!(
            event(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
            Fault::ServerError(_)
        ));
        assert!(matches!(
            event(r#"{"error":{"type":"rate_limit_error","message":"slow"}}"#),
            Fault::RateLimited { .. }
        ));
        assert!(matches!(event("{}"), Fault::ServerError(_)));
    }
}
