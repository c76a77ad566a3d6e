//! Which session works in which git worktree. Stored among our own files, where no tool and no command can change it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Directories;
use crate::answer_store;

/// The worktree of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// The session's id.
    pub session: String,
    /// The working tree that it was made from.
    pub top: PathBuf,
    /// Where it is.
    pub path: PathBuf,
    /// Its branch.
    pub branch: String,
}

/// Returns the directory that all worktrees are in. Not among our own files, which no tool may touch.
#[must_use]
pub fn root(directories: &Directories) -> Option<PathBuf> {
    Some(directories.data.as_ref()?.parent()?.join("purlin-worktrees"))
}

/// Finds the worktree of a session, if it still exists.
#[must_use]
pub fn find(data: &Path, session: &str) -> Option<Worktree> {
    let all: Vec<Worktree> = answer_store::read(&file_in(data)).unwrap_or_else(|err| {
        tracing::warn!("the worktrees of sessions are unknown: {err}");
        Vec::new()
    });
    all.into_iter().find(|worktree| worktree.session == session && worktree.path.is_dir())
}

/// Stores the worktree of a session, and forgets those that no longer exist.
///
/// # Errors
/// Says why it cannot be stored.
pub fn add(data: &Path, worktree: Worktree) -> Result<(), String> {
    answer_store::change::<Vec<Worktree>>(&file_in(data), |all| {
        all.retain(|old| old.session != worktree.session && old.path.is_dir());
        all.push(worktree);
    })
}

/// Forgets the worktree of a session. The worktree itself stays.
///
/// # Errors
/// Says why the file cannot be written.
pub fn forget(data: &Path, session: &str) -> Result<(), String> {
    answer_store::change::<Vec<Worktree>>(&file_in(data), |all| {
        all.retain(|old| old.session != session);
    })
}

fn file_in(data: &Path) -> PathBuf {
    data.join("worktrees.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: S6
    #[test]
    fn worktree_belongs_to_its_session_until_it_is_forgotten_or_gone() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let worktree = |session: &str| Worktree {
            session: session.to_owned(),
            top: "/project".into(),
            path: data.join(session),
            branch: format!("purlin/{session}"),
        };
        for session in ["a", "b"] {
            std::fs::create_dir(data.join(session)).unwrap();
            add(data, worktree(session)).unwrap();
        }
        assert_eq!(find(data, "a"), Some(worktree("a")));
        std::fs::remove_dir(data.join("a")).unwrap();
        assert_eq!(find(data, "a"), None);
        forget(data, "b").unwrap();
        assert_eq!(find(data, "b"), None);
    }
}
