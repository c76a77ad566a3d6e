//! `cargo xtask platforms`: compiles the program for systems that it does not run on here.
//!
//! The toolchain of the machine has the standard library of its own system alone. `toolchain.sh` unpacks Debian's newest Rust with
//! the sources of the standard library, which is compiled for the other system first, and takes C compilers from Zig.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{program, release};

/// What must compile without warnings, and for which system. Nothing is linked.
const CHECKED: [(&str, &[&str]); 3] = [
    ("aarch64-unknown-linux-gnu", &["purlin"]),
    ("aarch64-apple-darwin", &["purlin"]),
    // The crates that need no Unix. The program needs more than these.
    (
        "x86_64-pc-windows-gnu",
        &["client", "engine", "observe", "process", "providers", "recording", "store", "wire"],
    ),
];

/// A toolchain for other systems.
#[derive(Debug)]
pub(crate) struct Toolchain {
    directory: PathBuf,
}

impl Toolchain {
    /// Returns the toolchain; downloads it if it is missing.
    pub(crate) fn install() -> Result<Toolchain> {
        let target = program::target()?;
        let directory = target.join("other-systems");
        let python = program::virtual_environment(&target.join("zig"), &[release::ZIG])?;
        let script = program::root().join("xtask/toolchain.sh");
        let words = [script.as_path(), &directory, &python].map(Path::to_str);
        let words: Option<Vec<&str>> = words.into_iter().collect();
        program::must_succeed(&words.context("a path is not UTF-8")?)
            .context("needs apt-get and the packages of Debian testing")?;
        Ok(Toolchain { directory })
    }

    /// Returns the variables with which cargo compiles for a target, and the C of its dependencies too.
    pub(crate) fn variables(&self, target: &str) -> Vec<(String, PathBuf)> {
        let name = target.replace('-', "_");
        let bin = self.directory.join("bin");
        let mut path = bin.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        vec![
            ("RUSTC".to_owned(), self.directory.join("rustc")),
            (format!("CC_{name}"), bin.join(format!("cc-{target}"))),
            (format!("AR_{name}"), bin.join("ar")),
            (
                format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()),
                bin.join(format!("cc-{target}")),
            ),
            ("CARGO_TARGET_DIR".to_owned(), self.directory.join("target")),
            // Where the compiler looks for a tool of Windows.
            ("PATH".to_owned(), path.into()),
        ]
    }
}

/// Compiles for each system and returns whether there was neither an error nor a warning.
pub(crate) fn check() -> Result<bool> {
    let toolchain = Toolchain::install()?;
    let mut is_clean = true;
    for (target, packages) in CHECKED {
        let mut variables = toolchain.variables(target);
        // Compiling the standard library is a feature of the nightly compiler.
        variables.push(("RUSTC_BOOTSTRAP".to_owned(), "1".into()));
        let library = toolchain.directory.join("library");
        variables.push(("__CARGO_TESTS_ONLY_SRC_ROOT".to_owned(), library));
        let mut words = vec!["env".to_owned()];
        words.extend(variables.iter().map(|(name, value)| format!("{name}={}", value.display())));
        let check = ["cargo", "check", "--quiet", "--locked", "--target", target];
        let standard = ["-Zbuild-std=std,panic_abort,proc_macro"];
        words.extend(check.iter().chain(&standard).map(|word| (*word).to_owned()));
        for package in packages {
            words.extend(["--package".to_owned(), (*package).to_owned()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (is_compiled, output) = program::output(&words)?;
        // What C compilers print about packages of others starts with the name of the package.
        let has_warnings = output
            .lines()
            .any(|line| line.contains(" generated ") && line.starts_with("warning: `"));
        if is_compiled && !has_warnings {
            println!("platforms: {} compiles for {target}", packages.join(", "));
        } else {
            print!("{output}");
            println!("platforms: errors or warnings for {target}, see above");
            is_clean = false;
        }
    }
    Ok(is_clean)
}
