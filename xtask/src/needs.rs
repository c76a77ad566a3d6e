//! The tools that the tests need, and how they are installed.
//!
//! Each function checks first, prints what it is about to install, and fails with advice if it cannot. Tools that are new
//! enough are not upgraded.

use std::path::Path;
use std::time::SystemTime;

use anyhow::Result;

use crate::program::{self, root};

const NEXTEST_VERSION: &str = "0.9.143";
/// The oldest Node.js that `conformance/judge` works with.
const NODE_MAJOR: u32 = 18;
/// The directories with Node.js packages: a client of the protocol, agents and MCP servers of other authors.
const PACKAGES: [&str; 6] = [
    "conformance/judge",
    "crates/mcp/tests/servers",
    "crates/purlin/tests/agents",
    "crates/purlin/tests/github",
    "crates/purlin/tests/pages",
    "deploy/durable-objects",
];

/// The user without rights who runs containers if the tests run as root.
const USER: &str = "purlin-test";

/// Ensures `cargo nextest`.
pub(crate) fn test_runner() -> Result<()> {
    if program::answer(&["cargo", "nextest", "--version"]).is_some() {
        return Ok(());
    }
    println!(
        "xtask: the test runner cargo-nextest is missing; building it takes some minutes, once"
    );
    program::must_succeed(&[
        "cargo",
        "install",
        "cargo-nextest",
        "--locked",
        "--version",
        NEXTEST_VERSION,
    ])
}

/// Ensures bubblewrap, which one level of the sandbox needs. Linux only.
pub(crate) fn bubblewrap() -> Result<()> {
    let is_there = || program::answer(&["bwrap", "--version"]).is_some();
    if !cfg!(target_os = "linux") || is_there() {
        return Ok(());
    }
    if program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: bubblewrap is missing; installing it with apt-get");
        let install = ["apt-get", "install", "--yes", "bubblewrap"];
        let prefix: &[&str] = if is_root() { &[] } else { &["sudo", "--non-interactive"] };
        let words = |words: &[&'static str]| [prefix, words].concat();
        // The package lists are updated only if the installation fails without.
        if !program::succeeds(&words(&install))? {
            program::must_succeed(&words(&["apt-get", "update"]))?;
            program::must_succeed(&words(&install))?;
        }
    }
    anyhow::ensure!(
        is_there(),
        "the tests need bubblewrap: install it (on Debian: package bubblewrap) and run this again"
    );
    Ok(())
}

/// Ensures `cargo fmt` and `cargo clippy`, which a minimal toolchain does not have.
pub(crate) fn rust_components() -> Result<()> {
    let has = |name| program::answer(&["cargo", name, "--version"]).is_some();
    if has("fmt") && has("clippy") {
        return Ok(());
    }
    anyhow::ensure!(
        program::answer(&["rustup", "--version"]).is_some(),
        "rustfmt or clippy is missing: install both for this toolchain, or use `cargo xtask test --quick`"
    );
    println!("xtask: rustfmt or clippy is missing; adding them to the toolchain");
    program::must_succeed(&["rustup", "component", "add", "rustfmt", "clippy"])
}

/// Ensures Node.js and the packages that tests run with it.
pub(crate) fn node_packages() -> Result<()> {
    node()?;
    for directory in PACKAGES {
        let at = root().join(directory);
        // npm writes this file last, so its time is that of a complete installation.
        let installed = changed(&at.join("node_modules/.package-lock.json"));
        if is_fresh(installed, changed(&at.join("package-lock.json"))) {
            continue;
        }
        println!("xtask: installing the packages of {directory}");
        program::must_succeed(&["npm", "ci", "--prefix", directory, "--no-audit", "--no-fund"])?;
    }
    Ok(())
}

fn node() -> Result<()> {
    if has_node() {
        return Ok(());
    }
    if is_root() && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: Node.js {NODE_MAJOR} or npm is missing; installing both with apt-get");
        program::must_succeed(&["apt-get", "update"])?;
        program::must_succeed(&["apt-get", "install", "--yes", "nodejs", "npm"])?;
    }
    anyhow::ensure!(
        has_node(),
        "the tests need Node.js {NODE_MAJOR} or newer and npm: install them (on Debian: packages nodejs and npm) and run this again"
    );
    Ok(())
}

/// Ensures `strace`, with which tests kill the program or make it fail at exact system calls.
pub(crate) fn strace() -> Result<()> {
    let has = || program::answer(&["strace", "-V"]).is_some();
    if has() || !cfg!(target_os = "linux") {
        return Ok(());
    }
    if is_root() && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: strace is missing; installing it with apt-get");
        program::must_succeed(&["apt-get", "update"])?;
        program::must_succeed(&["apt-get", "install", "--yes", "strace"])?;
    }
    anyhow::ensure!(
        has(),
        "the tests need strace: install it (on Debian: package strace) and run this again"
    );
    Ok(())
}

/// Ensures Chromium, in which the pages are tested. Linux only.
pub(crate) fn chromium() -> Result<()> {
    let has = || Path::new("/usr/bin/chromium").exists();
    if has() || !cfg!(target_os = "linux") {
        return Ok(());
    }
    if is_root() && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: Chromium is missing; installing it with apt-get");
        program::must_succeed(&["apt-get", "update"])?;
        let install = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"];
        program::must_succeed(&install)?;
    }
    anyhow::ensure!(
        has(),
        "the tests of the pages need /usr/bin/chromium: install it (on Debian: package chromium) and run this again"
    );
    Ok(())
}

/// Ensures `promtool`, which checks metrics as Prometheus does. Only this program of its package is unpacked: installing the
/// package would start a server.
pub(crate) fn promtool() -> Result<()> {
    let directory = root().join("target/tools/prometheus");
    let has = || directory.join("usr/bin/promtool").exists();
    if has() || !cfg!(target_os = "linux") {
        return Ok(());
    }
    if program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: promtool is missing; unpacking it from the package prometheus");
        std::fs::create_dir_all(&directory)?;
        let unpack = format!(
            "cd '{}' && apt-get download prometheus && dpkg --extract prometheus_*.deb . && rm prometheus_*.deb",
            directory.display()
        );
        if !program::succeeds(&["sh", "-c", &unpack])? && is_root() {
            program::must_succeed(&["apt-get", "update"])?;
            program::must_succeed(&["sh", "-c", &unpack])?;
        }
    }
    anyhow::ensure!(
        has(),
        "the tests of the metrics need promtool: put it into target/tools/prometheus/usr/bin (on Debian: package prometheus) and run this again"
    );
    Ok(())
}

/// Ensures `tmux`, the terminal in which tests use the terminal client.
pub(crate) fn tmux() -> Result<()> {
    let has = || program::answer(&["tmux", "-V"]).is_some();
    if has() || !cfg!(target_os = "linux") {
        return Ok(());
    }
    if is_root() && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: tmux is missing; installing it with apt-get");
        program::must_succeed(&["apt-get", "update"])?;
        program::must_succeed(&["apt-get", "install", "--yes", "tmux"])?;
    }
    anyhow::ensure!(
        has(),
        "the tests need tmux: install it (on Debian: package tmux) and run this again"
    );
    Ok(())
}

/// Installs Docker, Podman, what they need to run without rights, and a static busybox, if it can. Also makes the user without rights who
/// runs them if the tests run as root. Elsewhere the tests of containers fail where they cannot run; see CONTRIBUTING.md.
pub(crate) fn containers() -> Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let needed = [
        ("/usr/sbin/dockerd", "docker.io"),
        ("/usr/bin/podman", "podman"),
        ("/usr/sbin/runc", "runc"),
        ("/bin/busybox", "busybox-static"),
        ("/usr/bin/newuidmap", "uidmap"),
        ("/usr/bin/rootlesskit", "rootlesskit"),
    ];
    let is_missing = |(path, _): &&(&str, &str)| !Path::new(path).exists();
    let mut missing: Vec<&str> = needed.iter().filter(is_missing).map(|(_, name)| *name).collect();
    // Only newer systems have it as a package of its own.
    if program::answer(&["docker", "--version"]).is_none() {
        missing.push("docker-cli");
    }
    if !is_root() || program::answer(&["apt-get", "--version"]).is_none() {
        if !missing.is_empty() {
            println!("xtask: tests of containers will fail without {}", missing.join(", "));
        }
        return Ok(());
    }
    if !missing.is_empty() {
        println!("xtask: installing what runs containers with apt-get: {}", missing.join(", "));
        program::must_succeed(&["apt-get", "update"])?;
    }
    for package in missing {
        let install = ["apt-get", "install", "--yes", "--no-install-recommends", package];
        if !program::succeeds(&install)? {
            println!("xtask: {package} was not installed");
        }
    }
    if program::answer(&["id", "-u", USER]).is_none() {
        println!("xtask: making the user {USER}, who runs containers without rights");
        program::must_succeed(&["useradd", "--create-home", "--shell", "/bin/sh", USER])?;
    }
    Ok(())
}

/// Ensures an emulator of aarch64 with the C library of that system.
pub(crate) fn emulator() -> Result<()> {
    let has = || {
        program::answer(&["qemu-aarch64", "--version"]).is_some()
            && Path::new("/usr/aarch64-linux-gnu/lib/libc.so.6").exists()
    };
    if !has() && is_root() && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: the emulator of aarch64 is missing; installing it with apt-get");
        program::must_succeed(&["apt-get", "update"])?;
        program::must_succeed(&["apt-get", "install", "--yes", "qemu-user", "libc6-arm64-cross"])?;
    }
    anyhow::ensure!(
        has(),
        "programs for aarch64 need qemu-user and libc6-arm64-cross: install both and run this again"
    );
    Ok(())
}

/// Ensures `debootstrap`, which makes an old system to start the program on.
pub(crate) fn debootstrap() -> Result<()> {
    let has = || program::answer(&["debootstrap", "--version"]).is_some();
    if !has() && is_root() && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: debootstrap is missing; installing it with apt-get");
        program::must_succeed(&["apt-get", "install", "--yes", "debootstrap"])?;
    }
    anyhow::ensure!(
        has() && is_root(),
        "checking on an old system needs debootstrap and the rights of root"
    );
    Ok(())
}

fn has_node() -> bool {
    let version = program::answer(&["node", "--version"]);
    version.is_some_and(|version| is_new_enough(&version))
        && program::answer(&["npm", "--version"]).is_some()
}

/// Ensures PostgreSQL's server, which several machines may store sessions in. The tests start their own.
pub(crate) fn postgres() -> Result<()> {
    let has_server = || Path::new("/usr/lib/postgresql").is_dir();
    if !has_server() && is_root() && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: PostgreSQL is missing; installing it with apt-get");
        program::must_succeed(&["apt-get", "update", "--quiet"])?;
        program::must_succeed(&["apt-get", "install", "--yes", "postgresql"])?;
    }
    anyhow::ensure!(has_server(), "the tests need PostgreSQL (on Debian: the package postgresql)");
    Ok(())
}

/// Ensures `rg`, which our searches are compared with.
pub(crate) fn ripgrep() -> Result<()> {
    let has_rg = || program::answer(&["rg", "--version"]).is_some();
    if !has_rg() && is_root() && program::answer(&["apt-get", "--version"]).is_some() {
        println!("xtask: ripgrep is missing; installing it with apt-get");
        program::must_succeed(&["apt-get", "install", "--yes", "ripgrep"])?;
    }
    anyhow::ensure!(has_rg(), "the benchmark needs `rg` (on Debian: the package ripgrep)");
    Ok(())
}

fn is_root() -> bool {
    program::answer(&["id", "-u"]).is_some_and(|id| id == "0")
}

fn is_new_enough(version: &str) -> bool {
    let major = version.trim_start_matches('v').split('.').next();
    major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= NODE_MAJOR)
}

/// Returns whether an installation is at least as new as its lock file.
fn is_fresh(installed: Option<SystemTime>, locked: Option<SystemTime>) -> bool {
    installed.is_some() && installed >= locked
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn node_versions_are_compared_by_their_major_number() {
        assert!(is_new_enough("v18.0.0"));
        assert!(is_new_enough("v100.1.2"));
        assert!(!is_new_enough("v12.22.12"));
        assert!(!is_new_enough("no such thing"));
    }

    #[test]
    fn packages_are_installed_when_missing_or_older_than_the_lock_file() {
        let early = Some(SystemTime::UNIX_EPOCH);
        let late = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
        assert!(is_fresh(late, early));
        assert!(is_fresh(early, early));
        assert!(!is_fresh(early, late));
        assert!(!is_fresh(None, late));
    }
}
