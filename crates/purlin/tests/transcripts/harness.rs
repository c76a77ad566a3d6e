//! A minimal test harness: just enough of the built-in one for `cargo nextest` and `cargo test`.
//!
//! The built-in harness knows only tests that are functions. Here each transcript is a test, found at run time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// A test: its name, and what panics if it fails.
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnOnce()>,
}

/// What the command line asks for, in the words of the built-in harness.
#[derive(Default)]
struct Arguments {
    is_list: bool,
    is_exact: bool,
    /// Only tests marked as ignored; there are none.
    is_ignored: bool,
    filters: Vec<String>,
}

/// Lists or runs the tests that the command line asks for.
pub(crate) fn run(tests: Vec<Test>) -> ExitCode {
    let arguments = Arguments::read(std::env::args().skip(1));
    let chosen = tests.into_iter().filter(|test| arguments.wants(&test.name));
    if arguments.is_list {
        chosen.for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for Test { name, run } in chosen {
        // The panic's own message has already been printed.
        let is_ok = catch_unwind(AssertUnwindSafe(run)).is_ok();
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
        failed += usize::from(!is_ok);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Arguments {
        let mut arguments = Arguments::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => arguments.is_list = true,
                "--exact" => arguments.is_exact = true,
                "--ignored" => arguments.is_ignored = true,
                // These have a value that makes no difference here.
                "--format" | "--test-threads" | "--color" => drop(words.next()),
                option if option.starts_with('-') => {}
                filter => arguments.filters.push(filter.to_owned()),
            }
        }
        arguments
    }

    fn wants(&self, name: &str) -> bool {
        let fits = |filter: &String| {
            if self.is_exact { name == filter } else { name.contains(filter.as_str()) }
        };
        !self.is_ignored && (self.filters.is_empty() || self.filters.iter().any(fits))
    }
}
