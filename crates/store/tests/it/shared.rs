//! A store that several machines share: crashes of the server, suspended owners, and leases.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use engine::words::Secret;
use store::Location;
use store::durable_objects::DurableObjects;
use store::journal::{Backend, Error};
use store::lease::Lease;
use store::owner::Owner;
use store::postgres::{Postgres, Server};
use store::test_support::{Cluster, Workerd};

use crate::backends::{info, no_owner_runs, text, texts};

const WRITERS: usize = 4;
const CRASHES: usize = 4;

/// How many records each writer must write between two crashes.
const BETWEEN: usize = 40;

/// A function that connects to a store.
type Connect<'a> = &'a (dyn Fn() -> Box<dyn Backend> + std::marker::Sync);

/// Appends numbered records until told to stop; `count` is how many were acknowledged.
fn append_until(stop: &AtomicBool, connect: Connect<'_>, id: &str, count: &AtomicUsize) {
    let mut backend = connect();
    let mut head = backend.create(&info(id, "/w", 1), id, &text("own")).unwrap().head;
    while !stop.load(Ordering::Relaxed) {
        let next = count.load(Ordering::Relaxed);
        let records = [text(&format!("{next}")), text(&format!("{}", next + 1))];
        head = backend.append(id, 1, head, &records, None).unwrap();
        count.fetch_add(records.len(), Ordering::Relaxed);
    }
}

/// Lets several writers append while `crash` kills and restarts the server, then compares what is stored.
fn survive_crashes(connect: Connect<'_>, mut crash: impl FnMut()) {
    let stop = AtomicBool::new(false);
    let counts: [AtomicUsize; WRITERS] = Default::default();
    std::thread::scope(|scope| {
        for (number, count) in counts.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || append_until(stop, connect, &format!("s{number}"), count));
        }
        for number in 1..=CRASHES {
            let has_worked =
                |count: &AtomicUsize| count.load(Ordering::Relaxed) >= number * BETWEEN;
            while !counts.iter().all(has_worked) {
                // The writers are other threads, so they are polled.
                std::thread::sleep(Duration::from_millis(5));
            }
            crash();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut backend = connect();
    for (number, count) in counts.into_iter().map(AtomicUsize::into_inner).enumerate() {
        let expected: Vec<_> = (0..count).map(|record| text(&record.to_string())).collect();
        assert_eq!(texts(&mut *backend, &format!("s{number}"))[1..], expected);
    }
}

// R: S10, S9
#[test]
fn crashes_of_postgres_lose_nothing_and_repeat_nothing() {
    let mut cluster = Cluster::start();
    let server = cluster.empty_database();
    survive_crashes(&|| Box::new(Postgres::new(server.clone())), || cluster.restart());
}

// R: S10, S9
#[test]
fn kills_of_durable_objects_lose_nothing_and_repeat_nothing() {
    let mut workerd = Workerd::start();
    let url = workerd.url();
    survive_crashes(&|| Box::new(DurableObjects::new(url.clone())), || workerd.restart());
}

// R: S10
#[test]
fn owner_that_was_suspended_cannot_write_after_another_took_its_session() {
    let cluster = Cluster::start();
    let server = cluster.empty_database();
    let (mut one, mut two) = (Postgres::new(server.clone()), Postgres::new(server));
    one.create(&info("s", "/w", 1), "one", &text("own")).unwrap();
    assert_eq!(one.append("s", 1, 1, &[text("a")], None), Ok(2));
    let claim = two.take("s", "two", &text("own"), &no_owner_runs).unwrap();
    assert_eq!((claim.epoch, claim.head), (2, 3));
    assert_eq!(one.append("s", 1, 2, &[text("b")], None), Err(Error::Fenced));
    assert_eq!(one.append("s", 1, 3, &[text("b")], None), Err(Error::Fenced));
    assert_eq!(two.append("s", 2, 3, &[text("c")], None), Ok(4));
    assert_eq!(texts(&mut one, "s"), [text("own"), text("a"), text("own"), text("c")]);
}

fn lease(server: &Server) -> Lease {
    Lease::new(Box::new(Postgres::new(server.clone()))).unwrap()
}

// R: S10
#[test]
fn owner_runs_as_long_as_its_lease() {
    let cluster = Cluster::start();
    let url = cluster.empty_url();
    let server = Server::new(Secret::new(&url));
    let (one, two) = (lease(&server), lease(&server));
    assert_eq!(two.describe_owner(one.id()), None, "it took no session yet");
    one.renew().unwrap();
    assert!(two.describe_owner(one.id()).unwrap().starts_with("process "));
    let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    client
        .execute("UPDATE purlin_node SET lease_until = now() - interval '1 second'", &[])
        .unwrap();
    assert_eq!(two.describe_owner(one.id()), None, "its lease has ended");
    two.renew().unwrap();
    let id = two.id().to_owned();
    drop(two);
    assert_eq!(one.describe_owner(&id), None, "it has ended");
}

#[test]
fn errors_do_not_repeat_the_password() {
    for url in [
        "postgres://me:hunter2@127.0.0.1:1/db",
        "postgres://me:hunter2@127.0.0.1:1/db?sslmode=require",
        "postgres://me:hunter2@/db?wrong=1",
        "postgres://me:hunter2@127.0.0.1:x/db",
        "mysql://me:hunter2@127.0.0.1:1/db",
        "http://:hunter2@127.0.0.1:1/",
        "http://:hunter2@db.example/",
        "https://:hunter2@/",
    ] {
        let location = Location::parse(Secret::new(url));
        assert!(!format!("{location:?}").contains("hunter2"));
        let text = store::reach(&location).unwrap_err().to_string();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(
            ["PostgreSQL", "Durable Objects", "the URL"].iter().any(|name| text.contains(name)),
            "{text}"
        );
    }
}
