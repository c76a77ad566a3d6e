//! A temporary directory of a test, removed with all its content when the test ends.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory that no other test uses. Its path has no links in it.
pub(crate) struct Directory {
    path: PathBuf,
    removed_on_drop: TempDir,
}

impl Directory {
    pub(crate) fn new() -> Directory {
        Directory::below(&tempfile::env::temp_dir())
    }

    /// A directory that commands in the sandbox can see: they have `/tmp` and `/var/tmp` to themselves.
    pub(crate) fn outside_of_tmp() -> Directory {
        let home = purlin::env::directories().home;
        let places = [Some(env!("CARGO_TARGET_TMPDIR").into()), home];
        let is_visible =
            |place: &PathBuf| !place.starts_with("/tmp") && !place.starts_with("/var/tmp");
        Directory::below(&places.into_iter().flatten().find(is_visible).unwrap())
    }

    pub(crate) fn below(parent: &Path) -> Directory {
        let directory = tempfile::Builder::new().prefix("purlin-").tempdir_in(parent).unwrap();
        Directory { path: directory.path().canonicalize().unwrap(), removed_on_drop: directory }
    }

    /// Keeps it; who calls this removes it.
    #[cfg(unix)]
    pub(crate) fn kept(self) -> PathBuf {
        self.removed_on_drop.keep().canonicalize().unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, with the directories above it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns the path of something in it as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path.join(name).to_str().unwrap().to_owned()
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}
