//! A temporary directory that several commands share, such as those of a session. Removed with its last user.
//!
//! It is locked while it is in use, so that the next agent can remove what a killed one left behind.

use std::fs::{DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Sandbox;

/// How often a name is tried: another agent may remove a directory before it is locked.
const TRIES: usize = 10;

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct SharedDirectory {
    path: PathBuf,
    _lock: File,
}

impl Sandbox {
    /// Creates a temporary directory for several commands: `Profile::temporary`.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub fn shared_directory(&self) -> io::Result<SharedDirectory> {
        SharedDirectory::make(&self.scratch.join("shared"))
    }
}

impl SharedDirectory {
    fn make(parent: &Path) -> io::Result<SharedDirectory> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut private = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        private.recursive(true).create(parent)?;
        // Links may resolve differently inside the sandbox.
        let parent = parent.canonicalize()?;
        sweep(&parent);
        for _ in 0..TRIES {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{}-{count}", std::process::id()));
            match private.recursive(false).create(&path) {
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            if let Ok(lock) = File::open(&path)
                && lock.try_lock().is_ok()
                && path.is_dir()
            {
                return Ok(SharedDirectory { path, _lock: lock });
            }
        }
        Err(io::Error::other("no temporary folder could be created"))
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the directories of killed agents.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if File::open(entry.path()).is_ok_and(|directory| directory.try_lock().is_ok()) {
            remove(&entry.path());
        }
    }
}

/// Removes a directory. What cannot be removed stays in our own directory, until the next agent tries again.
fn remove(path: &Path) {
    if std::fs::remove_dir_all(path).is_err() {
        unlock(path);
        std::fs::remove_dir_all(path).ok();
    }
}

/// Makes directories writable that a command has protected. Follows no link.
fn unlock(directory: &Path) {
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(directory, mode).ok();
    }
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path());
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    // R: T7
    #[test]
    fn directory_is_removed_with_its_user_or_by_the_next_agent() {
        let top = tempfile::tempdir().unwrap();
        let parent = top.path().join("shared");
        let (first, second) =
            (SharedDirectory::make(&parent).unwrap(), SharedDirectory::make(&parent).unwrap());
        let deep = first.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "").unwrap();
        std::fs::set_permissions(&deep, PermissionsExt::from_mode(0o000)).unwrap();
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.path().is_dir());
        // As a killed agent leaves it: not locked.
        let left = parent.join("1-1");
        std::fs::create_dir_all(left.join("x")).unwrap();
        let third = SharedDirectory::make(&parent).unwrap();
        assert!(!left.exists() && second.path().is_dir() && third.path().is_dir());
    }
}
