//! Files that redirect git to another configuration and other hooks than the protected ones.
//!
//! Everything here works beneath the directory that was opened before the command ran, and follows no link: the command may have
//! replaced any part of the repository by one.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use tree::{NotRead, beneath};

/// Files of a repository or worktree that name another configuration.
pub(super) const REDIRECTS: [&str; 2] = ["commondir", "config.worktree"];

/// The largest of these files.
const MOST_BYTES: u64 = 1 << 20;
/// The most repositories of submodules in one repository.
const MOST_MODULES: usize = 5000;

/// The state of these files before a command. Most do not exist, and git replaces the others by renaming, so they cannot be protected
/// by a mount; they are checked after the command has ended, and restored.
#[derive(Debug)]
pub(super) struct GitRedirects(Vec<Repository>);

#[derive(Debug)]
struct Repository {
    path: PathBuf,
    directory: OwnedFd,
    /// By the path below the repository.
    before: BTreeMap<PathBuf, Vec<u8>>,
}

/// What is at a path.
enum Now {
    Nothing,
    Regular(Vec<u8>),
    /// Something that git would not write: a link, a directory, a huge file, or a path through a link.
    Other,
}

impl GitRedirects {
    /// Opens these repositories, and records the files.
    pub(super) fn of(gits: Vec<PathBuf>) -> GitRedirects {
        GitRedirects(gits.into_iter().filter_map(Repository::open).collect())
    }

    /// Restores changed files, and returns their paths.
    pub(super) fn restore(&self) -> Vec<PathBuf> {
        self.0.iter().flat_map(Repository::restore).collect()
    }
}

impl Drop for GitRedirects {
    fn drop(&mut self) {
        self.restore();
    }
}

impl Repository {
    fn open(path: PathBuf) -> Option<Repository> {
        let directory = beneath::open_directory(&path).ok()?;
        let mut found = Repository { path, directory, before: BTreeMap::new() };
        for path in found.paths() {
            if let Now::Regular(bytes) = found.now(&path) {
                found.before.insert(path, bytes);
            }
        }
        Some(found)
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for git in self.with_submodules() {
            let worktrees = self.directories_in(&git.join("worktrees"));
            paths.push(git.join("HEAD"));
            for directory in std::iter::once(git).chain(worktrees) {
                paths.extend(REDIRECTS.map(|part| directory.join(part)));
            }
        }
        paths
    }

    /// Returns the repository itself and those of its submodules.
    fn with_submodules(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop().filter(|_| found.len() < MOST_MODULES) {
            let head = beneath::kind_of(self.directory.as_fd(), &directory.join("HEAD"));
            if directory.as_os_str().is_empty() || matches!(head, Ok(Some(_))) {
                open.push(directory.join("modules"));
                found.push(directory);
            } else {
                open.extend(self.directories_in(&directory));
            }
        }
        found
    }

    fn directories_in(&self, directory: &Path) -> Vec<PathBuf> {
        let entries = beneath::list(self.directory.as_fd(), directory).unwrap_or_default();
        let directories = entries.into_iter().filter(|(_, kind)| *kind == FileType::Directory);
        directories.map(|(name, _)| directory.join(name)).collect()
    }

    fn now(&self, path: &Path) -> Now {
        match tree::read_beneath(self.directory.as_fd(), path, MOST_BYTES) {
            Ok(bytes) => Now::Regular(bytes),
            Err(NotRead::Missing) => Now::Nothing,
            Err(_) => Now::Other,
        }
    }

    fn restore(&self) -> Vec<PathBuf> {
        let mut paths = self.paths();
        paths.extend(self.before.keys().cloned());
        paths.sort();
        paths.dedup();
        paths.retain(|path| !self.is_right(path));
        for path in &paths {
            if let Err(err) = self.put_back(path) {
                tracing::error!(
                    "{} redirects git and could not be restored: {err}",
                    self.path.join(path).display()
                );
            }
        }
        paths.iter().map(|path| self.path.join(path)).collect()
    }

    fn put_back(&self, path: &Path) -> std::io::Result<()> {
        let root = self.directory.as_fd();
        // What is on the way and no directory was put there by the command.
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.pop();
        for directory in above.into_iter().rev() {
            if !matches!(beneath::kind_of(root, directory)?, None | Some(FileType::Directory)) {
                beneath::remove(root, directory)?;
                break;
            }
        }
        match beneath::remove(root, path) {
            Err(err) if err.kind() != std::io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let Some(bytes) = self.before.get(path) else { return Ok(()) };
        beneath::make_directories(root, path.parent().unwrap_or(Path::new("")))?;
        beneath::write_new(root, path, bytes)
    }

    fn is_right(&self, path: &Path) -> bool {
        let (now, before) = (self.now(path), self.before.get(path));
        if path.ends_with("HEAD") {
            // Switching branches changes it. Without it, git searches for a repository elsewhere.
            return match now {
                Now::Regular(_) => true,
                Now::Nothing => before.is_none(),
                Now::Other => false,
            };
        }
        let is_worktree = path.parent().and_then(Path::parent);
        let is_worktree = is_worktree.is_some_and(|directory| directory.ends_with("worktrees"));
        match (before, now) {
            (None, Now::Nothing) => true,
            // What git writes for a new worktree.
            (None, Now::Regular(now)) => {
                is_worktree && path.ends_with("commondir") && now.trim_ascii() == b"../.."
            }
            (Some(before), Now::Regular(now)) => now == *before,
            // A worktree may be removed.
            (Some(_), Now::Nothing) => is_worktree,
            (_, Now::Other) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes a repository with worktrees and a submodule.
    fn repository(top: &Path) -> GitRedirects {
        for directory in [".git/worktrees/old", ".git/worktrees/gone", ".git/modules/m"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        let put = |path: &str, text: &str| std::fs::write(top.join(path), text).unwrap();
        for head in [".git/HEAD", ".git/modules/m/HEAD"] {
            put(head, "ref: refs/heads/main\n");
        }
        put(".git/worktrees/old/commondir", "../..\n");
        put(".git/worktrees/gone/commondir", "../..\n");
        put(".git/config.worktree", "[core]\n");
        GitRedirects::of(vec![top.join(".git").canonicalize().unwrap()])
    }

    // R: T7
    #[test]
    fn redirects_are_restored() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        let redirects = repository(top);
        let put = |path: &str, text: &str| std::fs::write(top.join(path), text).unwrap();
        assert_eq!(redirects.restore(), Vec::<PathBuf>::new());
        // What git itself does.
        put(".git/HEAD", "ref: refs/heads/other\n");
        std::fs::create_dir_all(top.join(".git/worktrees/new")).unwrap();
        put(".git/worktrees/new/commondir", "../..\n");
        std::fs::remove_dir_all(top.join(".git/worktrees/gone")).unwrap();
        assert_eq!(redirects.restore(), Vec::<PathBuf>::new());
        put(".git/commondir", "../evil\n");
        put(".git/config.worktree", "[core]\nfsmonitor = evil\n");
        put(".git/worktrees/old/commondir", "../../../evil\n");
        put(".git/worktrees/new/commondir", "../../../evil\n");
        std::fs::remove_file(top.join(".git/HEAD")).unwrap();
        symlink("../evil", top.join(".git/modules/m/commondir")).unwrap();
        assert_eq!(redirects.restore().len(), 6);
        assert_eq!(redirects.restore(), Vec::<PathBuf>::new());
        let read = |path: &str| std::fs::read_to_string(top.join(path)).ok();
        assert_eq!(read(".git/commondir"), None);
        assert_eq!(read(".git/worktrees/new/commondir"), None);
        assert_eq!(read(".git/config.worktree").as_deref(), Some("[core]\n"));
        assert_eq!(read(".git/worktrees/old/commondir").as_deref(), Some("../..\n"));
        assert_eq!(read(".git/HEAD").as_deref(), Some("ref: refs/heads/main\n"));
    }

    /// Whatever part of the repository a command replaces by a link, nothing outside is written or removed.
    // R: T7, W19
    #[test]
    fn nothing_is_restored_through_a_link() {
        let parts = [
            "worktrees",
            "worktrees/old",
            "worktrees/old/commondir",
            "modules",
            "modules/m",
            "HEAD",
            "config.worktree",
            "commondir",
        ];
        for part in parts {
            let directory = tempfile::tempdir().unwrap();
            let top = directory.path();
            let redirects = repository(top);
            let outside = top.join("outside");
            for directory in ["old", "m", "worktrees/w"] {
                std::fs::create_dir_all(outside.join(directory)).unwrap();
            }
            let files = ["HEAD", "commondir", "config.worktree", "old/commondir", "m/commondir"];
            for file in
                files.iter().chain(&["m/HEAD", "m/config.worktree", "worktrees/w/commondir"])
            {
                std::fs::write(outside.join(file), "theirs").unwrap();
            }
            let place = top.join(".git").join(part);
            if place.is_dir() {
                std::fs::remove_dir_all(&place).unwrap();
            } else {
                std::fs::remove_file(&place).ok();
            }
            symlink(&outside, &place).unwrap();
            let changed = || {
                files.iter().filter(|file| {
                    std::fs::read_to_string(outside.join(file)).ok().as_deref() != Some("theirs")
                })
            };
            redirects.restore();
            assert_eq!(changed().count(), 0, "{part}");
            assert_eq!(redirects.restore(), Vec::<PathBuf>::new(), "{part}");
            if part.starts_with("worktrees") {
                let text = std::fs::read_to_string(top.join(".git/worktrees/old/commondir"));
                assert_eq!(text.unwrap(), "../..\n", "{part}");
            }
        }
    }
}
