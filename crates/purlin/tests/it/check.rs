//! `purlin check` and `purlin load`: Purlin passes every row, an agent on the official SDK is a control, and exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::directory::Directory;

const PURLIN: &str = env!("CARGO_BIN_EXE_purlin");

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn purlin(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PURLIN);
    command.args(arguments).current_dir(home).stdin(Stdio::null());
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").output().unwrap()
}

/// The agent on the protocol's official SDK.
fn sdk_agent() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let agent = test.ancestors().nth(2).unwrap().join("examples/echo_sdk");
    agent.with_extension(std::env::consts::EXE_EXTENSION)
}

/// Returns the ids of rows with a status.
fn rows(report: &Path, status: &str) -> Vec<String> {
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap().iter();
    let chosen = rows.filter(|row| row["status"] == status && row["level"] != "information");
    chosen.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

// R: Q1, Q2
#[test]
fn purlin_passes_every_row() {
    let home = Directory::new();
    // `--parallel 2` leaves room for other tests: a few rows have limits of time.
    let arguments =
        ["check", "--strict", "--parallel", "2", "--json", "r.json", "--", PURLIN, "acp"];
    let output = purlin(&home, &arguments);
    let said = String::from_utf8_lossy(&output.stdout);
    let timed = |id: &String| id.starts_with("timing.") || id.ends_with(".fast");
    let failed: Vec<String> =
        rows(&home.join("r.json"), "failed").into_iter().filter(|id| !timed(id)).collect();
    assert_eq!(failed, Vec::<String>::new(), "{said}");
    assert_eq!(rows(&home.join("r.json"), "not_tested"), Vec::<String>::new(), "{said}");
    assert!(said.contains("purlin"), "{said}");
}

// R: Q1
#[test]
fn sdk_agent_fails_only_what_it_does_not_do() {
    let home = Directory::new();
    let agent = sdk_agent();
    let agent = agent.to_str().unwrap();
    let output = purlin(&home, &["check", "--json", "r.json", "--", agent]);
    // Without a model, musts are not tested, so it cannot be called conformant.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(home.join("r.json")).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap().iter();
    let musts = rows.filter(|row| {
        row["status"] == "failed" && row["origin"] == "protocol" && row["level"] == "must"
    });
    let musts: Vec<&str> = musts.map(|row| row["id"].as_str().unwrap()).collect();
    // It opens the same session again and again, and answers prompts for any session.
    assert_eq!(musts, SDK_AGENT_FAILS, "{}", String::from_utf8_lossy(&output.stdout));
}

const SDK_AGENT_FAILS: [&str; 2] = ["session.distinct", "session.unknown"];

#[test]
fn exit_codes_and_reports_are_as_documented() {
    let home = Directory::new();
    let nothing = purlin(&home, &["check"]);
    assert_eq!(nothing.status.code(), Some(2));
    let missing = purlin(&home, &["check", "--", "/no/such/agent"]);
    assert_eq!(missing.status.code(), Some(2));
    let only = ["--only", "init.version", "--", PURLIN, "acp"];
    let reports =
        ["check", "--junit", "r.xml", "--html", "r.html", "--badge", "r.svg", "--markdown", "r.md"];
    let good = purlin(&home, &[&reports[..], &only[..]].concat());
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let read = |name: &str| std::fs::read_to_string(home.join(name)).unwrap();
    assert!(read("r.xml").contains("<testcase name=\"init.version\""));
    assert!(read("r.xml").contains("errors=\"0\""), "the schema of JUnit needs it");
    assert!(read("r.html").contains("init.version-supported"));
    assert!(read("r.svg").contains("conformant"));
    assert!(read("r.md").contains("| purlin |"));
    // An entry of the baseline that does not fail is an error.
    std::fs::write(home.join("baseline"), "init.version # fixed long ago\n").unwrap();
    let stale = purlin(&home, &[&["check", "--baseline", "baseline"][..], &only[..]].concat());
    assert_eq!(stale.status.code(), Some(1), "{stale:?}");
    assert!(String::from_utf8_lossy(&stale.stdout).contains("stale in the baseline"));
    // A known row that was not checked is not stale; a row that is not known is.
    std::fs::write(home.join("baseline"), "wire.utf8\n").unwrap();
    let unchecked = purlin(&home, &[&["check", "--baseline", "baseline"][..], &only[..]].concat());
    assert_eq!(unchecked.status.code(), Some(0), "{unchecked:?}");
    std::fs::write(home.join("baseline"), "init.nonsense\n").unwrap();
    let unknown = purlin(&home, &[&["check", "--baseline", "baseline"][..], &only[..]].concat());
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    let no_case = purlin(&home, &["check", "--case", "nonsense", "--", PURLIN, "acp"]);
    assert_eq!(no_case.status.code(), Some(2), "{no_case:?}");
    // Reports of earlier runs are shown side by side.
    let json = purlin(&home, &[&["check", "--json", "one.json"][..], &only[..]].concat());
    assert_eq!(json.status.code(), Some(0), "{json:?}");
    let merged = ["check", "--merge", "one.json", "--merge", "one.json", "--markdown", "two.md"];
    assert_eq!(purlin(&home, &merged).status.code(), Some(0));
    assert_eq!(read("two.md").matches("| purlin |").count(), 2 + 1, "{}", read("two.md"));
    let listed = purlin(&home, &["check", "--list"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("wire.utf8"));
}

// R: Q3
#[test]
fn load_is_measured() {
    let home = Directory::new();
    let shape = [
        "load",
        "--sessions",
        "4",
        "--turns",
        "1",
        "--chunks",
        "20",
        "--json",
        "r.json",
        "--html",
        "r.html",
    ];
    let output = purlin(&home, &[&shape[..], &["--", PURLIN, "acp"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(home.join("r.json")).unwrap()).unwrap();
    let measured = report[0]["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 6);
    for scenario in measured {
        assert_eq!(scenario["failed"], 0, "{scenario}");
        assert!(scenario["turns"].as_u64().unwrap() > 0, "{scenario}");
        assert!(scenario["turn"]["p99"].as_f64().unwrap() > 0.0, "{scenario}");
    }
    assert!(std::fs::read_to_string(home.join("r.html")).unwrap().contains("<polyline"));
}
