//! Links the program so that it starts fast and small.
//!
//! - The kernel maps 64 KiB around each page of a program that is touched. Where the few functions that run are spread over
//!   all of it, most of the program ends up in memory. `link-order.txt` names them in the order of their first use;
//!   `cargo xtask order` renews it. Names that are not there any more are passed over, so an old list costs memory and nothing else.
//! - The program stands at a fixed address: at any other the loader would have to write to a hundred pages of it, a quarter of
//!   the whole start. docs/internals/adr/007-fixed-address.md has what that costs and what is done about it.
//! - What unwinds the stack is linked in: a library of its own would be found, mapped and adjusted at every start.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The target whose linker is LLVM's by default, which alone knows the option.
const TARGET: &str = "x86_64-unknown-linux-gnu";

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
        println!("cargo:rustc-link-arg-bin=purlin=-no-pie");
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
