//! Keys: text that must not be printed.

use std::fmt;
use std::sync::Arc;

use crate::fault::CUT;

const STARS: &str = "****";
/// Less than this is no secret, in bytes.
const LEAST: usize = 4;

/// A key of a provider. Only `http` reads it; printing shows stars.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Arc<str>);

impl ApiKey {
    /// Makes a key. Blanks around it are of no use to anybody.
    #[must_use]
    pub fn new(text: &str) -> ApiKey {
        ApiKey(text.trim().into())
    }

    /// Tells whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key itself, for a header or for the file it is kept in.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Takes the key out of words that a provider said: some repeat it when they refuse it.
    pub(crate) fn hide_in(&self, words: &str) -> String {
        if self.0.len() < LEAST {
            return words.to_owned();
        }
        let words = words.replace(&*self.0, STARS);
        // Words that were cut short may end inside the key.
        let Some(front) = words.strip_suffix(CUT) else {
            return words;
        };
        let parts = (LEAST..self.0.len()).rev().filter_map(|length| self.0.get(..length));
        match parts.filter_map(|part| front.strip_suffix(part)).next() {
            Some(front) => format!("{front}{STARS}{CUT}"),
            None => words,
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
    fn a_key_is_never_printed() {
        let key = ApiKey::new(" sk-canary-123 \n");
        assert_eq!(format!("{key:?}"), "ApiKey(****)");
        assert_eq!(key.reveal(), "sk-canary-123");
        assert_eq!(key.hide_in("wrong key: sk-canary-123."), "wrong key: ****.");
        assert_eq!(key.hide_in("wrong key: sk-canary…"), "wrong key: ****…");
        assert_eq!(key.hide_in("wrong key: sk-canary-123…"), "wrong key: ****…");
        assert_eq!(key.hide_in("a risk-…"), "a risk-…");
    }
}
