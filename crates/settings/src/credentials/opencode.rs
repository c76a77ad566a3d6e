//! The keys that OpenCode keeps: used where nothing else is found, and only once the user has agreed.
//!
//! They are read from OpenCode's own file each time and never copied. Tokens of log-ins are OpenCode's alone.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use providers::ApiKey;
use serde_json::Value;

use crate::choices::Choices;
use crate::env;

/// Returns the keys, if the user has agreed that we use them.
pub(crate) fn borrowed() -> BTreeMap<String, ApiKey> {
    if Choices::load().opencode_keys == Some(true) { keys() } else { BTreeMap::new() }
}

/// Returns whose keys could be used if the user agreed; nobody's once the user was asked.
pub(crate) fn offered() -> Vec<String> {
    if Choices::load().opencode_keys.is_some() {
        return Vec::new();
    }
    keys().into_keys().collect()
}

/// Asks whether the keys may be used, and remembers the answer.
pub(super) fn import() -> anyhow::Result<()> {
    let names: Vec<String> = keys().into_keys().collect();
    anyhow::ensure!(!names.is_empty(), "OpenCode keeps no API keys that can be used here");
    let question = format!(
        "OpenCode keeps API keys for {}. May Purlin use them where it finds no others? [y/N] ",
        names.join(", ")
    );
    if !std::io::stdin().is_terminal() {
        eprintln!("{question}");
    }
    let is_yes = matches!(super::ask(&question, false)?.to_lowercase().as_str(), "y" | "yes");
    Choices::change(|choices| choices.opencode_keys = Some(is_yes))?;
    match is_yes {
        true => eprintln!("They are used from now on; `purlin auth import` asks again."),
        false => eprintln!("They are not used; `purlin auth import` asks again."),
    }
    Ok(())
}

/// The keys in OpenCode's file, of the providers that we know.
fn keys() -> BTreeMap<String, ApiKey> {
    let Some(text) = env::opencode_keys().and_then(|file| std::fs::read_to_string(file).ok())
    else {
        return BTreeMap::new();
    };
    read(&text)
}

fn read(text: &str) -> BTreeMap<String, ApiKey> {
    let Ok(Value::Object(entries)) = serde_json::from_str(text) else {
        return BTreeMap::new();
    };
    let is_known = |id: &str| providers::key_takers().any(|(known, _)| known == id);
    let key = |entry: &Value| {
        let key = entry.get("key").filter(|_| entry["type"] == "api")?.as_str()?;
        Some(ApiKey::new(key)).filter(|key| !key.is_empty())
    };
    let keys = entries.iter().filter(|(id, _)| is_known(id));
    keys.filter_map(|(id, entry)| Some((id.clone(), key(entry)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: I4
    #[test]
    fn only_api_keys_of_known_providers_are_taken() {
        let keys = read(
            r#"{"anthropic": {"type": "oauth", "access": "no", "refresh": "no", "key": "no"},
                "openai": {"type": "api", "key": "sk-yes"}, "google": {"type": "api", "key": ""},
                "elsewhere": {"type": "api", "key": "no"}, "openrouter": 7}"#,
        );
        let names: Vec<&str> = keys.keys().map(String::as_str).collect();
        assert_eq!(names, ["openai"]);
        assert!(read("nonsense").is_empty());
    }
}
