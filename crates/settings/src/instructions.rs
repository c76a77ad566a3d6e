//! The instructions a project gives the model: AGENTS.md or CLAUDE.md, `instructions` of the configuration, skills.
//!
//! Known places are looked up one by one; no tree is walked, so a large repository costs what a small one does. Files of a
//! project are read through [`ProjectFiles`], which opens nothing outside it. How much of them the model gets is decided by
//! `engine`.

mod imports;
mod patterns;
pub mod skills;

use std::path::{Path, PathBuf};

use engine::ports::{InstructionFile, MAX_INSTRUCTION_FILE};

use crate::Directories;

/// The files that hold instructions; the first that a directory has is used.
const NAMES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md"];
/// The file that a directory may have besides, for one person.
const LOCAL: &str = "CLAUDE.local.md";

/// The beginning of a file and its full size; `None` if it cannot be read.
type Beginning = Option<(String, u64)>;

/// Opens files of a project, but none outside it, not even through a link.
pub trait ProjectFiles: Send + Sync {
    /// Reads the beginning of a file and returns its size.
    fn read_start(&self, path: &Path, most: usize) -> Option<(Vec<u8>, u64)>;

    /// Returns whether a tool needs permission to read this file.
    fn is_secret(&self, path: &Path) -> bool;
}

/// Where instructions and skills are looked for.
#[derive(Debug, Clone)]
pub struct Places {
    /// The user's configuration directories: ours, and those of other agents.
    user: Vec<PathBuf>,
    home: Option<PathBuf>,
    /// The session's directories, as the client spells them.
    given: Vec<PathBuf>,
    /// From the top of each project down to the session's directory, without repetition.
    chain: Vec<PathBuf>,
    /// The tops of the projects; nothing outside them is read for them.
    roots: Vec<PathBuf>,
}

impl Places {
    /// Finds the places for a session in these directories, the working directory first.
    #[must_use]
    pub fn new(given: &[PathBuf], directories: &Directories) -> Places {
        let (mut chain, mut roots) = (Vec::new(), Vec::new());
        for directory in given {
            let directory = directory.canonicalize().unwrap_or_else(|_| directory.clone());
            let top = directory.ancestors().find(|above| above.join(".git").exists());
            let root = top.unwrap_or(&directory).to_owned();
            let mut below: Vec<PathBuf> = directory
                .ancestors()
                .take_while(|above| above.starts_with(&root))
                .map(Path::to_owned)
                .collect();
            below.reverse();
            below.retain(|directory| !chain.contains(directory));
            chain.extend(below);
            roots.push(root);
        }
        let Directories { config, opencode_config, claude, codex, home, .. } = directories;
        let user = [config, opencode_config, claude, codex].into_iter().flatten().cloned();
        let (user, home) = (user.collect(), home.clone());
        Places { user, home, given: given.to_vec(), chain, roots }
    }

    /// Returns the tops of the projects.
    #[must_use]
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Returns the working directory, with links followed.
    #[must_use]
    pub fn cwd(&self) -> PathBuf {
        self.chain.last().cloned().unwrap_or_default()
    }

    /// Tells whether a path is a file of a directory whose instructions the model has from the start.
    #[must_use]
    pub fn is_known(&self, path: &Path) -> bool {
        // A rule may be about a single file.
        if self.chain.iter().any(|directory| directory.join(".claude/rules").is_dir()) {
            return false;
        }
        let is_known =
            |directory: &Path| self.given.iter().chain(&self.chain).any(|known| known == directory);
        path.parent().is_some_and(is_known) && !path.is_dir()
    }
}

/// Reads a file of a project. A link to a file of another kind is not followed.
fn read_project(files: &dyn ProjectFiles, path: &Path, most: usize) -> Beginning {
    if real(path).extension() != path.extension() {
        return None;
    }
    let (bytes, size) = files.read_start(path, most)?;
    Some((text(bytes), size))
}

/// Reads the beginning of a user's file. Links are followed: people store their settings elsewhere.
fn read_own(path: &Path, most: usize) -> Beginning {
    use std::io::Read;
    let size = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(most as u64).read_to_end(&mut bytes).ok()?;
    Some((text(bytes), size))
}

/// Converts bytes to text, which may end within a character.
fn text(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(err) if err.utf8_error().error_len().is_none() => {
            let whole = err.utf8_error().valid_up_to();
            String::from_utf8_lossy(&err.as_bytes()[..whole]).into_owned()
        }
        Err(err) => String::from_utf8_lossy(err.as_bytes()).into_owned(),
    }
}

/// The patterns of instruction files.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    /// Those of the user's configuration.
    pub user: Vec<String>,
    /// Those of the project.
    pub project: Vec<String>,
}

/// Reads the instructions of a session.
#[must_use]
pub fn sources(
    places: &Places,
    files: &dyn ProjectFiles,
    patterns: &Patterns,
) -> Vec<InstructionFile> {
    let read = |path: &Path, most| read_project(files, path, most);
    // Other agents usually have the same text: the first is enough.
    let user = places.user.iter().find_map(|directory| first(directory, &read_own));
    let mut all = Vec::new();
    if let Some(file) = user {
        add_with_imports(file, true, places, files, &mut all);
    }
    for directory in places.user.iter().filter(|directory| directory.ends_with(".claude")) {
        all.extend(imports::rules(directory, None, &read_own));
    }
    for directory in &places.chain {
        for file in all_of(directory, &read) {
            add_with_imports(file, false, places, files, &mut all);
        }
        all.extend(imports::rules(&directory.join(".claude"), None, &read));
    }
    let users = patterns.user.iter().map(|pattern| (pattern, false));
    let theirs = patterns.project.iter().map(|pattern| (pattern, true));
    for (pattern, is_theirs) in users.chain(theirs) {
        for (path, is_own) in patterns::find(pattern, &places.chain, places.home.as_deref()) {
            if is_theirs && is_private(&path, files) {
                tracing::warn!(
                    "ignored {} as instructions of a project: it may be secret",
                    path.display()
                );
                continue;
            }
            let read = if is_own {
                read_own(&path, MAX_INSTRUCTION_FILE)
            } else {
                read(&path, MAX_INSTRUCTION_FILE)
            };
            let origin = path.to_string_lossy().into_owned();
            if let Some((text, size)) =
                read.filter(|_| all.iter().all(|source| source.origin != origin))
            {
                all.push(InstructionFile { origin, text, size });
            }
        }
    }
    all
}

/// Adds a file, and what it imports if it is one of Claude Code's.
fn add_with_imports(
    file: InstructionFile,
    is_own: bool,
    places: &Places,
    files: &dyn ProjectFiles,
    all: &mut Vec<InstructionFile>,
) {
    let is_claude = file.origin.ends_with("CLAUDE.md") || file.origin.ends_with(LOCAL);
    all.push(file.clone());
    if is_claude {
        imports::add(&file, is_own, places, files, all);
    }
}

/// Reads the instructions of a directory: the first of the known files, and the one for one person.
fn all_of(directory: &Path, read: &dyn Fn(&Path, usize) -> Beginning) -> Vec<InstructionFile> {
    let local = directory.join(LOCAL);
    let more = read(&local, MAX_INSTRUCTION_FILE).filter(|(text, _)| !text.trim().is_empty());
    let origin = local.to_string_lossy().into_owned();
    let more = more.map(|(text, size)| InstructionFile { origin, text, size });
    first(directory, read).into_iter().chain(more).collect()
}

/// Tells whether a project must not give the model a file: reading it would need permission.
fn is_private(path: &Path, files: &dyn ProjectFiles) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    [path, &real].iter().any(|path| {
        files.is_secret(path) || path.components().any(|part| part.as_os_str() == ".git")
    })
}

/// Reads the first of the known files that a directory has and that is not empty.
fn first(directory: &Path, read: &dyn Fn(&Path, usize) -> Beginning) -> Option<InstructionFile> {
    NAMES.iter().find_map(|name| {
        let path = directory.join(name);
        let (text, size) = read(&path, MAX_INSTRUCTION_FILE)?;
        let origin = path.to_string_lossy().into_owned();
        (!text.trim().is_empty()).then_some(InstructionFile { origin, text, size })
    })
}

/// Returns the file with instructions in a user's directory.
pub(crate) fn file_in(directory: &Path) -> Option<PathBuf> {
    first(directory, &read_own).map(|file| PathBuf::from(file.origin))
}

/// Finds the instructions of directories between a project's top and these paths.
pub fn touched(
    places: &Places,
    files: &dyn ProjectFiles,
    paths: &[PathBuf],
) -> Vec<InstructionFile> {
    let mut directories: Vec<&Path> = Vec::new();
    let paths: Vec<PathBuf> = paths.iter().map(|path| real(path)).collect();
    for path in &paths {
        let Some(root) = places.roots.iter().find(|root| path.starts_with(root)) else { continue };
        let below = path.ancestors().take_while(|directory| directory.starts_with(root));
        let known = |directory: &&Path| places.chain.iter().any(|known| known == directory);
        let mut below: Vec<&Path> = below.filter(|directory| !known(directory)).collect();
        below.reverse();
        below.retain(|directory| !directories.contains(directory));
        directories.extend(below);
    }
    let read = |path: &Path, most| read_project(files, path, most);
    let mut found = Vec::new();
    for file in directories.into_iter().flat_map(|directory| all_of(directory, &read)) {
        add_with_imports(file, false, places, files, &mut found);
    }
    for (path, directory) in
        paths.iter().flat_map(|path| places.chain.iter().map(move |at| (path, at)))
    {
        let Ok(inside) = path.strip_prefix(directory) else { continue };
        for file in imports::rules(&directory.join(".claude"), Some(inside), &read) {
            if found.iter().all(|known: &InstructionFile| known.origin != file.origin) {
                found.push(file);
            }
        }
    }
    found
}

/// Follows links; for a file that does not exist, those of its directory.
fn real(path: &Path) -> PathBuf {
    let parent = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(parent).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests;
