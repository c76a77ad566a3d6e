//! The tasks: directories under `tasks/`, one set each. docs/internals/tasks.md describes their files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) prompt: String,
    pub(crate) directory: PathBuf,
}

/// Reads the tasks of a set, in order of their names; only those in `only`, unless it is empty.
pub(crate) fn read(tasks: &Path, set: &str, only: &[String]) -> Result<Vec<Task>> {
    let directory = tasks.join(set);
    let entries = std::fs::read_dir(&directory)
        .with_context(|| format!("there are no tasks in {}", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let directory = entry?.path();
        if !directory.is_dir() {
            continue;
        }
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let prompt = std::fs::read_to_string(directory.join("prompt.txt"))
            .with_context(|| format!("the task {name} has no prompt.txt"))?;
        found.push(Task { name, prompt: prompt.trim().to_owned(), directory });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let is_known = |name: &String| found.iter().any(|task| task.name == *name);
    if let Some(name) = only.iter().find(|name| !is_known(name)) {
        let names: Vec<&str> = found.iter().map(|task| task.name.as_str()).collect();
        anyhow::bail!("unknown task `{name}`; the set {set} has {}", names.join(", "));
    }
    found.retain(|task| only.is_empty() || only.contains(&task.name));
    Ok(found)
}

#[test]
fn tasks_are_read_and_chosen_by_name() {
    let tasks = crate::program::root().join("tasks");
    let all = read(&tasks, "seen", &[]).unwrap();
    assert!(all.len() >= 20 && all.is_sorted_by(|a, b| a.name < b.name), "{all:?}");
    let one = read(&tasks, "seen", &["fix-test".to_owned()]).unwrap();
    assert_eq!(one.len(), 1);
    assert!(one[0].prompt.starts_with("A test fails."), "{one:?}");
    let unknown = read(&tasks, "seen", &["nope".to_owned()]).unwrap_err().to_string();
    assert!(unknown.contains("`nope`") && unknown.contains("fix-test"), "{unknown}");
}
