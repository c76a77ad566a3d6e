//! What a report must not have: the secrets that this machine knows, and everything that looks like one.

use std::path::Path;

use serde_json::Value;
use settings::credentials;

use crate::env;

/// Shorter values are not searched for: they occur everywhere.
const MIN_LENGTH: usize = 6;
const MASK: &str = "****";

/// The secrets that this machine knows.
pub(super) struct Secrets {
    /// The longest first, so that none is part of another that was replaced before.
    known: Vec<String>,
    home: Option<String>,
}

impl Secrets {
    /// Collects keys of the environment and of the credentials, besides those of the configuration.
    pub(super) fn gather(of_config: Vec<String>) -> Secrets {
        let directories = env::directories();
        let stored = credentials::load_keys(&directories);
        let stored = stored.values().map(|key| key.reveal().to_owned());
        let keys = env::keys();
        let keys = keys.values().map(|key| key.reveal().to_owned());
        let tokens = env::github().tokens;
        let tokens = tokens.iter().map(|(_, token)| token.reveal().to_owned());
        let known = of_config.into_iter().chain(stored).chain(keys).chain(tokens).collect();
        Secrets::new(known, directories.home.as_deref())
    }

    fn new(mut known: Vec<String>, home: Option<&Path>) -> Secrets {
        // In JSON, a secret with quotes looks different.
        let escaped: Vec<String> = known.iter().map(|secret| in_json(secret)).collect();
        known.extend(escaped);
        known.retain(|secret| secret.len() >= MIN_LENGTH);
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        known.dedup();
        let home = home.and_then(Path::to_str).filter(|home| home.len() > 1);
        Secrets { known, home: home.map(str::to_owned) }
    }

    /// Replaces known secrets.
    pub(super) fn without_known(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in
            self.known.iter().filter(|secret| text.contains(secret.as_str())).collect::<Vec<_>>()
        {
            text = text.replace(secret.as_str(), MASK);
        }
        text
    }

    /// Replaces known secrets, what looks like a secret, and the home directory.
    pub(super) fn masked(&self, text: &str) -> String {
        let text = observe::mask::mask_text(&self.without_known(text));
        match &self.home {
            Some(home) => text.replace(home.as_str(), "~"),
            None => text,
        }
    }

    /// The same for a line of JSON, whose secrets are also found by their names.
    pub(super) fn masked_line(&self, line: &str) -> String {
        match serde_json::from_str::<Value>(line) {
            Ok(mut value) => {
                observe::mask::mask(&mut value);
                self.masked(&value.to_string())
            }
            Err(_) => self.masked(line),
        }
    }
}

fn in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O1
    #[test]
    fn known_secrets_are_replaced_wherever_they_are() {
        let known = vec!["pass\"word".to_owned(), "pass\"word-and-more".to_owned(), "a".to_owned()];
        let secrets = Secrets::new(known, Some(Path::new("/home/canary")));
        assert_eq!(secrets.masked("x pass\"word-and-more, pass\"word"), "x ****, ****");
        assert_eq!(secrets.masked("in /home/canary/project"), "in ~/project");
        let line = serde_json::json!({ "time": 1, "text": "pass\"word", "apiKey": "canary" });
        let masked: Value = serde_json::from_str(&secrets.masked_line(&line.to_string())).unwrap();
        assert_eq!(masked, serde_json::json!({ "time": 1, "text": "****", "apiKey": "****" }));
    }
}
