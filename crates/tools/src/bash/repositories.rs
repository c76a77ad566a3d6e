//! Repositories inside the session's folders: what lies in their `.git` decides what git runs, for the user too, so
//! commands must not change it.
//!
//! One that a command makes itself cannot be held back; it is told of, and held from then on.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// How many folders are looked into, those near the top first, and how deep.
const MOST_FOLDERS: usize = 4000;
const DEEPEST: usize = 12;

/// Finds the `.git` folders and files below the top of these folders. That of a folder itself is not among them.
pub(super) fn inside(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: VecDeque<(PathBuf, usize)> =
        folders.iter().map(|folder| (folder.clone(), 0)).collect();
    let mut looked = 0;
    while let Some((folder, depth)) = open.pop_front() {
        looked += 1;
        if looked > MOST_FOLDERS {
            break;
        }
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            // A link is not followed: what it leads to is found where it is, or lies outside.
            let Ok(kind) = entry.file_type() else { continue };
            if entry.file_name() == ".git" {
                if depth > 0 && !kind.is_symlink() {
                    found.push(entry.path());
                }
            } else if kind.is_dir() && depth < DEEPEST {
                open.push_back((entry.path(), depth + 1));
            }
        }
    }
    found
}

/// Says which repositories are there that were not before.
pub(super) fn made(before: &[PathBuf], folders: &[PathBuf]) -> Option<String> {
    let new: Vec<String> = inside(folders)
        .iter()
        .filter(|git| !before.contains(git))
        .filter_map(|git| git.parent().map(Path::display).map(|folder| folder.to_string()))
        .take(5)
        .collect();
    let note = "what their .git makes git run was written by the command";
    (!new.is_empty()).then(|| format!("\n(repositories were made in {}: {note})", new.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_below_the_top_are_found_and_new_ones_told() {
        let top = std::env::temp_dir().join(format!("bash-repositories-{}", std::process::id()));
        for folder in [".git/x", "a/.git", "deep/b/.git/modules", "c"] {
            std::fs::create_dir_all(top.join(folder)).unwrap();
        }
        std::fs::write(top.join("c/.git"), "gitdir: ../a").unwrap();
        let folders = [top.clone()];
        let mut found = inside(&folders);
        found.sort();
        let expected = ["a/.git", "c/.git", "deep/b/.git"].map(|path| top.join(path));
        assert_eq!(found, expected);
        assert_eq!(made(&found, &folders), None);
        std::fs::create_dir_all(top.join("new/.git")).unwrap();
        assert!(made(&found, &folders).unwrap().contains("/new: "));
        std::fs::remove_dir_all(&top).unwrap();
    }
}
