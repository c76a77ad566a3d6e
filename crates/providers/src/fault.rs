//! What can go wrong with a provider, by what to do about it.
//!
//! `http` and the formats say what happened; here is what it means: whether to try again, and what the user is told.

use std::time::Duration;

use engine::ports::ModelError;
use serde::Deserialize;
use serde_json::Value;

use crate::http::place_of;
use crate::model::Endpoint;

/// A failure of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// No connection: name, network, TLS, reset.
    Unreachable(String),
    /// Connected, and then nothing came for so long.
    Silent(Duration),
    /// The provider's own trouble: 5xx, overloaded.
    Server(String),
    /// Too many requests; with how long to wait, if it said so.
    Limited { wait: Option<Duration>, words: String },
    /// The account is used up. Waiting does not help.
    NoMoney(String),
    /// The key is missing, wrong or may not do this.
    Auth(String),
    /// The conversation is too long.
    ContextFull(String),
    /// The request is wrong and will stay wrong.
    Refused(String),
    /// The answer is not what the format says.
    Garbled(String),
    /// The answer ended without its end.
    Cut,
    /// The answer was whole and held nothing.
    Empty,
}

/// The longest wait that a provider may ask of us.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(120);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

impl Fault {
    /// Returns how often to try again after such a failure.
    fn retries(&self) -> u32 {
        match self {
            Fault::Unreachable(_) | Fault::Silent(_) | Fault::Cut => 3,
            Fault::Limited { wait: Some(wait), .. } if *wait <= LONGEST_WAIT => 3,
            Fault::Server(_) => 2,
            Fault::Empty => 1,
            Fault::Limited { .. }
            | Fault::NoMoney(_)
            | Fault::Auth(_)
            | Fault::ContextFull(_)
            | Fault::Refused(_)
            | Fault::Garbled(_) => 0,
        }
    }

    /// Decides whether to try again after `tried` failures, and how long to wait first.
    ///
    /// `first` is the unit of the waits, `chance` is between 0 and 1: a wait is anything up to twice the last one, so
    /// that many clients do not come back at once.
    pub(crate) fn retry_after(&self, tried: u32, first: Duration, chance: f64) -> Option<Duration> {
        if tried > self.retries() {
            return None;
        }
        if let Fault::Limited { wait: Some(wait), .. } = self {
            return Some(*wait);
        }
        let most = first.saturating_mul(1 << tried.min(10)).min(LONGEST_BACKOFF);
        Some(most.mul_f64(chance.clamp(0.0, 1.0)))
    }

    /// Says what happened, for the user.
    pub(crate) fn explain(&self, endpoint: &Endpoint) -> String {
        let who = &endpoint.name;
        let with = |text: &str, words: &str| {
            if words.is_empty() { text.to_owned() } else { format!("{text}: {words}") }
        };
        match self {
            Fault::Unreachable(words) => {
                let place = place_of(&endpoint.base_url).map(|place| format!(" at {place}"));
                with(&format!("{who} cannot be reached{}", place.unwrap_or_default()), words)
            }
            Fault::Silent(time) => format!("{who} sent nothing for {}", seconds(*time)),
            Fault::Server(words) => with(&format!("{who} is in trouble or overloaded"), words),
            Fault::Limited { wait: Some(wait), words } => with(
                &format!("{who} takes no more requests now and says to wait {}", seconds(*wait)),
                words,
            ),
            Fault::Limited { wait: None, words } => {
                with(&format!("{who} takes no more requests now"), words)
            }
            Fault::NoMoney(words) => with(&format!("the account at {who} is used up"), words),
            Fault::Auth(words) => with(&format!("{who} refused the key"), words),
            Fault::ContextFull(words) => with("the conversation is too long for this model", words),
            Fault::Refused(words) => with(&format!("{who} refused the request"), words),
            Fault::Garbled(words) => with(&format!("{who} answered something unreadable"), words),
            Fault::Cut => format!("the answer of {who} broke off"),
            Fault::Empty => format!("{who} answered nothing"),
        }
    }

    /// Says what the user can do about it.
    pub(crate) fn advice(&self, was_shown: bool) -> &'static str {
        match self {
            Fault::NoMoney(_) => "Add credit there or choose another model",
            Fault::Limited { wait: Some(_), .. } => "Try again then or choose another model",
            Fault::Limited { wait: None, .. } => "Try again later or choose another model",
            Fault::ContextFull(_) => "Begin a new session or choose a model that holds more",
            // The endpoint knows how to set a key; what was refused says why.
            Fault::Auth(_) | Fault::Refused(_) => "",
            _ if was_shown => "What was shown is kept; a further message goes on from there",
            Fault::Unreachable(_) => "Check the network and the base URL",
            Fault::Silent(_) => {
                "Try again later; `headerTimeout` and `chunkTimeout` say how long to wait"
            }
            Fault::Server(_) => "Try again later or choose another model",
            Fault::Garbled(_) | Fault::Cut | Fault::Empty => "Try again or choose another model",
        }
    }

    /// Turns the failure into the engine's. `was_shown` tells whether a part of the answer was.
    pub(crate) fn into_error(self, endpoint: &Endpoint, was_shown: bool) -> ModelError {
        let words = self.explain(endpoint);
        match self {
            Fault::Auth(_) => ModelError::AuthNeeded(words),
            Fault::ContextFull(_) => ModelError::ContextFull(words),
            Fault::Limited { .. } | Fault::NoMoney(_) => ModelError::RateLimited(words),
            _ if was_shown => ModelError::Incomplete(words),
            Fault::Unreachable(_) | Fault::Silent(_) | Fault::Server(_) | Fault::Cut => {
                ModelError::Unavailable(words)
            }
            Fault::Refused(_) | Fault::Garbled(_) | Fault::Empty => ModelError::Failed(words),
        }
    }

    /// Reads an answer with an error status.
    pub(crate) fn of_status(status: u16, wait: Option<Duration>, body: &str) -> Fault {
        let error = ErrorBody::parse(body);
        let wait = wait.or(error.wait);
        let fault = error.into_fault();
        match (status, fault) {
            // What the body says in so many words goes before the status.
            (_, Some(fault @ (Fault::ContextFull(_) | Fault::NoMoney(_)))) => fault,
            (401 | 403, fault) => Fault::Auth(words_of(fault, status)),
            (429, fault) => Fault::Limited { wait, words: words_of(fault, status) },
            (408 | 409, fault) => Fault::Server(words_of(fault, status)),
            (413, fault) => Fault::ContextFull(words_of(fault, status)),
            (402, fault) => Fault::NoMoney(words_of(fault, status)),
            (500.., fault) => match wait {
                Some(wait) => Fault::Limited { wait: Some(wait), words: words_of(fault, status) },
                None => Fault::Server(words_of(fault, status)),
            },
            (_, Some(fault)) => fault,
            (_, None) => Fault::Refused(format!("HTTP status {status}; check the base URL")),
        }
    }

    /// Reads an error that came inside a stream, after a status of 200.
    pub(crate) fn of_event(error: &Value) -> Fault {
        let fault = ErrorBody::of(error).into_fault();
        fault.unwrap_or_else(|| Fault::Server("an error without words".to_owned()))
    }

    fn words(self) -> String {
        match self {
            Fault::Unreachable(words)
            | Fault::Server(words)
            | Fault::Limited { words, .. }
            | Fault::NoMoney(words)
            | Fault::Auth(words)
            | Fault::ContextFull(words)
            | Fault::Refused(words)
            | Fault::Garbled(words) => words,
            Fault::Silent(_) | Fault::Cut | Fault::Empty => String::new(),
        }
    }
}

fn words_of(fault: Option<Fault>, status: u16) -> String {
    fault.map_or_else(|| format!("HTTP status {status}"), Fault::words)
}

fn seconds(time: Duration) -> String {
    match time.as_millis() {
        millis if millis < 10_000 => format!("{:.1} s", millis as f64 / 1000.0),
        millis => format!("{} s", millis / 1000),
    }
}

/// What the error bodies of all providers have in common.
#[derive(Debug, Default)]
struct ErrorBody {
    /// Type, code and status, as far as there are any.
    kinds: String,
    message: String,
    wait: Option<Duration>,
}

impl ErrorBody {
    fn parse(body: &str) -> ErrorBody {
        match serde_json::from_str::<Value>(body) {
            Ok(Value::Array(list)) => list.first().map(ErrorBody::of).unwrap_or_default(),
            Ok(value) => ErrorBody::of(&value),
            // A page of a proxy, or plain text: its beginning is better than nothing, its markup is not.
            Err(_) if body.trim_start().starts_with('<') => ErrorBody {
                message: "a web page came instead of an answer; check the base URL and the proxy"
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
        }
        let inner = match value.get("error") {
            Some(Value::String(words)) => {
                return ErrorBody { message: printable(words), ..ErrorBody::default() };
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
        let message = [&inner.message, &inner.detail].map(text).join("");
        let wait = inner.details.as_array().into_iter().flatten().find_map(|detail| {
            let delay = detail.get("retryDelay")?.as_str()?.strip_suffix('s')?;
            Duration::try_from_secs_f64(delay.parse().ok()?).ok()
        });
        ErrorBody { kinds, message: printable(&message), wait }
    }

    /// Reads type and words. `None` if there is nothing to read.
    fn into_fault(self) -> Option<Fault> {
        let kinds = self.kinds.as_str();
        let said = self.message.to_lowercase();
        let has = |text: &str, any: &[&str]| any.iter().any(|word| text.contains(word));
        let words = if self.message.is_empty() { kinds.trim().to_owned() } else { self.message };
        if words.is_empty() {
            return None;
        }
        Some(if has(kinds, &CONTEXT_KINDS) || has(&said, &CONTEXT_WORDS) {
            Fault::ContextFull(words)
        } else if has(kinds, &["insufficient_quota", "billing"]) || has(&said, &MONEY_WORDS) {
            Fault::NoMoney(words)
        } else if has(kinds, &["rate_limit", "resource_exhausted", "429"]) {
            Fault::Limited { wait: self.wait, words }
        } else if has(kinds, &AUTH_KINDS) || has(&said, &AUTH_WORDS) {
            Fault::Auth(words)
        } else if has(kinds, &SERVER_KINDS) {
            Fault::Server(words)
        } else {
            Fault::Refused(words)
        })
    }
}

const CONTEXT_KINDS: [&str; 3] =
    ["context_length_exceeded", "request_too_large", "exceed_context_size_error"];
const CONTEXT_WORDS: [&str; 6] = [
    "prompt is too long",
    "maximum context length",
    "exceeds the context",
    "context window",
    "input token count",
    "exceeds the available context size",
];
const MONEY_WORDS: [&str; 3] = ["credit balance", "exceeded your current quota", "spend limit"];
const AUTH_KINDS: [&str; 7] = [
    "authentication",
    "invalid_api_key",
    "permission",
    "unauthenticated",
    "unauthorized",
    "401",
    "403",
];
const AUTH_WORDS: [&str; 3] = ["api key not valid", "api key expired", "invalid api key"];
const SERVER_KINDS: [&str; 11] = [
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

/// The longest words of a provider that are passed on.
const MAX_WORDS: usize = 300;
/// What stands behind words that were cut short.
pub(crate) const CUT: char = '…';

/// Words of a provider, without anything that could steer a terminal, and not too many.
pub(crate) fn printable(text: &str) -> String {
    let clean = |character: char| if character.is_control() { ' ' } else { character };
    let mut words: String = text.trim().chars().map(clean).take(MAX_WORDS).collect();
    if text.trim().chars().count() > MAX_WORDS {
        words.push(CUT);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(500);

    // R: P6
    #[test]
    fn each_failure_is_retried_as_often_as_it_should_be() {
        let tries = |fault: Fault| {
            (1..10).take_while(|tried| fault.retry_after(*tried, FIRST, 0.5).is_some()).count()
        };
        assert_eq!(tries(Fault::Unreachable(String::new())), 3);
        assert_eq!(tries(Fault::Silent(Duration::from_secs(60))), 3);
        assert_eq!(tries(Fault::of_status(503, None, "")), 2);
        assert_eq!(tries(Fault::of_status(529, None, "")), 2);
        assert_eq!(tries(Fault::of_status(401, None, "")), 0);
        assert_eq!(tries(Fault::of_status(403, None, "")), 0);
        assert_eq!(tries(Fault::of_status(400, None, "")), 0);
        assert_eq!(tries(Fault::of_status(429, None, "")), 0);
        assert_eq!(tries(Fault::of_status(429, Some(Duration::from_secs(2)), "")), 3);
        assert_eq!(tries(Fault::of_status(429, Some(Duration::from_secs(10_000)), "")), 0);
        assert_eq!(tries(Fault::Empty), 1);
    }

    #[test]
    fn waits_grow_and_have_a_limit() {
        let fault = Fault::Unreachable(String::new());
        assert_eq!(fault.retry_after(1, FIRST, 1.0), Some(Duration::from_secs(1)));
        assert_eq!(fault.retry_after(3, FIRST, 1.0), Some(Duration::from_secs(4)));
        assert_eq!(fault.retry_after(1, FIRST, 0.0), Some(Duration::ZERO));
        let two = Duration::from_secs(2);
        assert_eq!(Fault::of_status(429, Some(two), "").retry_after(1, FIRST, 0.3), Some(two));
    }

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
                "NoMoney",
            ),
            (
                429,
                r#"[{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED","details":[{"@type":"x","retryDelay":"7s"}]}}]"#,
                "Limited { wait: Some(7s)",
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}"#,
                "Auth",
            ),
            (401, r#"{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}"#, "Auth"),
            (404, r#"{"error":"model 'x' not found"}"#, "Refused(\"model 'x' not found\")"),
            (
                400,
                r#"{"object":"error","message":"bad tool","type":"BadRequestError","code":400}"#,
                "Refused(\"bad tool\")",
            ),
            (422, r#"{"detail":"wrong field"}"#, "Refused(\"wrong field\")"),
            (502, "<html><body>Bad gateway</body></html>", "Server(\"a web page came"),
            (500, "", "Server(\"HTTP status 500\")"),
        ];
        for (status, body, expected) in cases {
            let fault = format!("{:?}", Fault::of_status(status, None, body));
            assert!(fault.starts_with(expected), "{body}: {fault}");
        }
    }

    #[test]
    fn an_error_inside_a_stream_has_the_same_class() {
        let event = |text: &str| Fault::of_event(&serde_json::from_str(text).unwrap());
        assert!(matches!(
            event(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
            Fault::Server(_)
        ));
        assert!(matches!(
            event(r#"{"error":{"type":"rate_limit_error","message":"slow"}}"#),
            Fault::Limited { .. }
        ));
        assert!(matches!(event("{}"), Fault::Server(_)));
    }
}
