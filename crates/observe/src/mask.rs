//! Takes secrets out of messages: what stands under a name that says so, and what looks like a key.

use serde_json::Value;

/// What stands in the place of a secret.
const MASK: &str = "****";
/// Names whose values are secret, in lower case and without `-` and `_`; the end of a name is enough.
const NAMES: [&str; 12] = [
    "key",
    "token",
    "secret",
    "password",
    "passphrase",
    "authorization",
    "cookie",
    "credentials",
    "apikey",
    "env",
    "environment",
    "headers",
];
/// Names that end like a secret's and hold none.
const PLAIN: [&str; 3] = ["progresstoken", "maxtoken", "publickey"];
/// How keys begin that people paste into texts.
const PREFIXES: [&str; 9] =
    ["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "AIza"];
/// A shorter word is no key.
const SHORTEST: usize = 12;

/// Masks the secrets of a message.
pub(crate) fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if is_secret(name) { hide(value) } else { mask(value) }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) => {
            if let Some(masked) = masked(text) {
                *text = masked;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    NAMES.iter().any(|secret| plain.ends_with(secret)) && !PLAIN.contains(&&*plain)
}

/// Hides every text and number below a secret's name; in a list of pairs the names stay.
fn hide(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members
                .iter_mut()
                .filter(|(name, _)| *name != "name")
                .for_each(|(_, value)| hide(value));
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::String(_) | Value::Number(_) => *value = Value::from(MASK),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Returns the text with its keys masked, if it has any.
fn masked(text: &str) -> Option<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.~+/=".contains(letter);
    let mut out = String::new();
    let mut rest = text;
    let mut last = "";
    let mut found = false;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let is_key = word.len() >= SHORTEST
            && (last.eq_ignore_ascii_case("bearer")
                || PREFIXES.iter().any(|prefix| word.starts_with(prefix)));
        found |= is_key;
        out.push_str(if is_key { MASK } else { word });
        if !word.is_empty() {
            last = word;
        }
        let next = behind.find(is_part).unwrap_or(behind.len());
        out.push_str(&behind[..next]);
        rest = &behind[next..];
    }
    found.then_some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // R: O1
    #[test]
    fn secrets_are_masked_and_the_rest_is_as_it_was() {
        let mut message = json!({
            "credentials": { "key": "canary-1", "kept": true },
            "api_key": "canary-2",
            "mcpServers": [{
                "name": "x",
                "env": [{ "name": "TOKEN", "value": "canary-3" }],
                "headers": { "Authorization": "canary-4" },
            }],
            "text": "my key is sk-canary-5-and-more, or Bearer canary-6-and-more; no key: sk-1",
            "_meta": { "progressToken": 7 },
            "keyboard": "qwertz",
        });
        mask(&mut message);
        let text = message.to_string();
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(message["text"], "my key is ****, or Bearer ****; no key: sk-1");
        assert_eq!(message["mcpServers"][0]["env"][0], json!({ "name": "TOKEN", "value": "****" }));
        assert_eq!(message["_meta"]["progressToken"], 7);
        assert_eq!(message["keyboard"], "qwertz");
    }

    proptest::proptest! {
        #[test]
        fn a_text_without_keys_is_left_alone(text in "[ a-z,.üß\n]{0,100}") {
            let mut value = Value::String(text.clone());
            mask(&mut value);
            proptest::prop_assert_eq!(value, Value::String(text));
        }
    }
}
