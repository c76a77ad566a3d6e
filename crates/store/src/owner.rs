//! Who has a session: a process, known by a file that it keeps locked while it lives.
//!
//! The kernel lets go of the lock when the process dies, however it dies, so a dead owner is seen at once and no process
//! id is ever believed. One file per process, whatever the number of its sessions.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// This process, as an owner of sessions.
#[derive(Debug)]
pub struct Owner {
    id: String,
    folder: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Owner {
    /// Makes the file of this process in `folder`, and clears away those of dead ones.
    ///
    /// # Errors
    /// Fails if the folder cannot be written or does not know locks.
    pub fn new(folder: &Path) -> std::io::Result<Owner> {
        clear(folder);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = format!("{}-{:x}", std::process::id(), since.as_nanos());
        // Locked before it has its name: nobody can see it unlocked and take its owner for dead.
        let draft = folder.join(format!("{id}.new"));
        crate::store::make_file(&draft)?;
        let mut file = OpenOptions::new().append(true).open(&draft)?;
        file.try_lock()?;
        file.write_all(place().as_bytes())?;
        std::fs::rename(&draft, folder.join(&id))?;
        Ok(Owner { id, folder: folder.to_owned(), _file: file })
    }

    /// Returns the name that sessions are marked with.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Says where an owner runs; `None` if it is dead.
    #[must_use]
    pub fn place_of(&self, owner: &str) -> Option<String> {
        if owner == self.id {
            return Some(place());
        }
        // A name from the store is only ever a name in our folder.
        if owner.contains(['/', '\\']) {
            return None;
        }
        place_of(&self.folder.join(owner))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(err) = std::fs::remove_file(self.folder.join(&self.id)) {
            tracing::debug!("the file of this process could not be removed: {err}");
        }
    }
}

fn place_of(path: &Path) -> Option<String> {
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
        Err(TryLockError::Error(err)) => Some(format!("a process that cannot be asked: {err}")),
    }
}

fn clear(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        // A draft belongs to a process that is starting, or that died in that moment: it is left for a day.
        let is_draft = path.extension().is_some_and(|extension| extension == "new");
        let is_old = entry
            .metadata()
            .and_then(|data| data.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age.as_secs() > 86_400));
        if (!is_draft || is_old)
            && place_of(&path).is_none()
            && let Err(err) = std::fs::remove_file(&path)
        {
            tracing::debug!("the file of a dead process could not be removed: {err}");
        }
    }
}

/// Says where this process runs, for the user of another one.
#[must_use]
pub fn place() -> String {
    format!("process {} on {}", std::process::id(), host())
}

/// Returns the name of this machine.
#[must_use]
pub fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.map_or_else(|_| "this machine".to_owned(), |name| name.trim().to_owned())
}
