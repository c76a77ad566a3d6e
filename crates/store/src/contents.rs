//! Long content: a file each beside the database, named by its hash. SQLite would write every page of it twice.
//!
//! Whoever writes or removes holds the database's lock, so there is one such at a time, in whatever process.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::apart::{hash_of, name_of};
use crate::journal::{Content, Hash};
use crate::store::make_folder;

/// The files that wait for a sync.
pub(crate) type Unsynced = Arc<Mutex<Vec<PathBuf>>>;

/// The folder of the files.
#[derive(Debug)]
pub(crate) struct Contents {
    folder: PathBuf,
    unsynced: Unsynced,
}

impl Contents {
    /// Names the folder for a database. It is made when there is something to put into it.
    pub(crate) fn of(database: &Path) -> Contents {
        Contents { folder: Contents::folder(database), unsynced: Unsynced::default() }
    }

    pub(crate) fn folder(database: &Path) -> PathBuf {
        database.with_extension("contents")
    }

    /// Returns the files that wait for a sync.
    pub(crate) fn unsynced(&self) -> Unsynced {
        Arc::clone(&self.unsynced)
    }

    fn path(&self, hash: &Hash) -> PathBuf {
        self.folder.join(&*name_of(hash).0)
    }

    /// Keeps content, unless it is there.
    pub(crate) fn put(&self, content: &Content<'_>) -> io::Result<()> {
        let path = self.path(&content.hash);
        // The death of a machine may have left something else under its name.
        let is_there = path.metadata().is_ok_and(|found| found.len() == content.body.len() as u64);
        if is_there && std::fs::read(&path).is_ok_and(|found| found == content.body) {
            return Ok(());
        }
        make_folder(&self.folder)?;
        let new = self.folder.join(NEW);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&new)?.write_all(content.body)?;
        std::fs::rename(&new, &path)?;
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        Ok(())
    }

    /// Returns the content under a hash. What cannot be read is as good as lost; whatever else there is can be.
    pub(crate) fn get(&self, hash: &Hash) -> Option<Vec<u8>> {
        let path = self.path(hash);
        let body = std::fs::read(&path);
        body.inspect_err(|err| tracing::warn!("{}: {err}", path.display())).ok()
    }

    /// Removes what nobody uses.
    pub(crate) fn sweep<E: From<io::Error>>(
        &self,
        is_used: impl Fn(&Hash) -> Result<bool, E>,
    ) -> Result<(), E> {
        let entries = match self.folder.read_dir() {
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let hash = path.file_name().and_then(|name| hash_of(name.to_str()?));
            let is_used = match hash {
                Some(hash) => is_used(&hash)?,
                None => !path.ends_with(NEW),
            };
            if !is_used {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// What a file is called while it is written.
const NEW: &str = "new";

/// Deleted text is overwritten, not only forgotten.
fn remove(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    io::copy(&mut io::Read::take(io::repeat(0), file.metadata()?.len()), &mut file)?;
    file.sync_data()?;
    std::fs::remove_file(path)
}

/// Syncs files, and the folder that they are in. One that is gone was deleted.
pub(crate) fn sync(unsynced: &Unsynced) -> io::Result<()> {
    let files = std::mem::take(&mut *unsynced.lock().unwrap_or_else(PoisonError::into_inner));
    for path in &files {
        match File::open(path) {
            Err(err) if err.kind() == ErrorKind::NotFound => {}
            file => file?.sync_data()?,
        }
    }
    match files.first().and_then(|file| file.parent()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
