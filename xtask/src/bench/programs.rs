//! The programs that the benchmarks start: Purlin, and what it is compared with.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{program, release};

/// The programs that Purlin is compared with, and the servers: built for speed, while Purlin is built for size.
const LIMITS: [(&str, &str, &str); 7] = [
    ("purlin", "--example", "echo_sdk"),
    ("purlin", "--example", "plain_writer"),
    ("purlin", "--example", "plain_copier"),
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
    /// A program that stands before an agent and copies bytes.
    pub(crate) plain_copier: PathBuf,
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
    /// Builds Purlin, and the other programs if a benchmark needs them.
    pub(crate) fn build(with_examples: bool) -> Result<Programs> {
        // Built separately: the SDK would enable features of shared crates that the released program does not have.
        let built = release::program()?;
        // Where the examples look for it.
        let purlin = program::target()?.join("release/purlin");
        std::fs::create_dir_all(purlin.parent().context("no directory")?)?;
        std::fs::copy(built, &purlin)?;
        if with_examples {
            let build = ["cargo", "build", "--quiet", "--release", "--package", "purlin"];
            program::must_succeed(&[&build[..], &["--example", "in_process"]].concat())?;
            let build = ["cargo", "build", "--quiet", "--release", "--package", "mcp"];
            program::must_succeed(&[&build[..], &["--example", "own_client"]].concat())?;
            for (package, kind, name) in LIMITS {
                let build = ["cargo", "rustc", "--quiet", "--release", "--package", package];
                let fast = [kind, name, "--", "-C", "opt-level=3"];
                program::must_succeed(&[&build[..], &fast].concat())?;
            }
        }
        let release = program::target()?.join("release");
        let examples = release.join("examples");
        Ok(Programs {
            purlin,
            echo_sdk: examples.join("echo_sdk"),
            plain_writer: examples.join("plain_writer"),
            plain_copier: examples.join("plain_copier"),
            plain_relay: examples.join("plain_relay"),
            fake_model: release.join("fake_model"),
            in_process: examples.join("in_process"),
            faulty_server: examples.join("faulty_server"),
            bare_client: examples.join("bare_client"),
            own_client: examples.join("own_client"),
        })
    }
}
