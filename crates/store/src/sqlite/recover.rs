//! Recovers a damaged database: copies every row that can be read to a new file, which replaces the old one.
//!
//! The old file is renamed, never deleted. Other processes notice the replacement before their next access, because the
//! path names another file, and continue in the new one: epochs and owners are copied too. A lock on a separate file
//! keeps every process from opening the database while its files are exchanged. If this process dies in between, the next
//! one finishes the exchange.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, Transaction, params};

use super::pages::{Pages, Row, Value};
use super::{BUSY, SEQ_BITS, Sqlite};
use crate::content::Hash;
use crate::index::time_in;
use crate::journal::Error;

/// What a recovery did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// How many sessions and records the new file has.
    pub(crate) sessions: usize,
    pub(crate) records: usize,
    /// The old file.
    pub(crate) damaged: PathBuf,
}

/// A file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// Returns the file that a path leads to; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Option<FileId> {
        let found = path.metadata().ok()?;
        #[cfg(unix)]
        let id = (
            std::os::unix::fs::MetadataExt::dev(&found),
            std::os::unix::fs::MetadataExt::ino(&found),
        );
        #[cfg(not(unix))]
        let id = (0, found.created().map_or(0, time_in));
        Some(FileId(id.0, id.1))
    }
}

/// Locks the name of the database while its files are opened. Finishes a recovery that was interrupted.
pub(super) fn lock_to_open(path: &Path) -> io::Result<File> {
    let lock = lock_file(path)?;
    if with_suffix(path, RECOVERED).exists() {
        lock.lock()?;
        if with_suffix(path, RECOVERED).exists() {
            exchange(path)?;
        }
        lock.unlock()?;
    }
    lock.lock_shared()?;
    Ok(lock)
}

/// The new file while it is written, and once it is complete.
const WRITING: &str = ".recovering";
const RECOVERED: &str = ".recovered";

/// The epoch of a session whose own is lost: higher than any, so that a process that still owns it cannot write.
const LOST_EPOCH: i64 = 1_000_000_000;

/// Replaces a damaged database by a new one with everything that can be read. Returns `None` if another process did so.
pub(crate) fn recover(path: &Path, damaged: Option<FileId>) -> Result<Option<Recovery>, Error> {
    let lock = lock_file(path)?;
    lock.lock()?;
    if FileId::of(path) != damaged {
        return Ok(None);
    }
    // Keeps other processes from writing to the old file meanwhile. It cannot be locked if its header is damaged; then no
    // process can write to it either.
    let old = Connection::open(path)?;
    old.busy_timeout(BUSY)?;
    let is_locked = old.execute_batch("BEGIN IMMEDIATE");
    if let Err(err) = is_locked.as_ref()
        && !super::is_damage(err)
    {
        return Err(Error::Failed(err.to_string()));
    }
    let mut pages = Pages::open(path, &Sqlite::log_path(path))?;
    let new = with_suffix(path, WRITING);
    remove(&new)?;
    remove(&Sqlite::log_path(&new))?;
    crate::files::create_private_file(&new)?;
    let (sessions, records) = copy_rows(&mut pages, &new)?;
    File::open(&new)?.sync_all()?;
    std::fs::rename(&new, with_suffix(path, RECOVERED))?;
    let damaged = exchange(path)?;
    drop(old);
    Ok(Some(Recovery { sessions, records, damaged }))
}

/// Copies all rows to a new database, and returns how many sessions and records it has.
fn copy_rows(pages: &mut Pages, new: &Path) -> Result<(usize, usize), Error> {
    let mut new = Sqlite::try_open(new)?;
    let transaction = new.connection.transaction()?;
    let mut found = Found::default();
    pages.each_row(|row| found.add(&transaction, row))?;
    let counts = found.finish(&transaction)?;
    transaction.commit()?;
    new.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(counts)
}

/// What is collected while the pages are read.
#[derive(Default)]
struct Found {
    sessions: HashSet<i64>,
    /// Facts from the indexes, for sessions whose own row is lost: id, and working directory with the time of last use.
    ids: HashMap<i64, String>,
    directories: HashMap<i64, (String, i64)>,
    /// Sessions that use some content, from an index in which other numbers look the same.
    uses: Vec<(i64, Hash)>,
}

impl Found {
    /// Adds a row to the new database. The number and the types of its values say which table it belongs to.
    fn add(&mut self, new: &Transaction<'_>, row: Row) -> Result<(), Error> {
        use Value::{Blob, Integer, Null, Text};
        match (row.id, row.values.as_slice()) {
            (
                Some(number),
                [
                    Null,
                    Text(id),
                    Text(cwd),
                    title,
                    Text(state),
                    Integer(created),
                    Integer(updated),
                    Integer(bytes),
                    Integer(epoch),
                    owner,
                ],
            ) => {
                let (title, owner) = (text(title), text(owner));
                new.prepare_cached("INSERT OR IGNORE INTO session VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?
                    .execute(params![number, id, cwd, title, state, created, updated, bytes, epoch, owner])?;
                self.sessions.insert(number);
            }
            (
                Some(key),
                [
                    Null,
                    Integer(version),
                    Integer(checksum),
                    body @ (Blob(_) | Null),
                    hash @ (Blob(_) | Null),
                ],
            ) => {
                new.prepare_cached("INSERT OR IGNORE INTO journal VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![key, version, checksum, blob(body), blob(hash)])?;
                if let Some(hash) = blob(hash).and_then(|hash| Hash::try_from(hash).ok()) {
                    self.uses.push((key >> SEQ_BITS, hash));
                }
            }
            (Some(_), [Blob(hash), Blob(body)]) if hash.len() == size_of::<Hash>() => {
                new.prepare_cached("INSERT OR IGNORE INTO blob(hash, body) VALUES (?1, ?2)")?
                    .execute(params![hash, body])?;
            }
            (None, [Integer(session), Blob(hash)] | [Blob(hash), Integer(session)]) => {
                if let Ok(hash) = Hash::try_from(hash.as_slice()) {
                    self.uses.push((*session, hash));
                }
            }
            (None, [Text(id), Integer(number)]) => drop(self.ids.insert(*number, id.clone())),
            (None, [Text(cwd), Integer(updated), Integer(number)]) => {
                self.directories.insert(*number, (cwd.clone(), *updated));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds sessions whose own row is lost, removes records of unknown sessions, and returns the number of both.
    fn finish(self, new: &Transaction<'_>) -> Result<(usize, usize), Error> {
        for (number, id) in self.ids.iter().filter(|(number, _)| !self.sessions.contains(number)) {
            let now = time_in(SystemTime::now()).cast_signed();
            let (cwd, updated) =
                self.directories.get(number).cloned().unwrap_or(("/".to_owned(), now));
            new.execute(
                "INSERT OR IGNORE INTO session(number, id, cwd, state, created, updated, bytes, epoch)
                 SELECT ?1, ?2, ?3, 'paused', ?4, ?4, coalesce(sum(length(body)), 0), ?6 FROM journal
                 WHERE key >> ?5 = ?1",
                params![number, id, cwd, updated, SEQ_BITS, LOST_EPOCH],
            )?;
        }
        new.execute(
            "DELETE FROM journal WHERE key >> ?1 NOT IN (SELECT number FROM session)",
            [SEQ_BITS],
        )?;
        for (session, hash) in &self.uses {
            new.prepare_cached(
                "INSERT OR IGNORE INTO blob_use(session, hash) SELECT number, ?2 FROM session WHERE number = ?1",
            )?
            .execute(params![session, hash])?;
        }
        let count = |table: &str| -> rusqlite::Result<usize> {
            let count: i64 =
                new.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))?;
            Ok(usize::try_from(count).unwrap_or_default())
        };
        Ok((count("session")?, count("journal")?))
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        Value::Null | Value::Integer(_) | Value::Blob(_) => None,
    }
}

fn blob(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Blob(bytes) => Some(bytes),
        Value::Null | Value::Integer(_) | Value::Text(_) => None,
    }
}

/// Renames the damaged files, and puts the recovered one in their place. Returns the new name of the damaged one.
fn exchange(path: &Path) -> io::Result<PathBuf> {
    // Created by a process that was about to open the database.
    if path.metadata().is_ok_and(|found| found.len() == 0) {
        remove(path)?;
    }
    let damaged = with_suffix(path, &format!(".damaged-{}", time_in(SystemTime::now())));
    for suffix in ["-wal", "-shm", ""] {
        match std::fs::rename(with_suffix(path, suffix), with_suffix(&damaged, suffix)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    std::fs::rename(with_suffix(path, RECOVERED), path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(damaged)
}

fn lock_file(path: &Path) -> io::Result<File> {
    let lock = with_suffix(path, ".lock");
    crate::files::create_private_file(&lock)?;
    OpenOptions::new().append(true).open(lock)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
