//! `cargo xtask attack`: runs everything that attacks the program, and counts the attempts. `cargo xtask fuzz`: the fuzz targets alone.
//!
//! The attacks are tests of the crates; this file only groups them. A test that makes many attempts prints `attempts: N`, any other
//! one counts as one. The ordinary tests include all of them; here some are repeated for longer. The counts of whole runs are written
//! to docs/internals/attacks.md.
//!
//! `fuzz` builds its targets a second time, with counters for every branch, which guide the fuzzer; `attack` uses the ordinary build.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{needs, program};

/// A group of attacks: its name, and for each package which of its tests.
type Suite = (&'static str, &'static [(&'static str, &'static str)]);

const SUITES: [Suite; 12] = [
    (
        "escapes from the sandbox",
        &[("process", "test(/^(escapes|faults|tree)::/) or test(/seccomp|reserve/)")],
    ),
    (
        "files and repositories that run later",
        &[
            ("tools", "test(/quarantine|git_redirects|repositories|watch/)"),
            ("purlin", "test(/^persistence::/) or test(/^worktrees::/)"),
            ("shell", "test(/auto_run/)"),
        ],
    ),
    (
        "odd files in a clone",
        &[("purlin", "test(/^(odd_files|large_files)::/)"), ("tree", "all()")],
    ),
    (
        "paths, links and races",
        &[
            ("tools", "test(/^(paths|race|restore|search)::/) or test(/hard_links/)"),
            ("purlin", "test(/^policy_files::/)"),
        ],
    ),
    (
        "judge of commands: hostile, benign, with rules",
        &[
            ("shell", "test(/^(commands|names|needs|harmless|parser|repository)::/)"),
            ("tools", "test(/^rules::/)"),
            ("engine", "test(/rules|question|permission_key/)"),
        ],
    ),
    (
        "terminal sequences, Markdown and hidden characters",
        &[
            ("engine", "test(/visible|markdown/)"),
            ("mcp", "test(/clean|report/)"),
            ("purlin", "test(/render|output/)"),
        ],
    ),
    (
        "canaries: keys and secrets",
        &[
            (
                "purlin",
                "test(/^(secrets|trace|models|hardening|project_custom)::/) or test(/opening_a_project|injection/)",
            ),
            ("observe", "test(/mask/)"),
            ("client", "test(/remote/)"),
        ],
    ),
    ("hostile lines", &[("purlin", "test(/^(torture|hostile|order)::/)"), ("wire", "all()")]),
    ("kills", &[("purlin", "test(/^(crash|syscalls|survivors|second_process)::/)")]),
    (
        "damaged stores",
        &[("store", "test(/^(recovery|faults|disk|content_files)::/) or test(/record/)")],
    ),
    ("hostile models", &[("purlin", "test(/^faults::/)"), ("providers", "all()")]),
    (
        "hostile MCP servers",
        &[
            ("mcp", "test(/^(faults|remote|login)::/)"),
            ("purlin", "test(/^(injected|server_sandbox|project_servers)::/)"),
        ],
    ),
];

/// The fuzz targets and the packages that they are in.
const TARGETS: [(&str, &str); 12] = [
    ("line", "wire"),
    ("envelope", "wire"),
    ("dialect", "wire"),
    ("sse", "wire"),
    ("formats", "providers"),
    ("shell", "shell"),
    ("patch", "tools"),
    ("edit", "tools"),
    ("diff", "tools"),
    ("html", "tools"),
    ("config", "settings"),
    ("record", "store"),
];

/// Where the counts are published.
const PAGE: &str = "docs/internals/attacks.md";

/// What one run of tests did.
#[derive(Debug, Default, PartialEq)]
struct Count {
    tests: usize,
    attempts: usize,
}

/// Runs all attacks, the short form without repetition. Returns whether all of them failed, as they must.
pub(crate) fn run(is_short: bool) -> Result<bool> {
    needs::test_runner()?;
    needs::node_packages()?;
    needs::strace()?;
    needs::bubblewrap()?;
    // Built once, before the time is measured.
    program::must_succeed(&["cargo", "build", "--workspace"])?;
    program::must_succeed(&["cargo", "nextest", "run", "--workspace", "--no-run"])?;
    let (crashes, cases, seconds) = if is_short { (20, 256, 0) } else { (240, 4096, 10) };
    let (crashes, cases) =
        (format!("PURLIN_CRASH_RUNS={crashes}"), format!("PROPTEST_CASES={cases}"));
    let mut rows = Vec::new();
    let mut holds = true;
    for (name, parts) in SUITES {
        let start = Instant::now();
        let mut all = Count::default();
        for (package, filter) in parts {
            let (passed, count, _) = tests(package, filter, &[&crashes, &cases])?;
            holds &= passed;
            all.tests += count.tests;
            all.attempts += count.attempts;
        }
        rows.push((name.to_owned(), all, start.elapsed().as_secs()));
    }
    let start = Instant::now();
    let fuzzed = fuzz_all(&TARGETS, seconds, run_ordinary)?;
    holds &= fuzzed.holds;
    rows.push(("fuzzed parsers and decoders".to_owned(), fuzzed.all, start.elapsed().as_secs()));
    let table = table_of(&rows);
    println!("\n{table}");
    if holds && !is_short {
        publish("counts", &table)?;
    }
    println!(
        "{}",
        if holds { "Nothing got through." } else { "Something got through, see above." }
    );
    Ok(holds)
}

/// Prints the counts of all groups as a table.
fn table_of(rows: &[(String, Count, u64)]) -> String {
    let mut table = "| attacks | tests | attempts | seconds |\n|---|--:|--:|--:|\n".to_owned();
    let mut row = |name: &str, tests: usize, attempts: usize, seconds: u64| {
        let (tests, attempts) = (grouped(tests), grouped(attempts));
        table.push_str(&format!("| {name} | {tests} | {attempts} | {seconds} |\n"));
    };
    for (name, count, seconds) in rows {
        row(name, count.tests, count.attempts, *seconds);
    }
    let sum = |of: fn(&Count) -> usize| rows.iter().map(|(_, count, _)| of(count)).sum::<usize>();
    let seconds = rows.iter().map(|(_, _, seconds)| seconds).sum();
    row("**all**", sum(|count| count.tests), sum(|count| count.attempts), seconds);
    table
}

/// Prints a number with a comma between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Puts a table into the page, in place of the one between its marks.
fn publish(mark: &str, table: &str) -> Result<()> {
    let file = program::root().join(PAGE);
    let page = std::fs::read_to_string(&file).with_context(|| format!("cannot read {PAGE}"))?;
    let page = with_table(&page, mark, table)
        .with_context(|| format!("{PAGE} has no marks for `{mark}`"))?;
    std::fs::write(&file, page).with_context(|| format!("cannot write {PAGE}"))?;
    println!("{PAGE}: {mark} written");
    Ok(())
}

fn with_table(page: &str, mark: &str, table: &str) -> Option<String> {
    let start = format!("<!-- {mark} -->\n");
    let (before, rest) = page.split_once(&start)?;
    let (_, after) = rest.split_once("<!-- end -->")?;
    Some(format!("{before}{start}\n{table}\n<!-- end -->{after}"))
}

/// Runs one fuzz target, or all of them, each for some seconds.
pub(crate) fn fuzz(words: &[&str]) -> Result<bool> {
    let (target, seconds) = match words {
        [] => (None, "30"),
        ["--seconds", seconds] => (None, *seconds),
        [target] => (Some(*target), "30"),
        [target, "--seconds", seconds] => (Some(*target), *seconds),
        _ => anyhow::bail!("usage: cargo xtask fuzz [TARGET] [--seconds N]"),
    };
    let seconds = seconds.parse().context("--seconds needs a number")?;
    let is_wanted = |(name, _): &&(&str, &str)| target.is_none_or(|target| target == *name);
    let targets: Vec<_> = TARGETS.iter().filter(is_wanted).copied().collect();
    if targets.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        anyhow::bail!("unknown target. The targets are {}", names.join(", "));
    }
    let fuzzed = fuzz_all(&targets, seconds, run_guided)?;
    println!("{} executions of {} targets", grouped(fuzzed.all.attempts), targets.len());
    if fuzzed.holds && target.is_none() {
        publish("executions", &fuzzed.table)?;
    }
    Ok(fuzzed.holds)
}

/// What the fuzz targets did.
struct Fuzzed {
    holds: bool,
    all: Count,
    table: String,
}

/// Runs a target of a package with these environment variables. Returns whether it passed, the counts and the output.
type RunTarget = fn(name: &str, package: &str, variables: &[&str]) -> Result<(bool, Count, String)>;

fn run_ordinary(name: &str, package: &str, variables: &[&str]) -> Result<(bool, Count, String)> {
    tests(package, &format!("test(/fuzz_{name}$/)"), variables)
}

/// What makes the compiler add a counter to every branch. Works with the stable compiler; only the names of the options are not promised.
const COUNTERS: &str = "RUSTFLAGS=-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters";

/// Runs a target in a build of its own. Build scripts and macros are built for the host, without counters.
fn run_guided(name: &str, package: &str, variables: &[&str]) -> Result<(bool, Count, String)> {
    let (_, about) = program::output(&["rustc", "-vV"])?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not say what it builds for")?;
    let mut words = vec!["env", COUNTERS, "CARGO_PROFILE_DEV_OPT_LEVEL=1"];
    words.extend(variables);
    words.extend(["cargo", "test", "--target-dir", "target/fuzz", "--target", host, "-p", package]);
    // Only test programs that contain the fuzzer have what the counters need.
    words.extend(if package == "shell" { ["--test", "it"].as_slice() } else { &["--lib"] });
    let test = format!("fuzz_{name}");
    words.extend([&test, "--", "--nocapture"]);
    let (passed, output) = program::output(&words)?;
    if !passed {
        println!("{output}");
    }
    let line = output.lines().find_map(|line| Some(line.split_once("attempts: ")?.1));
    let attempts = line.map_or(0, leading_number);
    println!("{name}: {}", line.unwrap_or("did not run"));
    Ok((passed && attempts > 0, Count { tests: 1, attempts }, output))
}

/// Returns the number that a text begins with.
fn leading_number(text: &str) -> usize {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}

fn fuzz_all(targets: &[(&str, &str)], seconds: u64, run: RunTarget) -> Result<Fuzzed> {
    let duration = format!("PURLIN_FUZZ_SECONDS={seconds}");
    // Without a duration each target gets its usual number of inputs.
    let variables: &[&str] = if seconds == 0 { &[] } else { &[&duration] };
    let mut fuzzed = Fuzzed { holds: true, all: Count::default(), table: String::new() };
    fuzzed.table.push_str("| target | executions | slowest, µs | branches reached | inputs that reached more |\n|---|--:|--:|--:|--:|\n");
    for (name, package) in targets {
        let (passed, count, output) = run(name, package, variables)?;
        fuzzed.holds &= passed;
        fuzzed.all.tests += count.tests;
        fuzzed.all.attempts += count.attempts;
        let number = |word: &str| {
            let found = output.split_once(word).map_or(0, |(_, rest)| leading_number(rest));
            grouped(found)
        };
        let [slowest, branches, inputs] = ["slowest ", "branches ", "inputs "].map(number);
        let executions = grouped(count.attempts);
        let row = format!("| `{name}` | {executions} | {slowest} | {branches} | {inputs} |\n");
        fuzzed.table.push_str(&row);
    }
    Ok(fuzzed)
}

/// Runs some tests of a package. Returns whether they passed, the counts and the output.
fn tests(package: &str, filter: &str, variables: &[&str]) -> Result<(bool, Count, String)> {
    let mut words = vec!["env"];
    words.extend(variables);
    words.extend(["cargo", "nextest", "run", "--no-fail-fast", "--success-output", "immediate"]);
    // The whole workspace is built one way; a package alone would be built again with other features.
    let filter = format!("package({package}) and ({filter})");
    words.extend(["--workspace", "-E", &filter]);
    let (passed, output) = program::output(&words)?;
    let count = count(&output);
    if !passed {
        println!("{output}");
    }
    for line in output.lines().filter(|line| line.contains("fuzz ") && line.contains("attempts: "))
    {
        println!("{}", line.trim());
    }
    println!("{package}: {} tests, {} attempts", count.tests, count.attempts);
    Ok((passed && count.tests > 0, count, output))
}

/// Reads the counts from the output of the test runner.
fn count(output: &str) -> Count {
    let tests = output.lines().rev().find_map(|line| {
        let (before, _) = line.split_once(" tests run").or_else(|| line.split_once(" test run"))?;
        before.rsplit(' ').next()?.parse().ok()
    });
    let tests = tests.unwrap_or(0);
    let many: Vec<usize> = output
        .lines()
        .filter_map(|line| Some(line.split_once("attempts: ")?.1))
        .map(leading_number)
        .collect();
    // A test that prints a number is not counted as one attempt again.
    Count { tests, attempts: many.iter().sum::<usize>() + tests.saturating_sub(many.len()) }
}

#[cfg(test)]
mod tests_of_counts {
    use super::*;

    #[test]
    fn attempts_are_counted_once() {
        let output = "PASS a\n    attempts: 40\nfuzz x: attempts: 500, slowest 3 µs\n  Summary [ 1.2s] 5 tests run: 5 passed, 9 skipped";
        assert_eq!(count(output), Count { tests: 5, attempts: 543 });
        assert_eq!(count("Summary [ 1s] 1 test run: 1 passed"), Count { tests: 1, attempts: 1 });
        assert_eq!(count("error: no tests"), Count::default());
    }

    #[test]
    fn table_replaces_the_one_between_its_marks() {
        let page =
            "a\n<!-- counts -->\n\nold\n\n<!-- end -->\nb\n<!-- other -->\nx\n<!-- end -->\n";
        let rows = [("x".to_owned(), Count { tests: 2, attempts: 1_234_567 }, 3)];
        let new = with_table(page, "counts", &table_of(&rows)).unwrap();
        assert!(new.contains("| x | 2 | 1,234,567 | 3 |\n| **all** |"), "{new}");
        assert!(!new.contains("old") && new.ends_with("<!-- other -->\nx\n<!-- end -->\n"));
        assert_eq!(with_table(&new, "counts", &table_of(&rows)), Some(new.clone()));
        assert_eq!(with_table(page, "none", ""), None);
    }

    #[test]
    fn page_has_the_marks() {
        let page = std::fs::read_to_string(program::root().join(PAGE)).unwrap();
        for mark in ["counts", "executions"] {
            assert!(with_table(&page, mark, "").is_some(), "{mark}");
        }
    }
}
