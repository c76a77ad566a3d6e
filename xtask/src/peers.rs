//! Checks other agents with `purlin check`, and renews the tables in docs/internals/peers.md.
//!
//! Each agent is checked alone and its report is stored: `cargo xtask peers goose` renews one of them.

use anyhow::{Context, Result};

use crate::program;
use crate::tasks::agents::installed;

const PAGE: &str = "docs/internals/peers.md";

/// What is above this line is written by hand.
const MARK: &str = "<!-- written by cargo xtask peers -->\n";

/// An agent from npm.
struct Peer {
    name: &'static str,
    package: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// A Node.js that is newer than the one of Debian.
    node: Option<&'static str>,
}

const fn peer(
    name: &'static str,
    package: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
) -> Peer {
    Peer { name, package, program, arguments, node: None }
}

const PEERS: [Peer; 7] = [
    peer("claude", "@agentclientprotocol/claude-agent-acp@0.99.1", "claude-agent-acp", &[]),
    peer("codex", "@agentclientprotocol/codex-acp@2.6.0", "codex-acp", &[]),
    peer("gemini", "@google/gemini-cli@0.61.0", "gemini", &["--acp"]),
    peer("goose", "@aaif/goose-binary-linux-x64@1.52.0", "goose-binary-linux-x64", &["acp"]),
    Peer {
        node: Some("node@22"),
        ..peer("kimi", "@moonshot-ai/kimi-code@2.1.0", "kimi", &["acp"])
    },
    peer("opencode", "opencode-ai@1.18.33", "opencode", &["acp"]),
    peer("qwen", "@qwen-code/qwen-code@0.24.4", "qwen", &["--acp"]),
];

/// Checks the agents with these names, or all of them and Purlin, and writes the page from all stored reports.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let known: Vec<&str> =
        std::iter::once("purlin").chain(PEERS.iter().map(|it| it.name)).collect();
    for name in names {
        anyhow::ensure!(
            known.contains(&&**name),
            "no agent {name}; known are {}",
            known.join(", ")
        );
    }
    program::must_succeed(&["cargo", "build", "--package", "purlin"])?;
    let target = program::target()?;
    let purlin = target.join("debug/purlin").display().to_string();
    let reports = target.join("peers");
    std::fs::create_dir_all(&reports)?;
    let report = |name: &str| reports.join(format!("{name}.json")).display().to_string();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let check = |name: &str, command: &[&str]| {
        let report = report(name);
        let head = [&*purlin, "check", "--timeout", "25", "--json", &report, "--"];
        // Exit code 1 means that an agent is not conformant, which is what the table is about.
        program::succeeds(&[&head[..], command].concat())
    };
    if is_wanted("purlin") {
        check("purlin", &[&purlin, "acp"])?;
    }
    for peer in PEERS.iter().filter(|peer| is_wanted(peer.name)) {
        let node = peer.node.map(|package| installed(package, "node")).transpose()?;
        let program = installed(peer.package, peer.program)?;
        let head = node.iter().chain([&program]).map(String::as_str);
        check(peer.name, &head.chain(peer.arguments.iter().copied()).collect::<Vec<_>>())?;
    }
    let (table, html) = (reports.join("peers.md"), reports.join("peers.html"));
    let (table, html) = (table.display().to_string(), html.display().to_string());
    let mut words = vec![purlin.clone(), "check".to_owned()];
    words.extend(["--markdown", &*table, "--html", &*html].map(str::to_owned));
    for name in known {
        if std::path::Path::new(&report(name)).exists() {
            words.extend(["--merge".to_owned(), report(name)]);
        }
    }
    program::succeeds(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    let table = std::fs::read_to_string(&table).context("purlin check wrote no table")?;
    let page = program::root().join(PAGE);
    let text = std::fs::read_to_string(&page)?;
    let (by_hand, _) =
        text.split_once(MARK).with_context(|| format!("{PAGE} has no line {MARK}"))?;
    std::fs::write(&page, format!("{by_hand}{MARK}\n{table}"))?;
    println!("xtask: wrote {PAGE} and {html}");
    Ok(())
}
