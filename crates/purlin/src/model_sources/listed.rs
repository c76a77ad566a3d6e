//! The models that providers listed when `purlin models --refresh` asked them, in a file of the cache folder.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ::providers::ListedModel;

use crate::env;

type Lists = BTreeMap<String, Vec<ListedModel>>;

/// Returns what was listed, by provider. What cannot be read counts as not listed.
pub(super) fn load() -> Lists {
    let text = file().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Keeps new lists; those of other providers stay as they were.
pub(super) fn keep(fresh: impl Iterator<Item = (String, Vec<ListedModel>)>) {
    let mut fresh = fresh.peekable();
    let Some(file) = file().filter(|_| fresh.peek().is_some()) else {
        return;
    };
    let mut lists = load();
    lists.extend(fresh);
    let kept = serde_json::to_vec(&lists).map_err(anyhow::Error::from);
    if let Err(err) = kept.and_then(|bytes| settings::write_whole(&file, &bytes)) {
        tracing::warn!("the lists of models are not kept: {err:#}");
    }
}

fn file() -> Option<PathBuf> {
    Some(env::directories().cache?.join("models.json"))
}
