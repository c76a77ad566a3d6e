//! The built-in tools, one file each, and the only place that decides which paths they may access.
//!
//! `tool` has what all of them share; `scope` decides about paths, `files` reads, `change` changes. To add a tool, copy a similar
//! file and add it to [`all`].

mod adopt;
mod apply_patch;
mod ask;
pub mod bash;
mod change;
pub mod diagnostics;
mod diff;
mod disk;
mod edit;
mod error;
mod fetch;
mod files;
pub mod forge;
#[cfg(test)]
mod fuzz;
mod glob;
mod grep;
mod list;
mod matching;
mod missing;
mod placeholder;
mod plan;
mod read;
pub mod scope;
mod seen;
mod text;
mod tool;
mod unread;
mod walk;
pub mod web_search;
pub mod worktree;
mod write;

use std::sync::Arc;

use engine::ports::Tool;

pub use files::Files;
use tool::shaped;

/// Reads a text file that needs no permission, up to `limit` bytes; returns its path and text.
pub async fn read_freely(
    scope: &scope::Scope,
    spelling: &str,
    limit: usize,
) -> Option<(std::path::PathBuf, String)> {
    let (places, path) = (scope.clone(), spelling.to_owned());
    let located = files::on_a_thread(move || Ok(places.locate(&path)?)).await;
    let target = located.ok().filter(scope::Target::is_inside)?;
    let is_free =
        |access: &engine::permission::Access| access.default == engine::permission::Decision::Allow;
    if !files::read_access(&target).iter().all(is_free) {
        return None;
    }
    let place = target.clone();
    let bytes = files::on_a_thread(move || disk::read(&place)).await.ok()??;
    let text = String::from_utf8(bytes).ok()?;
    let mut shown = text[..text.floor_char_boundary(limit)].to_owned();
    if shown.len() < text.len() {
        shown.push_str("\n… the rest is omitted …\n");
    }
    Some((target.path().to_owned(), shown))
}

/// Returns the names in the working directory, sorted, directories with `/` at the end. Leaves out what git ignores, hidden files, and our own
/// files.
#[must_use]
pub fn names_in(scope: &scope::Scope, most: usize) -> Vec<String> {
    let Ok(top) = scope.locate(".") else { return Vec::new() };
    let directory = top.real();
    let nothing = Arc::new(engine::ports::NothingDenied);
    let (mut walk, _) = walk::walk(&directory, &top, nothing, ignore::overrides::Override::empty());
    let entries = walk.max_depth(Some(1)).build().skip(1).flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .take(most)
        .map(|entry| {
            let mut name = text::escape(entry.file_name().as_encoded_bytes());
            if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                name.push('/');
            }
            name
        })
        .collect();
    names.sort();
    names
}

/// Makes the tools of one session.
#[must_use]
pub fn all(files: &Arc<Files>) -> Vec<Arc<dyn Tool>> {
    let files = || Arc::clone(files);
    vec![
        shaped(read::Read(files())),
        shaped(write::Write(files())),
        shaped(edit::Edit(files())),
        shaped(apply_patch::ApplyPatch(files())),
        shaped(list::List(files())),
        shaped(glob::Glob(files())),
        shaped(grep::Grep(files())),
        shaped(fetch::Fetch),
        shaped(plan::Plan),
        shaped(ask::Ask),
    ]
}

#[cfg(test)]
mod tests {
    use engine::ports::Offers;
    use engine::words::ModelId;

    use super::*;

    fn offered(model: &str, offers: Offers) -> Vec<String> {
        let files = Arc::new(Files::new(scope::Scope::new(vec!["/w".into()])));
        let model = ModelId::new(model);
        let tools = all(&files).into_iter().filter(|tool| tool.suits(&model, offers));
        tools.map(|tool| tool.spec().name.clone()).collect()
    }

    #[test]
    fn ask_is_offered_only_if_the_client_shows_forms() {
        let asks = |form| {
            let offers = Offers { form, ..Offers::default() };
            offered("ollama/qwen3", offers).contains(&"ask".to_owned())
        };
        assert!(asks(true) && !asks(false));
    }

    #[test]
    fn model_gets_the_edit_tool_that_it_was_trained_on() {
        let offered = |model: &str| offered(model, Offers::default());
        for model in
            ["openai/gpt-5.1", "openrouter/openai/gpt-5-codex", "openai/o3", "azure/GPT-4.1"]
        {
            let tools = offered(model);
            assert!(tools.iter().any(|name| name == "apply_patch"), "{model}");
            assert!(!tools.iter().any(|name| name == "edit"), "{model}");
        }
        for model in
            ["anthropic/claude-sonnet-4-5", "google/gemini-3-pro", "ollama/qwen3", "x/olmo"]
        {
            let tools = offered(model);
            assert!(!tools.iter().any(|name| name == "apply_patch"), "{model}");
            assert!(tools.iter().any(|name| name == "edit"), "{model}");
        }
    }
}
