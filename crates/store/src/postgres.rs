//! The backend on PostgreSQL: sessions that several machines share.
//!
//! An append is one statement, so it costs one round trip and needs no lock between calls. A commit returns when the server
//! has synced it. `connection` connects again after the server was lost; every statement here can be repeated.

mod connection;

use std::path::PathBuf;
use std::time::SystemTime;

use engine::ports::{SessionInfo, State};
use engine::words::SessionId;
use postgres::Row;

use crate::content::{Content, Hash};
use crate::index::{Cursor, Filter, PAGE, Page, state_in, state_out, time_in, time_out};
use crate::journal::{Backend, Change, Claim, Error, Facts, Stored};
use crate::lease::{LEASE_SECONDS, Leases};
use crate::record::Encoded;
pub use connection::Server;
use connection::{Connection, Live};

const FACTS: &str = "id, cwd, title, state, created, updated, bytes, owner, number";

/// How many records are read in one round trip.
const READ_AHEAD: i64 = 500;

/// Sessions in a PostgreSQL database.
pub struct Postgres {
    connection: Connection,
}

impl Postgres {
    /// Uses a server. The first use connects, and creates the tables if they do not exist.
    #[must_use]
    pub fn new(server: Server) -> Postgres {
        Postgres { connection: Connection::new(server) }
    }
}

fn facts(row: &Row) -> (Facts, u64) {
    let number = |index: usize| row.get::<_, i64>(index).unsigned_abs();
    let info = SessionInfo {
        id: SessionId::new(row.get::<_, String>(0)),
        cwd: PathBuf::from(row.get::<_, String>(1)),
        title: row.get(2),
        state: state_out(row.get(3)),
        created: time_out(number(4)),
        updated: time_out(number(5)),
        bytes: number(6),
    };
    (Facts { info, owner: row.get(7) }, number(8))
}

/// Returns the number of a session.
fn session(client: &mut Live, id: &str) -> Result<i64, Error> {
    let found = client.query_opt("SELECT number FROM purlin_session WHERE id = $1", &[&id])?;
    found.map(|row| row.get(0)).ok_or(Error::NotFound)
}

/// The columns of records: versions, checksums and bodies.
fn columns(records: &[Encoded]) -> (Vec<i32>, Vec<i64>, Vec<&[u8]>) {
    let version = |record: &Encoded| i32::try_from(record.version).unwrap_or(i32::MAX);
    (
        records.iter().map(version).collect(),
        records.iter().map(|record| i64::from(record.checksum)).collect(),
        records.iter().map(|record| record.body.as_slice()).collect(),
    )
}

/// Tells whether a repeated append was already written before the connection was lost: only we can write at this epoch.
fn is_written(
    client: &mut Live,
    id: &str,
    epoch: i64,
    head: i64,
    last: &Encoded,
) -> Result<bool, Error> {
    let found = client.query_opt(
        "SELECT checksum, body FROM purlin_session JOIN purlin_journal ON session = number AND seq = head
         WHERE id = $1 AND epoch = $2 AND head = $3",
        &[&id, &epoch, &head],
    )?;
    Ok(found.is_some_and(|row| {
        row.get::<_, i64>(0) == i64::from(last.checksum) && row.get::<_, &[u8]>(1) == last.body
    }))
}

impl Leases for Postgres {
    fn renew(&mut self, id: &str, description: &str) -> Result<(), Error> {
        let statement = format!(
            "INSERT INTO purlin_node(id, description, lease_until)
             VALUES ($1, $2, now() + interval '{LEASE_SECONDS} seconds')
             ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until"
        );
        self.connection.run(|client, _| {
            client.execute(&statement, &[&id, &description])?;
            client.execute(
                "DELETE FROM purlin_node WHERE lease_until < now() - interval '1 day'",
                &[],
            )?;
            Ok(())
        })
    }

    fn find(&mut self, id: &str) -> Result<Option<String>, Error> {
        let statement = "SELECT description FROM purlin_node WHERE id = $1 AND lease_until > now()";
        self.connection
            .run(|client, _| Ok(client.query_opt(statement, &[&id])?.map(|row| row.get(0))))
    }

    fn end(&mut self, id: &str) -> Result<(), Error> {
        self.connection.run(|client, _| {
            client.execute("DELETE FROM purlin_node WHERE id = $1", &[&id])?;
            Ok(())
        })
    }
}

impl Backend for Postgres {
    fn create(&mut self, info: &SessionInfo, owner: &str, own: &Encoded) -> Result<Claim, Error> {
        let (versions, checksums, bodies) = columns(std::slice::from_ref(own));
        let (created, updated) =
            (time_in(info.created).cast_signed(), time_in(info.updated).cast_signed());
        self.connection.run(|client, is_repeated| {
            let created = client.execute(
                "WITH created AS (
                     INSERT INTO purlin_session(id, cwd, title, state, created, updated, bytes, epoch, head, owner)
                     VALUES ($1, $2, $3, $4, $5, $6, 0, 1, 1, $7) ON CONFLICT (id) DO NOTHING RETURNING number)
                 INSERT INTO purlin_journal(session, seq, version, checksum, body)
                 SELECT number, 1, $8, $9, $10 FROM created",
                &[
                    &info.id.as_str(),
                    &&*info.cwd.to_string_lossy(),
                    &info.title,
                    &state_in(info.state),
                    &created,
                    &updated,
                    &owner,
                    &versions[0],
                    &checksums[0],
                    &bodies[0],
                ],
            )?;
            let found = "SELECT 1 FROM purlin_session WHERE id = $1 AND owner = $2";
            let is_ours = created == 1
                || (is_repeated
                    && client.query_opt(found, &[&info.id.as_str(), &owner])?.is_some());
            let claim = Claim { epoch: 1, head: 1, bytes: 0, is_fresh: true };
            if is_ours { Ok(claim) } else { Err(Error::Exists) }
        })
    }

    fn take(
        &mut self,
        id: &str,
        owner: &str,
        own: &Encoded,
        describe_owner: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Claim, Error> {
        let (versions, checksums, bodies) = columns(std::slice::from_ref(own));
        self.connection.run(|client, _| {
            let mut transaction = client.transaction()?;
            let found = transaction.query_opt(
                "SELECT number, epoch, head, bytes, owner FROM purlin_session WHERE id = $1 FOR UPDATE",
                &[&id],
            )?;
            let row = found.ok_or(Error::NotFound)?;
            let number = |index: usize| row.get::<_, i64>(index).unsigned_abs();
            let (epoch, head, bytes) = (number(1), number(2), number(3));
            match row.get::<_, Option<&str>>(4) {
                Some(current) if current == owner => {
                    return Ok(Claim { epoch, head, bytes, is_fresh: false });
                }
                Some(current) => {
                    if let Some(description) = describe_owner(current) {
                        return Err(Error::Owned(description));
                    }
                }
                None => {}
            }
            let number: i64 = row.get(0);
            transaction.execute(
                "UPDATE purlin_session SET owner = $2, epoch = epoch + 1, head = head + 1, state = 'active'
                 WHERE number = $1",
                &[&number, &owner],
            )?;
            transaction.execute(
                "INSERT INTO purlin_journal(session, seq, version, checksum, body) VALUES ($1, $2, $3, $4, $5)",
                &[&number, &(head + 1).cast_signed(), &versions[0], &checksums[0], &bodies[0]],
            )?;
            transaction.commit()?;
            Ok(Claim { epoch: epoch + 1, head: head + 1, bytes, is_fresh: true })
        })
    }

    fn append(
        &mut self,
        id: &str,
        epoch: u64,
        expected_head: u64,
        records: &[Encoded],
        change: Option<&Change>,
    ) -> Result<u64, Error> {
        let (versions, checksums, bodies) = columns(records);
        let none = Change::default();
        let change = change.unwrap_or(&none);
        let (epoch, expected) = (epoch.cast_signed(), expected_head.cast_signed());
        let head = expected + i64::try_from(records.len()).unwrap_or(i64::MAX);
        self.connection.run(|client, is_repeated| {
            let statement = "
                WITH claimed AS (
                    UPDATE purlin_session SET head = $4, title = coalesce($5, title), state = coalesce($6, state),
                        updated = coalesce($7, updated), bytes = coalesce($8, bytes)
                    WHERE id = $1 AND epoch = $2 AND head = $3 RETURNING number),
                written AS (
                    INSERT INTO purlin_journal(session, seq, version, checksum, body)
                    SELECT number, $3 + place, version, checksum, body FROM claimed,
                    unnest($9::integer[], $10::bigint[], $11::bytea[])
                        WITH ORDINALITY AS record(version, checksum, body, place))
                SELECT number FROM claimed";
            let claimed = client.query_opt(
                statement,
                &[
                    &id,
                    &epoch,
                    &expected,
                    &head,
                    &change.title,
                    &change.state.map(state_in),
                    &change.updated.map(|time| time_in(time).cast_signed()),
                    &change.bytes.map(u64::cast_signed),
                    &versions,
                    &checksums,
                    &bodies,
                ],
            )?;
            let last = records.last().filter(|_| is_repeated && claimed.is_none());
            if claimed.is_some()
                || last.is_some_and(|last| is_written(client, id, epoch, head, last) == Ok(true))
            {
                return Ok(head.unsigned_abs());
            }
            session(client, id)?;
            Err(Error::Fenced)
        })
    }

    fn read(&mut self, id: &str, from: u64, bytes: usize) -> Result<Vec<Stored>, Error> {
        // The sum includes the record itself, so the first one is always returned, and reading stops after the limit.
        let limit = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.connection.run(|client, _| {
            let number = session(client, id)?;
            let rows = client.query(
                "SELECT seq, version, checksum, body FROM (
                     SELECT *, sum(length(body)) OVER (ORDER BY seq) - length(body) AS before FROM (
                         SELECT * FROM purlin_journal WHERE session = $1 AND seq >= $2 ORDER BY seq LIMIT $4
                     ) AS ahead
                 ) AS page WHERE before < $3 ORDER BY seq",
                &[&number, &from.max(1).cast_signed(), &limit.max(1), &READ_AHEAD],
            )?;
            Ok(rows.iter().map(stored).collect())
        })
    }

    fn put(&mut self, id: &str, content: &Content<'_>) -> Result<bool, Error> {
        self.connection.run(|client, _| {
            let number = session(client, id)?;
            let written = client.execute(
                "INSERT INTO purlin_content(session, hash, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                &[&number, &content.hash.as_slice(), &content.body],
            )?;
            Ok(written > 0)
        })
    }

    fn get(&mut self, id: &str, hash: &Hash) -> Result<Option<Vec<u8>>, Error> {
        self.connection.run(|client, _| {
            let number = session(client, id)?;
            let found = client.query_opt(
                "SELECT body FROM purlin_content WHERE session = $1 AND hash = $2",
                &[&number, &hash.as_slice()],
            )?;
            Ok(found.map(|row| row.get(0)))
        })
    }

    fn change(&mut self, id: &str, change: &Change) -> Result<(), Error> {
        self.connection.run(|client, _| {
            let changed = client.execute(
                "UPDATE purlin_session SET title = coalesce($2, title), state = coalesce($3, state),
                 updated = coalesce($4, updated), bytes = coalesce($5, bytes) WHERE id = $1",
                &[
                    &id,
                    &change.title,
                    &change.state.map(state_in),
                    &change.updated.map(|time| time_in(time).cast_signed()),
                    &change.bytes.map(u64::cast_signed),
                ],
            )?;
            if changed == 0 { Err(Error::NotFound) } else { Ok(()) }
        })
    }

    fn release(&mut self, id: &str, epoch: u64) -> Result<(), Error> {
        self.connection.run(|client, _| {
            let released = "UPDATE purlin_session SET owner = NULL WHERE id = $1 AND epoch = $2";
            client.execute(released, &[&id, &epoch.cast_signed()])?;
            Ok(())
        })
    }

    fn find(&mut self, id: &str) -> Result<Option<Facts>, Error> {
        let statement = format!("SELECT {FACTS} FROM purlin_session WHERE id = $1");
        self.connection
            .run(|client, _| Ok(client.query_opt(&statement, &[&id])?.map(|row| facts(&row).0)))
    }

    fn list(&mut self, filter: &Filter) -> Result<Page, Error> {
        let end = i64::MAX.unsigned_abs();
        let after = filter.after.unwrap_or(Cursor { updated: end, number: end });
        let directory = if filter.cwd.is_some() { "cwd = $1" } else { "$1::text IS NULL" };
        let statement = format!(
            "SELECT {FACTS} FROM purlin_session WHERE {directory} AND (updated, number) < ($2, $3)
             ORDER BY updated DESC, number DESC LIMIT $4"
        );
        let cwd = filter.cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned());
        let (updated, number) = (after.updated.cast_signed(), after.number.cast_signed());
        self.connection.run(|client, _| {
            let rows = client.query(&statement, &[&cwd, &updated, &number, &(PAGE as i64 + 1)])?;
            let mut found: Vec<(Facts, u64)> = rows.iter().map(facts).collect();
            let has_more = found.len() > PAGE;
            found.truncate(PAGE);
            let next = found.last().filter(|_| has_more).map(|(facts, number)| Cursor {
                updated: time_in(facts.info.updated),
                number: *number,
            });
            Ok(Page { sessions: found.into_iter().map(|(facts, _)| facts).collect(), next })
        })
    }

    fn copy(&mut self, from: &str, to: &str, now: SystemTime) -> Result<(), Error> {
        let now = time_in(now).cast_signed();
        self.connection.run(|client, is_repeated| {
            let number = session(client, from)?;
            let mut transaction = client.transaction()?;
            let created = transaction.query_opt(
                "INSERT INTO purlin_session(id, cwd, title, state, created, updated, bytes, epoch, head)
                 SELECT $2, cwd, title, $3, $4, $4, bytes, 1, head FROM purlin_session WHERE number = $1
                 ON CONFLICT (id) DO NOTHING RETURNING number",
                &[&number, &to, &state_in(State::Paused), &now],
            )?;
            let Some(copy) = created.map(|row| row.get::<_, i64>(0)) else {
                // A repeated copy finds the one that was made before the connection was lost.
                return if is_repeated { Ok(()) } else { Err(Error::Exists) };
            };
            transaction.execute(
                "INSERT INTO purlin_journal(session, seq, version, checksum, body)
                 SELECT $2, seq, version, checksum, body FROM purlin_journal
                 WHERE session = $1 AND seq <= (SELECT head FROM purlin_session WHERE number = $2)",
                &[&number, &copy],
            )?;
            transaction.execute(
                "INSERT INTO purlin_content(session, hash, body)
                 SELECT $2, hash, body FROM purlin_content WHERE session = $1",
                &[&number, &copy],
            )?;
            Ok(transaction.commit()?)
        })
    }

    fn delete(&mut self, id: &str) -> Result<(), Error> {
        self.connection.run(|client, _| {
            client.execute("DELETE FROM purlin_session WHERE id = $1", &[&id])?;
            Ok(())
        })
    }
}

fn stored(row: &Row) -> Stored {
    let record = Encoded {
        version: row.get::<_, i32>(1).unsigned_abs(),
        checksum: u32::try_from(row.get::<_, i64>(2)).unwrap_or_default(),
        body: row.get(3),
    };
    Stored { seq: row.get::<_, i64>(0).unsigned_abs(), record }
}
