//! Places for protected paths that are not there yet: an empty folder for as long as a command runs.
//!
//! Only what exists can be mounted over, and a command must not make, say, a `.git` with hooks of its own. An empty
//! `.git` is none to git, and stays harmless if we are killed before it is removed. Other agents may rely on the same
//! folder: each holds a lock on it, and who cannot have it alone leaves the folder.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The places that commands rely on. The last one removes it, if we made it.
static HELD: LazyLock<Mutex<HashMap<PathBuf, Held>>> = LazyLock::new(Mutex::default);

/// One place.
#[derive(Debug)]
struct Held {
    commands: usize,
    is_ours: bool,
    lock: File,
}

/// A place that is kept while this value lives.
#[derive(Debug)]
pub(super) struct Reserved(PathBuf);

impl Reserved {
    /// Makes the first missing folder on the way to `path`, or keeps an empty folder that is there already; nothing to do
    /// where there is something else.
    pub(super) fn make(path: &Path) -> std::io::Result<Option<Reserved>> {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = path.ancestors().find(|place| held.contains_key(*place)) {
            let place = place.to_owned();
            held.entry(place.clone()).and_modify(|held| held.commands += 1);
            return Ok(Some(Reserved(place)));
        }
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
        held.insert(place.to_owned(), Held { commands: 1, is_ours, lock });
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
            if place.is_ours && place.lock.try_lock().is_ok() {
                // Not empty any more: the user made a repository here meanwhile, and keeps it.
                std::fs::remove_dir(&self.0).ok();
            }
            held.remove(&self.0);
        }
    }
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
        let first = Reserved::make(&root.join("a/b")).unwrap().unwrap();
        let second = Reserved::make(&root.join("a/b")).unwrap().unwrap();
        assert_eq!(first.path(), root.join("a"));
        assert_eq!(second.path(), root.join("a"));
        drop(first);
        assert!(root.join("a").is_dir());
        drop(second);
        assert!(!root.join("a").exists());
        let kept = Reserved::make(&root.join("c")).unwrap().unwrap();
        std::fs::write(root.join("c/file"), "").unwrap();
        drop(kept);
        assert!(root.join("c/file").exists());
        assert!(Reserved::make(&root.join("c")).unwrap().is_none());
        // Another agent's: it stays as long as that one has it.
        let ours = Reserved::make(&root.join("d")).unwrap().unwrap();
        let theirs = File::open(root.join("d")).unwrap();
        theirs.lock_shared().unwrap();
        drop(ours);
        assert!(root.join("d").is_dir());
        // What we did not make is held so that nobody else removes it, and not removed.
        let again = Reserved::make(&root.join("d")).unwrap().unwrap();
        drop(theirs);
        assert!(File::open(root.join("d")).unwrap().try_lock().is_err());
        drop(again);
        assert!(root.join("d").is_dir());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
