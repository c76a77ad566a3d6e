//! Which files the words of a command name: inside the session's directories, outside, or unknown.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::resolve::clean;
use super::wildcard;
use super::word::{Meaning, Word};

/// The working directories that a command may have while it runs: `cd` adds one.
pub(crate) struct Directories<'a> {
    at: &'a Context<'a>,
    now: Vec<PathBuf>,
    /// Whether it may be in another directory than the one it started in.
    pub(crate) has_moved: bool,
}

/// Where a word leads.
#[derive(Debug, PartialEq)]
pub(crate) enum Destination {
    /// Into the session's directories, from every working directory: the resolved paths.
    Inside(Vec<PathBuf>),
    /// Out of them: one of the resolved paths.
    Outside(PathBuf),
    /// To a device that is harmless.
    Device,
    /// It is only known at run time.
    Unknown,
}

/// The most working directories that are tracked.
const MOST: usize = 8;

impl<'a> Directories<'a> {
    pub(crate) fn new(at: &'a Context<'a>) -> Directories<'a> {
        Directories { at, now: vec![at.cwd.to_owned()], has_moved: false }
    }

    /// Returns the directory that it starts in.
    pub(crate) fn start(&self) -> &Path {
        self.at.cwd
    }

    /// Returns how many working directories it may have.
    pub(crate) fn count(&self) -> usize {
        self.now.len()
    }

    /// Finds where a word leads.
    pub(crate) fn find(&self, word: &Word) -> Destination {
        let path = match &word.means {
            Meaning::Text(text) => PathBuf::from(text),
            Meaning::Home(rest) => match self.at.home {
                Some(home) => home.join(rest.trim_start_matches('/')),
                None => return Destination::Unknown,
            },
            Meaning::Names(names) => return self.find_names(names),
            Meaning::Unknown => return Destination::Unknown,
        };
        if path.as_os_str().is_empty() || path.to_string_lossy().contains('\0') {
            return Destination::Unknown;
        }
        const DEVICES: [&str; 6] =
            ["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/urandom"];
        if DEVICES.iter().any(|device| path == Path::new(device)) {
            return Destination::Device;
        }
        // The shell opens network connections for these.
        if path.starts_with("/dev/tcp") || path.starts_with("/dev/udp") {
            return Destination::Unknown;
        }
        self.locate(self.now.iter().map(|directory| directory.join(&path)))
    }

    /// Finds where a pattern leads: every name that matches now is checked as if it were written.
    fn find_names(&self, names: &str) -> Destination {
        // Braces make names that need not exist, and a `..` after a `*` may lead anywhere.
        if names.contains(['{', '\0']) || names.split('/').any(|part| part.contains("..")) {
            return Destination::Unknown;
        }
        let mut paths = Vec::new();
        for directory in &self.now {
            match expand(directory, names) {
                Some(found) => paths.extend(found),
                None => return Destination::Unknown,
            }
        }
        self.locate(paths.into_iter())
    }

    fn locate(&self, paths: impl Iterator<Item = PathBuf>) -> Destination {
        let mut inside = Vec::new();
        for path in paths {
            let Some(real) = (self.at.real)(&path) else {
                return Destination::Unknown;
            };
            if !self.is_inside(&real) {
                return Destination::Outside(real);
            }
            if !inside.contains(&real) {
                inside.push(real);
            }
        }
        Destination::Inside(inside)
    }

    pub(crate) fn is_inside(&self, real: &Path) -> bool {
        // Whole components are compared: `/repo-evil` is not inside `/repo`.
        let is_below = |directory: &PathBuf| {
            (self.at.real)(directory).is_some_and(|directory| real.starts_with(directory))
        };
        self.at.roots.iter().any(is_below) && !self.at.own.iter().any(is_below)
    }

    /// Returns our own directories inside another.
    pub(crate) fn own_below(&self, directory: &Path) -> Vec<PathBuf> {
        let own = self.at.own.iter().filter_map(|own| (self.at.real)(own));
        own.filter(|own| own.starts_with(directory) && own.exists()).collect()
    }

    /// Returns a note for each place that a path leads to through links.
    pub(crate) fn links(&self, word: &Word) -> Vec<String> {
        let (text, path) = match &word.means {
            Meaning::Text(text) => (text.as_str(), PathBuf::from(text)),
            Meaning::Home(rest) => match self.at.home {
                Some(home) => (word.raw.as_str(), home.join(rest.trim_start_matches('/'))),
                None => return Vec::new(),
            },
            Meaning::Names(_) | Meaning::Unknown => return Vec::new(),
        };
        // These lead to different files for each process.
        if path.as_os_str().is_empty() || path.starts_with("/dev") || path.starts_with("/proc") {
            return Vec::new();
        }
        let mut notes = Vec::new();
        for directory in &self.now {
            let plain = (self.at.real)(directory).map(|directory| clean(&directory.join(&path)));
            match (self.at.real)(&directory.join(&path)) {
                Some(real) if Some(&real) == plain.as_ref() => {}
                Some(real) => notes.push(format!("`{text}` is a link to {}", real.display())),
                None => notes.push(format!("`{text}` is a broken link")),
            }
        }
        notes
    }

    /// Follows a `cd`. Fails if it leads out of the session's directories or is only known at run time.
    pub(crate) fn enter(&mut self, word: &Word) -> Result<(), String> {
        let Some(text) = word.as_text().filter(|text| !text.is_empty() && *text != "-") else {
            return Err("the folder is only known at run time".to_owned());
        };
        let mut more = Vec::new();
        for directory in &self.now {
            let path = directory.join(text);
            if *directory != self.at.cwd && !path.is_dir() {
                // From there `cd` fails, and the working directory stays the same.
                continue;
            }
            // The shell resolves `..` by the text, programs by the file system; with links the two differ.
            for path in [Some(clean(&path)), (self.at.real)(&path)] {
                let real = path.and_then(|path| (self.at.real)(&path));
                match real {
                    Some(real) if self.is_inside(&real) => more.push(real),
                    Some(_) | None => return Err("it leaves the session's folders".to_owned()),
                }
            }
        }
        for directory in more {
            self.has_moved |= directory != self.at.cwd;
            if self.now.contains(&directory) {
                continue;
            }
            if self.now.len() >= MOST {
                return Err("it changes the folder too often".to_owned());
            }
            self.now.push(directory);
        }
        Ok(())
    }
}

/// The most names that a pattern may match.
const MOST_NAMES: usize = 1000;

/// Returns what a pattern expands to in this directory: the names that match, or the pattern itself if none does. `None` if there are
/// too many, or one looks like an option.
fn expand(directory: &Path, names: &str) -> Option<Vec<PathBuf>> {
    let start = if names.starts_with('/') { Path::new("/") } else { directory };
    let mut found = vec![start.to_owned()];
    for (index, part) in names.split('/').enumerate().filter(|(_, part)| !part.is_empty()) {
        let mut more = Vec::new();
        if let Some(rule) = as_wildcard(part) {
            for directory in &found {
                let fitting = matching_names(directory, part, &rule);
                more.extend(
                    fitting.into_iter().take(MOST_NAMES + 1).map(|name| directory.join(name)),
                );
            }
        }
        let is_option = |path: &PathBuf| {
            index == 0 && path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'-')
        };
        if more.is_empty() {
            let plain = unescaped(part);
            found.iter_mut().for_each(|path| path.push(&plain));
        } else {
            found = more;
        }
        if found.len() > MOST_NAMES || found.iter().any(is_option) {
            return None;
        }
    }
    Some(found)
}

/// Returns the names in a directory that one component of a pattern may match.
fn matching_names(directory: &Path, part: &str, rule: &str) -> Vec<OsString> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    // Older shells also match the parent directory.
    let all = names.chain([OsString::from("..")]);
    // In the C locale every byte is a character.
    let bytes = |text: &str| text.bytes().map(char::from).collect::<String>();
    all.filter(|name| {
        let name = name.to_string_lossy();
        // Only a pattern that begins with a dot matches hidden names.
        (part.starts_with('.') || !name.starts_with('.'))
            && (wildcard::matches(rule, &name) || wildcard::matches(&bytes(rule), &bytes(&name)))
    })
    .collect()
}

/// Rewrites a component of a shell pattern as a wildcard that matches at least as much: everything from the first `[` to the last
/// `]` may be anything. `None` for plain text.
pub(crate) fn as_wildcard(part: &str) -> Option<String> {
    let mut characters = part.char_indices();
    let mut is_pattern = false;
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '*' | '?' => is_pattern = true,
            '[' => {
                let end = part[at..].rsplit_once(']').map_or("", |(_, end)| end);
                return Some(format!("{}*{end}", &part[..at]));
            }
            _ => {}
        }
    }
    is_pattern.then(|| part.to_owned())
}

/// Removes the `\` before quoted characters.
fn unescaped(part: &str) -> String {
    let mut out = String::new();
    let mut rest = part.chars();
    while let Some(character) = rest.next() {
        out.push(if character == '\\' { rest.next().unwrap_or('\\') } else { character });
    }
    out
}
