//! The owner of sessions: a process. On one machine it is identified by a file that it keeps locked while it runs.
//!
//! The kernel releases the lock however the process dies, so a dead owner is detected at once, without relying on process
//! ids. There is one file per process, whatever the number of its sessions.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::journal::Error;

/// This process, as an owner of sessions. It stays the owner until it is dropped or the process ends.
pub trait Owner: Send {
    /// Returns the id that is stored with sessions.
    fn id(&self) -> &str;

    /// Makes sure that other processes see this one as running. Called before it takes a session.
    ///
    /// # Errors
    /// Says why they would not.
    fn renew(&self) -> Result<(), Error>;

    /// Describes a running owner; `None` if it is dead.
    fn describe_owner(&self, owner: &str) -> Option<String>;
}

/// An owner that is known by its lock file.
#[derive(Debug)]
pub struct LockFile {
    id: String,
    directory: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl LockFile {
    /// Creates the file of this process in `directory`, and removes those of dead processes.
    ///
    /// # Errors
    /// Fails if the directory cannot be written or does not support locks.
    pub fn new(directory: &Path) -> std::io::Result<LockFile> {
        remove_dead(directory);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = format!("{}-{:x}", std::process::id(), since.as_nanos());
        // Locked before it gets its final name, so that no process sees it unlocked and takes its owner for dead.
        let draft = directory.join(format!("{id}.new"));
        crate::files::create_private_file(&draft)?;
        let mut file = OpenOptions::new().append(true).open(&draft)?;
        file.try_lock()?;
        file.write_all(describe_process().as_bytes())?;
        std::fs::rename(&draft, directory.join(&id))?;
        Ok(LockFile { id, directory: directory.to_owned(), _file: file })
    }
}

impl Owner for LockFile {
    fn id(&self) -> &str {
        &self.id
    }

    fn renew(&self) -> Result<(), Error> {
        Ok(())
    }

    fn describe_owner(&self, owner: &str) -> Option<String> {
        if owner == self.id {
            return Some(describe_process());
        }
        // An id from the store must not name a file outside the directory.
        if owner.contains(['/', '\\']) {
            return None;
        }
        describe_owner(&self.directory.join(owner))
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if let Err(err) = std::fs::remove_file(self.directory.join(&self.id)) {
            tracing::debug!("cannot remove the lock file of this process: {err}");
        }
    }
}

fn describe_owner(path: &Path) -> Option<String> {
    // Opening a pipe would block.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Ok(()) => None,
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            match file.read_to_string(&mut text) {
                Ok(_) => Some(text),
                Err(_) => Some("another process".to_owned()),
            }
        }
        Err(TryLockError::Error(err)) => Some(format!("an unknown process: {err}")),
    }
}

fn remove_dead(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        // A draft belongs to a process that is just starting, or that died while starting: it stays for a day.
        let is_draft = path.extension().is_some_and(|extension| extension == "new");
        let is_old = entry
            .metadata()
            .and_then(|data| data.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age.as_secs() > 86_400));
        if (!is_draft || is_old)
            && describe_owner(&path).is_none()
            && let Err(err) = std::fs::remove_file(&path)
        {
            tracing::debug!("cannot remove the lock file of a dead process: {err}");
        }
    }
}

/// Describes this process to users of other processes.
#[must_use]
pub fn describe_process() -> String {
    format!("process {} on {}", std::process::id(), host())
}

/// Returns the name of this machine.
#[must_use]
pub fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.map_or_else(|_| "this machine".to_owned(), |name| name.trim().to_owned())
}
