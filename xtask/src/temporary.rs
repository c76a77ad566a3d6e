//! Temporary files and directories.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

/// Returns the directory for temporary files.
#[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
pub(crate) fn directory() -> PathBuf {
    std::env::temp_dir()
}

/// A directory that is removed with its content.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Creates an empty directory.
    pub(crate) fn new(name: &str) -> Result<Directory> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory().join(format!("purlin-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Directory(path))
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Writes a shell script that can be executed.
#[cfg(test)]
pub(crate) fn write_script(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/sh\n{text}"))?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
}
