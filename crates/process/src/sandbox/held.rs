//! What must exist while a restricted command runs: its groups, reserved paths and temporary directory.

use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::cgroup::Groups;
use super::reserve::Reserved;

/// What a running command needs, removed when it has ended.
#[derive(Debug, Default)]
pub(crate) struct Held {
    // Dropped in this order: the groups kill what is left, then the rest can be removed.
    pub(super) groups: Option<Groups>,
    pub(super) _reserved: Vec<Reserved>,
    pub(super) _temporary: Option<Temporary>,
}

impl Held {
    /// Opens the groups that the program joins.
    pub(crate) fn joined(&self) -> Vec<OwnedFd> {
        self.groups.as_ref().map(Groups::open).unwrap_or_default()
    }
}

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub(super) struct Temporary(pub(super) PathBuf);

impl Temporary {
    /// Creates a directory that only the user can read.
    pub(super) fn make(parent: &Path, name: &str) -> std::io::Result<Temporary> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("{name}-{}-{count}", std::process::id()));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        // Links may resolve differently inside the sandbox.
        Ok(Temporary(directory.canonicalize()?))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed stays in our own directory.
        std::fs::remove_dir_all(&self.0).ok();
    }
}
