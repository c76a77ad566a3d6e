//! What the packages inside the program must be: from the public registry, under a licence that we can pass on, and not there
//! twice without a reason. `cargo deny` checks the same and more; it is a program of its own that takes minutes to build.

use std::collections::BTreeMap;

use crate::release::metadata::{Metadata, Package};
use crate::release::packages::PLATFORMS;

/// Licences that ask for no more than that they are passed on.
const LICENCES: [&str; 13] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "IJG",
    "Zlib",
    "0BSD",
    "Unlicense",
    "Unicode-3.0",
    "CDLA-Permissive-2.0",
];
/// The only registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// How many packages may be linked in more than one version, since the packages that need them disagree.
const MOST_TWICE: usize = 20;

/// Lists what is wrong with the packages of the program on Linux.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let metadata = Metadata::read(PLATFORMS[0].target)?;
    Ok(faults(metadata.packages.values()))
}

/// Lists what is wrong with these packages.
pub(crate) fn faults<'a>(packages: impl Iterator<Item = &'a Package> + Clone) -> Vec<String> {
    let mut faults = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
        if package.source.as_deref().is_some_and(|source| source != REGISTRY) {
            faults.push(format!("{} is not from the public registry", package.key()));
        }
        let licence = package.license.as_deref().unwrap_or_default();
        if !is_allowed(licence) {
            faults.push(format!(
                "{} has the licence `{licence}`, which is not in the list of xtask/src/deny.rs",
                package.key()
            ));
        }
    }
    let twice: Vec<&str> =
        versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| *name).collect();
    if twice.len() > MOST_TWICE {
        let (count, list) = (twice.len(), twice.join(", "));
        faults.push(format!(
            "{count} packages are linked in several versions, more than {MOST_TWICE}: {list}"
        ));
    }
    faults
}

/// Tells whether an SPDX expression can be met with our licences.
fn is_allowed(expression: &str) -> bool {
    // An older way to write "or".
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) && rest.is_empty()
}

fn any(words: &mut &[&str]) -> bool {
    let mut is_met = all(words);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        is_met |= all(words);
    }
    is_met
}

fn all(words: &mut &[&str]) -> bool {
    let mut is_met = one(words);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        is_met &= one(words);
    }
    is_met
}

fn one(words: &mut &[&str]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let is_met = any(words);
            *words = words.get(1..).unwrap_or_default();
            is_met
        }
        [name, "WITH", exception, rest @ ..] => {
            *words = rest;
            LICENCES.contains(&format!("{name} WITH {exception}").as_str())
        }
        [name, rest @ ..] => {
            *words = rest;
            LICENCES.contains(name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_program_are_allowed() {
        let faults = check().unwrap();
        assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    }

    #[test]
    fn expressions_are_met_by_one_alternative_and_all_parts() {
        assert!(is_allowed("GPL-3.0 OR (MIT AND Zlib)") && is_allowed("MIT/Apache-2.0"));
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR GPL-3.0"));
        assert!(!is_allowed("MIT AND GPL-3.0") && !is_allowed("GPL-3.0-only") && !is_allowed(""));
        assert!(!is_allowed("(MIT OR ISC) AND (GPL-2.0 OR AGPL-3.0)") && !is_allowed("MIT MIT"));
    }
}
