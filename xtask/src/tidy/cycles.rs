//! The direction of imports: cycles of modules are small, and the layers of `engine` import only downwards.
//!
//! `imports` reads what a module imports.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::imports::{Crate, Path};
use super::tree::Tree;

/// The largest cycle that a crate may have.
const LARGEST: usize = 12;

/// The directories of a crate whose modules import only from directories to their left, and their own.
const LAYERS: [(&str, &[&str]); 1] = [("crates/engine", &["words", "ports", "permission", "turn"])];

/// The largest cycle of a crate, for the summary.
#[derive(Debug, PartialEq)]
pub(crate) struct Largest {
    pub(crate) name: String,
    pub(crate) cycle: usize,
    pub(crate) modules: usize,
}

/// Finds cycles that are too large and imports against the direction of layers.
pub(crate) fn are_small(tree: &Tree) -> (Vec<Finding>, Vec<Largest>) {
    let (mut findings, mut summary) = (Vec::new(), Vec::new());
    for directory in directories(tree) {
        let this = Crate::read(tree, directory);
        let imports = this.imports();
        let cycle = cycles(&imports).into_iter().max_by_key(Vec::len).unwrap_or_default();
        if cycle.len() > LARGEST {
            let names: Vec<String> = cycle.iter().map(|path| name(path)).collect();
            let advice = format!(
                "{} modules import each other in a cycle, {LARGEST} are allowed: move what they share to a module of its own. They are {}",
                cycle.len(),
                names.join(", ")
            );
            findings.push(Finding::new(&format!("{directory}/Cargo.toml"), 1, advice));
        }
        if let Some((_, layers)) = LAYERS.iter().find(|(layered, _)| *layered == directory) {
            findings.extend(wrong_direction(&this, &imports, layers));
        }
        let name = directory.trim_start_matches("crates/").to_owned();
        summary.push(Largest { name, cycle: cycle.len(), modules: this.modules.len() });
    }
    (findings, summary)
}

fn directories(tree: &Tree) -> BTreeSet<&str> {
    let manifests = tree.with_ending("/Cargo.toml");
    let directories = manifests.filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    directories
        .filter(|directory| directory.starts_with("crates/") || *directory == "xtask")
        .collect()
}

fn name(path: &Path) -> String {
    if path.is_empty() { "the root".to_owned() } else { path.join("::") }
}

fn wrong_direction(
    this: &Crate,
    imports: &BTreeMap<&Path, BTreeSet<&Path>>,
    layers: &[&str],
) -> Vec<Finding> {
    let layer = |path: &Path| {
        layers.iter().position(|layer| path.first().is_some_and(|first| first == layer))
    };
    let mut findings = Vec::new();
    for (from, needed) in imports {
        for to in needed {
            if let (Some(own), Some(other)) = (layer(from), layer(to))
                && own < other
            {
                let advice = format!(
                    "imports `{}`: `{}` may not see `{}`; move what is needed to the left of {}",
                    name(to),
                    layers[own],
                    layers[other],
                    layers.join(" ← ")
                );
                findings.push(Finding::new(&this.modules[*from].file, 1, advice));
            }
        }
    }
    findings
}

/// Returns the groups of modules that reach each other, of two modules and more.
fn cycles<'a>(imports: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> Vec<Vec<&'a Path>> {
    let reachable: BTreeMap<&Path, BTreeSet<&Path>> =
        imports.keys().map(|module| (*module, reached(imports, module))).collect();
    let mut cycles: BTreeSet<Vec<&Path>> = BTreeSet::new();
    for (module, reached) in &reachable {
        if reached.contains(module) {
            let back = |other: &&&Path| reachable.get(**other).is_some_and(|r| r.contains(module));
            cycles.insert(reached.iter().filter(back).copied().collect());
        }
    }
    cycles.into_iter().collect()
}

/// Returns all modules that a module needs, directly or not.
fn reached<'a>(
    imports: &BTreeMap<&'a Path, BTreeSet<&'a Path>>,
    start: &Path,
) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Path> = imports.get(start).into_iter().flatten().copied().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(imports.get(module).into_iter().flatten().copied());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(directory: &str, files: &[(&str, String)]) -> (Vec<String>, Vec<Largest>) {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(name, text)| (format!("{directory}/{name}"), text.clone()))
            .chain([(format!("{directory}/Cargo.toml"), String::new())])
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, text)| (&**name, &**text)).collect();
        let (findings, summary) = are_small(&Tree::of(&files));
        (findings.iter().map(Finding::to_string).collect(), summary)
    }

    /// A ring of modules, each of which imports the next.
    fn ring(size: usize) -> Vec<(&'static str, String)> {
        let names: Vec<&'static str> = (0..size)
            .map(|number| &*Box::leak(format!("src/m{number}.rs").into_boxed_str()))
            .collect();
        let import = |number: usize| format!("use crate::m{}::X;", (number + 1) % size);
        let mut files: Vec<_> =
            names.into_iter().enumerate().map(|(n, name)| (name, import(n))).collect();
        files.push(("src/lib.rs", String::new()));
        files
    }

    #[test]
    fn cycle_is_found_when_it_is_too_large() {
        let (findings, summary) = found("crates/a", &ring(LARGEST));
        assert_eq!(findings, Vec::<String>::new());
        assert_eq!(summary, [Largest { name: "a".into(), cycle: LARGEST, modules: LARGEST + 1 }]);
        let (findings, _) = found("crates/a", &ring(LARGEST + 1));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("13 modules import each other"), "{findings:?}");
    }

    #[test]
    fn layers_import_only_leftwards() {
        let files = |words: &str, turn: &str| {
            [
                ("src/lib.rs", String::new()),
                ("src/words.rs", words.to_owned()),
                ("src/turn.rs", "mod step;".to_owned()),
                ("src/turn/step.rs", turn.to_owned()),
            ]
        };
        let (findings, _) = found("crates/engine", &files("", "use crate::words::Word;"));
        assert_eq!(findings, Vec::<String>::new());
        let (findings, _) = found("crates/engine", &files("use crate::turn::step::Step;", ""));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("crates/engine/src/words.rs:1: imports `turn::step`"));
    }
}
