//! The keys that OpenCode stores: used only if nothing else is found and the user agreed.
//!
//! They are read from OpenCode's own file each time and never copied. OAuth tokens are left to OpenCode.

use std::collections::BTreeMap;

use engine::words::Secret;
use serde_json::Value;

use crate::Directories;
use crate::preferences::Preferences;

/// Returns the keys of these providers, if the user agreed that we use them.
#[must_use]
pub fn borrowed(directories: &Directories, known: &[&str]) -> BTreeMap<String, Secret> {
    match Preferences::load(directories).opencode_keys {
        Some(true) => keys(directories, known),
        Some(false) | None => BTreeMap::new(),
    }
}

/// Returns the providers whose keys could be used if the user agreed; none once the user was asked.
#[must_use]
pub fn offered(directories: &Directories, known: &[&str]) -> Vec<String> {
    if Preferences::load(directories).opencode_keys.is_some() {
        return Vec::new();
    }
    keys(directories, known).into_keys().collect()
}

/// Returns the keys in OpenCode's file.
#[must_use]
pub fn keys(directories: &Directories, known: &[&str]) -> BTreeMap<String, Secret> {
    let text = directories.opencode_keys().and_then(|file| std::fs::read_to_string(file).ok());
    text.map_or_else(BTreeMap::new, |text| read(&text, known))
}

fn read(text: &str, known: &[&str]) -> BTreeMap<String, Secret> {
    let Ok(Value::Object(entries)) = serde_json::from_str(text) else {
        return BTreeMap::new();
    };
    let key = |entry: &Value| {
        let key = entry.get("key").filter(|_| entry["type"] == "api")?.as_str()?.trim();
        (!key.is_empty()).then(|| Secret::new(key))
    };
    let keys = entries.iter().filter(|(id, _)| known.contains(&id.as_str()));
    keys.filter_map(|(id, entry)| Some((id.clone(), key(entry)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: I4
    #[test]
    fn only_api_keys_of_known_providers_are_used() {
        let known = ["anthropic", "openai", "google", "openrouter"];
        let keys = read(
            r#"{"anthropic": {"type": "oauth", "access": "no", "refresh": "no", "key": "no"},
                "openai": {"type": "api", "key": "sk-yes"}, "google": {"type": "api", "key": ""},
                "elsewhere": {"type": "api", "key": "no"}, "openrouter": 7}"#,
            &known,
        );
        let names: Vec<&str> = keys.keys().map(String::as_str).collect();
        assert_eq!(names, ["openai"]);
        assert!(read("nonsense", &known).is_empty());
    }
}
