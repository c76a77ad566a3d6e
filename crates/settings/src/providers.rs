//! The key `provider`: providers of models by name, in OpenCode's form.

use std::collections::BTreeMap;

use engine::words::ProviderConfig;
use serde_json::Value;

/// Reads the providers one by one, so that a mistake in one does not affect the others.
pub(crate) fn read(value: Value, problems: &mut Vec<String>) -> BTreeMap<String, ProviderConfig> {
    let Value::Object(given) = value else {
        return BTreeMap::new();
    };
    let mut known = BTreeMap::new();
    for (id, value) in given {
        // The value itself stays out of the message: it may hold a key.
        match serde_path_to_error::deserialize::<_, ProviderConfig>(value) {
            Ok(provider) => {
                known.insert(id, provider);
            }
            Err(err) => problems.push(format!("`provider.{id}.{}` has the wrong type", err.path())),
        }
    }
    known
}
