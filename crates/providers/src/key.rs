//! API keys, which must never be printed.

use std::fmt;
use std::sync::Arc;

const STARS: &str = "****";
/// Marks a message that was shortened.
pub(crate) const ELLIPSIS: char = '…';
/// A shorter key is not a secret, in bytes.
const MIN_LENGTH: usize = 4;

/// An API key. Only `http` reads it; `Debug` shows stars.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Arc<str>);

impl ApiKey {
    /// Creates a key. Surrounding blanks are removed.
    #[must_use]
    pub fn new(text: &str) -> ApiKey {
        ApiKey(text.trim().into())
    }

    /// Returns whether the key is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key itself, for a header or for the file it is stored in.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Masks the key in a provider's message: some repeat it when they reject it.
    pub(crate) fn mask_in(&self, message: &str) -> String {
        if self.0.len() < MIN_LENGTH {
            return message.to_owned();
        }
        let message = message.replace(&*self.0, STARS);
        // A shortened message may end inside the key.
        let Some(front) = message.strip_suffix(ELLIPSIS) else {
            return message;
        };
        let parts = (MIN_LENGTH..self.0.len()).rev().filter_map(|length| self.0.get(..length));
        match parts.filter_map(|part| front.strip_suffix(part)).next() {
            Some(front) => format!("{front}{STARS}{ELLIPSIS}"),
            None => message,
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ApiKey(****)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O1
    #[test]
    fn key_is_never_printed() {
        let key = ApiKey::new(" sk-canary-123 \n");
        assert_eq!(format!("{key:?}"), "ApiKey(****)");
        assert_eq!(key.reveal(), "sk-canary-123");
        assert_eq!(key.mask_in("wrong key: sk-canary-123."), "wrong key: ****.");
        assert_eq!(key.mask_in("wrong key: sk-canary…"), "wrong key: ****…");
        assert_eq!(key.mask_in("wrong key: sk-canary-123…"), "wrong key: ****…");
        assert_eq!(key.mask_in("a risk-…"), "a risk-…");
    }
}
