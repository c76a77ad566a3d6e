//! The restrictions of the last valid version of a configuration file, which apply while the file itself cannot be read.
//!
//! Stored in the user's data directory, which no tool may touch. Holds only what restricts: no provider, no key.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::files::{self, Access};

/// The keys that can restrict something, apart from `mcp`, which can turn servers off.
const RESTRICTING: [&str; 6] =
    ["permission", "tools", "agent", "hooks", "enabled_providers", "disabled_providers"];

/// Stores the restrictions of a valid configuration.
pub(super) fn store(data: &Path, file: &Path, value: &Map<String, Value>) {
    let text = restrictions(value).to_string();
    let copy = place(data, file);
    if std::fs::read_to_string(&copy).is_ok_and(|old| old == text) {
        return;
    }
    if let Err(err) = files::replace(&copy, text.as_bytes(), Access::Private) {
        tracing::warn!("the rules of {} cannot be saved: {err:#}", file.display());
    }
}

/// Returns the restrictions of the last valid version, if there was one.
pub(super) fn load(data: &Path, file: &Path) -> Option<Map<String, Value>> {
    let text = std::fs::read_to_string(place(data, file)).ok()?;
    serde_json::from_str(&text).ok()
}

fn restrictions(value: &Map<String, Value>) -> Value {
    let mut kept = Map::new();
    for key in RESTRICTING {
        if let Some(value) = value.get(key) {
            kept.insert(key.to_owned(), value.clone());
        }
    }
    let servers = value.get("mcp").and_then(Value::as_object).into_iter().flatten();
    let off = servers.filter(|(_, server)| server.get("enabled") == Some(&Value::Bool(false)));
    let off: Map<String, Value> =
        off.map(|(name, _)| (name.clone(), json!({ "enabled": false }))).collect();
    if !off.is_empty() {
        kept.insert("mcp".to_owned(), Value::Object(off));
    }
    Value::Object(kept)
}

fn place(data: &Path, file: &Path) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let hash = Sha256::digest(file.as_os_str().as_encoded_bytes());
    let name: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    data.join("last-valid").join(format!("{name}.json"))
}
