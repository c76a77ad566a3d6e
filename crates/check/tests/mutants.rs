//! The suite is tested: every row has a mutant that fails it, and a mutant fails nothing but the rows of its fault.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use check::{Catalogue, Outcome, Profile, Status, Suite, SuiteOptions};

/// Rows about messages that only an agent with a fault sends.
const FAULTS_ONLY: [&str; 2] = ["schema.other-calls", "schema.update.other"];

/// The cases whose messages the rules are tested with.
const FOR_RULES: [&str; 11] = [
    "init",
    "wire_errors",
    "session_",
    "prompt_thought",
    "prompt_usage",
    "prompt_slash",
    "tool_",
    "client_none",
    "permission_always",
    "load",
    "resume",
];

/// Rows that a fault fails besides its own, because they are about the same message.
const ALSO: &[(&str, &[&str])] = &[
    // Every session gets a reply that nobody asked for, so a case with two of them has the same one twice.
    ("wire.answer-known", &["wire.answer-once"]),
    ("init.version", &["init.version-supported", "schema.initialize"]),
    ("init.answer", &["init.version", "init.version-supported", "init.info"]),
    ("session.list", &["session.list-has", "schema.list"]),
    ("session.set-option", &["session.set-option-value"]),
    ("prompt.answer", &["prompt.end-turn", "schema.prompt"]),
    ("prompt.busy-answered", &["prompt.busy"]),
    ("tool.read", EVERY_TOOL_CALL),
    ("tool.announced", &["tool.read", "tool.read-kind", "load.tool"]),
    (
        "permission.asked",
        &["permission.both-ways", "permission.rejected", "permission.rejected-failed"],
    ),
    ("permission.allowed", &["tool.create", "client.write", "client.terminal"]),
    ("tool.create", &["client.write"]),
    ("permission.rejected", &["permission.rejected-failed"]),
    ("resume.silent", &["prompt.updates-first"]),
    ("load.answer", &["load.session"]),
    ("load.first", &["prompt.updates-first"]),
    ("load.session", &["prompt.update-session"]),
    ("cancel.silent", &["prompt.updates-first"]),
    ("isolation.text", &["prompt.updates-first"]),
    ("isolation.history", &["isolation.text"]),
    ("container.new", &["container.prompt"]),
    ("crash.load", &["crash.turn"]),
    ("shutdown.eof", &["shutdown.eof-code", "shutdown.eof-turn"]),
    ("order.new-during-turn", &["order.other-session"]),
    ("mcp.stdio", &["mcp.env", "mcp.tools", "mcp.load"]),
    ("mcp.http", &["mcp.http-headers"]),
    ("session.distinct", &["order.new-first"]),
    ("permission.option-ids", &["permission.always"]),
    (
        "permission.options",
        &[
            "permission.both-ways",
            "permission.always",
            "permission.allowed",
            "tool.create",
            "client.write",
            "client.terminal",
            "client.local-write",
            "session.cwd",
        ],
    ),
];

/// Without tool calls, nothing can be said about them.
const EVERY_TOOL_CALL: &[&str] = &[
    "tool.read-kind",
    "tool.edit-kind",
    "tool.execute-kind",
    "tool.edit-diff",
    "tool.edit-location",
    "tool.failed",
    "tool.command-shown",
    "permission.rejected-failed",
];

fn mutant() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/mutant");
    program.with_extension(std::env::consts::EXE_EXTENSION)
}

fn check(fault: &str, cases: Vec<String>) -> Outcome {
    let mut command = vec![mutant().display().to_string()];
    if !fault.is_empty() {
        command.extend(["--fault".to_owned(), fault.to_owned()]);
    }
    let suite = Suite::new(SuiteOptions {
        command,
        profile: Some(Profile::find("scripted").unwrap()),
        only: Vec::new(),
        cases,
        parallel: 12,
        wait: Duration::from_secs(4),
        linger: Duration::from_millis(40),
        mcp_command: mutant(),
        path: "/usr/bin:/bin".to_owned(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(suite.unwrap().run(&mut |_, _, _| {})).unwrap();
    assert_eq!(outcome.suite_faults, Vec::<String>::new());
    outcome
}

/// Returns the ids of rows that are not passed, with the reasons.
///
/// Rows with limits of time are left out unless they are expected: other tests keep this machine busy.
fn failed(outcome: &Outcome, fault: &str) -> Vec<(String, String)> {
    let bad = outcome.rows.iter().filter(|result| result.status == Status::Failed);
    let told = bad.map(|result| {
        let reason = result.reason.clone().unwrap_or_default();
        (result.row.id.clone(), format!("{reason}\n  {}", result.transcript.join("\n  ")))
    });
    let is_timed = |id: &str| id != fault && (id.starts_with("timing.") || id.ends_with(".fast"));
    told.filter(|(id, _)| !is_timed(id)).collect()
}

// R: Q1, Q2
#[test]
fn agent_without_fault_passes_every_row() {
    let outcome = check("", Vec::new());
    assert_eq!(failed(&outcome, ""), Vec::new());
    let open: Vec<_> =
        outcome.rows.iter().filter(|result| result.status != Status::Passed).collect();
    let is_timed = |id: &str| id.starts_with("timing.") || id.ends_with(".fast");
    let open: Vec<_> = open.into_iter().filter(|result| !is_timed(&result.row.id)).collect();
    let open: BTreeSet<&str> = open.iter().map(|result| &*result.row.id).collect();
    let expected: BTreeSet<&str> = FAULTS_ONLY.into_iter().collect();
    assert_eq!(open, expected, "rows that the mutant does not show");
}

/// Returns the cases that a fault is tested with: those of its row and of its neighbours. Rules are tested with all kinds of
/// messages. With `CHECK_ALL_CASES=1` it is all cases, which takes about a quarter of an hour.
fn cases_for(catalogue: &Catalogue, id: &str) -> Vec<String> {
    if std::env::var_os("CHECK_ALL_CASES").is_some() {
        return Vec::new();
    }
    let own: Vec<&str> = catalogue
        .cases
        .iter()
        .filter(|case| case.rows().contains(id))
        .map(|case| case.name)
        .collect();
    if own.is_empty() {
        return FOR_RULES.iter().map(|name| (*name).to_owned()).collect();
    }
    own.iter().map(|name| name.split('_').next().unwrap_or(name).to_owned()).collect()
}

/// Returns whether a row can fail if these cases are played. Rules look at every case.
fn is_played(catalogue: &Catalogue, id: &str, names: &[String]) -> bool {
    let mut showing = catalogue.cases.iter().filter(|case| case.rows().contains(id)).peekable();
    let is_named = |name: &str| names.is_empty() || names.iter().any(|it| name.starts_with(it));
    showing.peek().is_none() || showing.any(|case| is_named(case.name))
}

/// Runs the mutants of the rows that begin with one of the words.
fn mutants_fail_their_rows(words: &[&str]) {
    let catalogue = Catalogue::load().unwrap();
    let rows = catalogue.rows.iter().map(|row| row.id.clone());
    let mine = |id: &String| words.iter().any(|word| id.starts_with(word));
    let queue: Vec<String> = rows.filter(mine).collect();
    assert!(!queue.is_empty());
    let queue = Mutex::new(queue);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().pop();
                    let Some(fault) = next else { return };
                    let cases = cases_for(&catalogue, &fault);
                    let outcome = check(&fault, cases.clone());
                    let failed = failed(&outcome, &fault);
                    let ids: BTreeSet<&str> = failed.iter().map(|(id, _)| &**id).collect();
                    let also = ALSO.iter().find(|(id, _)| *id == fault).map(|(_, also)| *also);
                    let mut expected: BTreeSet<&str> =
                        also.unwrap_or_default().iter().copied().collect();
                    // Of rows that cases show, only those of the cases that were played.
                    expected.retain(|id| is_played(&catalogue, id, &cases));
                    expected.insert(&fault);
                    if ids != expected {
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("{fault}: expected {expected:?}, got {failed:#?}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Which rows each of the tests below is about: the beginnings of their ids.
const GROUPS: [&[&str]; 6] = [
    &["wire."],
    &["init.", "session."],
    &["prompt.", "tool.", "permission."],
    &["client.", "cancel.", "load.", "resume."],
    &[
        "mcp.",
        "order.",
        "limits.",
        "timing.",
        "crash.",
        "shutdown.",
        "isolation.",
        "reference.",
        "container.",
    ],
    &["schema."],
];

// R: Q1
#[test]
fn every_row_is_tested_with_a_mutant() {
    for row in Catalogue::load().unwrap().rows {
        let mut groups = GROUPS.iter().flat_map(|group| group.iter());
        assert!(
            groups.any(|word| row.id.starts_with(word)),
            "no test runs the mutant of {}",
            row.id
        );
    }
}

// R: Q1
#[test]
fn mutants_of_the_wire() {
    mutants_fail_their_rows(GROUPS[0]);
}

// R: Q1
#[test]
fn mutants_of_sessions() {
    mutants_fail_their_rows(GROUPS[1]);
}

// R: Q1, Q2
#[test]
fn mutants_of_turns() {
    mutants_fail_their_rows(GROUPS[2]);
}

// R: Q1, Q2
#[test]
fn mutants_of_clients_and_cancel() {
    mutants_fail_their_rows(GROUPS[3]);
}

// R: Q1, Q2
#[test]
fn mutants_of_everything_else() {
    mutants_fail_their_rows(GROUPS[4]);
}

// R: Q1
#[test]
fn mutants_of_the_schema() {
    mutants_fail_their_rows(GROUPS[5]);
}
