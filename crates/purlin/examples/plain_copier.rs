//! A minimal tap: starts an agent and copies bytes between it and its own stdin and stdout, and does nothing else.
//!
//! `cargo xtask bench` compares `purlin tap` with it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

const READ: usize = 64 * 1024;

#[expect(clippy::disallowed_methods, reason = "this program knows nothing of our crates")]
fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((program, arguments)) = arguments.split_first() else {
        anyhow::bail!("usage: plain_copier PROGRAM ARGS…");
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        anyhow::bail!("the agent has no pipes");
    };
    let (to_agent, from_agent) = ends(stdin, stdout);
    std::thread::spawn(move || copy(std::io::stdin(), to_agent));
    copy(from_agent, std::io::stdout());
    child.wait()?;
    Ok(())
}

/// Returns the pipes as files, which copy nothing on their own.
#[cfg(unix)]
fn ends(stdin: std::process::ChildStdin, stdout: std::process::ChildStdout) -> (File, File) {
    use std::os::fd::OwnedFd;
    (File::from(OwnedFd::from(stdin)), File::from(OwnedFd::from(stdout)))
}

#[cfg(not(unix))]
fn ends(
    stdin: std::process::ChildStdin,
    stdout: std::process::ChildStdout,
) -> (impl Write, impl Read) {
    (stdin, stdout)
}

fn copy(mut from: impl Read, mut to: impl Write) {
    let mut buffer = vec![0; READ];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}
