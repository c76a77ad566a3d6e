//! The backend on Durable Objects: the Worker in `deploy/durable-objects` keeps each session in an object of its own.
//!
//! Every operation is one POST with a JSON body, and can be repeated. The Worker recognises an append that it already has.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::ports::{SessionInfo, State};
use engine::words::{Secret, SessionId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::content::{Content, Hash, name_of};
use crate::index::{Filter, PAGE, Page, state_in, state_out, time_in, time_out};
use crate::journal::{Backend, Change, Claim, Error, Facts, Stored};
use crate::lease::{LEASE_SECONDS, Leases};
use crate::record::Encoded;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(20);
/// How long a Worker that was reached before is tried again.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first and the longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The largest number that JavaScript has.
const LAST: u64 = (1 << 53) - 1;

/// Sessions in Durable Objects.
pub struct DurableObjects {
    url: Secret,
    http: Option<Http>,
    was_reached: bool,
}

/// What requests are made with.
struct Http {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    address: reqwest::Url,
    token: Secret,
}

/// A record on the wire.
#[derive(Serialize, Deserialize)]
struct WireRecord {
    #[serde(default, skip_serializing)]
    seq: u64,
    version: u32,
    checksum: u32,
    body: String,
}

/// The facts of a session on the wire.
#[derive(Deserialize)]
struct WireFacts {
    id: String,
    cwd: PathBuf,
    title: Option<String>,
    state: String,
    created: u64,
    updated: u64,
    bytes: u64,
    owner: Option<String>,
    epoch: u64,
    head: u64,
    #[serde(default)]
    number: u64,
}

/// A reply of the Worker.
#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    ok: Value,
    error: Option<String>,
}

impl Http {
    /// Reads a URL whose user or password is the token.
    fn new(url: &Secret) -> Result<Http, Error> {
        let unusable = |why: &str| Error::Disconnected(format!("the URL of the store {why}"));
        let mut address =
            reqwest::Url::parse(url.reveal()).map_err(|_| unusable("is not valid"))?;
        let token = address.password().unwrap_or(address.username()).to_owned();
        if token.is_empty() {
            return Err(unusable("has no token: write it as https://:TOKEN@host"));
        }
        let is_local = matches!(address.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if address.scheme() != "https" && !is_local {
            return Err(unusable("must start with https://, because it carries a token"));
        }
        let is_bare = address.set_username("").and(address.set_password(None)).is_ok();
        if !is_bare {
            return Err(unusable("has no host"));
        }
        // Fails if there is one already, which is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder()
            .timeout(REQUEST)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|err| Error::Failed(err.without_url().to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Http { runtime, client, address, token: Secret::new(token) })
    }

    fn post(&self, operation: &str, body: &Value) -> Result<Reply, Error> {
        let lost = |err: reqwest::Error| {
            let reason = if err.is_timeout() { "no answer in time" } else { "connection failed" };
            Error::Disconnected(format!("Durable Objects: {reason}"))
        };
        let mut address = self.address.clone();
        let base = address.path().trim_end_matches('/').to_owned();
        address.set_path(&format!("{base}/v1/{operation}"));
        let request =
            self.client.post(address).bearer_auth(self.token.reveal()).body(body.to_string());
        self.runtime.block_on(async {
            let response = request.send().await.map_err(lost)?;
            let status = response.status().as_u16();
            let text = response.bytes().await.map_err(lost)?;
            match serde_json::from_slice(&text) {
                Ok(reply) if status == 200 || status == 409 => Ok(reply),
                _ if status == 401 => {
                    Err(Error::Disconnected("Durable Objects: the token was rejected".to_owned()))
                }
                _ => Err(Error::Disconnected(format!("Durable Objects: HTTP status {status}"))),
            }
        })
    }
}

impl DurableObjects {
    /// Uses a Worker. The first use connects.
    #[must_use]
    pub fn new(url: Secret) -> DurableObjects {
        DurableObjects { url, http: None, was_reached: false }
    }

    /// Runs an operation; repeats it if the Worker was lost.
    fn run<T: DeserializeOwned>(&mut self, operation: &str, body: &Value) -> Result<T, Error> {
        let started = Instant::now();
        let (mut pause, longest) = PAUSES;
        let http = match self.http.take() {
            Some(http) => http,
            None => Http::new(&self.url)?,
        };
        let http = self.http.insert(http);
        let mut body = body.clone();
        let reply = loop {
            match http.post(operation, &body) {
                // A Worker that was never reached is probably configured wrongly, and the user is waiting.
                Err(Error::Disconnected(why))
                    if self.was_reached && started.elapsed() + pause <= PATIENCE =>
                {
                    tracing::warn!("{why}; trying again");
                    body["isRepeated"] = Value::Bool(true);
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(longest);
                }
                reply => break reply?,
            }
        };
        self.was_reached = true;
        match reply.error.as_deref() {
            None => serde_json::from_value(reply.ok)
                .map_err(|err| Error::Failed(format!("Durable Objects: invalid reply: {err}"))),
            Some("not_found") => Err(Error::NotFound),
            Some("exists") => Err(Error::Exists),
            Some("fenced") => Err(Error::Fenced),
            Some(other) => Err(Error::Failed(format!("Durable Objects: {other}"))),
        }
    }
}

fn record_out(record: &Encoded) -> WireRecord {
    let body = STANDARD.encode(&record.body);
    WireRecord { seq: 0, version: record.version, checksum: record.checksum, body }
}

fn bytes_in(text: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text).map_err(|_| Error::Damaged("a stored body is not valid".to_owned()))
}

fn change_out(change: &Change) -> Value {
    let mut members = serde_json::Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        value.map(|value| members.insert(name.to_owned(), value));
    };
    set("title", change.title.clone().map(Value::from));
    set("state", change.state.map(|state| state_in(state).into()));
    set("updated", change.updated.map(|time| time_in(time).into()));
    set("bytes", change.bytes.map(Value::from));
    members.into()
}

fn facts_in(facts: WireFacts) -> Facts {
    let info = SessionInfo {
        id: SessionId::new(facts.id),
        cwd: facts.cwd,
        title: facts.title,
        state: state_out(&facts.state),
        created: time_out(facts.created),
        updated: time_out(facts.updated),
        bytes: facts.bytes,
    };
    Facts { info, owner: facts.owner }
}

impl Leases for DurableObjects {
    fn renew(&mut self, id: &str, description: &str) -> Result<(), Error> {
        let body = json!({ "node": id, "description": description, "seconds": LEASE_SECONDS });
        self.run("renew", &body)
    }

    fn find(&mut self, id: &str) -> Result<Option<String>, Error> {
        self.run("node", &json!({ "node": id }))
    }

    fn end(&mut self, id: &str) -> Result<(), Error> {
        self.run("forget", &json!({ "node": id }))
    }
}

impl Backend for DurableObjects {
    fn create(&mut self, info: &SessionInfo, owner: &str, own: &Encoded) -> Result<Claim, Error> {
        let id = info.id.as_str();
        let info = json!({
            "id": id, "cwd": info.cwd.to_string_lossy(), "title": info.title, "state": state_in(info.state),
            "created": time_in(info.created), "updated": time_in(info.updated), "bytes": 0,
        });
        let body = json!({ "id": id, "info": info, "owner": owner, "own": record_out(own) });
        let made: WireFacts = self.run("create", &body)?;
        Ok(Claim { epoch: made.epoch, head: made.head, bytes: 0, is_fresh: true })
    }

    fn take(
        &mut self,
        id: &str,
        owner: &str,
        own: &Encoded,
        describe_owner: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Claim, Error> {
        loop {
            let found: WireFacts = self.run("find", &json!({ "id": id }))?;
            let is_fresh = found.owner.as_deref() != Some(owner);
            if let Some(current) = found.owner.as_deref().filter(|_| is_fresh)
                && let Some(description) = describe_owner(current)
            {
                return Err(Error::Owned(description));
            }
            let body =
                json!({ "id": id, "owner": owner, "epoch": found.epoch, "own": record_out(own) });
            match self.run::<WireFacts>("take", &body) {
                Ok(taken) => {
                    let WireFacts { epoch, head, bytes, .. } = taken;
                    return Ok(Claim { epoch, head, bytes, is_fresh });
                }
                // Another process took it meanwhile; look again who that is.
                Err(Error::Fenced) => {}
                Err(err) => return Err(err),
            }
        }
    }

    fn append(
        &mut self,
        id: &str,
        epoch: u64,
        expected_head: u64,
        records: &[Encoded],
        change: Option<&Change>,
    ) -> Result<u64, Error> {
        let records: Vec<WireRecord> = records.iter().map(record_out).collect();
        let body = json!({
            "id": id, "epoch": epoch, "head": expected_head, "records": records, "change": change.map(change_out),
        });
        Ok(self.run::<WireFacts>("append", &body)?.head)
    }

    fn read(&mut self, id: &str, from: u64, bytes: usize) -> Result<Vec<Stored>, Error> {
        let bytes = (bytes.max(1) as u64).min(LAST);
        let body = json!({ "id": id, "from": from.max(1), "bytes": bytes });
        let records: Vec<WireRecord> = self.run("read", &body)?;
        let stored = |record: WireRecord| {
            let WireRecord { seq, version, checksum, body } = record;
            Ok(Stored { seq, record: Encoded { version, checksum, body: bytes_in(&body)? } })
        };
        records.into_iter().map(stored).collect()
    }

    fn put(&mut self, id: &str, content: &Content<'_>) -> Result<bool, Error> {
        let body = STANDARD.encode(content.body);
        self.run("put", &json!({ "id": id, "hash": &*name_of(&content.hash).0, "body": body }))
    }

    fn get(&mut self, id: &str, hash: &Hash) -> Result<Option<Vec<u8>>, Error> {
        let body = json!({ "id": id, "hash": &*name_of(hash).0 });
        self.run::<Option<String>>("get", &body)?.map(|text| bytes_in(&text)).transpose()
    }

    fn change(&mut self, id: &str, change: &Change) -> Result<(), Error> {
        self.run::<WireFacts>("change", &json!({ "id": id, "change": change_out(change) }))
            .map(drop)
    }

    fn release(&mut self, id: &str, epoch: u64) -> Result<(), Error> {
        match self.run::<WireFacts>("release", &json!({ "id": id, "epoch": epoch })) {
            Ok(_) | Err(Error::NotFound) => Ok(()),
            Err(err) => Err(err),
        }
    }

    fn find(&mut self, id: &str) -> Result<Option<Facts>, Error> {
        match self.run::<WireFacts>("find", &json!({ "id": id })) {
            Ok(facts) => Ok(Some(facts_in(facts))),
            Err(Error::NotFound) => Ok(None),
            Err(err) => Err(err),
        }
    }

    fn list(&mut self, filter: &Filter) -> Result<Page, Error> {
        let (updated, number) =
            filter.after.map_or((LAST, LAST), |after| (after.updated, after.number));
        let cwd = filter.cwd.as_ref().map(|cwd| cwd.to_string_lossy());
        let body = json!({ "cwd": cwd, "updated": updated, "number": number, "limit": PAGE + 1 });
        let mut found: Vec<WireFacts> = self.run("list", &body)?;
        let has_more = found.len() > PAGE;
        found.truncate(PAGE);
        let next = found
            .last()
            .filter(|_| has_more)
            .map(|last| crate::index::Cursor { updated: last.updated, number: last.number });
        Ok(Page { sessions: found.into_iter().map(facts_in).collect(), next })
    }

    fn copy(&mut self, from: &str, to: &str, now: SystemTime) -> Result<(), Error> {
        let now = time_in(now);
        let info =
            json!({ "id": to, "state": state_in(State::Paused), "created": now, "updated": now });
        self.run::<Value>("copy", &json!({ "id": from, "to": to, "info": info })).map(drop)
    }

    fn delete(&mut self, id: &str) -> Result<(), Error> {
        self.run::<Value>("delete", &json!({ "id": id })).map(drop)
    }
}
