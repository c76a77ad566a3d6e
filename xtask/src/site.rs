//! `cargo xtask docs`: the documentation as a web site in `target/site`, with a search that works without a server.
//!
//! A page for each Markdown file of the repository's root and of `docs/`. Links between them, to headings and to
//! pictures are checked while they are translated; `tests` does so for this repository.

mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use page::Page;
use serde_json::json;

use crate::program;

const STYLE: &str = include_str!("site/style.css");
const SCRIPT: &str = include_str!("site/search.js");
/// Endings of pictures that pages may show.
const PICTURES: [&str; 3] = ["svg", "png", "gif"];

/// The translated site.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// Files by their path.
    files: BTreeMap<String, Vec<u8>>,
    /// Links that lead nowhere.
    faults: Vec<String>,
}

/// Writes the site and returns whether all links lead somewhere.
pub(crate) fn write() -> Result<bool> {
    let site = make(program::root())?;
    let directory = program::target()?.join("site");
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    for (path, bytes) in &site.files {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(path, bytes)?;
    }
    site.faults.iter().for_each(|fault| println!("{fault}"));
    println!(
        "docs: {} files, {} bad links; open {}/index.html",
        site.files.len(),
        site.faults.len(),
        directory.display()
    );
    Ok(site.faults.is_empty())
}

/// Translates the documentation of a repository.
fn make(root: &Path) -> Result<Site> {
    let mut site = Site::default();
    let mut pages = BTreeMap::new();
    for path in files(root)? {
        let name = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ending == "md" {
            pages.insert(name.clone(), Page::parse(&name, &std::fs::read_to_string(&path)?));
        } else if PICTURES.contains(&ending) {
            site.files.insert(name, std::fs::read(&path)?);
        }
    }
    let exists = |name: &str| root.join(name).exists();
    let index: Vec<serde_json::Value> = pages.values().flat_map(Page::index).collect();
    for page in pages.values() {
        site.faults.extend(page.faults(&pages, exists));
        site.files.insert(page.address(), page.html(&navigation(page, &pages)).into_bytes());
    }
    let start = "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=README.html\"><a href=\"README.html\">Purlin</a>\n";
    site.files.insert("index.html".to_owned(), start.into());
    site.files.insert("style.css".to_owned(), STYLE.into());
    site.files.insert(
        "search.js".to_owned(),
        format!("const PAGES = {};\n{SCRIPT}", json!(index)).into(),
    );
    Ok(site)
}

/// Lists the links to all pages, by section.
fn navigation(from: &Page, pages: &BTreeMap<String, Page>) -> String {
    let sections = [
        ("", "Purlin"),
        ("docs/guide/", "Guide"),
        ("docs/internals/", "Internals"),
        ("docs/internals/adr/", "Decisions"),
        ("conformance/", "Transcripts"),
    ];
    let mut html = String::new();
    for (directory, title) in sections {
        html.push_str(&format!("<h2>{title}</h2><ul>"));
        for page in pages.values().filter(|page| page.directory() == directory) {
            html.push_str(&format!(
                "<li><a href=\"{}{}\">{}</a></li>",
                from.to_root(),
                page.address(),
                page.title()
            ));
        }
        html.push_str("</ul>");
    }
    html
}

/// Finds the files of the root, everything below `docs` and `deploy`, and the page about transcripts.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut open = vec![root.join("docs"), root.join("deploy")];
    let mut found: Vec<PathBuf> = std::fs::read_dir(root)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    found.push(root.join("conformance/README.md"));
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let is_foreign = path.ends_with("node_modules");
            if path.is_dir() && !is_foreign { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_of_the_documentation_leads_somewhere() {
        let site = make(program::root()).unwrap();
        assert!(site.faults.is_empty(), "\n{}\n", site.faults.join("\n"));
        let editors = String::from_utf8(site.files["docs/guide/editors.html"].clone()).unwrap();
        assert!(
            editors.contains("href=\"install.html\"") && editors.contains("<h2 id=\"zed\">"),
            "{editors}"
        );
        let search = String::from_utf8(site.files["search.js"].clone()).unwrap();
        assert!(search.contains("docs/guide/permissions.html"));
    }
}
