//! Instruction counts from valgrind: the same on a busy machine as on an idle one.
//!
//! Each path runs once with its work and once without, so that the start and the preparation do not count. The saved figures
//! are in `docs/internals/performance/instructions.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::agent::Script;
use super::programs::Programs;
use crate::program::{self, root};

const SAVED: &str = "docs/internals/performance/instructions.json";
/// How much a figure may grow: compilers and hash seeds change it a little.
const ALLOWED: f64 = 0.10;

/// A path through the code: a part of `in_process`, and how often it runs.
struct Work {
    name: &'static str,
    part: &'static str,
    times: u64,
}

const PATHS: [Work; 4] = [
    Work { name: "inbound, a prompt", part: "inbound", times: 10_000 },
    Work { name: "encode, an update", part: "encode", times: 10_000 },
    Work { name: "outbound, a text chunk", part: "outbound", times: 10_000 },
    Work { name: "skipped line, a byte", part: "skip", times: 16 * 1024 * 1024 },
];
const WHOLE: &str = "initialize to exit";

/// Counts, prints the change, and returns whether nothing has grown. With `save` the new figures replace the old.
pub(crate) fn run(programs: &Programs, save: bool) -> Result<bool> {
    valgrind()?;
    let mut counted = BTreeMap::new();
    for path in &PATHS {
        let program = programs.in_process.to_string_lossy();
        let times = path.times.to_string();
        let data = crate::temporary::directory();
        let work = count(&[&program, path.part, &times], "", &data)?;
        let idle = count(&[&program, path.part, &times, "idle"], "", &data)?;
        counted.insert(path.name.to_owned(), (work - idle) as f64 / path.times as f64);
    }
    counted.insert(WHOLE.to_owned(), whole(programs)? as f64);
    let saved = read_saved()?;
    println!("| path | saved | now | change |\n|---|---|---|---|");
    let mut has_grown = false;
    for (name, now) in &counted {
        let (line, grew) = compare(name, saved.get(name).copied(), *now);
        println!("{line}");
        has_grown |= grew;
    }
    if save {
        write_saved(&counted)?;
        println!("saved in {SAVED}");
        return Ok(true);
    }
    if has_grown {
        println!(
            "a path takes over {:.0} % more instructions than the saved figure: find out why, or save the new figures with `cargo xtask bench --instructions --write`",
            ALLOWED * 100.0
        );
    }
    Ok(!has_grown)
}

/// Returns a row of the table, and whether the figure has grown too much.
fn compare(name: &str, saved: Option<f64>, now: f64) -> (String, bool) {
    let Some(saved) = saved else {
        return (format!("| {name} | | {now:.2} | new |"), false);
    };
    let change = now / saved - 1.0;
    (format!("| {name} | {saved:.2} | {now:.2} | {:+.1} % |", change * 100.0), change > ALLOWED)
}

/// Counts the whole program: start, `initialize` and exit.
fn whole(programs: &Programs) -> Result<u64> {
    let script = Script::write("model echo\nmodel loop\n")?;
    let initialize =
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    let purlin = programs.purlin.to_string_lossy();
    count(&[&purlin, "acp"], &format!("{initialize}\n"), &script.directory)
}

/// Runs a program under callgrind and returns the number of instructions.
fn count(words: &[&str], input: &str, data: &Path) -> Result<u64> {
    let file = temporary("callgrind");
    let out = format!("--callgrind-out-file={}", file.display());
    let valgrind = ["valgrind", "--quiet", "--tool=callgrind", &out];
    super::child::feed(&[&valgrind[..], words].concat(), input, data)?;
    let report = std::fs::read_to_string(&file).context("callgrind left no report")?;
    std::fs::remove_file(&file)?;
    total(&report).context("callgrind's report has no summary")
}

fn total(report: &str) -> Option<u64> {
    report.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

pub(crate) fn temporary(name: &str) -> PathBuf {
    crate::temporary::directory().join(format!("purlin-bench-{}.{name}", std::process::id()))
}

/// Ensures `valgrind`.
pub(crate) fn valgrind() -> Result<()> {
    let is_there = || program::answer(&["valgrind", "--version"]).is_some();
    if is_there() {
        return Ok(());
    }
    let is_root = program::answer(&["id", "-u"]).is_some_and(|id| id == "0");
    if is_root && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: valgrind is missing; installing it with apt-get");
        program::must_succeed(&["apt-get", "update"])?;
        program::must_succeed(&["apt-get", "install", "--yes", "valgrind"])?;
    }
    anyhow::ensure!(
        is_there(),
        "counting instructions needs valgrind: install it (on Debian: package valgrind) and run this again"
    );
    Ok(())
}

fn read_saved() -> Result<BTreeMap<String, f64>> {
    let path = root().join(SAVED);
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)
        .with_context(|| format!("{SAVED} is not JSON"))?;
    let figures = saved["instructions"].as_object().with_context(|| format!("{SAVED} is empty"))?;
    Ok(figures.iter().filter_map(|(name, count)| Some((name.clone(), count.as_f64()?))).collect())
}

fn write_saved(counted: &BTreeMap<String, f64>) -> Result<()> {
    let rounded: BTreeMap<&String, f64> =
        counted.iter().map(|(name, count)| (name, (count * 100.0).round() / 100.0)).collect();
    let compiler = program::answer(&["rustc", "--version"]).unwrap_or_default();
    let saved = json!({ "compiler": compiler, "instructions": rounded });
    let path = root().join(SAVED);
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&saved)?))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_by_a_tenth_is_allowed() {
        assert_eq!(
            compare("a", Some(100.0), 109.0),
            ("| a | 100.00 | 109.00 | +9.0 % |".to_owned(), false)
        );
        assert!(compare("a", Some(100.0), 111.0).1);
        assert!(!compare("a", Some(100.0), 50.0).1);
        assert_eq!(compare("a", None, 1.0), ("| a | | 1.00 | new |".to_owned(), false));
    }

    #[test]
    fn total_is_read_from_a_report() {
        assert_eq!(total("events: Ir\nfn=x\n1 2\ntotals: 12345\n"), Some(12345));
        assert_eq!(total("events: Ir\n"), None);
    }
}
