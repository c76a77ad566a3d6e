//! Tasks of this repository: run the tests, check the house rules, draw a transcript, measure.
//!
//! Nothing here is released. It must build in seconds, so it depends on none of our crates and on few others.

#![expect(clippy::print_stdout, reason = "xtask talks to a person; no protocol runs on its stdout")]

mod attack;
mod bench;
mod deny;
mod draw;
mod needs;
mod peers;
mod platforms;
mod program;
mod release;
mod site;
mod suite;
mod tasks;
mod temporary;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

const USAGE: &str = "\
usage: cargo xtask test [--quick] [-- ARGUMENTS FOR NEXTEST]
           install what the tests need, then run all of them;
           --quick skips the checks of format and lints
       cargo xtask tidy [--write]
           check the house rules; --write first renews the table of tests in docs/internals/requirements.md
       cargo xtask crash [--runs N]
           kill the program N times (default 2000) while it works, and at every write, sync, rename and start of
           a dozen scenarios; also make these fail; then compare what is stored with what was shown
       cargo xtask attack [--short]
           run everything that attacks the program, and count the attempts, see docs/internals/attacks.md;
           --short repeats nothing
       cargo xtask fuzz [TARGET] [--seconds N]
           run a fuzz target, or all of them, each for N seconds (default 30)
       cargo xtask draw FILE.acp
           print a transcript as a Mermaid sequence diagram
       cargo xtask catalogue
           update the snapshot of models and prices; needs Python with pip
       cargo xtask picture [toad]
           make docs/guide/chat.svg from a real screen; needs a debug build, Python and tmux;
           toad: docs/images/toad.svg, Purlin in Toad; needs root, debootstrap and bubblewrap
       cargo xtask bench [NAME | --instructions [--write]]
           measure time and memory, see docs/internals/performance.md;
           --instructions counts instructions and fails if a path has grown, --write saves the new figures
       cargo xtask tasks [--agent NAME]… [--command TEMPLATE] [--endpoint URL] [--model ID] [--set NAME] [--only TASK]…
                         [--runs N] [--timeout SECONDS] [--purlin PROGRAM] [--json]
           let agents (purlin, opencode, goose) do small tasks with the model at an OpenAI-compatible endpoint, and print
           what was done, tokens and seconds side by side, see docs/internals/tasks.md
       cargo xtask peers [NAME]…
           install other agents from npm, check them (or only these), and renew the tables in docs/internals/peers.md
       cargo xtask docs
           write the documentation as a web site to target/site, and check its links
       cargo xtask platforms
           compile the program for systems that it does not run on here; needs apt-get
       cargo xtask release [--check] [--program FILE | --order FILE] [--target TARGET]…
           build the program and make packages in target/dist, see docs/internals/release.md; --check installs and runs each of
           them; --program packages a program that is already built; --order lays functions out as in an earlier release";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        // The failed step has already printed its error; the test runner's summary stays the last thing on the screen.
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("xtask: {err:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command that the command line asks for and returns whether everything passed.
fn run(arguments: &[String]) -> Result<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", rest @ ..] => suite::run(&suite::Options::parse(rest)?),
        ["tidy"] => print_tidy(),
        ["tidy", "--write"] => {
            tidy::write(program::root())?;
            print_tidy()
        }
        ["crash"] => suite::crash(2000),
        ["crash", "--runs", runs] => suite::crash(runs.parse().context("--runs needs a number")?),
        ["attack"] => attack::run(false),
        ["attack", "--short"] => attack::run(true),
        ["fuzz", rest @ ..] => attack::fuzz(rest),
        ["draw", file] => print_drawing(Path::new(file)),
        ["bench", rest @ ..] => bench::run(&bench::Options::parse(rest)?),
        ["peers", ..] => peers::run(&arguments[1..]).map(|()| true),
        ["tasks", rest @ ..] => tasks::run(&tasks::Options::parse(rest)?),
        ["docs"] => site::write(),
        ["platforms"] => platforms::check(),
        ["release", rest @ ..] => release::run(&release::Options::parse(rest)?).map(|()| true),
        ["catalogue"] => program::succeeds(&["python3", "xtask/catalogue.py"]),
        ["picture"] => program::succeeds(&["python3", "xtask/picture.py"]),
        ["picture", "toad"] => program::succeeds(&["python3", "xtask/picture_toad.py"]),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => anyhow::bail!("unknown command\n{USAGE}"),
    }
}

fn print_tidy() -> Result<bool> {
    let report = tidy::check(program::root())?;
    for finding in &report.findings {
        println!("{finding}");
    }
    println!(
        "tidy: {} findings in {} files, {} locked packages",
        report.findings.len(),
        report.files,
        report.locked_packages
    );
    let cycles: Vec<String> = report
        .cycles
        .iter()
        .map(|largest| format!("{} {} of {}", largest.name, largest.cycle, largest.modules))
        .collect();
    println!("tidy: modules in the largest cycle: {}", cycles.join(", "));
    let faults = deny::check()?;
    faults.iter().for_each(|fault| println!("{fault}"));
    Ok(report.findings.is_empty() && faults.is_empty())
}

fn print_drawing(file: &Path) -> Result<bool> {
    let transcript = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the transcript {}", file.display()))?;
    let drawing = draw::draw(&transcript).with_context(|| file.display().to_string())?;
    print!("{drawing}");
    Ok(true)
}
