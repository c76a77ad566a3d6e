//! Reserves protected paths that do not exist yet: creates an empty directory for as long as a command runs.
//!
//! Only what exists can be mounted over, and a command must not create, for example, a `.git` with its own hooks. Git ignores an
//! empty `.git`, so it does no harm if we are killed before it is removed. The next agent removes it then: a record in our own
//! directory says which directories we created, and how to distinguish them from what a user created there. Several agents may need the
//! same directory: each has a shared lock on it, and only the last one removes it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The reserved directories. The last command that needs one removes it, if we created it.
static HELD: LazyLock<Mutex<HashMap<PathBuf, Reservation>>> = LazyLock::new(Mutex::default);

/// One directory.
#[derive(Debug)]
struct Reservation {
    commands: usize,
    /// The record that we created it.
    record: Option<PathBuf>,
    lock: File,
}

/// A reservation that lasts as long as this value.
#[derive(Debug)]
pub(crate) struct Reserved(PathBuf);

impl Reserved {
    /// Creates the first missing directory on the way to `path`, or uses an existing empty one; `None` if something else is there. A
    /// record of what we create is written to the directory `records`.
    pub(super) fn make(path: &Path, records: &Path) -> std::io::Result<Option<Reserved>> {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = path.ancestors().find(|place| held.contains_key(*place)) {
            let place = place.to_owned();
            held.entry(place.clone()).and_modify(|held| held.commands += 1);
            return Ok(Some(Reserved(place)));
        }
        sweep(records);
        let missing = path.ancestors().take_while(|place| place.symlink_metadata().is_err());
        let (place, is_ours) = match missing.last() {
            Some(place) => {
                std::fs::create_dir(place)?;
                (place, true)
            }
            None if is_empty_directory(path) => (path, false),
            None => return Ok(None),
        };
        let lock = File::open(place)?;
        lock.lock_shared()?;
        let found = lock.metadata()?;
        if !place.metadata().is_ok_and(|now| now.ino() == found.ino()) {
            // The previous owner of the lock has removed it.
            drop(held);
            return Reserved::make(path, records);
        }
        let record = is_ours.then(|| record(place, &found, records));
        held.insert(place.to_owned(), Reservation { commands: 1, record, lock });
        Ok(Some(Reserved(place.to_owned())))
    }

    /// Returns the directory.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = held.get_mut(&self.0) else {
            return;
        };
        place.commands -= 1;
        if place.commands == 0 {
            if let Some(record) = &place.record
                && place.lock.try_lock().is_ok()
            {
                // Fails if it is not empty: the user has created a repository here meanwhile.
                std::fs::remove_dir(&self.0).ok();
                std::fs::remove_file(record).ok();
            }
            held.remove(&self.0);
        }
    }
}

/// Returns where records are stored.
pub(crate) fn records(scratch: &Path) -> PathBuf {
    scratch.join("reserved")
}

/// Removes the directories of killed agents that are unchanged and not locked.
pub(super) fn sweep(records: &Path) {
    for record in std::fs::read_dir(records).into_iter().flatten().flatten() {
        // An empty record is still being written.
        let Some(place) = std::fs::read(record.path()).ok().filter(|place| !place.is_empty())
        else {
            continue;
        };
        let place = PathBuf::from(OsString::from_vec(place));
        if place.symlink_metadata().is_ok_and(|found| *mark(&found) == *record.file_name()) {
            let lock = File::open(&place);
            if !lock.as_ref().is_ok_and(|lock| lock.try_lock().is_ok()) {
                continue;
            }
            std::fs::remove_dir(&place).ok();
        }
        std::fs::remove_file(record.path()).ok();
    }
}

/// Records that we created a directory.
fn record(place: &Path, found: &Metadata, records: &Path) -> PathBuf {
    let record = records.join(mark(found));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(records);
    // A missing record matters only if we are killed, so an error is no reason not to run the command.
    made.and_then(|()| std::fs::write(&record, place.as_os_str().as_bytes())).ok();
    record
}

/// Returns what identifies a directory as long as it is unchanged.
fn mark(found: &Metadata) -> String {
    format!("{}-{}-{}-{}", found.dev(), found.ino(), found.ctime(), found.ctime_nsec())
}

fn is_empty_directory(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_removed_with_its_last_user() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().to_owned();
        let reserve = |path: &str| Reserved::make(&root.join(path), &root.join("records")).unwrap();
        let first = reserve("a/b").unwrap();
        let second = reserve("a/b").unwrap();
        assert_eq!(first.path(), root.join("a"));
        assert_eq!(second.path(), root.join("a"));
        drop(first);
        assert!(root.join("a").is_dir());
        drop(second);
        assert!(!root.join("a").exists());
        let reserved = reserve("c").unwrap();
        std::fs::write(root.join("c/file"), "").unwrap();
        drop(reserved);
        assert!(root.join("c/file").exists());
        assert!(reserve("c").is_none());
        // Another agent's directory stays as long as that agent needs it.
        let ours = reserve("d").unwrap();
        let theirs = File::open(root.join("d")).unwrap();
        theirs.lock_shared().unwrap();
        drop(ours);
        assert!(root.join("d").is_dir());
        // A directory that we did not create is locked, and not removed.
        std::fs::create_dir(root.join("e")).unwrap();
        let users = reserve("e").unwrap();
        assert!(File::open(root.join("e")).unwrap().try_lock().is_err());
        drop(users);
        assert!(root.join("e").is_dir());
        // A directory left to another agent is removed when that agent is gone.
        assert!(root.join("d").is_dir());
        drop(theirs);
        sweep(&root.join("records"));
        assert!(!root.join("d").exists() && root.join("e").is_dir());
        assert_eq!(std::fs::read_dir(root.join("records")).unwrap().count(), 0);
    }

    /// Releases a directory as a killed agent does.
    fn kill(reserved: Reserved) {
        HELD.lock().unwrap().remove(reserved.path());
        std::mem::forget(reserved);
    }

    // R: T7
    #[test]
    fn leftovers_of_a_killed_agent_are_removed_and_user_files_stay() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().to_owned();
        let records = root.join("records");
        let made = ["left", "used", "again"]
            .map(|name| Reserved::make(&root.join(name), &records).unwrap().unwrap());
        made.into_iter().for_each(kill);
        std::fs::write(root.join("used/HEAD"), "").unwrap();
        std::fs::remove_dir(root.join("again")).unwrap();
        std::fs::create_dir(root.join("again")).unwrap();
        let next = Reserved::make(&root.join("next"), &records).unwrap().unwrap();
        assert!(!root.join("left").exists());
        assert!(root.join("used/HEAD").exists());
        assert!(root.join("again").is_dir());
        // Empty again, but the user has changed it in between.
        std::fs::remove_file(root.join("used/HEAD")).unwrap();
        sweep(&records);
        assert!(root.join("used").is_dir() && next.path().is_dir());
        drop(next);
        assert_eq!(std::fs::read_dir(&records).unwrap().count(), 0);
    }
}
