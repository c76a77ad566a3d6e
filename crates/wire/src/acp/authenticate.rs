//! `authenticate`, in ACP's form and in the older form that contains the API key.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::read;
use crate::code::RpcError;

/// The parameters of `authenticate`: `{methodId}`, or `{method, credentials}`.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authenticate {
    /// The login method.
    #[serde(alias = "method")]
    pub method_id: String,
    /// The credentials, in the older form only.
    pub credentials: Option<Credentials>,
}

/// An API key and its provider.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// The API key.
    #[serde(alias = "apiKey", alias = "api_key", alias = "token")]
    pub key: Option<String>,
    /// The provider, if given.
    pub provider: Option<String>,
}

impl Authenticate {
    pub(super) fn decode(params: Option<&RawValue>) -> Result<Authenticate, RpcError> {
        read(params)
    }
}

/// Shows only the method: the credentials are secret.
impl fmt::Debug for Authenticate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Authenticate({})", self.method_id)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Credentials(****)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: I4, O1
    #[test]
    fn both_forms_are_read_and_no_key_is_printed() {
        let read = |params: &str| {
            let raw: &RawValue = serde_json::from_str(params).unwrap();
            Authenticate::decode(Some(raw)).unwrap()
        };
        assert_eq!(read(r#"{"methodId":"local"}"#).method_id, "local");
        let old = read(r#"{"method":"api_key","credentials":{"key":"sk-canary"}}"#);
        assert_eq!(old.method_id, "api_key");
        assert!(!format!("{old:?} {:?}", old.credentials).contains("canary"));
        assert_eq!(old.credentials.and_then(|given| given.key).as_deref(), Some("sk-canary"));
    }
}
