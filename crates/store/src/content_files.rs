//! Large content: one file each next to the database, named by its hash. SQLite would write every page of it twice.
//!
//! A process holds the database's write lock while it writes or removes files, so only one does at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::content::{Content, Hash, hash_of, name_of};
use crate::files::create_private_dir;

/// The files that are not synced yet.
pub(crate) type Unsynced = Arc<Mutex<Vec<PathBuf>>>;

/// The directory of the files.
#[derive(Debug)]
pub(crate) struct ContentFiles {
    directory: PathBuf,
    unsynced: Unsynced,
}

impl ContentFiles {
    /// Uses the directory next to a database. It is created with its first file.
    pub(crate) fn of(database: &Path) -> ContentFiles {
        ContentFiles { directory: ContentFiles::directory(database), unsynced: Unsynced::default() }
    }

    pub(crate) fn directory(database: &Path) -> PathBuf {
        database.with_extension("contents")
    }

    /// Returns the files that are not synced yet.
    pub(crate) fn unsynced(&self) -> Unsynced {
        Arc::clone(&self.unsynced)
    }

    fn path(&self, hash: &Hash) -> PathBuf {
        self.directory.join(&*name_of(hash).0)
    }

    /// Stores content, unless it exists.
    pub(crate) fn put(&self, content: &Content<'_>) -> io::Result<()> {
        let path = self.path(&content.hash);
        // After a power failure the file may have other content than its name says.
        let exists = path.metadata().is_ok_and(|found| found.len() == content.body.len() as u64);
        if exists && std::fs::read(&path).is_ok_and(|found| found == content.body) {
            return Ok(());
        }
        create_private_dir(&self.directory)?;
        let new = self.directory.join(TEMPORARY);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&new)?.write_all(content.body)?;
        std::fs::rename(&new, &path)?;
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        Ok(())
    }

    /// Returns the content with a hash. Content that cannot be read is treated as missing, so that the rest can be used.
    pub(crate) fn get(&self, hash: &Hash) -> Option<Vec<u8>> {
        let path = self.path(hash);
        let body = std::fs::read(&path);
        body.inspect_err(|err| tracing::warn!("{}: {err}", path.display())).ok()
    }

    /// Removes files that no session uses.
    pub(crate) fn remove_unused<E: From<io::Error>>(
        &self,
        is_used: impl Fn(&Hash) -> Result<bool, E>,
    ) -> Result<(), E> {
        let entries = match self.directory.read_dir() {
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let hash = path.file_name().and_then(|name| hash_of(name.to_str()?));
            let is_used = match hash {
                Some(hash) => is_used(&hash)?,
                None => !path.ends_with(TEMPORARY),
            };
            if !is_used {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// The name of a file while it is written.
const TEMPORARY: &str = "new";

/// Removes a file after overwriting it, so that deleted text cannot be recovered.
fn remove(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    io::copy(&mut io::Read::take(io::repeat(0), file.metadata()?.len()), &mut file)?;
    file.sync_data()?;
    std::fs::remove_file(path)
}

/// Syncs files and their directory. A missing file was deleted.
pub(crate) fn sync(unsynced: &Unsynced) -> io::Result<()> {
    let files = std::mem::take(&mut *unsynced.lock().unwrap_or_else(PoisonError::into_inner));
    for path in &files {
        match File::open(path) {
            Err(err) if err.kind() == ErrorKind::NotFound => {}
            file => file?.sync_data()?,
        }
    }
    match files.first().and_then(|file| file.parent()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
