//! `authenticate`: uses existing credentials, or an API key that the client sends.

use serde_json::json;
use wire::acp::authenticate::Authenticate;
use wire::acp::fault;
use wire::{RequestId, RpcError};

use crate::connection::Connection;

/// Continues with the credentials that exist, or with none.
pub(super) const LOGIN: &str = "local";
/// The client ran `purlin acp --login` in a terminal.
pub(super) const TERMINAL_LOGIN: &str = "terminal";
/// The request contains a key, as older clients send it.
const KEY_LOGIN: &str = "api_key";

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: &Authenticate,
) -> Result<(), RpcError> {
    let given = request.credentials.as_ref();
    let key = given.and_then(|given| given.key.as_deref());
    match (request.method_id.as_str(), key) {
        (LOGIN | TERMINAL_LOGIN, _) => {
            // Somebody may have logged in outside: look again when the next session is opened.
            connection.services.keys.iter().for_each(|keys| keys.forget());
        }
        (KEY_LOGIN, Some(key)) => {
            let named = given.and_then(|given| given.provider.as_deref());
            let provider = named.or_else(|| provider_of_key(key)).map(str::to_owned);
            // The key is masked in a recording, so what it says is recorded.
            let provider = match &connection.services.tape {
                Some(tape) => tape.next("provider of a key", || provider),
                None => provider,
            };
            let Some(provider) = provider else {
                return Err(fault::at(
                    "credentials.provider",
                    "'credentials.provider' is required for this key".to_owned(),
                ));
            };
            connection.services.keys.iter().for_each(|keys| keys.give(&provider, key));
        }
        _ => {
            return Err(fault::at(
                "methodId",
                "'methodId' must be one of the methods that initialize listed".to_owned(),
            ));
        }
    }
    connection.is_logged_in = true;
    connection.answer(id, &json!({}));
    Ok(())
}

/// Recognises the provider of a key by how it begins.
fn provider_of_key(key: &str) -> Option<&'static str> {
    const BEGINNINGS: [(&str, &str); 4] =
        [("sk-ant-", "anthropic"), ("sk-or-", "openrouter"), ("AIza", "google"), ("sk-", "openai")];
    BEGINNINGS.iter().find(|(front, _)| key.starts_with(front)).map(|(_, provider)| *provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_is_recognised_by_its_key() {
        assert_eq!(provider_of_key("sk-ant-api03-x"), Some("anthropic"));
        assert_eq!(provider_of_key("sk-or-v1-x"), Some("openrouter"));
        assert_eq!(provider_of_key("AIzaSy"), Some("google"));
        assert_eq!(provider_of_key("sk-proj-x"), Some("openai"));
        assert_eq!(provider_of_key("hf_x"), None);
    }
}
