//! Repositories in and around the session's directories. Files in `.git` decide what git runs, also for the user, so commands must not
//! change them.
//!
//! [`survey`] finds them, with the files that editors and other programs run by themselves. A repository that a command creates
//! itself cannot be protected in time; `quarantine` checks it afterwards.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::git_redirects::REDIRECTS;

/// The most directories that are searched, those near the top first, how deep, and for how long. If one of these is reached, commands ask.
const MOST_DIRECTORIES: usize = 100_000;
const DEEPEST: usize = 200;
const LONGEST: Duration = Duration::from_secs(3);
/// The largest file that names a directory.
const MOST_BYTES: u64 = 64 * 1024;
/// The most files below the top that others run by themselves and that are looked for.
const MOST_AUTO_RUN: usize = 2000;
/// Directories that tools fill; what is in them is nobody's project.
const FILLED: [&str; 5] = ["node_modules", "target", "vendor", ".venv", "__pycache__"];

/// What a search of the session's directories found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Survey {
    /// `.git` directories and files below the top.
    pub(super) gits: BTreeSet<PathBuf>,
    /// Directories that are a repository by themselves, whatever their name.
    pub(super) bare: BTreeSet<PathBuf>,
    /// Links named `.git` below the top.
    pub(super) links: BTreeSet<PathBuf>,
    /// Files and directories that others run by themselves.
    pub(super) auto_run: BTreeSet<PathBuf>,
    /// Where those of them lead that are links.
    pub(super) auto_run_links: BTreeMap<PathBuf, PathBuf>,
    /// Directories that we may not list or enter.
    pub(super) closed: BTreeSet<PathBuf>,
    /// Whether everything was searched.
    pub(super) is_complete: bool,
}

/// Searches these directories. Submodules come first.
pub(super) fn survey(directories: &[PathBuf]) -> Survey {
    survey_within(directories, MOST_DIRECTORIES)
}

fn survey_within(directories: &[PathBuf], most: usize) -> Survey {
    let mut found = Survey { is_complete: true, ..Survey::default() };
    let mut open: VecDeque<(PathBuf, usize)> = VecDeque::new();
    for directory in directories {
        open.push_front((directory.clone(), 0));
        let modules = shell::submodules(directory).into_iter().map(|module| {
            let depth = module.components().count();
            (directory.join(module), depth)
        });
        let modules = modules.filter(|(module, _)| is_plain_directory(directory, module));
        open.extend(modules);
    }
    let end = Instant::now() + LONGEST;
    let mut seen = BTreeSet::new();
    while let Some((directory, depth)) = open.pop_front() {
        if seen.len() >= most || Instant::now() > end {
            found.is_complete = false;
            break;
        }
        if seen.insert(directory.clone()) {
            found.look_at(&directory, depth, &mut open);
        }
    }
    found
}

impl Survey {
    fn look_at(&mut self, directory: &Path, depth: usize, open: &mut VecDeque<(PathBuf, usize)>) {
        let mut parts = (false, false, false);
        let access = Access::READ_OK | Access::EXEC_OK;
        if let Err(Errno::ACCESS) = accessat(CWD, directory, access, AtFlags::EACCESS) {
            self.closed.insert(directory.to_owned());
        }
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            // Links are not followed: their targets are found in their own place, or are outside.
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            match name.to_str() {
                Some("HEAD") => parts.0 = true,
                Some("objects" | "commondir") => parts.1 = true,
                Some("refs") => parts.2 = true,
                _ => {}
            }
            parts.2 |= name == "commondir";
            if name.eq_ignore_ascii_case(".git") {
                if kind.is_symlink() {
                    self.links.insert(entry.path());
                } else if depth > 0 {
                    self.gits.insert(entry.path());
                }
                continue;
            }
            let is_auto_run = shell::is_auto_run_name(&name.to_string_lossy());
            if is_auto_run
                && (depth == 0 || self.auto_run.len() < MOST_AUTO_RUN)
                && !is_filled(directory, depth)
            {
                let target = kind.is_symlink().then(|| std::fs::read_link(entry.path()).ok());
                self.auto_run_links.extend(target.flatten().map(|target| (entry.path(), target)));
                self.auto_run.insert(entry.path());
            }
            if kind.is_dir() {
                if depth < DEEPEST {
                    open.push_back((entry.path(), depth + 1));
                } else {
                    self.is_complete = false;
                }
            }
        }
        if parts == (true, true, true) {
            self.bare.insert(directory.to_owned());
        }
    }
}

/// Tells whether a path is in a directory that a tool fills, among the last `depth` parts of it: those below the session's directory.
fn is_filled(path: &Path, depth: usize) -> bool {
    path.components()
        .rev()
        .take(depth)
        .any(|part| FILLED.iter().any(|filled| part.as_os_str() == *filled))
}

/// Tells whether a directory below another is reached without a link.
fn is_plain_directory(top: &Path, directory: &Path) -> bool {
    let below = directory.ancestors().take_while(|at| *at != top);
    below.into_iter().all(|at| at.symlink_metadata().is_ok_and(|found| found.is_dir()))
}

/// Finds the repositories around these directories: above them, or where a worktree's `.git` file points. Such a file may come with the
/// project, so it is accepted only if the repository points back to it.
pub(super) fn around(directories: &[PathBuf]) -> Vec<PathBuf> {
    let of = |directory: &PathBuf| {
        let git = directory.ancestors().map(|at| at.join(".git")).find(|git| is_git(git))?;
        let common = if git.is_dir() { git } else { common_of(&git)? };
        let is_outside = !directories.iter().any(|directory| common.starts_with(directory));
        is_outside.then_some(common)
    };
    let mut found: Vec<PathBuf> = directories.iter().filter_map(of).collect();
    found.dedup();
    found
}

/// Finds the repository that a directory is in: the top of the working tree, and the `.git` that all its worktrees share.
pub(crate) fn enclosing(directory: &Path) -> Option<(PathBuf, PathBuf)> {
    let git = directory.ancestors().map(|at| at.join(".git")).find(|git| is_git(git))?;
    let top = git.parent()?.to_owned();
    let common = if git.is_dir() { git } else { common_of(&git)? };
    Some((top, common))
}

/// Returns the missing `.git` of a directory that is in no repository.
pub(super) fn missing(directory: &Path) -> Option<PathBuf> {
    let git = directory.join(".git");
    // Git ignores an empty directory, and it may be reserved for another command.
    let is_empty = || std::fs::read_dir(&git).is_ok_and(|mut entries| entries.next().is_none());
    let is_free = git.symlink_metadata().map_or(true, |found| found.is_dir() && is_empty());
    (is_free && !directory.ancestors().any(|at| is_git(&at.join(".git")))).then_some(git)
}

/// Returns the directory that a `.git` file names, if it is in one of these directories and not in a `.git`, where it is protected anyway.
pub(super) fn named_by(git: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    let text = text_of(git)?;
    let named = git.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let is_inside =
        |directory: &PathBuf| directory.canonicalize().is_ok_and(|top| named.starts_with(top));
    let is_protected = named.components().any(|part| part.as_os_str() == ".git");
    (directories.iter().any(is_inside) && !is_protected).then_some(named)
}

/// Reads a short file of git. Links are not followed.
fn text_of(path: &Path) -> Option<String> {
    let bytes = tree::read(path.parent()?, path.file_name()?, MOST_BYTES).ok()?;
    String::from_utf8(bytes).ok()
}

/// Tells whether git accepts this as a repository or a worktree's `.git` file. An empty directory is neither.
fn is_git(path: &Path) -> bool {
    path.is_file() || path.join("HEAD").exists()
}

/// Returns the repository of a worktree by its `.git` file.
fn common_of(file: &Path) -> Option<PathBuf> {
    let line = |path: &Path| text_of(path).map(|text| text.trim().to_owned());
    let text = line(file)?;
    let directory =
        file.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let back = directory.join(line(&directory.join("gitdir"))?).canonicalize().ok()?;
    let common = directory.join(line(&directory.join("commondir"))?).canonicalize().ok()?;
    let is_worktree = directory.parent() == Some(&common.join("worktrees"));
    (is_worktree && back == file.canonicalize().ok()? && is_git(&common)).then_some(common)
}

/// Returns the files that decide what git runs in a repository and its submodules.
pub(super) fn deciding(git: &Path) -> Vec<PathBuf> {
    let parts = |directory: PathBuf| {
        let always = ["hooks", "config"].map(|part| directory.join(part));
        // Git would fail on an empty directory in place of these; see `git_redirects`.
        let redirects = REDIRECTS.map(|part| directory.join(part));
        always.into_iter().chain(redirects.into_iter().filter(|path| path.exists()))
    };
    with_submodules(git).into_iter().flat_map(parts).collect()
}

/// Returns a repository and those of its submodules.
fn with_submodules(git: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![git.to_owned()];
    while let Some(directory) = open.pop() {
        if directory == git || directory.join("HEAD").exists() {
            open.push(directory.join("modules"));
            found.push(directory);
        } else {
            open.extend(directories_in(&directory));
        }
    }
    found
}

/// Returns the subdirectories of a directory, without links.
fn directories_in(directory: &Path) -> Vec<PathBuf> {
    let is_directory = directory.symlink_metadata().is_ok_and(|found| found.is_dir());
    let entries =
        is_directory.then(|| std::fs::read_dir(directory)).into_iter().flatten().flatten();
    let directories =
        entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T7
    #[test]
    fn worktree_is_accepted_only_if_its_repository_points_back() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().to_owned();
        for directory in
            ["main/.git/worktrees/w/x", "main/.git/modules/a/b", "main/sub", "w", "evil"]
        {
            std::fs::create_dir_all(top.join(directory)).unwrap();
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
        let of = |directory: &str| around(&[top.join(directory)]);
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
    fn repository_is_missing_if_there_is_none_in_or_around_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().to_owned();
        for directory in ["none", "empty/.git", "other/.git/x", "repo/.git", "repo/sub", "link"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        std::fs::write(top.join("repo/.git/HEAD"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", top.join("link/.git")).unwrap();
        for (directory, is_missing) in [
            ("none", true),
            ("empty", true),
            ("other", false),
            ("repo", false),
            ("repo/sub", false),
            ("link", false),
        ] {
            assert_eq!(missing(&top.join(directory)).is_some(), is_missing, "{directory}");
        }
    }

    // R: T7
    #[test]
    fn git_file_names_a_repository_in_the_directory_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().to_owned();
        for directory in ["w/repo", "w/sub", "w/.git/modules/sub", "out"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
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

    // R: T7
    #[test]
    fn repositories_of_all_kinds_are_found() {
        let directory = tempfile::tempdir().unwrap();
        // What is above the session's directory does not matter.
        let top = directory.path().join("target/node_modules/w");
        let deep = format!("{}/.git", vec!["d"; 40].join("/"));
        for directory in
            [".git/x", "a/.git", "deep/b/.git/modules", "c", "bare/objects", "bare/refs"]
        {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        std::fs::create_dir_all(top.join(&deep)).unwrap();
        std::fs::create_dir_all(top.join("pkg/.vscode")).unwrap();
        std::fs::create_dir_all(top.join("node_modules/p/.vscode")).unwrap();
        for (file, text) in
            [("c/.git", "gitdir: ../a"), ("bare/HEAD", "ref: refs/heads/x"), (".envrc", "")]
        {
            std::fs::write(top.join(file), text).unwrap();
        }
        std::os::unix::fs::symlink("../a", top.join("deep/.git")).unwrap();
        let found = survey(std::slice::from_ref(&top));
        let at = |paths: &[&str]| paths.iter().map(|path| top.join(path)).collect::<BTreeSet<_>>();
        assert_eq!(found.gits, at(&["a/.git", "c/.git", "deep/b/.git", &deep]));
        assert_eq!(found.bare, at(&["bare"]));
        assert_eq!(found.links, at(&["deep/.git"]));
        assert_eq!(found.auto_run, at(&[".envrc", "pkg/.vscode"]));
        assert!(found.is_complete);
    }

    // R: T7
    #[test]
    fn submodules_are_found_first_and_a_search_that_is_cut_short_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().to_owned();
        for number in 0..50 {
            std::fs::create_dir_all(top.join(format!("a{number}/b/c"))).unwrap();
        }
        std::fs::create_dir_all(top.join("z/y/x/module/.git")).unwrap();
        let text = "[submodule \"m\"]\n\tpath = z/y/x/module\n\tpath = ../out\n";
        std::fs::write(top.join(".gitmodules"), text).unwrap();
        let found = survey_within(std::slice::from_ref(&top), 10);
        assert_eq!(found.gits, BTreeSet::from([top.join("z/y/x/module/.git")]));
        assert!(!found.is_complete);
        assert!(survey(&[top]).is_complete);
    }
}
