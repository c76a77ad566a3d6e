//! The contract of a backend, tested on each of them.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::ports::{SessionInfo, State};
use engine::words::SessionId;
use store::content::{Content, LARGE};
use store::durable_objects::DurableObjects;
use store::index::{Cursor, Filter, PAGE};
use store::journal::{Backend, Change, Error, Stored};
use store::memory::Memory;
use store::postgres::Postgres;
use store::record::{Encoded, Name, Record};
use store::sqlite::Sqlite;
use store::test_support::{Cluster, Workerd};
use tempfile::TempDir;

/// One rule of the contract, tested on an empty backend.
type Rule = fn(&mut dyn Backend);

/// The whole contract.
const CONTRACT: [(&str, Rule); 7] = [
    ("records are read in order and in pages", records_are_read_in_order_and_in_pages),
    ("facts change with the records", facts_change_with_the_records_or_not_at_all),
    ("old epochs and heads are rejected", append_with_an_old_epoch_or_head_is_rejected),
    ("a running owner keeps its session", session_of_a_running_owner_is_not_taken),
    ("facts change one by one", facts_change_one_by_one),
    ("pages list every session", pages_list_every_session_by_time),
    ("large records and content", large_records_and_content_belong_to_their_sessions),
];

/// Tests the contract; `backend` runs a rule on an empty backend.
fn check(mut on_empty: impl FnMut(Rule)) {
    for (name, rule) in CONTRACT {
        eprintln!("{name}");
        on_empty(rule);
    }
}

// R: S11
#[test]
fn memory_follows_the_contract() {
    check(|rule| rule(&mut Memory::default()));
}

#[test]
fn sqlite_follows_the_contract() {
    check(|rule| {
        let directory = TempDir::new().unwrap();
        rule(&mut Sqlite::open(&directory.path().join("sessions.db")).unwrap());
    });
}

// R: S10
#[test]
fn postgres_follows_the_contract() {
    let cluster = Cluster::start();
    check(|rule| rule(&mut Postgres::new(cluster.empty_database())));
}

pub(crate) fn info(id: &str, cwd: &str, updated: u64) -> SessionInfo {
    let time = UNIX_EPOCH + Duration::from_secs(updated);
    SessionInfo {
        id: SessionId::new(id),
        cwd: PathBuf::from(cwd),
        title: None,
        state: State::Active,
        created: time,
        updated: time,
        bytes: 0,
    }
}

pub(crate) fn text(text: &str) -> Encoded {
    Record::Text { message: Name("m".into()), text: text.to_owned() }.encode().unwrap()
}

pub(crate) fn no_owner_runs(_: &str) -> Option<String> {
    None
}

fn every_owner_runs(owner: &str) -> Option<String> {
    Some(format!("process {owner}"))
}

pub(crate) fn texts(backend: &mut dyn Backend, id: &str) -> Vec<Encoded> {
    let mut found: Vec<Stored> = Vec::new();
    loop {
        let from = found.last().map_or(1, |last| last.seq + 1);
        let page = backend.read(id, from, 100).unwrap();
        if page.is_empty() {
            return found.into_iter().map(|stored| stored.record).collect();
        }
        found.extend(page);
    }
}

fn records_are_read_in_order_and_in_pages(backend: &mut dyn Backend) {
    backend.create(&info("s", "/w", 1), "me", &text("own")).unwrap();
    let records: Vec<Encoded> = (0..50).map(|n| text(&"x".repeat(n))).collect();
    assert_eq!(backend.append("s", 1, 1, &records[..20], None), Ok(21));
    assert_eq!(backend.append("s", 1, 21, &records[20..], None), Ok(51));
    assert_eq!(texts(backend, "s")[1..], records);
    let page = backend.read("s", 51, 1).unwrap();
    assert_eq!(page.iter().map(|stored| stored.seq).collect::<Vec<_>>(), [51]);
    assert_eq!(backend.read("none", 1, 1), Err(Error::NotFound));
}

fn facts_change_with_the_records_or_not_at_all(backend: &mut dyn Backend) {
    backend.create(&info("s", "/w", 1), "one", &text("own")).unwrap();
    let change = Change { state: Some(State::Error), bytes: Some(7), ..Change::default() };
    assert_eq!(backend.append("s", 2, 1, &[text("a")], Some(&change)), Err(Error::Fenced));
    let before = backend.find("s").unwrap().unwrap().info;
    assert_eq!((before.state, before.bytes), (State::Active, 0));
    assert_eq!(backend.append("s", 1, 1, &[text("a")], Some(&change)), Ok(2));
    let after = backend.find("s").unwrap().unwrap().info;
    assert_eq!((after.state, after.bytes), (State::Error, 7));
    assert_eq!(texts(backend, "s").len(), 2);
}

fn append_with_an_old_epoch_or_head_is_rejected(backend: &mut dyn Backend) {
    backend.create(&info("s", "/w", 1), "one", &text("own")).unwrap();
    assert_eq!(backend.append("s", 1, 0, &[text("a")], None), Err(Error::Fenced));
    assert_eq!(backend.append("s", 1, 2, &[text("a")], None), Err(Error::Fenced));
    assert_eq!(backend.append("s", 1, 1, &[text("a")], None), Ok(2));
    let claim = backend.take("s", "two", &text("own"), &no_owner_runs).unwrap();
    assert_eq!((claim.epoch, claim.head, claim.is_fresh), (2, 3, true));
    // The first owner resumes and still assumes that it owns the session.
    assert_eq!(backend.append("s", 1, 2, &[text("b")], None), Err(Error::Fenced));
    assert_eq!(backend.append("s", 1, 3, &[text("b")], None), Err(Error::Fenced));
    assert_eq!(backend.append("s", 2, 3, &[text("b")], None), Ok(4));
    assert_eq!(texts(backend, "s").len(), 4);
}

fn session_of_a_running_owner_is_not_taken(backend: &mut dyn Backend) {
    backend.create(&info("s", "/w", 1), "one", &text("own")).unwrap();
    let rejected = backend.take("s", "two", &text("own"), &every_owner_runs);
    assert_eq!(rejected, Err(Error::Owned("process one".to_owned())));
    let again = backend.take("s", "one", &text("own"), &every_owner_runs).unwrap();
    assert_eq!((again.epoch, again.head, again.is_fresh), (1, 1, false));
    backend.release("s", 1).unwrap();
    assert!(backend.take("s", "two", &text("own"), &every_owner_runs).unwrap().is_fresh);
    // A late release changes nothing.
    backend.release("s", 1).unwrap();
    assert_eq!(backend.find("s").unwrap().unwrap().owner.as_deref(), Some("two"));
    assert_eq!(backend.take("none", "two", &text("own"), &no_owner_runs), Err(Error::NotFound));
}

fn facts_change_one_by_one(backend: &mut dyn Backend) {
    backend.create(&info("s", "/w", 1), "me", &text("own")).unwrap();
    assert_eq!(backend.create(&info("s", "/w", 1), "me", &text("own")), Err(Error::Exists));
    let later = UNIX_EPOCH + Duration::from_secs(9);
    let title = Change { title: Some("Title".to_owned()), ..Change::default() };
    let state = Change { state: Some(State::Error), updated: Some(later), ..Change::default() };
    backend.change("s", &title).unwrap();
    backend.change("s", &state).unwrap();
    backend.change("s", &Change { bytes: Some(7), ..Change::default() }).unwrap();
    let found = backend.find("s").unwrap().unwrap().info;
    assert_eq!(found.title.as_deref(), Some("Title"));
    assert_eq!((found.state, found.updated, found.bytes), (State::Error, later, 7));
    assert_eq!(backend.change("none", &title), Err(Error::NotFound));
    assert_eq!(backend.find("none").unwrap(), None);
}

fn pages_list_every_session_by_time(backend: &mut dyn Backend) {
    let count = PAGE as u64 * 2 + 7;
    for number in 0..count {
        let directory = if number % 3 == 0 { "/a" } else { "/b" };
        // Several have the same time, so the order must not depend on it alone.
        let info = info(&format!("s{number}"), directory, number / 5);
        backend.create(&info, "me", &text("own")).unwrap();
    }
    for (cwd, expected) in [(None, count), (Some("/a"), count.div_ceil(3))] {
        let mut filter = Filter { cwd: cwd.map(PathBuf::from), after: None };
        let mut seen: Vec<(SystemTime, String)> = Vec::new();
        loop {
            let page = backend.list(&filter).unwrap();
            assert!(page.sessions.len() <= PAGE);
            let of = |info: SessionInfo| (info.updated, info.id.to_string());
            seen.extend(page.sessions.into_iter().map(|facts| of(facts.info)));
            let Some(next) = page.next else { break };
            filter.after = Some(Cursor::parse(&next.print()).unwrap());
        }
        assert_eq!(seen.len() as u64, expected);
        assert!(seen.is_sorted_by_key(|(time, _)| std::cmp::Reverse(*time)));
        seen.sort_by(|one, other| one.1.cmp(&other.1));
        seen.dedup();
        assert_eq!(seen.len() as u64, expected);
    }
    for bad in ["", "x", "1", "1.", "1.2.3", "-1.2"] {
        assert_eq!(Cursor::parse(bad), Err(Error::BadCursor), "{bad}");
    }
}

fn large_records_and_content_belong_to_their_sessions(backend: &mut dyn Backend) {
    let large = text(&"y".repeat(3 * LARGE));
    backend.create(&info("s", "/w", 1), "me", &text("own")).unwrap();
    backend.append("s", 1, 1, &[large.clone(), text("small"), large.clone()], None).unwrap();
    backend.copy("s", "copy", SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(backend.copy("s", "copy", SystemTime::UNIX_EPOCH), Err(Error::Exists));
    assert_eq!(backend.copy("none", "other", SystemTime::UNIX_EPOCH), Err(Error::NotFound));
    assert_eq!(texts(backend, "copy"), texts(backend, "s"));
    backend.delete("s").unwrap();
    backend.delete("s").unwrap();
    assert_eq!(backend.read("s", 1, 1), Err(Error::NotFound));
    assert_eq!(texts(backend, "copy")[1..], [large.clone(), text("small"), large]);
    let claim = backend.take("copy", "me", &text("own"), &no_owner_runs).unwrap();
    assert_eq!((claim.epoch, claim.head), (2, 5));
    let body = vec![0xff; 2 * LARGE];
    let content = Content::of(&body);
    assert_eq!(backend.put("copy", &content), Ok(true));
    assert_eq!(backend.put("copy", &content), Ok(false));
    backend.copy("copy", "third", SystemTime::UNIX_EPOCH).unwrap();
    backend.delete("copy").unwrap();
    assert_eq!(backend.get("third", &content.hash), Ok(Some(body.clone())));
    assert_eq!(backend.get("third", &[0; 32]), Ok(None));
    assert_eq!(backend.get("copy", &content.hash), Err(Error::NotFound));
}

// R: S10
#[test]
fn durable_objects_follow_the_contract() {
    check(|rule| {
        let workerd = Workerd::start();
        rule(&mut DurableObjects::new(workerd.url()));
    });
}

/// Two connections to one database, like two processes.
#[test]
fn two_writers_of_one_database_fence_each_other() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("sessions.db");
    let (mut one, mut two) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    one.create(&info("s", "/w", 1), "one", &text("own")).unwrap();
    assert_eq!(one.append("s", 1, 1, &[text("a")], None), Ok(2));
    let claim = two.take("s", "two", &text("own"), &no_owner_runs).unwrap();
    assert_eq!(two.append("s", claim.epoch, claim.head, &[text("b")], None), Ok(4));
    assert_eq!(one.append("s", 1, 2, &[text("c")], None), Err(Error::Fenced));
    assert_eq!(texts(&mut one, "s"), texts(&mut two, "s"));
}
