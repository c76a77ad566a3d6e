//! `cargo xtask bench`: time and memory of the program, compared with a lower limit.
//!
//! Every figure is measured in several rounds, alternating with the program it is compared with, so that a busy machine
//! slows both. `docs/internals/performance.md` says what is measured and why. The programs that Purlin is compared with are
//! `crates/fake_model` and the examples of `crates/purlin` and `crates/mcp`.

pub(crate) mod agent;
mod child;
mod context;
mod files;
mod inbound;
pub(crate) mod instructions;
mod life;
mod mcp;
mod model;
mod sandbox;
mod stream;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::program;
use crate::release;
use table::Row;

/// A benchmark: its name, and the function that measures its rows.
type Bench = (&'static str, fn(&Programs) -> Result<Vec<Row>>);

const BENCHES: [Bench; 13] = [
    ("start", life::start),
    ("memory", life::memory),
    ("cancel", life::cancel),
    ("outbound", stream::outbound),
    ("inbound", inbound::inbound),
    ("sessions", stream::sessions),
    ("files", files::files),
    ("grep", files::grep),
    ("sandbox", sandbox::sandbox),
    ("mcp", mcp::mcp),
    ("instructions", context::instructions),
    ("request", context::request),
    ("model", model::model),
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
    !only.is_some_and(|only| ["files", "grep", "instructions", "request"].contains(&only))
}

/// The programs that Purlin is compared with, and the servers: built for speed, while Purlin is built for size.
const LIMITS: [(&str, &str, &str); 6] = [
    ("purlin", "--example", "echo_sdk"),
    ("purlin", "--example", "plain_writer"),
    ("purlin", "--example", "plain_relay"),
    ("fake_model", "--bin", "fake_model"),
    ("mcp", "--example", "faulty_server"),
    ("mcp", "--example", "bare_client"),
];

/// The programs of the benchmarks.
pub(crate) struct Programs {
    /// Purlin itself.
    pub(crate) purlin: PathBuf,
    /// An agent on the official SDK.
    pub(crate) echo_sdk: PathBuf,
    /// A loop that writes updates.
    pub(crate) plain_writer: PathBuf,
    /// A relay from a model server to updates.
    pub(crate) plain_relay: PathBuf,
    /// A model server.
    pub(crate) fake_model: PathBuf,
    /// Parts of Purlin without its pipes.
    pub(crate) in_process: PathBuf,
    /// An MCP server.
    pub(crate) faulty_server: PathBuf,
    /// A client of it on the MCP library alone.
    pub(crate) bare_client: PathBuf,
    /// A client of it on our own crate, built as Purlin is.
    pub(crate) own_client: PathBuf,
}

impl Programs {
    fn build(with_examples: bool) -> Result<Programs> {
        // Built separately: the SDK would enable features of shared crates that the released program does not have.
        let build = ["cargo", "build", "--quiet", "--release", "--package", "purlin"];
        release::build(&[&build[..], &["--bin", "purlin"]].concat())?;
        if with_examples {
            release::build(&[&build[..], &["--example", "in_process"]].concat())?;
            let build = ["cargo", "build", "--quiet", "--release", "--package", "mcp"];
            release::build(&[&build[..], &["--example", "own_client"]].concat())?;
            for (package, kind, name) in LIMITS {
                let build = ["cargo", "rustc", "--quiet", "--release", "--package", package];
                let fast = [kind, name, "--", "-C", "opt-level=3"];
                release::build(&[&build[..], &fast].concat())?;
            }
        }
        let release = program::target()?.join("release");
        let examples = release.join("examples");
        Ok(Programs {
            purlin: release.join("purlin"),
            echo_sdk: examples.join("echo_sdk"),
            plain_writer: examples.join("plain_writer"),
            plain_relay: examples.join("plain_relay"),
            fake_model: release.join("fake_model"),
            in_process: examples.join("in_process"),
            faulty_server: examples.join("faulty_server"),
            bare_client: examples.join("bare_client"),
            own_client: examples.join("own_client"),
        })
    }
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
