//! Links the program: hardened always, and in a release build so that it starts fast and small.
//!
//! - In every profile on Linux the program is position-independent (rustc's default), all that the loader fills in is
//!   read-only before our first instruction, and no stack is executable. `tests/it/hardening.rs` reads it from the program.
//! - The kernel maps 64 KiB around each page of a program that is touched. Where the few functions that run are spread over
//!   all of it, most of the program ends up in memory. `cargo xtask release` records which functions run, and names the list
//!   in `PURLIN_FUNCTION_ORDER`. Without it the program is the same, but for the order of its functions.
//! - What unwinds the stack is linked in: a library of its own would be found, mapped and adjusted at every start.
//! - `PURLIN_LINK_LIBRARIES` names a directory with the libraries of an old glibc to link with, and an unwinder.
//!
//! In a release build it also puts the commit into the version. Other builds have none: they would be built again after
//! each commit.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The target whose linker is LLVM's by default, which alone knows the option.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Names the list of functions, in the order in which they are to be laid out.
const ORDER: &str = "PURLIN_FUNCTION_ORDER";
/// Names a directory with libraries to link with.
const LIBRARIES: &str = "PURLIN_LINK_LIBRARIES";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={ORDER}");
    println!("cargo:rerun-if-env-changed={LIBRARIES}");
    println!("cargo:rustc-env=PURLIN_VERSION={}", version());
    if variable("CARGO_CFG_TARGET_OS").as_deref() == Some("linux") {
        println!("cargo:rustc-link-arg-bin=purlin=-Wl,-z,relro,-z,now,-z,noexecstack");
    }
    let libraries = variable(LIBRARIES);
    if let Some(directory) = &libraries {
        // Where the compiler looks for the code before `main`, and the linker for libraries.
        println!("cargo:rustc-link-arg-bin=purlin=-B{directory}");
        println!("cargo:rustc-link-arg-bin=purlin=-L{directory}");
    }
    if !is_release() || !links_with_lld() {
        return;
    }
    if libraries.is_none() {
        link_in_the_unwinder();
    }
    if let Some(list) = variable(ORDER).filter(|list| Path::new(list).is_file()) {
        println!("cargo:rerun-if-changed={list}");
        println!("cargo:rustc-link-arg-bin=purlin=-Wl,--symbol-ordering-file={list}");
        println!("cargo:rustc-link-arg-bin=purlin=-Wl,--no-warn-symbol-ordering");
    }
}

fn is_release() -> bool {
    variable("PROFILE").as_deref() == Some("release")
}

/// Returns the version; in a release build with the commit, and a `+` if files differ from it. Without git it has none.
fn version() -> String {
    let number = variable("CARGO_PKG_VERSION").unwrap_or_default();
    let describe = ["describe", "--always", "--dirty=+", "--abbrev=9", "--exclude=*"];
    let commit = is_release().then(|| output_of("git", &describe)).flatten();
    // Changes with every commit and every switch of branches.
    let log = output_of("git", &["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| is_release() && Path::new(log.trim()).is_file()) {
        println!("cargo:rerun-if-changed={}", log.trim());
    }
    match commit.as_deref().map(str::trim) {
        Some(commit) if !commit.is_empty() => format!("{number} ({commit})"),
        _ => number,
    }
}

/// Puts a library of that name before the system's, which stands for the one that is linked in.
fn link_in_the_unwinder() {
    let Some(directory) = variable("OUT_DIR") else { return };
    if std::fs::write(Path::new(&directory).join("libgcc_s.so"), "INPUT(-lgcc_eh)\n").is_ok() {
        println!("cargo:rustc-link-search=native={directory}");
    }
}

/// Returns whether the compiler brings its own LLVM linker and no other is configured.
fn links_with_lld() -> bool {
    let is_chosen = variable("RUSTC_LINKER").is_some()
        || variable("CARGO_ENCODED_RUSTFLAGS")
            .is_some_and(|flags| flags.contains("linker") || flags.contains("fuse-ld"));
    let bundled = format!("lib/rustlib/{TARGET}/bin/gcc-ld/ld.lld");
    variable("TARGET").as_deref() == Some(TARGET)
        && variable("HOST").as_deref() == Some(TARGET)
        && !is_chosen
        && sysroot().is_some_and(|directory| directory.join(bundled).is_file())
}

fn sysroot() -> Option<PathBuf> {
    Some(PathBuf::from(output_of(&variable("RUSTC")?, &["--print=sysroot"])?.trim()))
}

#[expect(clippy::disallowed_methods, reason = "a build script sees none of our crates")]
fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok()).flatten()
}

#[expect(clippy::disallowed_methods, reason = "a build script gets its input from the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
