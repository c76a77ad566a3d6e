//! The documented methods are exactly those in the code.
//!
//! Compares the tables of `docs/internals/protocol.md` that have a first column `method` with the constants in
//! `crates/wire/src/acp.rs`. Reads both as text, since xtask sees none of our crates.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::tree::Tree;

const SOURCE: &str = "crates/wire/src/acp.rs";
const DOCS: &str = "docs/internals/protocol.md";
const LISTS: [&str; 3] = ["AGENT_METHODS", "AGENT_NOTES", "CLIENT_METHODS"];

/// Finds methods that are in the code or in the docs, but not in both.
pub(crate) fn are_documented(tree: &Tree) -> Vec<Finding> {
    let (Some(source), Some(docs)) = (tree.find(SOURCE), tree.find(DOCS)) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut known = BTreeSet::new();
    for list in LISTS {
        let methods = constant(&source.text, list);
        if methods.is_empty() {
            findings.push(Finding::new(
                SOURCE,
                1,
                format!("has no list `{list}`: fix the file or `xtask tidy`"),
            ));
        }
        known.extend(methods);
    }
    let documented = documented(&docs.text);
    for (line, method) in &documented {
        if !known.contains(method) {
            let advice =
                format!("documents `{method}`, which {SOURCE} does not have: remove the row");
            findings.push(Finding::new(DOCS, *line, advice));
        }
    }
    for method in known {
        if !documented.iter().any(|(_, name)| *name == method) {
            let advice = format!("says nothing about `{method}`: add a row to a table of methods");
            findings.push(Finding::new(DOCS, 1, advice));
        }
    }
    findings
}

/// Returns the strings in the array constant of this name.
fn constant<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let Some((_, rest)) = source.split_once(&format!("const {name}:")) else {
        return Vec::new();
    };
    let value = rest.split(';').nth(1).unwrap_or_default();
    value.split('"').skip(1).step_by(2).collect()
}

/// Returns the first column of each table of methods, with its line.
fn documented(docs: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (index, line) in docs.lines().enumerate() {
        let Some(cell) = line.trim().strip_prefix('|').and_then(|row| row.split('|').next()) else {
            is_inside = false;
            continue;
        };
        let cell = cell.trim();
        is_inside |= cell.eq_ignore_ascii_case("method");
        if is_inside && cell.len() > 2 && cell.starts_with('`') {
            found.push((index + 1, cell.trim_matches('`')));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    const CODE: &str = "\
pub const AGENT_METHODS: [&str; 2] = [\n    \"initialize\",\n    \"session/new\",\n];
pub const AGENT_NOTES: [&str; 1] = [\"session/cancel\"];
pub const CLIENT_METHODS: [&str; 1] = [\"session/update\"];
";

    fn findings(docs: &str) -> Vec<String> {
        let tree = Tree::of(&[(SOURCE, CODE), (DOCS, docs)]);
        are_documented(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn equal_lists_are_fine_also_in_several_tables() {
        let docs = "\
| Method | does |\n|---|---|\n| `initialize` | a |\n| `session/new` | b |\n| `session/cancel` | c |

| update | when |\n|---|---|\n| `plan` | d |

| method | does |\n|---|---|\n| `session/update` | e |\n";
        assert_eq!(findings(docs), NONE);
    }

    #[test]
    fn difference_is_found_on_either_side() {
        let docs = "| method |\n|---|\n| `initialize` |\n| `session/new` |\n| `session/cancel` |\n| `session/fork` |\n";
        assert_eq!(
            findings(docs),
            [
                "docs/internals/protocol.md:6: documents `session/fork`, which crates/wire/src/acp.rs does not have: remove the row",
                "docs/internals/protocol.md:1: says nothing about `session/update`: add a row to a table of methods",
            ]
        );
    }

    #[test]
    fn without_the_document_there_is_nothing_to_compare() {
        assert!(are_documented(&Tree::of(&[(SOURCE, CODE)])).is_empty());
    }
}
