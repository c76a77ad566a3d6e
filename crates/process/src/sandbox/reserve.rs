//! Places for protected paths that are not there yet: an empty folder for as long as a command runs.
//!
//! Only what exists can be mounted over, and a command must not make, say, a `.git` with hooks of its own. An empty
//! `.git` is none to git, and stays harmless if we are killed before it is removed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

/// How many commands rely on each place: the last one removes it.
static HELD: LazyLock<Mutex<HashMap<PathBuf, usize>>> = LazyLock::new(Mutex::default);

/// A place that is kept while this value lives.
#[derive(Debug)]
pub(super) struct Reserved(PathBuf);

impl Reserved {
    /// Makes the first missing folder on the way to `path`; nothing to do where the path exists.
    pub(super) fn make(path: &Path) -> std::io::Result<Option<Reserved>> {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = path.ancestors().find(|place| held.contains_key(*place)) {
            *held.entry(place.to_owned()).or_default() += 1;
            return Ok(Some(Reserved(place.to_owned())));
        }
        let missing = path.ancestors().take_while(|place| place.symlink_metadata().is_err());
        let Some(place) = missing.last() else {
            return Ok(None);
        };
        std::fs::create_dir(place)?;
        held.insert(place.to_owned(), 1);
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
        let Some(count) = held.get_mut(&self.0) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            held.remove(&self.0);
            // Not empty any more: the user made a repository here meanwhile, and keeps it.
            std::fs::remove_dir(&self.0).ok();
        }
    }
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
        std::fs::remove_dir_all(&root).unwrap();
    }
}
