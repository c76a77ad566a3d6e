//! Masks secrets in messages: values whose name indicates a secret (also in URLs and command-line options), and strings
//! that look like API keys.

use std::borrow::Cow;

use serde_json::Value;

/// Replaces a secret.
const MASK: &str = "****";
/// Names whose values are secret, in lower case and without `-` and `_`. A name that ends with one of them is secret.
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
/// Names that end like a secret name but are not secret.
const NOT_SECRET: [&str; 3] = ["progresstoken", "maxtoken", "publickey"];
/// Prefixes of well-known API keys.
const PREFIXES: [&str; 22] = [
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxa-",
    "xoxb-",
    "xoxe-",
    "xoxp-",
    "xapp-",
    "xai-",
    "pypi-",
    "dop_v1_",
    "ya29.",
    "AKIA",
    "ASIA",
    "AIza",
];
/// Prefixes that other words have, too. A key has digits and is long.
const OTHER_PREFIXES: [&str; 4] = ["hf_", "npm_", "gsk_", "eyJ"];
const LONG_KEY: usize = 30;
/// Shorter words are not taken for keys.
const MIN_KEY_LENGTH: usize = 12;

/// Masks the secrets of a message.
pub fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    value if is_secret(name) => mask_all(value),
                    // Any part of a server's query string may be its key.
                    Value::String(url) if name == "url" => {
                        *url = mask_text(&mask_urls(url, |_| true));
                    }
                    value => mask(value),
                }
            }
        }
        Value::Array(items) => {
            mask_options(items);
            items.iter_mut().for_each(mask);
        }
        Value::String(text) => *text = mask_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Masks the values of options such as `--token` or `-e API_KEY=` in a list of arguments.
fn mask_options(words: &mut [Value]) {
    let mut is_next = false;
    for word in words {
        let Value::String(word) = word else {
            is_next = false;
            continue;
        };
        if is_next {
            *word = MASK.to_owned();
            is_next = false;
        } else if let Some((name, _)) = word.split_once('=').filter(|(name, _)| is_secret(name)) {
            *word = format!("{name}={MASK}");
        } else {
            is_next = word.starts_with('-') && is_secret(word);
        }
    }
}

/// Masks what looks like a secret in a text.
#[must_use]
pub fn mask_text(text: &str) -> String {
    let text = match text.contains("://") {
        true => Cow::Owned(mask_urls(text, is_secret)),
        false => Cow::Borrowed(text),
    };
    masked(&text).unwrap_or_else(|| text.into_owned())
}

/// Masks in every URL the user name and password, and the query values with secret names.
fn mask_urls(text: &str, is_secret: fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((front, after)) = rest.split_once("://") {
        out.push_str(front);
        out.push_str("://");
        let is_end = |letter: char| letter.is_whitespace() || "\"'`<>".contains(letter);
        let (address, after) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        let host = address.find(['/', '?', '#']).unwrap_or(address.len());
        let address = match address[..host].rfind('@') {
            Some(at) => {
                out.push_str(MASK);
                &address[at..]
            }
            None => address,
        };
        let (path, query) = address.split_at(address.find('?').unwrap_or(address.len()));
        out.push_str(path);
        for part in query.split_inclusive(['?', '&', '#', ';']) {
            let value = part.trim_end_matches(['?', '&', '#', ';']);
            match value.split_once('=') {
                Some((name, _)) if is_secret(name) => out.extend([name, "=", MASK]),
                // A value without a name is masked only if all values are.
                None if !value.is_empty() && is_secret("") => out.push_str(MASK),
                _ => out.push_str(value),
            }
            out.push_str(&part[value.len()..]);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn is_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    NAMES.iter().any(|secret| plain.ends_with(secret)) && !NOT_SECRET.contains(&&*plain)
}

/// Masks every string and number inside a secret value. In a list of name-value pairs the names stay.
fn mask_all(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members
                .iter_mut()
                .filter(|(name, _)| *name != "name")
                .for_each(|(_, value)| mask_all(value));
        }
        Value::Array(items) => items.iter_mut().for_each(mask_all),
        Value::String(_) | Value::Number(_) => *value = Value::from(MASK),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Returns the text with its API keys masked, or `None` if it has none.
fn masked(text: &str) -> Option<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.~+/=".contains(letter);
    let mut out = String::new();
    let mut rest = text;
    let mut last = "";
    let mut found = false;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        // A key may also follow a name, as in `KEY=sk-…`.
        let (name, value) = word.split_at(word.find('=').map_or(0, |at| at + 1));
        let begins = |word: &str| {
            let is_long =
                || word.len() >= LONG_KEY && word.contains(|it: char| it.is_ascii_digit());
            PREFIXES.iter().any(|prefix| word.starts_with(prefix))
                || OTHER_PREFIXES.iter().any(|prefix| word.starts_with(prefix)) && is_long()
        };
        let key = match last.eq_ignore_ascii_case("bearer") || begins(word) {
            true => Some(word),
            false => Some(value).filter(|value| begins(value)),
        };
        match key.filter(|key| key.len() >= MIN_KEY_LENGTH) {
            Some(key) => {
                found = true;
                out.extend([if key == value { name } else { "" }, MASK]);
            }
            None => out.push_str(word),
        }
        if !word.is_empty() {
            last = word;
        }
        let next = after.find(is_part).unwrap_or(after.len());
        out.push_str(&after[..next]);
        rest = &after[next..];
    }
    found.then_some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // R: O1
    #[test]
    fn secrets_are_masked_and_the_rest_is_unchanged() {
        let mut message = json!({
            "credentials": { "key": "canary-1", "kept": true },
            "api_key": "canary-2",
            "mcpServers": [{
                "name": "x",
                "env": [{ "name": "TOKEN", "value": "canary-3" }],
                "headers": { "Authorization": "canary-4" },
            }],
            "text": "my key is sk-canary-5-and-more, or Bearer canary-6-and-more; no key: sk-1; A=sk-canary-14-and-more",
            "_meta": { "progressToken": 7 },
            "keyboard": "qwertz",
            "url": "https://me:canary-7@h/mcp?a=canary-8&b=canary-9&canary-15#canary-16",
            "args": ["-y", "x", "--api-key", "canary-10", "--token=canary-11", "-e", "A_TOKEN=canary-12", "--port", "1"],
            "told": "see http://u@h:1/?token=canary-13&q=1 and https://h/a@b?q=2",
        });
        mask(&mut message);
        let text = message.to_string();
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(message["text"], "my key is ****, or Bearer ****; no key: sk-1; A=****");
        assert_eq!(message["mcpServers"][0]["env"][0], json!({ "name": "TOKEN", "value": "****" }));
        assert_eq!(message["_meta"]["progressToken"], 7);
        assert_eq!(message["keyboard"], "qwertz");
        assert_eq!(message["url"], "https://****@h/mcp?a=****&b=****&****#****");
        let args = json!([
            "-y",
            "x",
            "--api-key",
            "****",
            "--token=****",
            "-e",
            "A_TOKEN=****",
            "--port",
            "1"
        ]);
        assert_eq!(message["args"], args);
        assert_eq!(message["told"], "see http://****@h:1/?token=****&q=1 and https://h/a@b?q=2");
    }

    // R: O1
    #[test]
    fn keys_of_many_services_are_recognised() {
        let rest = "1a2B3c4D5e6F7g8H9i0JkLmNoPqRsTuV";
        for prefix in PREFIXES.iter().chain(&OTHER_PREFIXES) {
            for text in [
                format!("{prefix}{rest}"),
                format!("X={prefix}{rest}"),
                format!("({prefix}{rest})"),
            ] {
                assert!(!mask_text(&text).contains(rest), "{text}");
            }
        }
        for plain in
            ["npm_config_cache", "hf_hub_download", "npm_lifecycle_event", "sk-1", "eyJhbGci"]
        {
            assert_eq!(mask_text(plain), plain);
        }
    }

    proptest::proptest! {
        #[test]
        fn text_without_keys_is_unchanged(text in "[ a-z,.:/?=&üß\n]{0,100}") {
            let mut value = Value::String(text.clone());
            mask(&mut value);
            proptest::prop_assert_eq!(value, Value::String(text));
        }
    }
}
