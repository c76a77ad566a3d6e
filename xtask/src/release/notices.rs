//! What the packages inside the program require to be passed on: their licences, and a list of them as a CycloneDX SBOM.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::metadata::{Metadata, Package};

/// Beginnings of the names of files with licences and notices.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];
/// What is part of the program and no package of cargo.
const INCLUDED: &str = "
libsqlite3-sys contains SQLite, which is in the public domain (https://sqlite.org/copyright.html).
This software is based in part on the work of the Independent JPEG Group.
The standard library of Rust is licensed under MIT OR Apache-2.0.
Released programs contain LLVM's libunwind, licensed under Apache-2.0 WITH LLVM-exception, and the start-up code of the
GNU C library, whose licence permits to link it with any program.
";

/// Prints the licences of all packages that others wrote. The same text is printed once.
pub(crate) fn licences(metadata: &Metadata) -> Result<String> {
    let mut text = String::from("Purlin contains the following packages.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in metadata.packages.values().filter(|package| package.source.is_some()) {
        let licence = package.license.as_deref().unwrap_or("see below");
        text.push_str(&format!("{} ({licence})\n", package.key()));
        for file in licence_files(&package.directory)? {
            texts.entry(file).or_default().push(package.key());
        }
    }
    text.push_str(INCLUDED);
    // In the order of the packages, not of the texts.
    let mut texts: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(file, users)| (users, file)).collect();
    texts.sort();
    for (users, file) in texts {
        let line = "-".repeat(100);
        text.push_str(&format!("\n{line}\n{}\n{line}\n\n{}\n", users.join(", "), file.trim_end()));
    }
    Ok(text)
}

/// Reads the licences of a package.
fn licence_files(directory: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
        if NAMES.iter().any(|start| name.starts_with(start)) && entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let read = |path| Ok(String::from_utf8_lossy(&std::fs::read(path)?).replace("\r\n", "\n"));
    paths.into_iter().map(read).collect()
}

/// Lists the packages in the form of CycloneDX 1.5. It has no time and no random number, so it is the same each time.
pub(crate) fn sbom(metadata: &Metadata) -> Value {
    let packages = metadata.packages.values();
    let (own, others): (Vec<&Package>, Vec<&Package>) =
        packages.partition(|package| package.name == "purlin");
    let dependencies: Vec<Value> = metadata
        .packages
        .values()
        .map(|package| {
            let needs = package.needs.iter().filter_map(|key| metadata.packages.get(key));
            json!({ "ref": purl(package), "dependsOn": needs.map(purl).collect::<Vec<_>>() })
        })
        .collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": own.first().map(|package| component(package, "application")) },
        "components": others.iter().map(|package| component(package, "library")).collect::<Vec<_>>(),
        "dependencies": dependencies,
    })
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn component(package: &Package, kind: &str) -> Value {
    let mut value = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    if let Some(licence) = &package.license {
        // An older way to write "or" in manifests.
        value["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(checksum) = &package.checksum {
        value["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_has_its_licence_and_its_place_in_the_list() {
        let metadata = Metadata::read("x86_64-unknown-linux-gnu").unwrap();
        let text = licences(&metadata).unwrap();
        for package in metadata.packages.values().filter(|package| package.source.is_some()) {
            assert!(text.contains(&format!("\n{} (", package.key())), "{}", package.key());
        }
        assert!(text.contains("Permission is hereby granted"));
        let sbom = sbom(&metadata);
        let listed = sbom["components"].as_array().unwrap().len();
        assert_eq!(listed, metadata.packages.len() - 1);
        assert_eq!(sbom["metadata"]["component"]["name"], "purlin");
    }
}
