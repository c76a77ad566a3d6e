//! Every Rust file is part of a crate.
//!
//! A file without a `mod` line is not compiled, so its tests never run, without any warning.

use super::finding::Finding;
use super::tree::{File, Tree};

/// Finds files that no module declares.
pub(crate) fn are_declared(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_ending(".rs") {
        let Some((directory, name)) = place(file) else { continue };
        let parents = [
            format!("{directory}.rs"),
            format!("{directory}/lib.rs"),
            format!("{directory}/main.rs"),
        ];
        let mut parents = parents.iter().filter_map(|path| tree.find(path));
        if !parents.any(|parent| declares(&parent.text, name)) {
            let advice = format!("belongs to no crate: write `mod {name};` in the file above it");
            findings.push(Finding::new(&file.path, 1, advice));
        }
    }
    findings
}

/// Returns the directory and the module name of a file that needs a `mod` line; roots of crates need none.
fn place(file: &File) -> Option<(&str, &str)> {
    let (directory, name) = file.path.strip_suffix(".rs")?.rsplit_once('/')?;
    let is_root = matches!(name, "lib" | "main") || directory.ends_with("/src/bin");
    let has_parent = format!("/{directory}/").contains("/src/") || directory.contains("/tests/");
    (has_parent && !is_root).then_some((directory, name))
}

fn declares(parent: &str, name: &str) -> bool {
    let declaration = format!("mod {name};");
    parent.lines().any(|line| {
        let line = line.trim();
        line.ends_with(&declaration) && !line.starts_with("//")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    fn paths_found(files: &[(&str, &str)]) -> Vec<String> {
        are_declared(&Tree::of(files)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn declared_file_is_accepted() {
        let files = [
            ("crates/a/build.rs", ""),
            ("crates/a/src/lib.rs", "mod b;\npub(crate) mod d;"),
            ("crates/a/src/b.rs", "pub mod c;"),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/d.rs", ""),
            ("crates/a/tests/it/main.rs", "mod e;"),
            ("crates/a/tests/it/e.rs", ""),
        ];
        assert_eq!(paths_found(&files), NONE);
    }

    #[test]
    fn undeclared_file_is_found() {
        let files = [
            ("crates/a/src/lib.rs", "// mod b;\nmod bb;"),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/bb.rs", ""),
            ("crates/a/tests/it/main.rs", ""),
            ("crates/a/tests/it/e.rs", ""),
        ];
        assert_eq!(paths_found(&files), ["crates/a/src/b.rs", "crates/a/tests/it/e.rs"]);
    }
}
