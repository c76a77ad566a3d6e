//! `cargo xtask release`: builds the program, and packages it into `target/dist`.
//!
//! Builds twice: `order` records which functions of the first build run at the start, and the second lays them out together.
//! Both are linked with the libraries of an old glibc (`glibc`), and no path of this machine is compiled in. `packages`
//! makes the packages, `check` installs and runs each of them.

mod archive;
mod check;
mod glibc;
mod image;
pub(crate) mod metadata;
mod notices;
mod old_system;
mod order;
pub(crate) mod packages;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::platforms::Toolchain;
use crate::{needs, program};
use archive::Entry;
pub(crate) use glibc::ZIG;
use metadata::Metadata;
use packages::{Artefact, Content, GLIBC, PLATFORMS, Platform, hex, pretty};

/// The name of the list of functions that the program is laid out by.
const ORDER: &str = "function-order.txt";

/// The options on the command line.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// Packages this program instead of building one.
    program: Option<PathBuf>,
    /// Uses this list of functions instead of recording one, and builds only once.
    order: Option<PathBuf>,
    /// Makes packages for these.
    platforms: Vec<&'static Platform>,
    /// Installs and runs every package.
    is_checked: bool,
}

impl Options {
    /// Reads the arguments after `release`.
    pub(crate) fn parse(words: &[&str]) -> Result<Options> {
        let mut options =
            Options { program: None, order: None, platforms: Vec::new(), is_checked: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}` needs a value"));
            match *word {
                "--program" => options.program = Some(std::path::absolute(value()?)?),
                "--order" => options.order = Some(std::path::absolute(value()?)?),
                "--check" => options.is_checked = true,
                "--target" => {
                    let name = value()?;
                    let found = PLATFORMS.iter().find(|platform| platform.target == *name);
                    options
                        .platforms
                        .push(found.with_context(|| format!("unknown target `{name}`"))?);
                }
                other => anyhow::bail!("unknown argument `{other}` of `release`"),
            }
        }
        if options.platforms.is_empty() {
            options.platforms.push(&PLATFORMS[0]);
        }
        Ok(options)
    }
}

/// Builds, packages and checks.
pub(crate) fn run(options: &Options) -> Result<()> {
    let dist = program::target()?.join("dist");
    let mut programs = Vec::new();
    let mut extra = Vec::new();
    for platform in &options.platforms {
        let metadata = Metadata::read(platform.target)?;
        let faults = crate::deny::faults(metadata.packages.values());
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        if !platform.emulator.is_empty() {
            needs::emulator()?;
        }
        let program = match &options.program {
            Some(program) => program.clone(),
            None => {
                let (program, list) = build(platform, options.order.as_deref())?;
                let newest = glibc::needed(&program)?.pop().context("the program uses no glibc")?;
                let (major, minor) = newest;
                ensure!(newest <= version_of(GLIBC)?, "the program needs glibc {major}.{minor}");
                if **platform == PLATFORMS[0] {
                    extra.push(Artefact { name: ORDER.to_owned(), bytes: std::fs::read(list)? });
                }
                program
            }
        };
        programs.push((*platform, program, metadata));
    }
    let mut artefacts = make(&programs)?;
    ensure!(artefacts == make(&programs)?, "two runs made different packages");
    artefacts.extend(extra);
    for (platform, program, metadata) in &programs {
        artefacts.extend(image::image(&gather(program, platform, metadata)?)?);
    }
    write(&dist, &artefacts)?;
    println!("release: {} files in {}", artefacts.len() + 1, dist.display());
    if options.is_checked {
        for (platform, _, metadata) in &programs {
            check::all(&dist, platform, &metadata.version)?;
        }
    }
    Ok(())
}

fn version_of(text: &str) -> Result<(u32, u32)> {
    let (major, minor) = text.split_once('.').context("a version has two numbers")?;
    Ok((major.parse()?, minor.parse()?))
}

/// Builds the program as it is released, with the order of functions that was recorded last, and returns it.
pub(crate) fn program() -> Result<PathBuf> {
    let list = build_directory()?.join(ORDER);
    let order = list.is_file().then_some(list.as_path());
    Ok(build(&PLATFORMS[0], order)?.0)
}

fn build_directory() -> Result<PathBuf> {
    Ok(program::target()?.join("dist-build"))
}

/// Builds the program; returns it and the list of functions that it is laid out by.
fn build(platform: &Platform, order: Option<&Path>) -> Result<(PathBuf, PathBuf)> {
    let target = platform.target;
    let own = build_directory()?;
    let libraries = glibc::libraries(PLATFORMS[0].target)?;
    let list = own.join(ORDER);
    std::fs::create_dir_all(&own)?;
    let here = program::root().display().to_string();
    let home = program::cargo_home()?.display().to_string();
    let maps = [(here.as_str(), "."), (home.as_str(), "/cargo")];
    let rust: Vec<String> =
        maps.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    let rust = rust.join("\u{1f}");
    let c: Vec<String> =
        maps.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    let c = format!("-fstack-protector-strong {}", c.join(" "));
    let c_name = format!("CFLAGS_{}", target.replace('-', "_"));
    let directory = own.to_str().context("a path is not UTF-8")?;
    let is_own = platform.emulator.is_empty();
    let other = if is_own { Vec::new() } else { Toolchain::install()?.variables(target) };
    let cargo = |extra: &[&str], order: &Path| {
        let mut variables =
            vec![("CARGO_ENCODED_RUSTFLAGS", OsStr::new(&rust)), (c_name.as_str(), OsStr::new(&c))];
        if is_own {
            variables.push(("PURLIN_LINK_LIBRARIES", libraries.as_os_str()));
            variables.push((program::ORDER_VARIABLE, order.as_os_str()));
        }
        variables.extend(other.iter().map(|(name, value)| (name.as_str(), value.as_os_str())));
        let words =
            ["cargo", "rustc", "--locked", "--release", "--package", "purlin", "--bin", "purlin"];
        let place = ["--target-dir", directory, "--target", target, "--"];
        program::must_succeed_with(&[&words[..], &place, extra].concat(), &variables)
    };
    let built = own.join(target).join("release/purlin");
    match order {
        // Only the compiler's own linker understands the list, and only this machine's program can be recorded.
        _ if !is_own => {}
        Some(given) if given == list => {}
        Some(given) => {
            std::fs::copy(given, &list).with_context(|| given.display().to_string())?;
        }
        None => {
            cargo(&["-C", "strip=none"], Path::new("none"))?;
            order::record(&built, &list)?;
        }
    }
    cargo(&[], &list)?;
    Ok((built, list))
}

/// Makes everything that is published, except the sums.
fn make(programs: &[(&'static Platform, PathBuf, Metadata)]) -> Result<Vec<Artefact>> {
    let mut artefacts = Vec::new();
    let mut binaries = serde_json::Map::new();
    let mut first = None;
    for (platform, program, metadata) in programs {
        let content = gather(program, platform, metadata)?;
        let packages = content.packages()?;
        binaries.extend([content.registry_binary(&packages[0])]);
        artefacts.extend(packages);
        first.get_or_insert((content, metadata));
    }
    let (content, metadata) = first.context("there is no platform")?;
    artefacts.push(content.npm_main()?);
    artefacts.extend(content.registry_entry(binaries));
    let bytes = pretty(&notices::sbom(metadata));
    artefacts.push(Artefact { name: format!("purlin-{}.cdx.json", metadata.version), bytes });
    Ok(artefacts)
}

/// Collects what packages contain: runs the program for its manual pages and completions.
fn gather(purlin: &Path, platform: &'static Platform, metadata: &Metadata) -> Result<Content> {
    let read = |name: &str| {
        std::fs::read_to_string(program::root().join(name)).with_context(|| name.to_owned())
    };
    let name = purlin.to_str().context("the path of the program is not UTF-8")?;
    let run =
        |words: &[&str]| program::answer_to(&[platform.emulator, &[name], words].concat(), "");
    let mut shared = Vec::new();
    let pages = crate::temporary::Directory::new("man")?;
    run(&["man", "--write", pages.path().to_str().context("a path is not UTF-8")?])?;
    for page in std::fs::read_dir(pages.path())? {
        let page = page?;
        let path = format!("share/man/man1/{}", page.file_name().to_string_lossy());
        shared.push(Entry::file(path, std::fs::read(page.path())?));
    }
    ensure!(!shared.is_empty(), "the program has no manual pages");
    shared.sort_by(|a, b| a.path.cmp(&b.path));
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/purlin"),
        ("zsh", "share/zsh/vendor-completions/_purlin"),
        ("fish", "share/fish/vendor_completions.d/purlin.fish"),
    ] {
        shared.push(Entry::file(path, format!("{}\n", run(&["completions", shell])?)));
    }
    for document in ["README.md", "CHANGELOG.md"] {
        shared.push(Entry::file(format!("share/doc/purlin/{document}"), read(document)?));
    }
    let mut licences =
        vec![Entry::file("LICENSES-OF-DEPENDENCIES.txt", notices::licences(metadata)?)];
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        licences.push(Entry::file(name, read(name)?));
    }
    Ok(Content {
        version: metadata.version.clone(),
        repository: metadata.repository.clone(),
        platform,
        program: std::fs::read(purlin)?,
        shared,
        licences,
        readme: read("README.md")?,
        launcher: read("packaging/launcher.js")?,
        icon: read("packaging/icon.svg")?,
    })
}

/// Writes everything and its sums.
fn write(dist: &Path, artefacts: &[Artefact]) -> Result<()> {
    if dist.exists() {
        std::fs::remove_dir_all(dist)?;
    }
    let mut sums = String::new();
    for artefact in artefacts {
        let path = dist.join(&artefact.name);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(&path, &artefact.bytes)?;
        sums.push_str(&format!("{}  {}\n", hex(&artefact.bytes), artefact.name));
    }
    Ok(std::fs::write(dist.join("SHA256SUMS"), sums)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: I3, Q2
    #[test]
    fn packages_install_run_and_are_the_same_each_time() {
        let target = program::target().unwrap();
        let purlin = target.join("debug/purlin");
        assert!(purlin.is_file(), "run `cargo build` first");
        // Small, so that the test is fast: a script that becomes the program.
        let directory = crate::temporary::Directory::new("packages").unwrap();
        let script = directory.path().join("purlin");
        crate::temporary::write_script(&script, &format!("exec '{}' \"$@\"\n", purlin.display()))
            .unwrap();
        let metadata = Metadata::read(PLATFORMS[0].target).unwrap();
        let version = metadata.version.clone();
        let programs = [(&PLATFORMS[0], script, metadata)];
        let artefacts = make(&programs).unwrap();
        assert_eq!(artefacts, make(&programs).unwrap());
        let dist = directory.path().join("dist");
        write(&dist, &artefacts).unwrap();
        check::packages(&dist, &PLATFORMS[0], &version).unwrap();
    }

    #[test]
    fn options_are_read() {
        let options = Options::parse(&["--check", "--program", "/p"]).unwrap();
        assert!(options.is_checked && options.program == Some("/p".into()));
        assert_eq!(options.platforms, [&PLATFORMS[0]]);
        let both = ["--target", PLATFORMS[0].target, "--target", PLATFORMS[1].target];
        assert_eq!(Options::parse(&both).unwrap().platforms, [&PLATFORMS[0], &PLATFORMS[1]]);
        assert!(Options::parse(&["--target", "vax"]).is_err());
        assert!(Options::parse(&["--order"]).is_err());
    }
}
