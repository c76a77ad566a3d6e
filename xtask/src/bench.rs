//! `cargo xtask bench`: time and memory of the program, compared with a lower limit.
//!
//! Every figure is measured in several rounds, alternating with the program it is compared with, so that a busy machine
//! slows both. `docs/internals/performance.md` says what is measured and why. The programs that Purlin is compared with are
//! `crates/fake_model` and the examples of `crates/purlin` and `crates/mcp`.

pub(crate) mod agent;
mod chat;
mod child;
mod container;
mod context;
mod files;
mod inbound;
pub(crate) mod instructions;
mod life;
mod mcp;
mod model;
mod programs;
mod pty;
mod sandbox;
mod seeing;
mod stream;
mod table;
mod terminals;

use anyhow::{Context, Result};

use programs::Programs;
use table::Row;

/// A benchmark: its name, and the function that measures its rows.
type Bench = (&'static str, fn(&Programs) -> Result<Vec<Row>>);

const BENCHES: [Bench; 17] = [
    ("start", life::start),
    ("memory", life::memory),
    ("cancel", life::cancel),
    ("outbound", stream::outbound),
    ("inbound", inbound::inbound),
    ("sessions", stream::sessions),
    ("files", files::files),
    ("grep", files::grep),
    ("sandbox", sandbox::sandbox),
    ("container", container::container),
    ("mcp", mcp::mcp),
    ("instructions", context::instructions),
    ("request", context::request),
    ("seeing", seeing::seeing),
    ("model", model::model),
    ("chat", chat::chat),
    ("terminals", terminals::terminals),
];

/// The options on the command line.
#[derive(Debug, PartialEq)]
pub(crate) enum Options {
    /// Measure times and sizes: of one benchmark, or of all.
    Measure(Option<String>),
    /// Count instructions and compare them with the saved figures, or save the new ones.
    Count { save: bool },
}

impl Options {
    /// Reads the arguments after `bench`.
    pub(crate) fn parse(words: &[&str]) -> Result<Options> {
        match words {
            [] => Ok(Options::Measure(None)),
            ["--instructions"] => Ok(Options::Count { save: false }),
            ["--instructions", "--write"] | ["--write", "--instructions"] => {
                Ok(Options::Count { save: true })
            }
            [name] if BENCHES.iter().any(|(bench, _)| bench == name) => {
                Ok(Options::Measure(Some((*name).to_owned())))
            }
            _ => {
                let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
                anyhow::bail!(
                    "`bench` takes one of {}, or --instructions [--write]",
                    names.join(", ")
                )
            }
        }
    }
}

/// Measures and prints. Returns false only if instructions have grown: times are for people to judge.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let programs = Programs::build(needs_examples(options))?;
    match options {
        Options::Count { save } => instructions::run(&programs, *save),
        Options::Measure(only) => {
            println!("{}", table::HEAD);
            for (name, bench) in BENCHES {
                if only.as_ref().is_some_and(|only| only != name) {
                    continue;
                }
                let rows = bench(&programs).with_context(|| format!("the benchmark {name}"))?;
                rows.iter().for_each(|row| println!("{}", row.print(name)));
            }
            Ok(true)
        }
    }
}

/// Some benchmarks need no examples, which take minutes to build.
fn needs_examples(options: &Options) -> bool {
    let only = match options {
        Options::Measure(only) => only.as_deref(),
        Options::Count { .. } => None,
    };
    !only.is_some_and(|only| {
        ["chat", "files", "grep", "instructions", "request", "terminals"].contains(&only)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmark_is_named_or_all_run() {
        assert_eq!(Options::parse(&[]).unwrap(), Options::Measure(None));
        assert_eq!(Options::parse(&["start"]).unwrap(), Options::Measure(Some("start".to_owned())));
        assert_eq!(
            Options::parse(&["--instructions", "--write"]).unwrap(),
            Options::Count { save: true }
        );
        let refused = Options::parse(&["strat"]).unwrap_err().to_string();
        assert!(refused.contains("start, memory, cancel"), "{refused}");
    }
}
