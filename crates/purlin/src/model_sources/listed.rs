//! The model lists that `purlin models --refresh` fetched, in a file of the cache directory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use providers::ListedModel;

use crate::env;

type Lists = BTreeMap<String, Vec<ListedModel>>;

/// Returns the lists by provider. A file that cannot be read is treated as empty.
pub(super) fn load() -> Lists {
    let text = file().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Saves new lists; those of other providers stay.
pub(super) fn save(fresh: impl Iterator<Item = (String, Vec<ListedModel>)>) {
    let mut fresh = fresh.peekable();
    let Some(file) = file().filter(|_| fresh.peek().is_some()) else {
        return;
    };
    let mut lists = load();
    lists.extend(fresh);
    let bytes = serde_json::to_vec(&lists).map_err(anyhow::Error::from);
    if let Err(err) = bytes.and_then(|bytes| settings::write_whole(&file, &bytes)) {
        tracing::warn!("cannot save the model lists: {err:#}");
    }
}

fn file() -> Option<PathBuf> {
    Some(env::directories().cache?.join("models.json"))
}
