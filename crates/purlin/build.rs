//! Links the program so that it starts fast and small.
//!
//! - The kernel maps 64 KiB around each page of a program that is touched. Where the few functions that run are spread over
//!   all of it, most of the program ends up in memory. `link-order.txt` names them in the order of their first use;
//!   `cargo xtask order` renews it. Names that are not there any more are passed over, so an old list costs memory and nothing else.
//! - The places that the loader must adjust are listed as bits, not as 24 bytes each, where the C library can read that.
//! - What unwinds the stack is linked in: a library of its own would be found, mapped and adjusted at every start.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The target whose linker is LLVM's by default, which alone knows the option.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The first GNU C library that reads the list of places as bits.
const FIRST_WITH_BITS: (u32, u32) = (2, 36);

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=link-order.txt");
    let Some(list) =
        variable("CARGO_MANIFEST_DIR").map(|folder| Path::new(&folder).join("link-order.txt"))
    else {
        return;
    };
    if variable("PROFILE").as_deref() == Some("release") && list.is_file() && links_with_lld() {
        let list = list.display();
        println!("cargo:rustc-link-arg-bin=purlin=-Wl,--symbol-ordering-file={list}");
        println!("cargo:rustc-link-arg-bin=purlin=-Wl,--no-warn-symbol-ordering");
        if libc_version().is_some_and(|version| version >= FIRST_WITH_BITS) {
            println!("cargo:rustc-link-arg-bin=purlin=-Wl,-z,pack-relative-relocs");
        }
        link_in_the_unwinder();
    }
}

/// Puts a library of that name before the system's, which stands for the one that is linked in.
fn link_in_the_unwinder() {
    let Some(folder) = variable("OUT_DIR") else { return };
    if std::fs::write(Path::new(&folder).join("libgcc_s.so"), "INPUT(-lgcc_eh)\n").is_ok() {
        println!("cargo:rustc-link-search=native={folder}");
    }
}

/// The version of the C library here, which is the oldest that the program will run with.
fn libc_version() -> Option<(u32, u32)> {
    let said = said("getconf", "GNU_LIBC_VERSION")?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Tells whether the compiler brings its own LLVM linker and nobody chose another.
fn links_with_lld() -> bool {
    let is_chosen = variable("RUSTC_LINKER").is_some()
        || variable("CARGO_ENCODED_RUSTFLAGS")
            .is_some_and(|flags| flags.contains("linker") || flags.contains("fuse-ld"));
    let bundled = format!("lib/rustlib/{TARGET}/bin/gcc-ld/ld.lld");
    variable("TARGET").as_deref() == Some(TARGET)
        && variable("HOST").as_deref() == Some(TARGET)
        && !is_chosen
        && sysroot().is_some_and(|folder| folder.join(bundled).is_file())
}

fn sysroot() -> Option<PathBuf> {
    Some(PathBuf::from(said(&variable("RUSTC")?, "--print=sysroot")?.trim()))
}

#[expect(clippy::disallowed_methods, reason = "a build script sees none of our crates")]
fn said(program: &str, argument: &str) -> Option<String> {
    String::from_utf8(Command::new(program).arg(argument).output().ok()?.stdout).ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a build script is told what it needs in its environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
