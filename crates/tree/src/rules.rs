//! Which files the ignore files of a project leave out, with the semantics of the crate `ignore`, whose globs are used.
//!
//! That crate opens whatever has the name of an ignore file. Here each is read by [`crate::read()`], and one that is not read is
//! reported.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::read::{NotRead, read};
use crate::walk::Skipped;

/// The largest ignore file that is used.
const MOST: u64 = 512 * 1024;
/// The largest file that names a git directory.
const MOST_LINK: u64 = 8 * 1024;

/// The rules of all directories of a walk.
pub(crate) struct Rules {
    top: PathBuf,
    /// The resolved top, and the rules of the directories above it.
    above: Option<(PathBuf, Arc<Directory>)>,
    /// Whether `.gitignore` applies only inside a repository.
    needs_git: bool,
    /// The rules that apply in each directory so far.
    directories: Mutex<HashMap<PathBuf, Arc<Directory>>>,
    skipped: Skipped,
}

/// The rules of one directory, and of those above it.
struct Directory {
    above: Option<Arc<Directory>>,
    /// Whether it is above the top of the walk.
    is_outer: bool,
    has_git: bool,
    /// From `.rgignore`, `.ignore`, `.gitignore` and `.git/info/exclude`, the strongest first.
    sources: [Option<Gitignore>; 4],
}

/// The ignore files of a directory, in the order of `Directory::sources`.
const NAMES: [&str; 3] = [".rgignore", ".ignore", ".gitignore"];

/// The user's own ignore file, of all repositories. Read once.
static GLOBAL: LazyLock<Gitignore> = LazyLock::new(|| match std::env::current_dir() {
    Ok(cwd) => GitignoreBuilder::new(cwd).build_global().0,
    Err(_) => Gitignore::empty(),
});

impl Rules {
    pub(crate) fn new(top: &Path, needs_git: bool, skipped: Skipped) -> Rules {
        let mut rules = Rules {
            top: top.to_owned(),
            above: None,
            needs_git,
            directories: Mutex::default(),
            skipped,
        };
        if let Ok(real) = top.canonicalize() {
            let mut outer: Vec<&Path> = real.ancestors().skip(1).collect();
            outer.reverse();
            let start = Directory {
                above: None,
                is_outer: true,
                has_git: false,
                sources: [const { None }; 4],
            };
            let directory = outer
                .into_iter()
                .fold(Arc::new(start), |above, directory| rules.read(directory, above, true));
            rules.above = Some((real, directory));
        }
        rules
    }

    /// Returns whether a path below the top is left out, or explicitly included.
    pub(crate) fn matched(&self, path: &Path, is_directory: bool) -> Match<()> {
        let Some(directory) = path.parent().map(|directory| self.directory(directory)) else {
            return Match::None;
        };
        let mut chain = Vec::new();
        let mut next = Some(&directory);
        while let Some(directory) = next {
            chain.push(&**directory);
            next = directory.above.as_ref();
        }
        let in_git = !self.needs_git || chain.iter().any(|directory| directory.has_git);
        let outer_path = self.above.as_ref().map(|(real, _)| {
            let below = path.strip_prefix(&self.top).unwrap_or(path);
            real.join(below)
        });
        let mut found = [const { Match::None }; 4];
        let mut has_left_git = false;
        for directory in chain {
            let path =
                if directory.is_outer { outer_path.as_deref().unwrap_or(path) } else { path };
            for (index, source) in directory.sources.iter().enumerate() {
                // A repository does not inherit rules of git from outside.
                let is_gits = index >= 2;
                let applies = !is_gits || (in_git && !has_left_git);
                if let Some(source) = source.as_ref().filter(|_| applies && found[index].is_none())
                {
                    found[index] = source.matched(path, is_directory).map(|_| ());
                }
            }
            has_left_git |= directory.has_git;
        }
        let global = || match in_git {
            true => GLOBAL.matched(path, is_directory).map(|_| ()),
            false => Match::None,
        };
        let of_files = found.into_iter().find(|found| !found.is_none());
        of_files.unwrap_or_else(global)
    }

    fn directory(&self, path: &Path) -> Arc<Directory> {
        let known = |path: &Path| {
            let directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
            directories.get(path).cloned()
        };
        if let Some(known) = known(path) {
            return known;
        }
        let is_top = path == self.top || !path.starts_with(&self.top);
        let above = match (is_top, path.parent(), &self.above) {
            (true, _, Some((_, above))) => Arc::clone(above),
            (false, Some(parent), _) => self.directory(parent),
            _ => Arc::new(Directory {
                above: None,
                is_outer: true,
                has_git: false,
                sources: [const { None }; 4],
            }),
        };
        let directory = self.read(path, above, false);
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(directories.entry(path.to_owned()).or_insert(directory))
    }

    /// Reads the ignore files of a directory. One without any has the rules of the directory above it.
    fn read(&self, path: &Path, above: Arc<Directory>, is_outer: bool) -> Arc<Directory> {
        let has_git = self.needs_git && (path.join(".git").exists() || path.join(".jj").exists());
        let [custom, plain, git] = NAMES.map(|name| self.parsed(path, path, name));
        let exclude =
            self.git_directory(path).and_then(|git| self.parsed(path, &git, "info/exclude"));
        let sources = [custom, plain, git, exclude];
        let is_plain = !has_git && sources.iter().all(Option::is_none);
        if is_plain && above.is_outer == is_outer {
            return above;
        }
        Arc::new(Directory { above: Some(above), is_outer, has_git, sources })
    }

    /// Returns the git directory whose `info/exclude` applies in a directory, if there may be one.
    fn git_directory(&self, directory: &Path) -> Option<PathBuf> {
        let git = directory.join(".git");
        let found = git.symlink_metadata().ok()?;
        if found.is_dir() {
            return Some(git);
        }
        let line = |directory: &Path, name: &str| {
            let bytes = match read(directory, name, MOST_LINK) {
                Ok(bytes) => bytes,
                Err(NotRead::Missing) => return None,
                Err(why) => {
                    self.skipped.add(&directory.join(name), &why);
                    return None;
                }
            };
            let text = String::from_utf8(bytes).ok()?;
            text.lines().next().map(str::to_owned)
        };
        let named = line(directory, ".git")?;
        let named = PathBuf::from(named.strip_prefix("gitdir: ")?);
        let common = line(&named, "commondir")?;
        Some(if common.starts_with('.') { named.join(common) } else { common.into() })
    }

    fn parsed(&self, root: &Path, directory: &Path, name: &str) -> Option<Gitignore> {
        let bytes = match read(directory, name, MOST) {
            Ok(bytes) => bytes,
            Err(NotRead::Missing) => return None,
            Err(why) => {
                self.skipped.add(&directory.join(name), &why);
                return None;
            }
        };
        let mut globs = GitignoreBuilder::new(root);
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        let mut is_first = true;
        while let Some(line) = lines.next() {
            // What follows a line that is no text is not used.
            let Ok(line) = std::str::from_utf8(line) else { break };
            let line = line.strip_suffix('\r').filter(|_| lines.peek().is_some()).unwrap_or(line);
            let line = if is_first { line.trim_start_matches('\u{feff}') } else { line };
            is_first = false;
            // A line that is no pattern does not stop the others.
            globs.add_line(None, line).ok();
        }
        let globs = globs.build().inspect_err(|err| {
            self.skipped
                .add(&directory.join(name), &NotRead::Io(std::io::Error::other(err.to_string())));
        });
        globs.ok().filter(|globs| !globs.is_empty())
    }
}
