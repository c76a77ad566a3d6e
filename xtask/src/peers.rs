//! Checks other agents with `purlin check`, and renews the tables in docs/internals/peers.md.

use anyhow::{Context, Result};

use crate::program;
use crate::tasks::agents::installed;

const PAGE: &str = "docs/internals/peers.md";

/// What is above this line is written by hand.
const MARK: &str = "<!-- written by cargo xtask peers -->\n";

/// Package with its version, program, arguments.
const PEERS: [(&str, &str, &[&str]); 6] = [
    ("@agentclientprotocol/claude-agent-acp@0.99.1", "claude-agent-acp", &[]),
    ("@zed-industries/codex-acp-linux-x64@0.16.0", "codex-acp-linux-x64", &[]),
    ("@google/gemini-cli@0.61.0", "gemini", &["--acp"]),
    ("@aaif/goose-binary-linux-x64@1.52.0", "goose-binary-linux-x64", &["acp"]),
    ("opencode-ai@1.18.33", "opencode", &["acp"]),
    ("@qwen-code/qwen-code@0.24.4", "qwen", &["--acp"]),
];

pub(crate) fn run() -> Result<()> {
    program::must_succeed(&["cargo", "build", "--package", "purlin"])?;
    let target = program::target()?;
    let purlin = target.join("debug/purlin").display().to_string();
    let file = |name: &str| target.join(name).display().to_string();
    let (table, html) = (file("peers.md"), file("peers.html"));
    let mut words: Vec<String> =
        [&*purlin, "check", "--timeout", "20", "--markdown", &table, "--html", &html]
            .map(str::to_owned)
            .to_vec();
    words.extend(["--", &*purlin, "acp"].map(str::to_owned));
    for (package, program, arguments) in PEERS {
        words.push("--".to_owned());
        words.push(installed(package, program)?);
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Exit code 1 means that an agent is not conformant, which is what the table is about.
    program::succeeds(&words)?;
    let table = std::fs::read_to_string(&table).context("purlin check wrote no table")?;
    let page = program::root().join(PAGE);
    let text = std::fs::read_to_string(&page)?;
    let (by_hand, _) =
        text.split_once(MARK).with_context(|| format!("{PAGE} has no line {MARK}"))?;
    std::fs::write(&page, format!("{by_hand}{MARK}\n{table}"))?;
    println!("xtask: wrote {PAGE} and {html}");
    Ok(())
}
