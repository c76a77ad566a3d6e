//! The Markdown files that define agents and commands, of the user and of a project.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::front_matter;
use crate::{Directories, ReadText};

/// The largest file that is read.
const LARGEST: u64 = 128 * 1024;
/// The most files of one directory that are read.
const MOST: usize = 200;

/// A Markdown file.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its name, without the ending.
    pub name: String,
    /// Its path, for messages.
    pub shown: String,
    /// Its front matter.
    pub head: Map<String, Value>,
    /// The text after the front matter.
    pub body: String,
    /// Whether it belongs to Claude Code.
    pub is_claude: bool,
}

/// Which files are read.
#[derive(Debug, Clone, Copy)]
pub enum Sort {
    /// `agent/` and `agents/`.
    Agents,
    /// `command/` and `commands/`.
    Commands,
}

impl Sort {
    fn directories(self) -> [&'static str; 2] {
        match self {
            Sort::Agents => ["agents", "agent"],
            Sort::Commands => ["commands", "command"],
        }
    }
}

/// Reads the user's files: ours before OpenCode's.
pub fn of_user(
    directories: &Directories,
    sort: Sort,
    reader: &dyn ReadText,
    problems: &mut Vec<String>,
) -> Vec<Found> {
    let ours = directories.config.iter().chain(&directories.opencode_config);
    let tops = ours.map(|top| (top, false)).chain(directories.claude.iter().map(|top| (top, true)));
    let read = |(top, is_claude): (&PathBuf, bool)| {
        // Two programs may have a file of the same name.
        let base = top.parent().filter(|_| is_claude).unwrap_or(top);
        read_top((base, top), is_claude, sort, reader, problems)
    };
    tops.flat_map(read).collect()
}

/// Returns the paths of the user's files.
pub(crate) fn paths_of_user(directories: &Directories) -> Vec<PathBuf> {
    let tops = directories.config.iter().chain(&directories.opencode_config);
    let tops = tops.chain(&directories.claude);
    let names = [Sort::Agents, Sort::Commands].map(Sort::directories);
    let found = tops.flat_map(|top| names.as_flattened().iter().map(|name| top.join(name)));
    found.flat_map(|directory| markdown_in(&directory)).collect()
}

/// How deep files may lie below their directory.
const DEEPEST: usize = 3;

/// Returns the Markdown files in a directory and in the directories below it. Links to directories are not followed.
pub(crate) fn markdown_in(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten().take(MOST) {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && depth < DEEPEST {
                open.push((entry.path(), depth + 1));
            } else if !is_directory && entry.path().extension().is_some_and(|end| end == "md") {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found.truncate(MOST);
    found
}

/// Returns the name of a file: `git/commit.md` is `git:commit`.
fn name_of(path: &Path, directory: &Path) -> String {
    let inside = path.strip_prefix(directory).unwrap_or(path).with_extension("");
    let parts = inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    parts.collect::<Vec<_>>().join(":")
}

/// Reads a project's files. Links are not followed: they may lead out of the project.
pub fn of_project(
    directory: &Path,
    sort: Sort,
    reader: &dyn ReadText,
    problems: &mut Vec<String>,
) -> Vec<Found> {
    let tops = [(".purlin", false), (".opencode", false), (".claude", true)];
    let read = |(name, is_claude): (&str, bool)| {
        let top = directory.join(name);
        match is_link(&top) {
            true => Vec::new(),
            false => read_top((directory, &top), is_claude, sort, reader, problems),
        }
    };
    tops.map(read).into_iter().flatten().collect()
}

/// Reads the files below `top`; messages show their paths below `base`.
pub(crate) fn read_top(
    (base, top): (&Path, &Path),
    is_claude: bool,
    sort: Sort,
    reader: &dyn ReadText,
    problems: &mut Vec<String>,
) -> Vec<Found> {
    let mut found = Vec::new();
    for name in sort.directories() {
        let directory = top.join(name);
        if is_link(&directory) {
            continue;
        }
        for path in &markdown_in(&directory) {
            let shown = path.strip_prefix(base).unwrap_or(path).to_string_lossy().into_owned();
            match read(path, reader) {
                Ok(text) => {
                    let (head, body) = front_matter::split(&text);
                    let name = match sort {
                        Sort::Commands => name_of(path, &directory),
                        Sort::Agents => {
                            path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
                        }
                    };
                    found.push(Found { name, shown, head, body: body.to_owned(), is_claude });
                }
                Err(why) => problems.push(format!("`{shown}` {why}")),
            }
        }
    }
    found
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_symlink())
}

fn read(path: &Path, reader: &dyn ReadText) -> Result<String, String> {
    if is_link(path) {
        return Err("is not a regular file".to_owned());
    }
    reader.read_text(path, LARGEST)?.ok_or_else(|| "is not a regular file".to_owned())
}
