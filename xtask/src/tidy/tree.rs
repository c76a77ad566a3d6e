//! The files for the rules, read once.
//!
//! Reads the directory instead of asking git, so that a new file is checked before it is added.

use std::path::Path;

use anyhow::{Context, Result};

/// Directories without our own files. Those that start with a dot are skipped as well.
const FOREIGN: [&str; 2] = ["target", "node_modules"];
const ENDINGS: [&str; 5] = [".rs", ".acp", ".md", "Cargo.toml", "Cargo.lock"];

/// A file: its path from the root, with `/` between the parts, and its text.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All files that a rule may need, in order of their paths.
#[derive(Debug)]
pub(crate) struct Tree {
    files: Vec<File>,
}

impl File {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }
}

impl Tree {
    /// Reads the tree under `root`.
    pub(crate) fn read(root: &Path) -> Result<Tree> {
        let mut files = Vec::new();
        walk(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree { files })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        Tree { files: files.iter().map(|(path, text)| File::new(path, text)).collect() }
    }

    /// Returns the file at exactly this path.
    pub(crate) fn find(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the files whose paths have this ending.
    pub(crate) fn with_ending(&self, ending: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.path.ends_with(ending))
    }

    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }
}

/// Collects the files of one directory; `prefix` is its path from the root, with a `/` at the end.
fn walk(directory: &Path, prefix: &str, files: &mut Vec<File>) -> Result<()> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot list the directory {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !FOREIGN.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if ENDINGS.iter().any(|ending| path.ends_with(ending)) {
            let text = std::fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {path}"))?;
            files.push(File { path, text });
        }
    }
    Ok(())
}
