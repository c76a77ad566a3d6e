//! Patterns of instruction files: paths, with `*` and `?` in names and `**` for any directories.

use std::path::{Path, PathBuf};

use engine::words::pattern;

/// The most files of one pattern.
const MOST_FILES: usize = 32;
/// The most directory entries that one pattern reads.
const MOST_ENTRIES: usize = 10_000;

/// Finds the files of a pattern: below each directory of the chain, or anywhere if it starts with `/` or `~/`. Returns for
/// each whether it is the user's rather than the project's.
pub(super) fn find(pattern: &str, chain: &[PathBuf], home: Option<&Path>) -> Vec<(PathBuf, bool)> {
    let own = match pattern.strip_prefix("~/") {
        Some(rest) => home.map(|home| (home, rest)),
        None => pattern.strip_prefix('/').map(|rest| (Path::new("/"), rest)),
    };
    let mut budget = MOST_ENTRIES;
    let mut found = Vec::new();
    match own {
        Some((top, rest)) => {
            // A user's path that leads into the project still names a project's file.
            let mut files = Vec::new();
            expand(top, &segments(rest), &mut budget, &mut files);
            let is_own = |path: &Path| chain.first().is_none_or(|root| !path.starts_with(root));
            found.extend(files.into_iter().map(|path| (is_own(&path), path)));
        }
        None => {
            for directory in chain {
                let mut files = Vec::new();
                expand(directory, &segments(pattern), &mut budget, &mut files);
                found.extend(files.into_iter().map(|path| (false, path)));
            }
        }
    }
    found.truncate(MOST_FILES);
    found.into_iter().map(|(is_own, path)| (path, is_own)).collect()
}

fn segments(pattern: &str) -> Vec<&str> {
    pattern.split('/').filter(|segment| !matches!(*segment, "" | "." | "..")).collect()
}

fn expand(directory: &Path, segments: &[&str], budget: &mut usize, found: &mut Vec<PathBuf>) {
    let Some((segment, rest)) = segments.split_first() else {
        if directory.is_file() {
            found.push(directory.to_owned());
        }
        return;
    };
    if !segment.contains(['*', '?']) {
        return expand(&directory.join(segment), rest, budget, found);
    }
    if *segment == "**" {
        expand(directory, rest, budget, found);
    }
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in entries.flatten() {
        if *budget == 0 || found.len() >= MOST_FILES {
            return;
        }
        *budget -= 1;
        let name = entry.file_name();
        let is_match = match *segment {
            // Links are not followed: they may form a cycle.
            "**" => entry.file_type().is_ok_and(|kind| kind.is_dir()) && name != ".git",
            segment => pattern::matches_pattern(segment, &name.to_string_lossy()),
        };
        if is_match {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let rest = if *segment == "**" { segments } else { rest };
    paths.iter().for_each(|path| expand(path, rest, budget, found));
}
