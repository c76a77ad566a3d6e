//! Places for protected paths that are not there yet: an empty folder for as long as a command runs.
//!
//! Only what exists can be mounted over, and a command must not make, say, a `.git` with hooks of its own. An empty
//! `.git` is none to git, so it does no harm if we are killed before it is removed. Then whoever comes next removes it: a
//! record in a folder of ours says which places we made, and how to tell them from what a user made there. Other agents
//! may rely on the same place: each holds a lock on it, and who cannot have it alone leaves it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The places that commands rely on. The last one removes it, if we made it.
static HELD: LazyLock<Mutex<HashMap<PathBuf, Reservation>>> = LazyLock::new(Mutex::default);

/// One place.
#[derive(Debug)]
struct Reservation {
    commands: usize,
    /// What says that we made it.
    record: Option<PathBuf>,
    lock: File,
}

/// A place that is kept while this value lives.
#[derive(Debug)]
pub(super) struct Reserved(PathBuf);

impl Reserved {
    /// Makes the first missing folder on the way to `path`, or keeps an empty folder that is there already; nothing to do
    /// where there is something else. What we made is on record in the folder `records`.
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
            None if is_empty_folder(path) => (path, false),
            None => return Ok(None),
        };
        let lock = File::open(place)?;
        lock.lock_shared()?;
        let found = lock.metadata()?;
        if !place.metadata().is_ok_and(|now| now.ino() == found.ino()) {
            // Whoever had the lock before has removed it.
            drop(held);
            return Reserved::make(path, records);
        }
        let record = is_ours.then(|| record(place, &found, records));
        held.insert(place.to_owned(), Reservation { commands: 1, record, lock });
        Ok(Some(Reserved(place.to_owned())))
    }

    /// Returns the folder.
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
                // Not empty any more: the user made a repository here meanwhile, and keeps it.
                std::fs::remove_dir(&self.0).ok();
                std::fs::remove_file(record).ok();
            }
            held.remove(&self.0);
        }
    }
}

/// Where records are kept, in a folder of ours.
pub(super) fn records(scratch: &Path) -> PathBuf {
    scratch.join("reserved")
}

/// Removes the places of agents that were killed: those that are as they were made, and that nobody holds.
pub(super) fn sweep(records: &Path) {
    for record in std::fs::read_dir(records).into_iter().flatten().flatten() {
        // An empty one is being written.
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

/// Notes that we made a place.
fn record(place: &Path, found: &Metadata, records: &Path) -> PathBuf {
    let record = records.join(mark(found));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(records);
    // That it cannot be written matters only if we are killed, and is no reason not to run a command.
    made.and_then(|()| std::fs::write(&record, place.as_os_str().as_bytes())).ok();
    record
}

/// What tells a folder from all others, and from itself once anybody has changed it.
fn mark(found: &Metadata) -> String {
    format!("{}-{}-{}-{}", found.dev(), found.ino(), found.ctime(), found.ctime_nsec())
}

fn is_empty_folder(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_goes_with_the_last_one_who_needs_it() {
        let root = std::env::temp_dir().join(format!("process-reserve-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let reserve = |path: &str| Reserved::make(&root.join(path), &root.join("records")).unwrap();
        let first = reserve("a/b").unwrap();
        let second = reserve("a/b").unwrap();
        assert_eq!(first.path(), root.join("a"));
        assert_eq!(second.path(), root.join("a"));
        drop(first);
        assert!(root.join("a").is_dir());
        drop(second);
        assert!(!root.join("a").exists());
        let kept = reserve("c").unwrap();
        std::fs::write(root.join("c/file"), "").unwrap();
        drop(kept);
        assert!(root.join("c/file").exists());
        assert!(reserve("c").is_none());
        // Another agent's: it stays as long as that one has it.
        let ours = reserve("d").unwrap();
        let theirs = File::open(root.join("d")).unwrap();
        theirs.lock_shared().unwrap();
        drop(ours);
        assert!(root.join("d").is_dir());
        // What we did not make is held so that nobody else removes it, and not removed.
        std::fs::create_dir(root.join("e")).unwrap();
        let users = reserve("e").unwrap();
        assert!(File::open(root.join("e")).unwrap().try_lock().is_err());
        drop(users);
        assert!(root.join("e").is_dir());
        // What was left to another agent goes when that one is gone.
        assert!(root.join("d").is_dir());
        drop(theirs);
        sweep(&root.join("records"));
        assert!(!root.join("d").exists() && root.join("e").is_dir());
        assert_eq!(std::fs::read_dir(root.join("records")).unwrap().count(), 0);
        std::fs::remove_dir_all(&root).unwrap();
    }

    /// Lets go of a place as an agent does that is killed.
    fn kill(reserved: Reserved) {
        HELD.lock().unwrap().remove(reserved.path());
        std::mem::forget(reserved);
    }

    // R: T7
    #[test]
    fn what_a_killed_agent_left_is_removed_and_what_a_user_made_stays() {
        let root = std::env::temp_dir().join(format!("process-killed-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
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
        // An empty folder again, but the user had it in between.
        std::fs::remove_file(root.join("used/HEAD")).unwrap();
        sweep(&records);
        assert!(root.join("used").is_dir() && next.path().is_dir());
        drop(next);
        assert_eq!(std::fs::read_dir(&records).unwrap().count(), 0);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
