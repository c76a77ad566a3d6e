//! `cargo xtask order`: which functions run when Purlin starts, opens a session and answers, for the linker.
//!
//! Runs the release build with its names under callgrind, once for each of these steps, and writes the names in that order
//! to `crates/purlin/link-order.txt`; why is told in `crates/purlin/build.rs`. Names carry a hash of the compiler, the
//! profile and the dependencies, so the list is renewed when one of them changes.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::bench::agent::{Agent, Script};
use crate::bench::instructions::{temporary, valgrind};
use crate::program::{self, root};

const LIST: &str = "crates/purlin/link-order.txt";

/// How far a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Start,
    Session,
    Prompt,
}

/// Renews the list.
pub(crate) fn renew() -> Result<()> {
    valgrind()?;
    let build = ["cargo", "rustc", "--release", "--package", "purlin", "--bin", "purlin"];
    program::must_succeed(&[&build[..], &["--", "-C", "strip=none"]].concat())?;
    let purlin = program::target()?.join("release/purlin");
    let purlin = purlin.to_str().context("the path of the program is no text")?;
    let names = program::answer(&["nm", "--defined-only", purlin]).context("nm lists no names")?;
    let ours: HashSet<&str> = names.lines().filter_map(function).collect();
    let mut seen = HashSet::new();
    let mut list = String::new();
    for step in [Step::Start, Step::Session, Step::Prompt] {
        let report = run(purlin, step)?;
        let mut new: Vec<&str> =
            called(&report).filter(|name| ours.contains(name) && !seen.contains(*name)).collect();
        new.sort_unstable();
        new.dedup();
        println!("{step:?}: {} functions", new.len());
        for name in new {
            list.push_str(name);
            list.push('\n');
            seen.insert(name.to_owned());
        }
    }
    std::fs::write(root().join(LIST), list)?;
    println!("written to {LIST}");
    Ok(())
}

/// Runs the program up to a step, and returns what callgrind says of it.
fn run(purlin: &str, step: Step) -> Result<String> {
    let script = Script::write("model text \"a\"\nmodel echo\nmodel loop\n")?;
    let file = temporary("order");
    let out = format!("--callgrind-out-file={}", file.display());
    let arguments = ["--quiet", "--tool=callgrind", "--demangle=no", &out, purlin, "acp"];
    let mut agent = Agent::start(Path::new("valgrind"), &arguments, &script.folder)?;
    if step >= Step::Session {
        let session = agent.open()?;
        if step == Step::Prompt {
            agent.converse(&session, None)?;
        }
    }
    agent.child.end()?;
    let report = std::fs::read_to_string(&file).context("callgrind left no report")?;
    std::fs::remove_file(&file)?;
    Ok(report)
}

/// Reads a line of `nm`: an address, a letter for code, a name.
fn function(line: &str) -> Option<&str> {
    let mut words = line.split(' ');
    let (kind, name) = (words.nth(1)?, words.next()?);
    matches!(kind, "t" | "T" | "w" | "W").then_some(name)
}

/// Lists the functions that a report names, each where it comes up first: `fn=(12) name`. Recursion adds `'2` to a name.
fn called(report: &str) -> impl Iterator<Item = &str> {
    report.lines().filter_map(|line| {
        let named = line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=("))?;
        let (_, name) = named.split_once(") ")?;
        Some(name.split('\'').next().unwrap_or(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_from_both_programs() {
        assert_eq!(function("0000000000001000 T _RNv1a"), Some("_RNv1a"));
        assert_eq!(function("0000000000001000 d table"), None);
        assert_eq!(function("                 U malloc"), None);
        let report = "fl=(1) x\nfn=(3) _RNv1a\n16 1\ncfn=(4) _RNv1b'2\ncalls=1 0\nfn=(3)\n";
        assert_eq!(called(report).collect::<Vec<_>>(), ["_RNv1a", "_RNv1b"]);
    }
}
