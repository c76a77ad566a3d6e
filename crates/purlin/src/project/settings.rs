//! What a project's own `purlin.json` says, held against the table of keys: what counts, what waits for trust, what is
//! ignored.

use std::path::Path;

use super::read;
use crate::config::check::check;
use crate::config::command::{Row, leaves};
use crate::config::keys::{self, Project};
use crate::trust::Trust;

/// The files that are ours. Mistakes in others are their owners' business.
const OURS: [&str; 2] = ["purlin.json", "purlin.jsonc"];

/// Lists what is wrong in a project's file, and what it may not set.
#[must_use]
pub(crate) fn problems(folder: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, text) in texts(folder) {
        let checked = check(&text);
        let wrong = checked.problems.iter();
        problems.extend(wrong.map(|(line, problem)| format!("{name}:{line}: {problem}")));
        for key in checked.value.keys() {
            let line = checked.lines.get(key).copied().unwrap_or(1);
            if let Some(Project::Never(why)) = keys::find(key).map(|top| top.project) {
                problems.push(format!("{name}:{line}: a project cannot set `{key}`: {why}"));
            }
        }
    }
    problems
}

/// Lists what a project's file says, and whether it counts.
pub(crate) fn rows(folder: &Path, trust: &Trust) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, text) in texts(folder) {
        let checked = check(&text);
        for (key, value) in &checked.value {
            let Some(top) = keys::find(key) else { continue };
            let standing = match (top.project, trust) {
                (Project::May(_), _) | (Project::Trusted(_), Trust::Trusted) => "the project",
                (Project::Trusted(_), Trust::Not(_)) => "the project, inert until trusted",
                (Project::Never(_), _) => "the project, ignored",
            };
            leaves(Some(&top.key.kind), value, key.clone(), &mut |path, value| {
                let own = checked.lines.get(&path).or_else(|| checked.lines.get(key));
                let line = own.copied().unwrap_or(1);
                rows.push(Row { path, value, origin: format!("{name}:{line}, {standing}") });
            });
        }
    }
    rows
}

fn texts(folder: &Path) -> impl Iterator<Item = (&'static str, String)> {
    OURS.into_iter().filter_map(move |name| Some((name, read(&folder.join(name)).ok()??)))
}
