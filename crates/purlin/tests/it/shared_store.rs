//! Sessions in PostgreSQL: two programs with nothing in common but the database, like two containers.

use std::path::Path;

use serde_json::{Value, json};
use store::test_support::Cluster;

use crate::directory::Directory;
use crate::second_process::{WRITE, ask, directory, hello, load, open};
use crate::syscalls::Agent;

const SCRIPT: &str = "model text \"Hello.\"\nmodel loop\n";

/// Makes a home whose configuration names the store.
fn home(url: &str) -> Directory {
    let home = directory(SCRIPT);
    configure(&home, &json!({ "store": url }));
    home
}

fn configure(home: &Path, config: &Value) {
    let directory = home.join(".config/purlin");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("purlin.json"), config.to_string()).unwrap();
}

/// Runs the program and returns everything it prints.
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn printed(home: &Path, arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(arguments).env_clear().env("HOME", home).env("XDG_DATA_HOME", home.join("data"));
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

fn shows_hello(shown: &[Value]) -> bool {
    shown.iter().any(|update| update["content"]["text"] == "Hello.")
}

/// Ends the leases of processes that were killed, instead of waiting for it.
fn end_leases(url: &str) {
    let mut client = postgres::Client::connect(url, postgres::NoTls).unwrap();
    client
        .execute("UPDATE purlin_node SET lease_until = now() - interval '1 second'", &[])
        .unwrap();
}

// R: S10, S9, S2
#[test]
fn session_of_a_killed_machine_continues_on_another() {
    let cluster = Cluster::start();
    let url = cluster.empty_url();
    let (one_home, two_home) = (home(&url), home(&url));
    let mut one = Agent::start(&one_home, None);
    hello(&mut one, false);
    let session = open(&mut one, &one_home);
    ask(&mut one, &session, "go");
    let mut two = Agent::start(&two_home, None);
    hello(&mut two, false);
    // It is idle on the first machine, so the second may take it over, and the first can write no more.
    let (loaded, _) = load(&mut two, &session);
    assert!(loaded.get("result").is_some(), "{loaded}");
    let (refused, _) = ask(&mut one, &session, "still mine?");
    assert_eq!(refused["error"]["code"], -31902, "{refused}");
    two.kill();
    end_leases(&url);
    let mut two = Agent::start(&two_home, None);
    hello(&mut two, false);
    let (loaded, shown) = load(&mut two, &session);
    assert!(loaded.get("result").is_some(), "{loaded}");
    assert!(shows_hello(&shown), "{shown:?}");
    let (ended, shown) = ask(&mut two, &session, "and now?");
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert!(shows_hello(&shown), "{shown:?}");
    two.end();
    one.end();
    assert!(!one_home.join("data/purlin/sessions.db").exists(), "nothing is stored beside it");
}

// R: S10
#[test]
fn server_that_cannot_be_reached_is_reported_and_its_password_is_not() {
    let home = home("postgres://me:hunter2@127.0.0.1:1/db");
    let mut agent = Agent::start(&home, None);
    hello(&mut agent, false);
    let params = json!({ "cwd": &*home, "mcpServers": [] });
    let refused = agent.call("session/new", &params, &mut Vec::new()).unwrap();
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(text.contains("PostgreSQL"), "{refused}");
    assert!(!refused.to_string().contains("hunter2"), "{refused}");
    agent.end();
    let shown = printed(&home, &["config", "show"]);
    assert!(shown.contains("store") && !shown.contains("hunter2"), "{shown}");
}

// R: S10, S11
#[test]
fn sessions_are_copied_to_the_shared_store_with_what_undo_needs() {
    let cluster = Cluster::start();
    let url = cluster.empty_url();
    let home = directory(WRITE);
    let mut one = Agent::start(&home, None);
    hello(&mut one, true);
    let session = open(&mut one, &home);
    ask(&mut one, &session, "go");
    one.end();
    let copied = printed(&home, &["sessions", "copy", "--all", "--to", &url]);
    assert!(copied.contains("Copied 1 session"), "{copied}");
    let again = printed(&home, &["sessions", "copy", "--all", "--to", &url]);
    assert!(again.contains("Copied 0 sessions") && again.contains("skipped"), "{again}");
    configure(&home, &json!({ "store": url }));
    let mut two = Agent::start(&home, None);
    hello(&mut two, false);
    let (_, shown) = load(&mut two, &session);
    assert!(!shown.is_empty());
    ask(&mut two, &session, "/undo");
    assert_eq!(std::fs::read_to_string(home.join("a.txt")).unwrap(), "old");
    two.end();
}
