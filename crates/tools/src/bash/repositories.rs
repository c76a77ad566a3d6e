//! Repositories inside the session's folders. Files in `.git` decide what git runs, also for the user, so commands must not change
//! them.
//!
//! A repository that a command creates itself cannot be protected in time; it is reported, and protected from then on.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::git_redirects::REDIRECTS;

/// The most folders that are searched, those near the top first, and how deep.
const MOST_FOLDERS: usize = 4000;
const DEEPEST: usize = 12;
/// The largest file that names a folder.
const MOST_BYTES: u64 = 64 * 1024;

/// Finds the `.git` folders and files inside these folders, except those directly in them.
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
            // Links are not followed: their targets are found in their own place, or are outside.
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

/// Finds the repositories around these folders: above them, or where a worktree's `.git` file points. Such a file may come with the
/// project, so it is accepted only if the repository points back to it.
pub(super) fn around(folders: &[PathBuf]) -> Vec<PathBuf> {
    let of = |folder: &PathBuf| {
        let git = folder.ancestors().map(|at| at.join(".git")).find(|git| is_git(git))?;
        let common = if git.is_dir() { git } else { common_of(&git)? };
        let is_outside = !folders.iter().any(|folder| common.starts_with(folder));
        is_outside.then_some(common)
    };
    let mut found: Vec<PathBuf> = folders.iter().filter_map(of).collect();
    found.dedup();
    found
}

/// Returns the missing `.git` of a folder that is in no repository.
pub(super) fn missing(folder: &Path) -> Option<PathBuf> {
    let git = folder.join(".git");
    // Git ignores an empty folder, and it may be reserved for another command.
    let is_empty = || std::fs::read_dir(&git).is_ok_and(|mut entries| entries.next().is_none());
    let is_free = git.symlink_metadata().map_or(true, |found| found.is_dir() && is_empty());
    (is_free && !folder.ancestors().any(|at| is_git(&at.join(".git")))).then_some(git)
}

/// Returns the folder that a `.git` file names, if it is in one of these folders and not in a `.git`, where it is protected anyway.
pub(super) fn named_by(git: &Path, folders: &[PathBuf]) -> Option<PathBuf> {
    let text = text_of(git)?;
    let named = git.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let is_inside =
        |folder: &PathBuf| folder.canonicalize().is_ok_and(|top| named.starts_with(top));
    let is_protected = named.components().any(|part| part.as_os_str() == ".git");
    (folders.iter().any(is_inside) && !is_protected).then_some(named)
}

/// Reads a short file of git. Links are not followed.
fn text_of(path: &Path) -> Option<String> {
    let bytes = tree::read(path.parent()?, path.file_name()?, MOST_BYTES).ok()?;
    String::from_utf8(bytes).ok()
}

/// Tells whether git accepts this as a repository or a worktree's `.git` file. An empty folder is neither.
fn is_git(path: &Path) -> bool {
    path.is_file() || path.join("HEAD").exists()
}

/// Returns the repository of a worktree by its `.git` file.
fn common_of(file: &Path) -> Option<PathBuf> {
    let line = |path: &Path| text_of(path).map(|text| text.trim().to_owned());
    let text = line(file)?;
    let folder = file.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let back = folder.join(line(&folder.join("gitdir"))?).canonicalize().ok()?;
    let common = folder.join(line(&folder.join("commondir"))?).canonicalize().ok()?;
    let is_worktree = folder.parent() == Some(&common.join("worktrees"));
    (is_worktree && back == file.canonicalize().ok()? && is_git(&common)).then_some(common)
}

/// Returns the files that decide what git runs in a repository and its submodules.
pub(super) fn deciding(git: &Path) -> Vec<PathBuf> {
    let parts = |folder: PathBuf| {
        let always = ["hooks", "config"].map(|part| folder.join(part));
        // Git would fail on an empty folder in place of these; see `git_redirects`.
        let redirects = REDIRECTS.map(|part| folder.join(part));
        always.into_iter().chain(redirects.into_iter().filter(|path| path.exists()))
    };
    with_submodules(git).into_iter().flat_map(parts).collect()
}

/// Returns a repository and those of its submodules.
pub(super) fn with_submodules(git: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![git.to_owned()];
    while let Some(folder) = open.pop() {
        if folder == git || folder.join("HEAD").exists() {
            open.push(folder.join("modules"));
            found.push(folder);
        } else {
            open.extend(folders_in(&folder));
        }
    }
    found
}

/// Returns the subfolders of a folder, without links.
pub(super) fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let is_folder = folder.symlink_metadata().is_ok_and(|found| found.is_dir());
    let entries = is_folder.then(|| std::fs::read_dir(folder)).into_iter().flatten().flatten();
    let folders =
        entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Reports repositories that did not exist before.
pub(super) fn made(before: &[PathBuf], folders: &[PathBuf]) -> Option<String> {
    let new: Vec<String> = inside(folders)
        .iter()
        .filter(|git| !before.contains(git))
        .filter_map(|git| git.parent().map(Path::display).map(|folder| folder.to_string()))
        .take(5)
        .collect();
    let note = "their hooks and configuration were written by the command";
    (!new.is_empty()).then(|| format!("\n(new repositories in {}: {note})", new.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T7
    #[test]
    fn worktree_is_accepted_only_if_its_repository_points_back() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().to_owned();
        for folder in ["main/.git/worktrees/w/x", "main/.git/modules/a/b", "main/sub", "w", "evil"]
        {
            std::fs::create_dir_all(top.join(folder)).unwrap();
        }
        let top = top.canonicalize().unwrap();
        let put = |path: &str, text: String| std::fs::write(top.join(path), text).unwrap();
        for head in ["main/.git/HEAD", "main/.git/modules/a/b/HEAD"] {
            put(head, "ref: refs/heads/main\n".to_owned());
        }
        let link = format!("gitdir: {}\n", top.join("main/.git/worktrees/w").display());
        put("w/.git", link.clone());
        put("main/.git/worktrees/w/gitdir", format!("{}\n", top.join("w/.git").display()));
        put("main/.git/worktrees/w/commondir", "../..\n".to_owned());
        put("evil/.git", link);
        let git = top.join("main/.git");
        let of = |folder: &str| around(&[top.join(folder)]);
        assert_eq!(of("main/sub"), std::slice::from_ref(&git));
        assert_eq!(of("w"), std::slice::from_ref(&git));
        assert_eq!(of("evil"), Vec::<PathBuf>::new());
        assert_eq!(of("main"), Vec::<PathBuf>::new());
        put("evil/.git", format!("gitdir: {}\n", git.display()));
        assert_eq!(of("evil"), Vec::<PathBuf>::new());
        let parts = ["hooks", "config", "modules/a/b/hooks", "modules/a/b/config"];
        assert_eq!(deciding(&git), parts.map(|part| git.join(part)));
    }

    #[test]
    fn repository_is_missing_if_there_is_none_in_or_around_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().to_owned();
        for folder in ["none", "empty/.git", "other/.git/x", "repo/.git", "repo/sub", "link"] {
            std::fs::create_dir_all(top.join(folder)).unwrap();
        }
        std::fs::write(top.join("repo/.git/HEAD"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", top.join("link/.git")).unwrap();
        for (folder, is_missing) in [
            ("none", true),
            ("empty", true),
            ("other", false),
            ("repo", false),
            ("repo/sub", false),
            ("link", false),
        ] {
            assert_eq!(missing(&top.join(folder)).is_some(), is_missing, "{folder}");
        }
    }

    // R: T7
    #[test]
    fn git_file_names_a_repository_in_the_folder_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().to_owned();
        for folder in ["w/repo", "w/sub", "w/.git/modules/sub", "out"] {
            std::fs::create_dir_all(top.join(folder)).unwrap();
        }
        let top = top.canonicalize().unwrap();
        let file = top.join("w/sub/.git");
        for (text, expected) in [
            ("gitdir: ../repo\n", Some("w/repo")),
            ("gitdir:../repo/../repo", Some("w/repo")),
            ("gitdir: ../.git/modules/sub", None),
            ("gitdir: ../../out", None),
            ("gitdir: nowhere", None),
            ("repo", None),
        ] {
            std::fs::write(&file, text).unwrap();
            let found = named_by(&file, &[top.join("w")]);
            assert_eq!(found, expected.map(|path| top.join(path)), "{text}");
        }
        assert_eq!(named_by(&top.join("w/.git"), &[top.join("w")]), None);
    }

    #[test]
    fn nested_repositories_are_found_and_new_ones_reported() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().to_owned();
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
    }
}
