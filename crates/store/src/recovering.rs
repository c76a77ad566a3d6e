//! The database on disk. If an operation finds damage, the database is recovered and the operation is repeated.
//!
//! `sqlite::recover` does the work. If another process has recovered it, it is only opened again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use engine::ports::SessionInfo;

use crate::content::{Content, Hash};
use crate::index::{Filter, Page};
use crate::journal::{Backend, Change, Claim, Error, Facts, Stored};
use crate::options::Shared;
use crate::record::Encoded;
use crate::sqlite::Sqlite;
use crate::sqlite::recover::{FileId, recover};

/// How often one operation opens the database again.
const MAX_TRIES: usize = 3;

/// A database that is recovered if it is damaged.
pub(crate) struct Recovering {
    path: PathBuf,
    sqlite: Sqlite,
    /// Tells the user.
    shared: Arc<Shared>,
}

impl Recovering {
    /// Opens the database, creates it, or recovers it.
    pub(crate) fn open(path: &Path, shared: &Arc<Shared>) -> Result<Recovering, Error> {
        let sqlite = match Sqlite::open(path) {
            Err(Error::Damaged(why)) => {
                repair(path, FileId::of(path), &why, shared)?;
                Sqlite::open(path)?
            }
            opened => opened?,
        };
        Ok(Recovering { path: path.to_owned(), sqlite, shared: Arc::clone(shared) })
    }

    /// Returns the open database.
    pub(crate) fn sqlite(&self) -> &Sqlite {
        &self.sqlite
    }

    fn run<T>(&mut self, work: impl Fn(&mut Sqlite) -> Result<T, Error>) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            match work(&mut self.sqlite) {
                // A store of a newer version is never changed.
                Err(Error::Damaged(why))
                    if tries < MAX_TRIES && self.sqlite.read_only().is_none() =>
                {
                    repair(&self.path, self.sqlite.file(), &why, &self.shared)?;
                }
                Err(Error::Replaced) if tries < MAX_TRIES => {}
                done => return done,
            }
            self.sqlite = Sqlite::open(&self.path)?;
        }
    }
}

fn repair(path: &Path, file: Option<FileId>, why: &str, shared: &Shared) -> Result<(), Error> {
    tracing::error!("{} is damaged ({why}); recovering it", path.display());
    let recovered = recover(path, file).map_err(|err| {
        Error::ReadOnly(format!("{} is damaged and cannot be recovered: {err}", path.display()))
    })?;
    let Some(recovered) = recovered else { return Ok(()) };
    let text = format!(
        "The file with your sessions was damaged. {} sessions with {} records were recovered. The damaged file is now {}.",
        recovered.sessions,
        recovered.records,
        recovered.damaged.display()
    );
    tracing::error!("{text}");
    *shared.recovery.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    Ok(())
}

impl Backend for Recovering {
    fn create(&mut self, info: &SessionInfo, owner: &str, own: &Encoded) -> Result<Claim, Error> {
        self.run(|sqlite| sqlite.create(info, owner, own))
    }

    fn take(
        &mut self,
        session: &str,
        owner: &str,
        own: &Encoded,
        describe_owner: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Claim, Error> {
        self.run(|sqlite| sqlite.take(session, owner, own, describe_owner))
    }

    fn append(
        &mut self,
        session: &str,
        epoch: u64,
        expected_head: u64,
        records: &[Encoded],
        change: Option<&Change>,
    ) -> Result<u64, Error> {
        self.run(|sqlite| sqlite.append(session, epoch, expected_head, records, change))
    }

    fn read(&mut self, session: &str, from: u64, bytes: usize) -> Result<Vec<Stored>, Error> {
        self.run(|sqlite| sqlite.read(session, from, bytes))
    }

    fn put(&mut self, session: &str, content: &Content<'_>) -> Result<bool, Error> {
        self.run(|sqlite| sqlite.put(session, content))
    }

    fn get(&mut self, session: &str, hash: &Hash) -> Result<Option<Vec<u8>>, Error> {
        self.run(|sqlite| sqlite.get(session, hash))
    }

    fn change(&mut self, session: &str, change: &Change) -> Result<(), Error> {
        self.run(|sqlite| sqlite.change(session, change))
    }

    fn release(&mut self, session: &str, epoch: u64) -> Result<(), Error> {
        self.run(|sqlite| sqlite.release(session, epoch))
    }

    fn has_changed(&mut self) -> Result<bool, Error> {
        self.run(Sqlite::has_changed)
    }

    fn find(&mut self, session: &str) -> Result<Option<Facts>, Error> {
        self.run(|sqlite| sqlite.find(session))
    }

    fn list(&mut self, filter: &Filter) -> Result<Page, Error> {
        self.run(|sqlite| sqlite.list(filter))
    }

    fn copy(&mut self, from: &str, to: &str, now: SystemTime) -> Result<(), Error> {
        self.run(|sqlite| sqlite.copy(from, to, now))
    }

    fn delete(&mut self, session: &str) -> Result<(), Error> {
        self.run(|sqlite| sqlite.delete(session))
    }
}
