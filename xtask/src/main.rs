//! Chores of this repository: run the tests, check the house rules, draw a transcript.
//!
//! Nothing here ships. It must build in seconds, so it sees none of our crates and hardly any others.

#![expect(clippy::print_stdout, reason = "xtask talks to a person; no protocol runs on its stdout")]

mod bench;
mod draw;
mod needs;
mod order;
mod program;
mod suite;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

const USAGE: &str = "\
usage: cargo xtask test [--quick] [-- ARGUMENTS FOR NEXTEST]
           install what the tests need, then run them all;
           --quick leaves out the checks of format and lints
       cargo xtask tidy
           check the house rules
       cargo xtask crash [--runs N]
           kill the program N times (2000 if not given) while it works, and at every write, sync, rename and start
           of a dozen scenarios; fail those, too; and compare what it still knows
       cargo xtask draw FILE.acp
           print a transcript as a Mermaid sequence diagram
       cargo xtask catalogue
           renew the snapshot of models and prices; needs Python with pip
       cargo xtask bench [NAME | --instructions [--write]]
           measure what the program costs, see docs/internals/performance.md;
           --instructions counts them and fails if a path grew, --write keeps the new figures
       cargo xtask order
           renew the order in which the linker lays out functions; after a change of compiler, profile or dependencies";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match obey(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        // Whatever failed has already said so; the test runner's summary stays the last thing on the screen.
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("xtask: {err:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does what the command line asks for and says whether all is well.
fn obey(arguments: &[String]) -> Result<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", rest @ ..] => suite::run(&suite::Options::parse(rest)?),
        ["tidy"] => print_tidy(),
        ["crash"] => suite::crash(2000),
        ["crash", "--runs", runs] => suite::crash(runs.parse().context("--runs needs a number")?),
        ["draw", file] => print_drawing(Path::new(file)),
        ["bench", rest @ ..] => bench::run(&bench::Options::parse(rest)?),
        ["order"] => order::renew().map(|()| true),
        ["catalogue"] => program::succeeds(&["python3", "xtask/catalogue.py"]),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => anyhow::bail!("cannot read the command line\n{USAGE}"),
    }
}

fn print_tidy() -> Result<bool> {
    let report = tidy::check(root())?;
    for finding in &report.findings {
        println!("{finding}");
    }
    println!(
        "tidy: {} findings in {} files, {} locked packages",
        report.findings.len(),
        report.files,
        report.locked_packages
    );
    Ok(report.findings.is_empty())
}

fn print_drawing(file: &Path) -> Result<bool> {
    let transcript = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the transcript {}", file.display()))?;
    let drawing = draw::draw(&transcript).with_context(|| file.display().to_string())?;
    print!("{drawing}");
    Ok(true)
}

/// Returns the folder of the workspace.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}
