//! `authenticate`, in ACP's form and in the older one that carries the key.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::read;
use crate::code::RpcError;

/// The parameters of `authenticate`: `{methodId}`, or `{method, credentials}`.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authenticate {
    /// Which way to log in.
    #[serde(alias = "method")]
    pub method_id: String,
    /// What the older form sends along.
    pub credentials: Option<Credentials>,
}

/// A key, and whose it is.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// The key.
    #[serde(alias = "apiKey", alias = "api_key", alias = "token")]
    pub key: Option<String>,
    /// The provider, where it is said.
    pub provider: Option<String>,
}

impl Authenticate {
    pub(super) fn decode(params: Option<&RawValue>) -> Result<Authenticate, RpcError> {
        read(params)
    }
}

/// Shows the method alone: what comes with it is nobody's business.
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
