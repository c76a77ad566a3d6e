//! What cargo says about the program: its version and the packages that are linked into it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::program;

/// A package that is part of the program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The licence as an SPDX expression.
    pub(crate) license: Option<String>,
    /// Where it comes from; `None` for our own.
    pub(crate) source: Option<String>,
    /// The directory with its source.
    pub(crate) directory: std::path::PathBuf,
    /// SHA-256 of the package in the registry.
    pub(crate) checksum: Option<String>,
    /// The packages it needs, as `name version`.
    pub(crate) needs: BTreeSet<String>,
}

impl Package {
    /// Names the package exactly.
    pub(crate) fn key(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// The program and all packages that are linked into it.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) version: String,
    /// The address of the repository.
    pub(crate) repository: String,
    /// By key, `purlin` included. Build scripts, macros and test tools are not.
    pub(crate) packages: BTreeMap<String, Package>,
}

impl Metadata {
    /// Asks cargo, for one target.
    pub(crate) fn read(target: &str) -> Result<Metadata> {
        let filter = format!("--filter-platform={target}");
        let text =
            program::answer(&["cargo", "metadata", "--format-version=1", "--locked", &filter]);
        let value = serde_json::from_str(&text.context("`cargo metadata` failed")?)?;
        let lock = std::fs::read_to_string(program::root().join("Cargo.lock"))?;
        let mut metadata = from_value(&value, &checksums(&lock))?;
        let linked = linked(target)?;
        metadata.packages.retain(|key, _| linked.contains(key));
        for package in metadata.packages.values_mut() {
            package.needs.retain(|key| linked.contains(key));
        }
        Ok(metadata)
    }
}

/// Asks cargo which packages are compiled for the program. The metadata have more: those of features that nothing turns on.
fn linked(target: &str) -> Result<BTreeSet<String>> {
    let words = ["cargo", "tree", "--locked", "--package=purlin", "--edges=normal,no-proc-macro"];
    let form = ["--prefix=none", "--format={p}", "--target", target];
    let tree = program::answer(&[&words[..], &form].concat()).context("`cargo tree` failed")?;
    let name = |line: &str| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
    };
    Ok(tree.lines().filter_map(name).collect())
}

fn from_value(value: &Value, checksums: &BTreeMap<String, String>) -> Result<Metadata> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut by_id = BTreeMap::new();
    for package in list(&value["packages"]) {
        by_id.insert(text(&package["id"]), package);
    }
    let nodes: BTreeMap<String, Value> = list(&value["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let is_linked = |id: &str| {
        let targets = by_id.get(id).map(|package| list(&package["targets"])).unwrap_or_default();
        !targets.iter().any(|target| list(&target["kind"]).contains(&"proc-macro".into()))
    };
    let root = by_id.iter().find(|(_, package)| package["name"] == "purlin");
    let (root_id, root) = root.context("cargo knows no package `purlin`")?;
    let mut open = vec![root_id.clone()];
    let mut packages = BTreeMap::new();
    while let Some(id) = open.pop() {
        let (package, node) = (by_id.get(&id).context("package")?, nodes.get(&id).context("node")?);
        let is_normal = |dependency: &Value| {
            list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null())
        };
        let needs: Vec<String> = list(&node["deps"])
            .iter()
            .filter(|dependency| is_normal(dependency))
            .map(|dependency| text(&dependency["pkg"]))
            .filter(|id| is_linked(id))
            .collect();
        let key =
            |package: &Value| format!("{} {}", text(&package["name"]), text(&package["version"]));
        let manifest = std::path::PathBuf::from(text(&package["manifest_path"]));
        let found = Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            license: package["license"].as_str().map(str::to_owned),
            source: package["source"].as_str().map(str::to_owned),
            directory: manifest.parent().context("a manifest has no folder")?.to_owned(),
            checksum: checksums.get(&key(package)).cloned(),
            needs: needs.iter().filter_map(|id| by_id.get(id)).map(key).collect(),
        };
        if packages.insert(key(package), found).is_none() {
            open.extend(needs);
        }
    }
    let repository = root["repository"].as_str().context("Cargo.toml names no `repository`")?;
    Ok(Metadata { version: text(&root["version"]), repository: repository.to_owned(), packages })
}

/// Reads the checksums of a lock file, by `name version`.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.map(|text| text.trim_end_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    let read = |block: &str| {
        let key = format!("{} {}", value(block, "name")?, value(block, "version")?);
        Some((key, value(block, "checksum")?))
    };
    blocks.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_consists_of_what_is_linked_and_nothing_else() {
        let metadata = Metadata::read("x86_64-unknown-linux-gnu").unwrap();
        let has = |name: &str| metadata.packages.values().any(|package| package.name == name);
        assert!(has("purlin") && has("engine") && has("tokio") && has("libsqlite3-sys"));
        // A macro, a tool of build scripts, and a library of tests.
        assert!(!has("serde_derive") && !has("cc") && !has("proptest"));
        let foreign = metadata.packages.values().filter(|package| package.source.is_some());
        assert!(foreign.clone().all(|package| package.checksum.is_some()));
        assert!(foreign.count() > 100);
    }
}
