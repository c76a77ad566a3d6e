//! Files that redirect git to another configuration and other hooks than the protected ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::repositories::{folders_in, with_submodules};

/// Files of a repository or worktree that name another configuration.
pub(super) const REDIRECTS: [&str; 2] = ["commondir", "config.worktree"];

/// The state of these files before a command. Most do not exist, and git replaces the others by renaming, so they cannot be protected
/// by a mount; they are checked after the command has ended, and restored.
#[derive(Debug)]
pub(super) struct GitRedirects {
    gits: Vec<PathBuf>,
    before: BTreeMap<PathBuf, Vec<u8>>,
}

impl GitRedirects {
    /// Records the files of these repositories.
    pub(super) fn of(gits: Vec<PathBuf>) -> GitRedirects {
        let paths = GitRedirects::paths(&gits);
        let read = |path: PathBuf| plain(&path).map(|bytes| (path, bytes));
        GitRedirects { before: paths.into_iter().filter_map(read).collect(), gits }
    }

    fn paths(gits: &[PathBuf]) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for git in gits.iter().flat_map(|git| with_submodules(git)) {
            let worktrees = folders_in(&git.join("worktrees"));
            paths.push(git.join("HEAD"));
            for folder in std::iter::once(git).chain(worktrees) {
                paths.extend(REDIRECTS.map(|part| folder.join(part)));
            }
        }
        paths
    }

    /// Restores changed files, and returns their paths.
    pub(super) fn restore(&self) -> Vec<PathBuf> {
        let mut paths = GitRedirects::paths(&self.gits);
        paths.extend(self.before.keys().cloned());
        paths.sort();
        paths.dedup();
        paths.retain(|path| !self.is_right(path));
        for path in &paths {
            let removed = match path.symlink_metadata() {
                Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
                Ok(_) => std::fs::remove_file(path),
                Err(_) => Ok(()),
            };
            let done = removed.and_then(|()| match self.before.get(path) {
                Some(bytes) => std::fs::write(path, bytes),
                None => Ok(()),
            });
            if let Err(err) = done {
                tracing::error!(
                    "{} redirects git and could not be restored: {err}",
                    path.display()
                );
            }
        }
        paths
    }

    fn is_right(&self, path: &Path) -> bool {
        let (now, before) = (plain(path), self.before.get(path));
        let is_gone = path.symlink_metadata().is_err();
        if path.ends_with("HEAD") {
            // Switching branches changes it. Without it, git searches for a repository elsewhere.
            return now.is_some() || (is_gone && before.is_none());
        }
        let is_worktree = path.parent().and_then(Path::parent);
        let is_worktree = is_worktree.is_some_and(|folder| folder.ends_with("worktrees"));
        // What git writes for a new worktree.
        let is_usual = is_worktree
            && path.ends_with("commondir")
            && now.as_deref().is_some_and(|now| now.trim_ascii() == b"../..");
        match before {
            None => is_gone || is_usual,
            // A worktree may be removed.
            Some(before) => now.as_ref() == Some(before) || (is_worktree && is_gone),
        }
    }
}

impl Drop for GitRedirects {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Reads a regular file, not a link.
fn plain(path: &Path) -> Option<Vec<u8>> {
    path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
    std::fs::read(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T7
    #[test]
    fn redirects_are_restored() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        for folder in [".git/worktrees/old", ".git/worktrees/gone", ".git/modules/m"] {
            std::fs::create_dir_all(top.join(folder)).unwrap();
        }
        let put = |path: &str, text: &str| std::fs::write(top.join(path), text).unwrap();
        for head in [".git/HEAD", ".git/modules/m/HEAD"] {
            put(head, "ref: refs/heads/main\n");
        }
        put(".git/worktrees/old/commondir", "../..\n");
        put(".git/worktrees/gone/commondir", "../..\n");
        put(".git/config.worktree", "[core]\n");
        let redirects = GitRedirects::of(vec![top.join(".git")]);
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
        std::os::unix::fs::symlink("../evil", top.join(".git/modules/m/commondir")).unwrap();
        assert_eq!(redirects.restore().len(), 6);
        assert_eq!(redirects.restore(), Vec::<PathBuf>::new());
        let read = |path: &str| std::fs::read_to_string(top.join(path)).ok();
        assert_eq!(read(".git/commondir"), None);
        assert_eq!(read(".git/worktrees/new/commondir"), None);
        assert_eq!(read(".git/config.worktree").as_deref(), Some("[core]\n"));
        assert_eq!(read(".git/worktrees/old/commondir").as_deref(), Some("../..\n"));
        assert_eq!(read(".git/HEAD").as_deref(), Some("ref: refs/heads/main\n"));
    }
}
