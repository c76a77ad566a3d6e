//! `cargo xtask tidy`: the rules of this repository that neither rustc nor clippy checks.
//!
//! A rule is a function from the text of files to findings. The test at the end applies all of them to this
//! repository. Rules for one file are in `source`, `edges` and `transcript`, those that compare files in
//! `modules`, `methods`, `cycles`, `pages` and `requirements`.

mod cycles;
mod edges;
mod finding;
mod imports;
mod methods;
mod modules;
mod pages;
mod requirements;
mod source;
mod transcript;
mod tree;

use std::path::Path;

use anyhow::Result;
use cycles::Largest;
use finding::Finding;
use tree::{File, Tree};

/// A rule for a single file.
type Rule = fn(&File) -> Vec<Finding>;

const SOURCE_RULES: [Rule; 5] = [
    source::has_header,
    source::is_short,
    source::has_short_functions,
    source::skips_no_test,
    source::has_no_gaps,
];

/// The result of all rules.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) files: usize,
    pub(crate) locked_packages: usize,
    /// The largest cycle of modules in each crate.
    pub(crate) cycles: Vec<Largest>,
}

/// Applies every rule to the repository at `root`.
///
/// # Errors
/// When a file cannot be read. Broken rules are in the report.
pub(crate) fn check(root: &Path) -> Result<Report> {
    let tree = Tree::read(root)?;
    let mut findings = Vec::new();
    for rule in SOURCE_RULES {
        findings.extend(tree.with_ending(".rs").flat_map(rule));
    }
    findings.extend(tree.with_ending("/Cargo.toml").flat_map(edges::are_allowed));
    findings.extend(transcripts(&tree).flat_map(transcript::has_known_words));
    findings.extend(modules::are_declared(&tree));
    findings.extend(methods::are_documented(&tree));
    findings.extend(pages::are_linked_and_short(&tree));
    findings.extend(requirements::are_tested(&tree));
    findings.extend(requirements::faults_are_listed(&tree));
    let (too_large, cycles) = cycles::are_small(&tree);
    findings.extend(too_large);
    let lock = tree.find("Cargo.lock");
    if lock.is_none() {
        findings.push(Finding::new("Cargo.lock", 1, "is missing: run `cargo build` and commit it"));
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    let locked_packages = lock.map_or(0, |lock| count_packages(&lock.text));
    Ok(Report { findings, files: tree.len(), locked_packages, cycles })
}

/// Renews what is generated from the source: the table of tests in the register of requirements.
pub(crate) fn write(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    if let Some(register) = requirements::renewed(&tree) {
        std::fs::write(root.join(requirements::REGISTER), register)?;
    }
    Ok(())
}

fn transcripts(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.with_ending(".acp").filter(|file| file.path.starts_with("conformance/"))
}

fn count_packages(lock: &str) -> usize {
    lock.lines().filter(|line| *line == "[[package]]").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let report = check(crate::program::root()).unwrap();
        let list: Vec<String> = report.findings.iter().map(Finding::to_string).collect();
        assert!(list.is_empty(), "\n{}\n", list.join("\n"));
    }

    #[test]
    fn locked_packages_are_counted() {
        assert_eq!(count_packages("version = 4\n\n[[package]]\nname = \"a\"\n\n[[package]]\n"), 2);
    }
}
