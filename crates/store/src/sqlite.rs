//! The backend on disk: one SQLite database for all sessions, with a write-ahead log, and a file for each large content.
//!
//! A commit is a plain write: it survives a crash of this process. The thread in `sync` makes it survive a power failure.
//! Several processes may use the database; epochs keep them out of each other's sessions.

mod pages;
pub(crate) mod recover;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use engine::ports::{SessionInfo, State};
use engine::words::SessionId;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};

use crate::content::{Content, Hash, LARGE};
use crate::content_files::{self, ContentFiles};
use crate::index::{Cursor, Filter, PAGE, Page, state_in, state_out, time_in, time_out};
use crate::journal::{Backend, Change, Claim, Error, Facts, Stored};
use crate::options::SyncAll;
use crate::record::Encoded;
use crate::sync;
use recover::FileId;

/// The version of the tables that this program writes.
pub const SCHEMA: i64 = 2;

/// How long a write waits for another process.
const BUSY: Duration = Duration::from_secs(5);

/// A record's key consists of its session's number and its own, so that the records of a session are contiguous.
const SEQ_BITS: u32 = 32;

/// The table `blob` has row ids: without them, a search for a hash would read all bodies on its way.
const TABLES: &str = "
CREATE TABLE session(
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    cwd TEXT NOT NULL,
    title TEXT,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT
);
CREATE INDEX session_by_time ON session(updated DESC, number DESC);
CREATE INDEX session_by_folder ON session(cwd, updated DESC, number DESC);
CREATE TABLE journal(
    key INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body BLOB,
    blob BLOB
);
CREATE TABLE blob(hash BLOB PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE blob_use(
    session INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY(session, hash)
) WITHOUT ROWID;
CREATE INDEX blob_use_by_hash ON blob_use(hash);
";

/// Sessions in an SQLite database.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    contents: ContentFiles,
    path: PathBuf,
    /// The file that is open. If the path leads to another one, the database was recovered by another process.
    file: Option<FileId>,
    /// Why nothing may be written, if so.
    read_only: Option<String>,
    /// SQLite's count of the writes of others, when it was last read.
    data_version: Option<i64>,
}

impl Sqlite {
    /// Opens the database, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Error::Damaged`] if its header or its schema is damaged; otherwise describes what is wrong with the file or its
    /// directory.
    pub fn open(path: &Path) -> Result<Sqlite, Error> {
        let lock = recover::lock_to_open(path)?;
        let opened = Sqlite::try_open(path);
        drop(lock);
        Ok(opened?)
    }

    fn try_open(path: &Path) -> Result<Sqlite, rusqlite::Error> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        let (contents, file) = (ContentFiles::of(path), FileId::of(path));
        let path = path.to_owned();
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version > SCHEMA {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(BUSY)?;
            let why =
                "the sessions were written by a newer version of Purlin, so they can only be read";
            return Ok(Sqlite {
                connection,
                contents,
                path,
                file,
                read_only: Some(why.to_owned()),
                data_version: None,
            });
        }
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "cache_size", -1024)?;
        // Overwrites deleted text, so that it cannot be recovered.
        connection.pragma_update(None, "secure_delete", "on")?;
        connection.set_prepared_statement_cache_capacity(32);
        if version < SCHEMA {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let version: i64 =
                transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            if version == 0 {
                transaction.execute_batch(TABLES)?;
            }
            if version < SCHEMA {
                transaction.pragma_update(None, "user_version", SCHEMA)?;
            }
            transaction.commit()?;
        }
        Ok(Sqlite { connection, contents, path, file, read_only: None, data_version: None })
    }

    /// Returns why nothing may be written, if so.
    #[must_use]
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// Returns the function that syncs everything that was written.
    pub(crate) fn sync(&self, path: &Path) -> SyncAll {
        let (unsynced, mut sync_log) =
            (self.contents.unsynced(), sync::of_log(Sqlite::log_path(path)));
        Box::new(move || {
            content_files::sync(&unsynced)?;
            sync_log()
        })
    }

    /// Returns the path of the write-ahead log.
    #[must_use]
    pub fn log_path(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push("-wal");
        PathBuf::from(name)
    }

    fn writable(&self) -> Result<(), Error> {
        match &self.read_only {
            Some(why) => Err(Error::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    /// Begins a write transaction. It locks out other writers of the tables and of the content files.
    fn begin(&mut self) -> Result<(rusqlite::Transaction<'_>, &ContentFiles), Error> {
        self.writable()?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // A recovery locks the old file until the new one is in its place.
        if FileId::of(&self.path) != self.file {
            return Err(Error::Replaced);
        }
        Ok((transaction, &self.contents))
    }

    /// Returns the file that is open.
    pub(crate) fn file(&self) -> Option<FileId> {
        self.file
    }
}

/// Tells whether an error means that the file is damaged.
fn is_damage(err: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, Unknown};
    match err.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => true,
        // The statements are constant, so only a damaged schema lacks what they name or has what they create.
        Some(Unknown) => {
            let text = err.to_string();
            ["no such", "has no column", "already exists"].iter().any(|part| text.contains(part))
        }
        _ => false,
    }
}

impl From<std::io::Error> for Error {
    fn from(err: std::io::Error) -> Error {
        Error::Failed(err.to_string())
    }
}

impl From<rusqlite::Error> for Error {
    fn from(err: rusqlite::Error) -> Error {
        if is_damage(&err) {
            Error::Damaged(err.to_string())
        } else {
            Error::Failed(err.to_string())
        }
    }
}

const FACTS: &str = "id, cwd, title, state, created, updated, bytes, owner, number";

fn facts(row: &Row<'_>) -> rusqlite::Result<(Facts, u64)> {
    let info = SessionInfo {
        id: SessionId::new(row.get::<_, String>(0)?),
        cwd: PathBuf::from(row.get::<_, String>(1)?),
        title: row.get(2)?,
        state: state_out(row.get_ref(3)?.as_str().unwrap_or_default()),
        created: time_out(row.get::<_, i64>(4)?.unsigned_abs()),
        updated: time_out(row.get::<_, i64>(5)?.unsigned_abs()),
        bytes: row.get::<_, i64>(6)?.unsigned_abs(),
    };
    Ok((Facts { info, owner: row.get(7)? }, row.get::<_, i64>(8)?.unsigned_abs()))
}

/// Returns a session's number and epoch.
fn session(connection: &Connection, id: &str) -> Result<(i64, u64), Error> {
    let mut query = connection.prepare_cached("SELECT number, epoch FROM session WHERE id = ?1")?;
    let found = query.query_row([id], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?))).optional()?;
    let (number, epoch) = found.ok_or(Error::NotFound)?;
    Ok((number, epoch.unsigned_abs()))
}

fn key(number: i64, seq: u64) -> Result<i64, Error> {
    let seq = u32::try_from(seq).map_err(|_| Error::Failed("too many records".to_owned()))?;
    Ok((number << SEQ_BITS) | i64::from(seq))
}

fn head(connection: &Connection, number: i64) -> Result<u64, Error> {
    let mut query =
        connection.prepare_cached("SELECT max(key) FROM journal WHERE key BETWEEN ?1 AND ?2")?;
    let last: Option<i64> =
        query.query_row([key(number, 0)?, key(number, u64::from(u32::MAX))?], |row| row.get(0))?;
    Ok(last.map_or(0, |last| last.unsigned_abs() & u64::from(u32::MAX)))
}

fn insert(
    (connection, contents): (&Connection, &ContentFiles),
    number: i64,
    seq: u64,
    record: &Encoded,
) -> Result<(), Error> {
    let (body, hash) = if record.body.len() > LARGE {
        let content = Content::of(&record.body);
        insert_blob((connection, contents), number, &content)?;
        (None, Some(content.hash))
    } else {
        (Some(record.body.as_slice()), None)
    };
    let mut insert = connection.prepare_cached(
        "INSERT INTO journal(key, version, checksum, body, blob) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let values = params![key(number, seq)?, record.version, record.checksum, body, hash];
    match insert.execute(values) {
        Ok(_) => Ok(()),
        // The number exists: another process wrote it.
        Err(err) if err.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
            Err(Error::Fenced)
        }
        Err(err) => Err(err.into()),
    }
}

/// Stores content. Returns whether it was new to the session.
fn insert_blob(
    (connection, contents): (&Connection, &ContentFiles),
    number: i64,
    content: &Content<'_>,
) -> Result<bool, Error> {
    let used = connection
        .prepare_cached("INSERT OR IGNORE INTO blob_use(session, hash) VALUES (?1, ?2)")?
        .execute(params![number, content.hash])?;
    if used > 0 && content.body.len() > LARGE {
        contents.put(content)?;
    } else if used > 0 {
        connection
            .prepare_cached("INSERT OR IGNORE INTO blob(hash, body) VALUES (?1, ?2)")?
            .execute(params![content.hash, content.body])?;
    }
    Ok(used > 0)
}

fn update(connection: &Connection, id: &str, change: &Change) -> Result<(), Error> {
    let changed = connection
        .prepare_cached(
            "UPDATE session SET title = coalesce(?2, title), state = coalesce(?3, state),
             updated = coalesce(?4, updated), bytes = coalesce(?5, bytes) WHERE id = ?1",
        )?
        .execute(params![
            id,
            change.title,
            change.state.map(state_in),
            change.updated.map(|time| time_in(time).cast_signed()),
            change.bytes.map(u64::cast_signed),
        ])?;
    if changed == 0 { Err(Error::NotFound) } else { Ok(()) }
}

impl Backend for Sqlite {
    fn create(&mut self, info: &SessionInfo, owner: &str, own: &Encoded) -> Result<Claim, Error> {
        let (transaction, contents) = self.begin()?;
        let created = transaction
            .prepare_cached(
                "INSERT OR IGNORE INTO session(id, cwd, title, state, created, updated, bytes, epoch, owner)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 1, ?7)",
            )?
            .execute(params![
                info.id.as_str(),
                info.cwd.to_string_lossy(),
                info.title,
                state_in(info.state),
                time_in(info.created).cast_signed(),
                time_in(info.updated).cast_signed(),
                owner,
            ])?;
        if created == 0 {
            return Err(Error::Exists);
        }
        insert((&transaction, contents), transaction.last_insert_rowid(), 1, own)?;
        transaction.commit()?;
        Ok(Claim { epoch: 1, head: 1, bytes: 0, is_fresh: true })
    }

    fn take(
        &mut self,
        id: &str,
        owner: &str,
        own: &Encoded,
        describe_owner: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Claim, Error> {
        let (transaction, contents) = self.begin()?;
        let (number, epoch) = session(&transaction, id)?;
        let (current_owner, bytes): (Option<String>, i64) = transaction.query_row(
            "SELECT owner, bytes FROM session WHERE number = ?1",
            [number],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let bytes = bytes.unsigned_abs();
        let head = head(&transaction, number)?;
        match current_owner {
            Some(current_owner) if current_owner == owner => {
                return Ok(Claim { epoch, head, bytes, is_fresh: false });
            }
            Some(current_owner) => {
                if let Some(description) = describe_owner(&current_owner) {
                    return Err(Error::Owned(description));
                }
            }
            None => {}
        }
        transaction.execute(
            "UPDATE session SET owner = ?2, epoch = epoch + 1, state = 'active' WHERE number = ?1",
            params![number, owner],
        )?;
        insert((&transaction, contents), number, head + 1, own)?;
        transaction.commit()?;
        Ok(Claim { epoch: epoch + 1, head: head + 1, bytes, is_fresh: true })
    }

    fn append(
        &mut self,
        id: &str,
        epoch: u64,
        expected_head: u64,
        records: &[Encoded],
        change: Option<&Change>,
    ) -> Result<u64, Error> {
        let (transaction, contents) = self.begin()?;
        let (number, current) = session(&transaction, id)?;
        // A number that exists already fails the insert; a gap in the numbers is detected here.
        if current != epoch || head(&transaction, number)? != expected_head {
            return Err(Error::Fenced);
        }
        let mut head = expected_head;
        for record in records {
            head += 1;
            insert((&transaction, contents), number, head, record)?;
        }
        if let Some(change) = change {
            update(&transaction, id, change)?;
        }
        transaction.commit()?;
        Ok(head)
    }

    fn read(&mut self, id: &str, from: u64, bytes: usize) -> Result<Vec<Stored>, Error> {
        let (number, _) = session(&self.connection, id)?;
        let mut query = self.connection.prepare_cached(
            "SELECT key, version, checksum, coalesce(journal.body, blob.body), journal.blob FROM journal
             LEFT JOIN blob ON blob.hash = journal.blob
             WHERE key BETWEEN ?1 AND ?2 ORDER BY key",
        )?;
        let mut rows = query.query([key(number, from)?, key(number, u64::from(u32::MAX))?])?;
        let mut found = Vec::new();
        let mut size = 0;
        while let Some(row) = rows.next()? {
            let seq = row.get::<_, i64>(0)?.unsigned_abs() & u64::from(u32::MAX);
            // A missing body, or one of another type, fails the checksum like any other damage.
            let body = match (row.get_ref(3)?, row.get_ref(4)?.as_blob().map(Hash::try_from)) {
                (ValueRef::Null, Ok(Ok(hash))) => self.contents.get(&hash).unwrap_or_default(),
                (body, _) => body.as_blob().unwrap_or_default().to_vec(),
            };
            size += body.len();
            let record = Encoded {
                version: u32::try_from(row.get::<_, i64>(1)?).unwrap_or(u32::MAX),
                checksum: u32::try_from(row.get::<_, i64>(2)?).unwrap_or_default(),
                body,
            };
            found.push(Stored { seq, record });
            if size >= bytes {
                break;
            }
        }
        Ok(found)
    }

    fn put(&mut self, id: &str, content: &Content<'_>) -> Result<bool, Error> {
        let (transaction, contents) = self.begin()?;
        let (number, _) = session(&transaction, id)?;
        let is_new = insert_blob((&transaction, contents), number, content)?;
        transaction.commit()?;
        Ok(is_new)
    }

    fn get(&mut self, id: &str, hash: &Hash) -> Result<Option<Vec<u8>>, Error> {
        let (number, _) = session(&self.connection, id)?;
        let mut query = self.connection.prepare_cached(
            "SELECT body FROM blob_use LEFT JOIN blob USING (hash) WHERE session = ?1 AND hash = ?2",
        )?;
        match query.query_row(params![number, hash], |row| row.get(0)).optional()? {
            Some(None) => Ok(self.contents.get(hash)),
            body => Ok(body.flatten()),
        }
    }

    fn change(&mut self, id: &str, change: &Change) -> Result<(), Error> {
        let (transaction, _) = self.begin()?;
        update(&transaction, id, change)?;
        Ok(transaction.commit()?)
    }

    fn release(&mut self, id: &str, epoch: u64) -> Result<(), Error> {
        let (transaction, _) = self.begin()?;
        transaction
            .prepare_cached("UPDATE session SET owner = NULL WHERE id = ?1 AND epoch = ?2")?
            .execute(params![id, epoch.cast_signed()])?;
        Ok(transaction.commit()?)
    }

    fn has_changed(&mut self) -> Result<bool, Error> {
        // SQLite changes this number when another connection has written. A new connection has an unknown one.
        let now = self.connection.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        Ok(self.data_version.replace(now) != Some(now))
    }

    fn find(&mut self, id: &str) -> Result<Option<Facts>, Error> {
        let mut query = self
            .connection
            .prepare_cached(&format!("SELECT {FACTS} FROM session WHERE id = ?1"))?;
        Ok(query.query_row([id], |row| Ok(facts(row)?.0)).optional()?)
    }

    fn list(&mut self, filter: &Filter) -> Result<Page, Error> {
        let after = filter.after.unwrap_or(Cursor {
            updated: i64::MAX.unsigned_abs(),
            number: i64::MAX.unsigned_abs(),
        });
        let directory = if filter.cwd.is_some() { "cwd = ?1" } else { "?1 IS NULL" };
        let mut query = self.connection.prepare_cached(&format!(
            "SELECT {FACTS} FROM session WHERE {directory} AND (updated, number) < (?2, ?3)
             ORDER BY updated DESC, number DESC LIMIT ?4"
        ))?;
        let cwd = filter.cwd.as_ref().map(|cwd| cwd.to_string_lossy());
        let (updated, number) = (after.updated.cast_signed(), after.number.cast_signed());
        let rows = query.query_map(params![cwd, updated, number, PAGE as i64 + 1], facts)?;
        let mut found = rows.collect::<Result<Vec<_>, _>>()?;
        let more = found.len() > PAGE;
        found.truncate(PAGE);
        let next = found.last().filter(|_| more).map(|(facts, number)| Cursor {
            updated: time_in(facts.info.updated),
            number: *number,
        });
        Ok(Page { sessions: found.into_iter().map(|(facts, _)| facts).collect(), next })
    }

    fn copy(&mut self, from: &str, to: &str, now: SystemTime) -> Result<(), Error> {
        let (transaction, _) = self.begin()?;
        let (number, _) = session(&transaction, from)?;
        let created = transaction.execute(
            "INSERT OR IGNORE INTO session(id, cwd, title, state, created, updated, bytes, epoch)
             SELECT ?2, cwd, title, ?3, ?4, ?4, bytes, 1 FROM session WHERE number = ?1",
            params![number, to, state_in(State::Paused), time_in(now).cast_signed()],
        )?;
        if created == 0 {
            return Err(Error::Exists);
        }
        let copy = transaction.last_insert_rowid();
        transaction.execute(
            "INSERT INTO journal(key, version, checksum, body, blob)
             SELECT key - ?1 + ?2, version, checksum, body, blob FROM journal
             WHERE key BETWEEN ?1 AND ?3",
            [key(number, 0)?, key(copy, 0)?, key(number, u64::from(u32::MAX))?],
        )?;
        transaction.execute(
            "INSERT INTO blob_use(session, hash) SELECT ?2, hash FROM blob_use WHERE session = ?1",
            [number, copy],
        )?;
        transaction.commit()?;
        Ok(())
    }

    fn delete(&mut self, id: &str) -> Result<(), Error> {
        let (transaction, contents) = self.begin()?;
        let number = match session(&transaction, id) {
            Ok((number, _)) => number,
            Err(Error::NotFound) => return Ok(()),
            Err(err) => return Err(err),
        };
        transaction.execute(
            "DELETE FROM journal WHERE key BETWEEN ?1 AND ?2",
            [key(number, 0)?, key(number, u64::from(u32::MAX))?],
        )?;
        transaction.execute(
            "DELETE FROM blob WHERE hash IN (SELECT hash FROM blob_use WHERE session = ?1)
             AND hash NOT IN (SELECT hash FROM blob_use WHERE session <> ?1)",
            [number],
        )?;
        transaction.execute("DELETE FROM blob_use WHERE session = ?1", [number])?;
        transaction.execute("DELETE FROM session WHERE number = ?1", [number])?;
        // Before the lock is released: after that another session may use a file again.
        contents.remove_unused(|hash| {
            let mut query = transaction.prepare_cached("SELECT 1 FROM blob_use WHERE hash = ?1")?;
            Ok::<_, Error>(query.exists([hash])?)
        })?;
        transaction.commit()?;
        // The log still has the text. A process that is reading may delay the truncation.
        let truncated: rusqlite::Result<i64> =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        if let Err(err) = truncated {
            tracing::debug!("cannot truncate the log: {err}");
        }
        Ok(())
    }
}
