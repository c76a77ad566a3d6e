//! Every escape attempt at every level, compared with the table in docs/internals/escapes.md.
//!
//! `UPDATE_EXPECT=1` rewrites the table. Read the diff: an `open` in the last columns is a hole.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const LEVELS: [&str; 4] = ["L0", "L1", "L2", "L3"];
const BEGIN: &str = "<!-- escapes: begin -->\n";
const END: &str = "<!-- escapes: end -->\n";
/// An unprivileged user id; the system need not know it.
const USER: u32 = 12345;

/// Attempts that succeed at L3 but stay inside, each with the reason.
const INSIDE: [(&str, &str); 5] = [
    ("E34", "on its own loopback interface"),
    ("E62", "runs with the same restrictions"),
    ("E64", "in its own IPC namespace"),
    ("E68", "a private directory"),
    ("E74", "in its own process table"),
];

/// The results of one run.
pub(crate) struct Run {
    /// By id: what was tried and whether it succeeded.
    pub(crate) verdicts: BTreeMap<String, (String, String)>,
    /// What changed outside, and how many connections arrived.
    pub(crate) changed: Vec<String>,
    pub(crate) visitors: String,
}

fn run(level: &str, is_root: bool) -> Run {
    run_in(level, is_root, &[])
}

pub(crate) fn run_in(level: &str, is_root: bool, variables: &[(&str, &str)]) -> Run {
    let who = if is_root { "root" } else { "user" };
    let removed_on_drop = tempfile::tempdir().unwrap();
    let directory = removed_on_drop.path().to_owned();
    let program = directory.join("driver");
    std::fs::copy(env!("CARGO_BIN_EXE_escape"), &program).unwrap();
    let raise = directory.join("raise");
    std::fs::copy(&program, &raise).unwrap();
    std::fs::set_permissions(&raise, PermissionsExt::from_mode(0o4755)).unwrap();
    let mut command = Command::new(&program);
    command.args(["drive", level]).arg(&directory);
    command.env_clear().env("API_KEY", "sk-of-the-agent").envs(variables.iter().copied());
    if !is_root && am_root() {
        std::os::unix::fs::chown(&directory, Some(USER), Some(USER)).unwrap();
        command.uid(USER).gid(USER);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{level} as {who}: {text}");
    let mut found = Run { verdicts: BTreeMap::new(), changed: Vec::new(), visitors: String::new() };
    for line in text.lines() {
        match line.split('\t').collect::<Vec<_>>().as_slice() {
            ["changed", what] => found.changed.push((*what).to_owned()),
            ["visitors", count] => found.visitors = (*count).to_owned(),
            [id, what, verdict] => {
                let entry = ((*what).to_owned(), (*verdict).to_owned());
                found.verdicts.insert((*id).to_owned(), entry);
            }
            // A program of the image may complain.
            [_] if level == "container" => {}
            _ => panic!("{line:?}"),
        }
    }
    found
}

pub(crate) fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/escapes.md")
}

/// Reads the table of the docs: a verdict by id and column.
fn expected(text: &str) -> BTreeMap<(String, String), String> {
    let table = text.split_once(BEGIN).unwrap().1.split_once(END).unwrap().0;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut verdicts = BTreeMap::new();
    for row in rows.iter().skip(2).filter(|row| row[0].starts_with('E')) {
        for (name, verdict) in rows[0].iter().zip(row).skip(2) {
            verdicts.insert((row[0].to_owned(), (*name).to_owned()), (*verdict).to_owned());
        }
    }
    verdicts
}

fn word(id: &str, verdict: &str, level: &str) -> String {
    let stays_inside = level == "L3" && INSIDE.iter().any(|(known, _)| *known == id);
    match verdict {
        "open" if stays_inside => "inside".to_owned(),
        other => other.to_owned(),
    }
}

fn table(runs: &[(String, &str, Run)]) -> String {
    let mut out = String::from("\n| id | attempt |");
    runs.iter().for_each(|(name, _, _)| out.push_str(&format!(" {name} |")));
    out.push_str(&format!("\n|---|---|{}\n", "---|".repeat(runs.len())));
    let ids: Vec<&String> = runs[0].2.verdicts.keys().collect();
    for id in &ids {
        out.push_str(&format!("| {id} | {} |", runs[0].2.verdicts[*id].0));
        for (_, level, run) in runs {
            out.push_str(&format!(" {} |", word(id, &run.verdicts[*id].1, level)));
        }
        out.push('\n');
    }
    out.push_str(&format!("| | **open, of {}** |", ids.len()));
    for (_, level, run) in runs {
        let is_open = |id: &&&String| word(id, &run.verdicts[**id].1, level) == "open";
        out.push_str(&format!(" **{}** |", ids.iter().filter(is_open).count()));
    }
    out.push_str("\n\nThese work at L3, but affect only the sandbox:\n\n");
    for (id, why) in INSIDE {
        out.push_str(&format!("- {id}: {why}\n"));
    }
    out
}

/// Asserts that nothing gets out of the strongest level.
fn assert_holds(name: &str, run: &Run) {
    assert_eq!(run.changed, Vec::<String>::new(), "{name}: something outside changed");
    assert_eq!(run.visitors, "0", "{name}: a listener was reached");
    let open = run.verdicts.iter().filter(|(_, (_, verdict))| verdict == "open");
    let open: Vec<&str> = open.map(|(id, _)| id.as_str()).collect();
    let inside = INSIDE.map(|(id, _)| id);
    assert_eq!(open, inside, "{name}: other attempts work than those that stay inside");
    assert!(run.verdicts.len() >= 80, "{name}");
}

// R: T7
#[test]
fn nothing_escapes_from_bubblewrap() {
    assert_holds("user", &run("L3-bubblewrap", false));
    if am_root() {
        assert_holds("root", &run("L3-bubblewrap", true));
    }
}

// R: T7
// Fault: T22
#[test]
fn every_attempt_has_the_verdict_of_the_table() {
    let users: &[(&str, bool)] =
        if am_root() { &[("user", false), ("root", true)] } else { &[("user", false)] };
    let mut runs = Vec::new();
    for (user, is_root) in users {
        for level in LEVELS {
            runs.push((format!("{level} {user}"), level, run(level, *is_root)));
        }
    }
    for (name, _, run) in runs.iter().filter(|(_, level, _)| *level == "L3") {
        assert_holds(name, run);
    }
    assert!(runs.iter().all(|(_, _, run)| run.verdicts.len() >= 80));
    eprintln!("attempts: {}", runs.iter().map(|(_, _, run)| run.verdicts.len()).sum::<usize>());
    let text = std::fs::read_to_string(docs()).unwrap();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        assert!(am_root(), "the table has columns of root's");
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let after = rest.split_once(END).unwrap().1;
        std::fs::write(docs(), format!("{before}{BEGIN}{}{END}{after}", table(&runs))).unwrap();
        return;
    }
    let expected = expected(&text);
    let mut wrong = Vec::new();
    for (name, level, run) in &runs {
        // What an unrestricted program may do differs between machines.
        if *level == "L0" || *level == "L1" {
            continue;
        }
        for (id, (what, verdict)) in &run.verdicts {
            let now = word(id, verdict, level);
            let then = expected.get(&(id.clone(), name.clone()));
            if then != Some(&now) {
                wrong.push(format!("{id} ({what}) at {name}: {now}, the docs say {then:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
