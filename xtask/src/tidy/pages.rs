//! Documentation pages: their links lead to existing pages, and pages under `docs/` are short.

use super::finding::Finding;
use super::tree::{File, Tree};

const MAX_WORDS: usize = 1500;
/// Tables that people look things up in; `docs/README.md` names them.
const TABLES: [&str; 4] = ["config-keys.md", "limits.md", "escapes.md", "requirements.md"];

/// Finds links to pages that do not exist, and pages that are too long.
pub(crate) fn are_linked_and_short(tree: &Tree) -> Vec<Finding> {
    let exists = |path: &str| tree.find(path).is_some();
    tree.with_ending(".md").flat_map(|page| check(page, exists)).collect()
}

fn check(page: &File, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if link.ends_with(".md") && !link.contains("://") && !exists(&resolve(&page.path, link))
            {
                let advice = format!("links to {link}, which does not exist: correct the link");
                findings.push(Finding::new(&page.path, index + 1, advice));
            }
        }
    }
    let words = page.text.split_whitespace().count();
    let is_table = TABLES.iter().any(|name| page.path.ends_with(name));
    if page.path.starts_with("docs/") && !is_table && words > MAX_WORDS {
        let advice = format!("has {words} words, more than {MAX_WORDS}: split the page");
        findings.push(Finding::new(&page.path, 1, advice));
    }
    findings
}

/// Resolves a relative link in the page at `from`.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[test]
fn link_to_missing_page_is_found() {
    let page = File::new("docs/a/b.md", "[c](../c.md#x) [d](d.md)");
    let findings = check(&page, |path| path == "docs/c.md");
    assert_eq!(findings.len(), 1, "{findings:?}");
}
