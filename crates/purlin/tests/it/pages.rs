//! The pages in a real browser: Chromium, driven by the scripts in `tests/pages`.

use std::path::Path;
use std::process::Command;

use crate::directory::Directory;

const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pages");

/// Checks metrics as Prometheus does; `cargo xtask test` installs it.
const PROMTOOL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/prometheus/usr/bin/promtool");

/// Runs a script with the program and a directory. The script says what is wrong.
#[expect(clippy::disallowed_methods, reason = "the script is no child of an agent")]
fn check(script: &str) {
    assert!(
        Path::new(PAGES).join("node_modules").exists(),
        "the packages of {PAGES} are missing: run cargo xtask test"
    );
    assert!(Path::new(PROMTOOL).exists(), "{PROMTOOL} is missing: run cargo xtask test");
    let directory = Directory::new();
    let output = Command::new("node")
        .arg(Path::new(PAGES).join(script))
        .arg(env!("CARGO_BIN_EXE_purlin"))
        .arg(directory.join(""))
        .arg(PROMTOOL)
        .output()
        .expect("node is missing: run cargo xtask test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
}

// R: O2
#[test]
#[cfg(target_os = "linux")]
fn page_of_a_trace_shows_four_views_without_network() {
    check("trace.mjs");
}

// R: O3
#[test]
#[cfg(target_os = "linux")]
fn dashboard_follows_an_agent_and_notices_its_end() {
    check("dashboard.mjs");
}
