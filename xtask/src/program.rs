//! Starts other programs, in the directory of the workspace.
//!
//! The only file of xtask that does so. `suite` and `needs` decide what to start and why.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// Names the list of functions for the build script of `purlin`.
pub(crate) const ORDER_VARIABLE: &str = "PURLIN_FUNCTION_ORDER";

/// Returns the directory of the workspace.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Runs a program with our own input and output and returns whether it succeeded.
pub(crate) fn succeeds(words: &[&str]) -> Result<bool> {
    println!("$ {}", words.join(" "));
    let status =
        command(words)?.status().with_context(|| format!("cannot start `{}`", words.join(" ")))?;
    Ok(status.success())
}

/// Runs a program and returns whether it succeeded, and all that it printed.
pub(crate) fn output(words: &[&str]) -> Result<(bool, String)> {
    println!("$ {}", words.join(" "));
    let output = command(words)?.output();
    let output = output.with_context(|| format!("cannot start `{}`", words.join(" ")))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// Runs a program and returns an error if it fails.
pub(crate) fn must_succeed(words: &[&str]) -> Result<()> {
    must_succeed_with(words, &[])
}

/// Runs a program with environment variables and returns an error if it fails.
pub(crate) fn must_succeed_with(words: &[&str], variables: &[(&str, &OsStr)]) -> Result<()> {
    println!("$ {}", words.join(" "));
    let status = command(words)?.envs(variables.iter().copied()).status();
    let status = status.with_context(|| format!("cannot start `{}`", words.join(" ")))?;
    anyhow::ensure!(status.success(), "`{}` failed, see above", words.join(" "));
    Ok(())
}

/// Returns the output of a program, or `None` if it is missing or fails.
pub(crate) fn answer(words: &[&str]) -> Option<String> {
    let output = command(words).ok()?.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Returns what a program prints for an input, and fails if it fails.
pub(crate) fn answer_to(words: &[&str], input: &str) -> Result<String> {
    let output = filter(words, input.as_bytes())?;
    Ok(String::from_utf8_lossy(&output).trim().to_owned())
}

/// Returns the bytes that a program prints for an input, and fails if it fails.
pub(crate) fn filter(words: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let line = || words.join(" ");
    let mut command = command(words)?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", line()))?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // Written while its output is read: neither pipe holds all of it. A program that ends early closes its input.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    })?;
    anyhow::ensure!(output.status.success(), "`{}` failed: {}", line(), output.status);
    Ok(output.stdout)
}

/// Creates a virtual environment of Python with these packages, and returns its interpreter.
pub(crate) fn virtual_environment(directory: &Path, packages: &[&str]) -> Result<PathBuf> {
    let python = directory.join("bin/python3");
    let name = python.to_str().context("a path is not UTF-8")?;
    if !python.is_file() {
        let at = directory.to_str().context("a path is not UTF-8")?;
        must_succeed(&["python3", "-m", "venv", at])
            .context("Python with venv is needed (on Debian: package python3-venv)")?;
    }
    must_succeed(&[&[name, "-m", "pip", "install", "--quiet"], packages].concat())?;
    Ok(python)
}

/// Returns the directory where cargo builds.
pub(crate) fn target() -> Result<PathBuf> {
    let metadata = answer(&["cargo", "metadata", "--no-deps", "--format-version=1"]);
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata.context("cargo does not describe the workspace")?)?;
    Ok(metadata["target_directory"].as_str().context("cargo names no target directory")?.into())
}

/// Returns the directory where cargo stores the source of packages.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    set.or_else(home).context("neither CARGO_HOME nor HOME is set")
}

#[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates, `process` included")]
fn command(words: &[&str]) -> Result<Command> {
    let (program, arguments) = words.split_first().context("no program to start")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    // `cargo run` sets these to describe xtask. Build scripts that depend on them would run again each time.
    for (name, _) in std::env::vars_os() {
        if describes_a_package(&name) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

fn describes_a_package(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
}
