//! Libraries of an old glibc to link with, so that the program runs on old distributions.
//!
//! A program needs the glibc that it was linked with, or a newer one. Zig contains the names and versions of all functions of
//! each glibc, and makes from them libraries that are enough to link with. It comes as a Python package; nothing of
//! Purlin is compiled with it. The unwinder is LLVM's, since the one of a newer GCC needs a newer glibc.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::packages::GLIBC;
use crate::program;

/// The package with Zig.
pub(crate) const ZIG: &str = "ziglang==0.17.0";
/// Needs all the libraries, so that they are made.
const SOURCE: &str = "int main(void) { return 0; }\n";

/// Returns a directory with the libraries for a target; makes it if it is missing.
pub(crate) fn libraries(target: &str) -> Result<PathBuf> {
    let directory = program::target()?.join(format!("glibc-{GLIBC}-{target}"));
    if directory.join("libc.so").is_file() {
        return Ok(directory);
    }
    let tools = program::target()?.join("zig");
    let python = program::virtual_environment(&tools, &[ZIG])?;
    let cache = tools.join(format!("cache-{target}"));
    std::fs::create_dir_all(&cache)?;
    let source = cache.join("main.c");
    std::fs::write(&source, SOURCE)?;
    let zig_target = format!("{}.{GLIBC}", target.replace("unknown-", ""));
    let words = |text: &'static str| text.split(' ').map(str::to_owned);
    let mut line: Vec<String> = words("env").collect();
    for name in ["ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"] {
        line.push(format!("{name}={}", cache.display()));
    }
    line.push(python.display().to_string());
    line.extend(words("-m ziglang cc -O2 -fPIC -pie -lunwind -target"));
    line.extend([zig_target, source.display().to_string(), "-o".to_owned()]);
    line.push(cache.join("main").display().to_string());
    program::must_succeed(&line.iter().map(String::as_str).collect::<Vec<_>>())?;
    collect(&cache, &directory)?;
    Ok(directory)
}

/// Copies what Zig made to one directory, under the names that a linker looks for.
fn collect(cache: &Path, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut loader = None;
    for object in std::fs::read_dir(cache.join("o"))? {
        for file in std::fs::read_dir(object?.path())? {
            let path = file?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("libld.so") {
                loader = Some(name.clone());
            }
            if name == "Scrt1.o" || name.ends_with(".a") || name.contains(".so.") {
                std::fs::copy(&path, directory.join(&name))?;
            }
            if let Some((library, _)) = name.split_once(".so.") {
                std::fs::write(
                    directory.join(format!("{library}.so")),
                    format!("INPUT ( {name} )\n"),
                )?;
            }
        }
    }
    let loader = loader.context("Zig made no libraries of glibc")?;
    std::fs::write(directory.join("libgcc_s.so"), "INPUT ( libunwind.a )\n")?;
    // Last: its presence says that the directory is complete.
    let libc = format!(
        "GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( libpthread.so.0 libdl.so.2 {loader} ) )\n"
    );
    Ok(std::fs::write(directory.join("libc.so"), libc)?)
}

/// Returns the versions of glibc that a program needs, newest last.
pub(crate) fn needed(program: &Path) -> Result<Vec<(u32, u32)>> {
    let name = program.to_str().context("the path of the program is not UTF-8")?;
    let names = program::answer(&["objdump", "-T", name]).context("objdump fails")?;
    let mut versions: Vec<(u32, u32)> = names.lines().filter_map(version).collect();
    versions.sort_unstable();
    versions.dedup();
    Ok(versions)
}

/// Reads the version from a line of `objdump -T`. A weak symbol may be missing, but its version may not.
fn version(line: &str) -> Option<(u32, u32)> {
    let (_, rest) = line.split_once("GLIBC_")?;
    let mut numbers = rest.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_table_of_symbols() {
        let strong = "0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34) pthread_create";
        let weak = "0000000000000000  w   DF *UND*\t0000000000000000 (GLIBC_2.30) gettid";
        assert_eq!(version(strong), Some((2, 34)));
        assert_eq!(version("0 DF *UND* 0 (GLIBC_2.2.5) read"), Some((2, 2)));
        assert_eq!(version(weak), Some((2, 30)));
        assert_eq!(version("SYMBOL TABLE:"), None);
    }
}
