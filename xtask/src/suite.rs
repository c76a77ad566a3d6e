//! `cargo xtask test`: prepare the machine, then check everything.
//!
//! The order is: tools, format, lints, the program, the tests. A failed check does not skip the later ones, and the test
//! runner's summary comes last. `needs` installs missing tools.

use anyhow::Result;

use crate::{needs, program};

/// The options on the command line.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// Skips the checks of format and lints.
    quick: bool,
    /// Arguments for nextest.
    for_nextest: Vec<String>,
}

impl Options {
    /// Reads the arguments after `test`.
    pub(crate) fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options { quick: false, for_nextest: Vec::new() };
        for (index, word) in words.iter().enumerate() {
            match *word {
                "--quick" => options.quick = true,
                "--" => {
                    options.for_nextest =
                        words[index + 1..].iter().map(|word| (*word).to_owned()).collect();
                    break;
                }
                other => anyhow::bail!(
                    "unknown argument `{other}` of `test`; arguments for nextest come after `--`"
                ),
            }
        }
        Ok(options)
    }
}

/// Runs the whole suite and returns whether every step passed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    needs::test_runner()?;
    needs::node_packages()?;
    needs::chromium()?;
    needs::promtool()?;
    needs::strace()?;
    needs::bubblewrap()?;
    needs::tmux()?;
    needs::postgres()?;
    needs::containers()?;
    let is_clean = options.quick || check_source()?;
    program::must_succeed(&["cargo", "build", "--package", "purlin"])?;
    if !is_clean {
        println!("xtask: format or lints failed, see above; the tests run anyway");
    }
    let has_passed = run_tests(&options.for_nextest)?;
    Ok(is_clean && has_passed)
}

/// Runs the crash tests with this many kills and returns whether they passed.
pub(crate) fn crash(runs: usize) -> Result<bool> {
    needs::test_runner()?;
    needs::strace()?;
    let runs = format!("PURLIN_CRASH_RUNS={runs}");
    let test = ["--profile", "crash", "--package", "purlin", "--no-capture", "crash", "syscalls"];
    let words = ["env", &runs, "cargo", "nextest", "run"];
    program::succeeds(&words.into_iter().chain(test).collect::<Vec<_>>())
}

fn check_source() -> Result<bool> {
    needs::rust_components()?;
    let is_formatted = program::succeeds(&["cargo", "fmt", "--all", "--check"])?;
    let lints = ["cargo", "clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    let is_lint_free = program::succeeds(&lints)?;
    Ok(is_formatted && is_lint_free)
}

fn run_tests(for_nextest: &[String]) -> Result<bool> {
    let mut words = vec!["cargo", "nextest", "run", "--workspace", "--no-fail-fast"];
    words.extend(for_nextest.iter().map(String::as_str));
    program::succeeds(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(quick: bool, for_nextest: &[&str]) -> Options {
        Options { quick, for_nextest: for_nextest.iter().map(|word| (*word).to_owned()).collect() }
    }

    #[test]
    fn words_after_two_dashes_go_to_nextest() {
        assert_eq!(Options::parse(&[]).unwrap(), options(false, &[]));
        assert_eq!(Options::parse(&["--quick"]).unwrap(), options(true, &[]));
        assert_eq!(
            Options::parse(&["--", "--quick", "--", "judge"]).unwrap(),
            options(false, &["--quick", "--", "judge"])
        );
        assert!(Options::parse(&["judge"]).unwrap_err().to_string().contains("after `--`"));
    }
}
