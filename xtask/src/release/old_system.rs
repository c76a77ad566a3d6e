//! Starts the packaged program on Debian 11, which has glibc 2.31.
//!
//! That is the oldest release that Debian's mirrors still have. `glibc::needed` shows that 2.28 is enough.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::check::greets;
use super::packages::Platform;
use crate::temporary::Directory;
use crate::{needs, program};

const RELEASE: &str = "bullseye";

/// Starts the program of the tarball there, and lets it answer a prompt.
pub(crate) fn starts(dist: &Path, platform: &Platform, version: &str) -> Result<()> {
    let root = root()?;
    let directory = Directory::new("old")?;
    let name = format!("purlin-{version}-{}", platform.target);
    let archive = dist.join(format!("{name}.tar.gz"));
    program::must_succeed(&["tar", "-xzf", text(&archive)?, "-C", text(directory.path())?])?;
    let unpacked = directory.path().join(&name);
    let (root, unpacked) = (text(&root)?, text(&unpacked)?);
    let inside = |words: &'static [&'static str]| {
        let mounts =
            ["bwrap", "--ro-bind", root, "/", "--ro-bind", unpacked, "/mnt", "--proc", "/proc"];
        let rest =
            ["--dev", "/dev", "--tmpfs", "/tmp", "--setenv", "HOME", "/tmp", "--chdir", "/tmp"];
        [&mounts[..], &rest, words].concat()
    };
    let libc = program::answer_to(&inside(&["ldd", "--version"]), "")?;
    greets(&inside(&["/mnt/bin/purlin"]), version)?;
    let said =
        program::answer_to(&inside(&["/mnt/bin/purlin", "run", "what is this project?"]), "")?;
    ensure!(said.contains("built-in guide"), "the program says {said}");
    println!("release: the program answers on {}", libc.lines().next().unwrap_or_default());
    Ok(())
}

/// Makes the system once.
fn root() -> Result<PathBuf> {
    let root = program::target()?.join(format!("system-{RELEASE}"));
    if !root.join("complete").is_file() {
        needs::bubblewrap()?;
        needs::debootstrap()?;
        if root.exists() {
            std::fs::remove_dir_all(&root)?;
        }
        program::must_succeed(&["debootstrap", "--variant=minbase", RELEASE, text(&root)?])?;
        std::fs::write(root.join("complete"), "")?;
    }
    Ok(root)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path is not UTF-8")
}
