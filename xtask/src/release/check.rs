//! Installs every package where a user would, without the network, and talks to the installed program.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::packages::Platform;
use crate::program;
use crate::temporary::Directory;

/// A conversation that every agent must be able to have.
const INITIALIZE: &str =
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n";

/// Checks the packages, the sums and the start on an old system.
pub(crate) fn all(dist: &Path, platform: &Platform, version: &str) -> Result<()> {
    if !platform.emulator.is_empty() {
        // npm and pip refuse packages of another platform.
        let directory = Directory::new("check")?;
        tarball(dist, directory.path(), platform, version).context("the tarball")?;
        deb(dist, directory.path(), platform, version).context("the Debian package")?;
        println!("release: the packages for {} run in an emulator", platform.target);
        return Ok(());
    }
    packages(dist, platform, version)?;
    super::old_system::starts(dist, platform, version)?;
    crate::needs::containers()?;
    super::image::check(dist, version).context("the container image")?;
    println!("release: every package was installed, run and removed");
    Ok(())
}

/// Checks the sums and installs every package.
pub(crate) fn packages(dist: &Path, platform: &Platform, version: &str) -> Result<()> {
    let at = text(dist)?;
    program::must_succeed(&[
        "sh",
        "-c",
        &format!("cd '{at}' && sha256sum --check --quiet SHA256SUMS"),
    ])?;
    let directory = Directory::new("check")?;
    tarball(dist, directory.path(), platform, version).context("the tarball")?;
    deb(dist, directory.path(), platform, version).context("the Debian package")?;
    npm(dist, directory.path(), platform, version).context("the npm packages")?;
    wheel(dist, directory.path(), platform, version).context("the Python package")?;
    registry(dist, version).context("the registry entry")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path is not UTF-8")
}

/// Asks an installed program for its version, and opens a connection as an editor does.
pub(crate) fn greets(words: &[&str], version: &str) -> Result<()> {
    let said = program::answer_to(&[words, &["--version"]].concat(), "")?;
    ensure!(said.starts_with(&format!("purlin {version}")), "`--version` says {said}");
    let reply = program::answer_to(&[words, &["acp"]].concat(), INITIALIZE)?;
    let reply: Value =
        serde_json::from_str(&reply).with_context(|| format!("the reply is {reply}"))?;
    let agent = &reply["result"]["agentInfo"];
    ensure!(agent["name"] == "purlin" && agent["version"] == version, "agentInfo is {agent}");
    // The ACP registry asks for one way to log in.
    let methods = reply["result"]["authMethods"].as_array();
    ensure!(methods.is_some_and(|methods| !methods.is_empty()), "no authMethods in {reply}");
    Ok(())
}

fn tarball(dist: &Path, directory: &Path, platform: &Platform, version: &str) -> Result<()> {
    let name = format!("purlin-{version}-{}", platform.target);
    let archive = dist.join(format!("{name}.tar.gz"));
    program::must_succeed(&["tar", "-xzf", text(&archive)?, "-C", text(directory)?])?;
    let root = directory.join(&name);
    for file in [
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "LICENSES-OF-DEPENDENCIES.txt",
        "share/man/man1/purlin-setup.1",
    ] {
        ensure!(root.join(file).is_file(), "{file} is missing");
    }
    greets(&[platform.emulator, &[text(&root.join("bin/purlin"))?]].concat(), version)
}

/// Installs into a root of its own, which has nothing but dpkg's database, and removes again.
fn deb(dist: &Path, directory: &Path, platform: &Platform, version: &str) -> Result<()> {
    let package = dist.join(format!("purlin_{version}_{}.deb", platform.debian));
    let root = directory.join("root");
    std::fs::create_dir_all(root.join("var/lib/dpkg/info"))?;
    std::fs::create_dir_all(root.join("var/lib/dpkg/updates"))?;
    std::fs::write(root.join("var/lib/dpkg/status"), "")?;
    let at = format!("--root={}", text(&root)?);
    let dpkg = |words: &[&str]| {
        let common = [
            "dpkg",
            "--force-not-root",
            "--force-depends",
            "--force-bad-path",
            "--force-architecture",
            &at,
        ];
        program::must_succeed(&[&common[..], words].concat())
    };
    dpkg(&["--install", text(&package)?])?;
    let purlin = root.join("usr/bin/purlin");
    greets(&[platform.emulator, &[text(&purlin)?]].concat(), version)?;
    ensure!(root.join("usr/share/bash-completion/completions/purlin").is_file(), "no completions");
    dpkg(&["--purge", "purlin"])?;
    ensure!(!purlin.exists() && !root.join("usr/share/doc/purlin").exists(), "files stay behind");
    Ok(())
}

fn npm(dist: &Path, directory: &Path, platform: &Platform, version: &str) -> Result<()> {
    let project = directory.join("npm");
    std::fs::create_dir(&project)?;
    std::fs::write(project.join("package.json"), "{ \"private\": true }\n")?;
    let main = dist.join(format!("npm/purlin-{version}.tgz"));
    let own = dist.join(format!("npm/purlin-{}-{version}.tgz", platform.npm));
    let at = text(&project)?;
    let options = ["--offline", "--no-audit", "--no-fund", "--prefix", at];
    program::must_succeed(
        &[&["npm", "install"], &options[..], &[text(&own)?, text(&main)?]].concat(),
    )?;
    greets(&["npx", "--offline", "--no-install", "--prefix", at, "purlin"], version)
}

fn wheel(dist: &Path, directory: &Path, platform: &Platform, version: &str) -> Result<()> {
    let names = std::fs::read_dir(dist)?.filter_map(Result::ok).map(|entry| entry.path());
    let architecture = platform.target.split('-').next().unwrap_or_default();
    let ending = format!("_{architecture}.whl");
    let wheel = names.into_iter().find(|path| path.to_string_lossy().ends_with(&ending));
    let wheel = wheel.context("there is none")?;
    let environment = directory.join("python");
    program::virtual_environment(&environment, &["--no-index", text(&wheel)?])?;
    greets(&[text(&environment.join("bin/purlin"))?], version)?;
    let python = environment.join("bin/python3");
    program::must_succeed(&[
        text(&python)?,
        "-m",
        "pip",
        "uninstall",
        "--quiet",
        "--yes",
        "purlin-agent",
    ])?;
    ensure!(!environment.join("bin/purlin").exists(), "the program stays behind");
    Ok(())
}

/// Checks the entry by the rules of the registry: its schema, exact versions, and an icon of one colour.
fn registry(dist: &Path, version: &str) -> Result<()> {
    let directory = dist.join("registry/purlin");
    let entry: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.join("agent.json"))?)?;
    for key in ["id", "name", "version", "description", "license", "license_url", "repository"] {
        ensure!(entry[key].as_str().is_some_and(|text| !text.is_empty()), "`{key}` is missing");
    }
    ensure!(entry["id"] == "purlin" && entry["version"] == version, "id or version is wrong");
    let known = [
        "id",
        "name",
        "version",
        "description",
        "repository",
        "authors",
        "license",
        "license_url",
        "distribution",
    ];
    let unknown =
        entry.as_object().into_iter().flatten().find(|(key, _)| !known.contains(&key.as_str()));
    ensure!(unknown.is_none(), "the schema has no {unknown:?}");
    ensure!(
        entry["distribution"]["npx"]["package"] == format!("purlin@{version}"),
        "npx has another version"
    );
    for (platform, target) in entry["distribution"]["binary"].as_object().context("no binary")? {
        ensure!(platform.starts_with("linux-"), "unknown platform {platform}");
        let archive = target["archive"].as_str().unwrap_or_default();
        let file = archive.rsplit('/').next().unwrap_or_default();
        ensure!(
            archive.contains(&format!("/v{version}/")),
            "the address has another version: {archive}"
        );
        let sum = super::hex(&std::fs::read(dist.join(file)).with_context(|| file.to_owned())?);
        ensure!(target["sha256"] == sum, "the sum of {file} is wrong");
    }
    let icon = std::fs::read_to_string(directory.join("icon.svg"))?;
    ensure!(
        icon.contains("width=\"16\" height=\"16\"") && icon.contains("viewBox=\"0 0 16 16\""),
        "the icon is not 16x16"
    );
    for value in icon.split("fill=\"").skip(1).chain(icon.split("stroke=\"").skip(1)) {
        let colour = value.split('"').next().unwrap_or_default();
        ensure!(
            ["currentColor", "none", "inherit"].contains(&colour),
            "the icon has the colour {colour}"
        );
    }
    Ok(())
}
