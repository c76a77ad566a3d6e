//! A connection to PostgreSQL that is made again when it was lost.
//!
//! Work that was interrupted is repeated on the new connection, with a flag that says so: the lost server may have done it already.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::words::Secret;
use postgres::error::SqlState;
use postgres::types::ToSql;
use postgres::{Client, Config, Row, Statement, Transaction};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::journal::Error;

/// The tables. Several processes may start at once, so the lock allows only one to create them.
const TABLES: &str = "
BEGIN;
SELECT pg_advisory_xact_lock(7305128846150992205);
CREATE TABLE IF NOT EXISTS purlin_node(
    id text PRIMARY KEY,
    description text NOT NULL,
    lease_until timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS purlin_session(
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    cwd text NOT NULL,
    title text,
    state text NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    bytes bigint NOT NULL,
    epoch bigint NOT NULL,
    head bigint NOT NULL,
    owner text
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS purlin_session_by_time ON purlin_session(updated DESC, number DESC);
CREATE INDEX IF NOT EXISTS purlin_session_by_folder ON purlin_session(cwd, updated DESC, number DESC);
CREATE TABLE IF NOT EXISTS purlin_journal(
    session bigint NOT NULL REFERENCES purlin_session ON DELETE CASCADE,
    seq bigint NOT NULL,
    version integer NOT NULL,
    checksum bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY(session, seq)
);
CREATE TABLE IF NOT EXISTS purlin_content(
    session bigint NOT NULL REFERENCES purlin_session ON DELETE CASCADE,
    hash bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY(session, hash)
);
COMMIT;
";

/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a lost server is tried again. A standby takes over within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first and the longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The address of a server, with its password.
#[derive(Debug, Clone, PartialEq)]
pub struct Server(Secret);

impl Server {
    /// Uses a URL that starts with `postgres://` or `postgresql://`. It may name several hosts. It is checked when it is
    /// used.
    #[must_use]
    pub fn new(url: Secret) -> Server {
        Server(url)
    }

    fn connect(&self) -> Result<Client, Error> {
        let mut config: Config = self.0.reveal().parse().map_err(|err: postgres::Error| {
            Error::Disconnected(format!("the URL of the store is not valid: {}", cause(&err)))
        })?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        config.application_name("purlin");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_platform_verifier())
            .map_err(|err| Error::Disconnected(format!("TLS is not available: {err}")))?
            .with_no_client_auth();
        Ok(config.connect(MakeRustlsConnect::new(tls))?)
    }
}

fn create_tables(client: &mut Client) -> Result<(), Error> {
    // Only the first process needs the right to create tables.
    let last = client.query_one("SELECT to_regclass('purlin_content') IS NOT NULL", &[])?;
    if !last.get::<_, bool>(0) {
        client.batch_execute(TABLES)?;
    }
    Ok(())
}

/// Returns the innermost reason of an error, which has no address in it.
fn cause(err: &postgres::Error) -> String {
    let mut cause: &dyn std::error::Error = err;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

impl From<postgres::Error> for Error {
    fn from(err: postgres::Error) -> Error {
        let text = format!("PostgreSQL: {}", cause(&err));
        // A refused password or a missing database is no fault of ours either.
        let is_refused = err
            .code()
            .is_some_and(|code| ["28", "3D"].iter().any(|class| code.code().starts_with(class)));
        if is_lost(&err) || is_refused { Error::Disconnected(text) } else { Error::Failed(text) }
    }
}

/// Tells whether the server was lost, stops, starts, or has become a standby, so that trying again may help.
fn is_lost(err: &postgres::Error) -> bool {
    let Some(code) = err.code() else {
        return err.is_closed()
            || std::error::Error::source(err).is_some_and(|source| source.is::<std::io::Error>());
    };
    code.code().starts_with("08")
        || [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ]
        .contains(code)
}

/// A connection, and what is needed to make it again. The first use connects.
pub(super) struct Connection {
    server: Server,
    live: Option<Live>,
    was_connected: bool,
}

/// A live connection with its prepared statements.
pub(super) struct Live {
    client: Client,
    /// Bounded: the statements are constant.
    statements: HashMap<String, Statement>,
}

type Values<'a> = &'a [&'a (dyn ToSql + std::marker::Sync)];

impl Live {
    fn prepare(&mut self, text: &str) -> Result<Statement, postgres::Error> {
        if let Some(statement) = self.statements.get(text) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(text)?;
        self.statements.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }

    pub(super) fn execute(&mut self, text: &str, values: Values<'_>) -> Result<u64, Error> {
        let statement = self.prepare(text)?;
        Ok(self.client.execute(&statement, values)?)
    }

    pub(super) fn query(&mut self, text: &str, values: Values<'_>) -> Result<Vec<Row>, Error> {
        let statement = self.prepare(text)?;
        Ok(self.client.query(&statement, values)?)
    }

    pub(super) fn query_opt(
        &mut self,
        text: &str,
        values: Values<'_>,
    ) -> Result<Option<Row>, Error> {
        let statement = self.prepare(text)?;
        Ok(self.client.query_opt(&statement, values)?)
    }

    pub(super) fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        Ok(self.client.transaction()?)
    }
}

impl Connection {
    pub(super) fn new(server: Server) -> Connection {
        Connection { server, live: None, was_connected: false }
    }

    /// Does some work; repeats it on a new connection if the server was lost. The work gets whether it is repeated.
    pub(super) fn run<T>(
        &mut self,
        work: impl Fn(&mut Live, bool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let (mut pause, longest) = PAUSES;
        let mut is_repeated = false;
        loop {
            let done = self.live().and_then(|live| work(live, is_repeated));
            let Err(Error::Disconnected(why)) = done else { return done };
            self.live = None;
            is_repeated = true;
            // A server that was never reached is probably configured wrongly, and the user is waiting.
            if !self.was_connected || started.elapsed() + pause > PATIENCE {
                return Err(Error::Disconnected(why));
            }
            tracing::warn!("{why}; connecting again");
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }

    fn live(&mut self) -> Result<&mut Live, Error> {
        let live = match self.live.take() {
            Some(live) => live,
            None => {
                let mut client = self.server.connect()?;
                create_tables(&mut client)?;
                self.was_connected = true;
                Live { client, statements: HashMap::new() }
            }
        };
        Ok(self.live.insert(live))
    }
}
