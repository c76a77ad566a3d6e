//! Which functions run first, so that they can be laid out together; `crates/purlin/build.rs` says what it is for.
//!
//! Records under callgrind which functions run when Purlin starts, opens a session and answers. The list is not saved in the
//! repository: names carry a hash of the compiler, the profile and the dependencies. It is part of a release, so that
//! others can build the same bytes.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::bench::agent::{Agent, Script};
use crate::bench::instructions::{temporary, valgrind};
use crate::program;

/// Where a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Start,
    Session,
    Prompt,
}

/// Where the model comes from; each source runs other code when a session is opened.
#[derive(Debug, Clone, Copy)]
enum Model {
    /// A script, as in the benchmarks.
    Script,
    /// The key of a provider, as most users have it.
    Key,
    /// Neither: local servers are looked for, and the guide answers.
    Guide,
}

/// What is recorded, in this order.
const RUNS: [(Model, Step); 6] = [
    (Model::Script, Step::Start),
    (Model::Script, Step::Session),
    (Model::Key, Step::Session),
    (Model::Guide, Step::Session),
    (Model::Script, Step::Prompt),
    (Model::Guide, Step::Prompt),
];

/// Writes the functions of a program with symbols, in the order of their first use.
pub(crate) fn record(purlin: &Path, list: &Path) -> Result<()> {
    valgrind()?;
    let purlin = purlin.to_str().context("the path of the program is not UTF-8")?;
    let names = program::answer(&["nm", "--defined-only", purlin]).context("nm lists no names")?;
    let ours: HashSet<&str> = names.lines().filter_map(function).collect();
    let mut seen = HashSet::new();
    let mut lines = String::new();
    for (model, step) in RUNS {
        let report = run_to(purlin, model, step)?;
        let mut new: Vec<&str> =
            called(&report).filter(|name| ours.contains(name) && !seen.contains(*name)).collect();
        new.sort_unstable();
        new.dedup();
        println!("{model:?}, {step:?}: {} functions", new.len());
        for name in new {
            lines.push_str(name);
            lines.push('\n');
            seen.insert(name.to_owned());
        }
    }
    std::fs::write(list, lines)?;
    println!("written to {}", list.display());
    Ok(())
}

/// Runs the program up to a step, and returns callgrind's report.
fn run_to(purlin: &str, model: Model, step: Step) -> Result<String> {
    let script = Script::write("model text \"a\"\nmodel echo\nmodel loop\n")?;
    if !matches!(model, Model::Script) {
        std::fs::remove_file(script.directory.join("purlin/purlin.json"))?;
    }
    let key = if matches!(model, Model::Key) { "ANTHROPIC_API_KEY=none" } else { "LC_ALL=C" };
    let file = temporary("order");
    let out = format!("--callgrind-out-file={}", file.display());
    let tool = ["valgrind", "--quiet", "--tool=callgrind", "--demangle=no", &out, purlin, "acp"];
    let mut agent =
        Agent::start(Path::new("env"), &[&[key], &tool[..]].concat(), &script.directory)?;
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
    fn functions_are_read_from_nm_and_from_callgrind() {
        assert_eq!(function("0000000000001000 T _RNv1a"), Some("_RNv1a"));
        assert_eq!(function("0000000000001000 d table"), None);
        assert_eq!(function("                 U malloc"), None);
        let report = "fl=(1) x\nfn=(3) _RNv1a\n16 1\ncfn=(4) _RNv1b'2\ncalls=1 0\nfn=(3)\n";
        assert_eq!(called(report).collect::<Vec<_>>(), ["_RNv1a", "_RNv1b"]);
    }
}
