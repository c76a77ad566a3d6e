//! Which files the words of a command mean: inside the session's folders, outside, or nobody knows.

use std::path::{Path, PathBuf};

use engine::permission::pattern::fits;

use super::Place;
use super::word::{Meaning, Word};
use crate::scope::clean;

/// The folders that a command may be in while it runs: `cd` adds one.
pub(crate) struct Folders<'a> {
    at: &'a Place<'a>,
    now: Vec<PathBuf>,
    /// Whether it may have left the folder it started in.
    pub(crate) has_moved: bool,
}

/// Where a word leads.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// Into the session's folders, whichever folder the command is in: the real paths.
    Inside(Vec<PathBuf>),
    /// Out of them: one of the real paths.
    Outside(PathBuf),
    /// To a device that every program may use.
    Device,
    /// It cannot be told.
    Unknown,
}

/// More places than a command can be followed through.
const MOST: usize = 8;

impl<'a> Folders<'a> {
    pub(crate) fn new(at: &'a Place<'a>) -> Folders<'a> {
        Folders { at, now: vec![at.cwd.to_owned()], has_moved: false }
    }

    /// Finds where a word leads.
    pub(crate) fn find(&self, word: &Word) -> Found {
        let path = match &word.means {
            Meaning::Text(text) => PathBuf::from(text),
            Meaning::Home(rest) => match self.at.home {
                Some(home) => home.join(rest.trim_start_matches('/')),
                None => return Found::Unknown,
            },
            Meaning::Names(names) => return self.find_names(names),
            Meaning::Unknown => return Found::Unknown,
        };
        if path.as_os_str().is_empty() || path.to_string_lossy().contains('\0') {
            return Found::Unknown;
        }
        const DEVICES: [&str; 6] =
            ["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/urandom"];
        if DEVICES.iter().any(|device| path == Path::new(device)) {
            return Found::Device;
        }
        // The shell itself makes connections of these.
        if path.starts_with("/dev/tcp") || path.starts_with("/dev/udp") {
            return Found::Unknown;
        }
        self.judge(self.now.iter().map(|folder| folder.join(&path)))
    }

    /// Finds where the names of a pattern lead: each that is there now counts as if it were written.
    fn find_names(&self, names: &str) -> Found {
        // Braces make names that need not exist, and a `..` behind a `*` may lead anywhere.
        if names.contains(['{', '\0']) || names.split('/').any(|part| part.contains("..")) {
            return Found::Unknown;
        }
        let mut paths = Vec::new();
        for folder in &self.now {
            match expand(folder, names) {
                Some(found) => paths.extend(found),
                None => return Found::Unknown,
            }
        }
        self.judge(paths.into_iter())
    }

    fn judge(&self, paths: impl Iterator<Item = PathBuf>) -> Found {
        let mut inside = Vec::new();
        for path in paths {
            let Some(real) = (self.at.real)(&path) else {
                return Found::Unknown;
            };
            if !self.is_inside(&real) {
                return Found::Outside(real);
            }
            if !inside.contains(&real) {
                inside.push(real);
            }
        }
        Found::Inside(inside)
    }

    fn is_inside(&self, real: &Path) -> bool {
        // Whole components are compared: `/repo-evil` is not inside `/repo`.
        self.at.roots.iter().any(|root| match (self.at.real)(root) {
            Some(root) => real.starts_with(root),
            None => false,
        })
    }

    /// Follows a `cd`. Says why not where it leads out or cannot be told.
    pub(crate) fn enter(&mut self, word: &Word) -> Result<(), String> {
        let Some(text) = word.as_text().filter(|text| !text.is_empty() && *text != "-") else {
            return Err("nobody can tell which folder it enters".to_owned());
        };
        let mut more = Vec::new();
        for folder in &self.now {
            let path = folder.join(text);
            // The shell takes `..` back by the words, programs by the folders: a link makes the two differ.
            for path in [Some(clean(&path)), (self.at.real)(&path)] {
                let real = path.and_then(|path| (self.at.real)(&path));
                match real {
                    Some(real) if self.is_inside(&real) => more.push(real),
                    Some(_) | None => return Err("it leaves the session's folders".to_owned()),
                }
            }
        }
        for folder in more {
            self.has_moved |= folder != self.at.cwd;
            if !self.now.contains(&folder) {
                self.now.push(folder);
            }
        }
        if self.now.len() > MOST {
            return Err("it enters too many folders".to_owned());
        }
        Ok(())
    }
}

/// More names than a pattern is followed through.
const MOST_NAMES: usize = 1000;

/// Returns what the shell makes of a pattern in this folder: the names that fit, or the pattern itself where none does. `None`
/// where there are too many.
fn expand(folder: &Path, names: &str) -> Option<Vec<PathBuf>> {
    let start = if names.starts_with('/') { Path::new("/") } else { folder };
    let mut found = vec![start.to_owned()];
    for part in names.split('/').filter(|part| !part.is_empty()) {
        let mut more = Vec::new();
        if part.contains(['*', '?', '[']) {
            let pattern = without_sets(part);
            for folder in &found {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                let names = entries.map(|entry| entry.file_name());
                // Hidden names are meant only by a pattern that begins with their dot.
                let fitting = names.filter(|name| {
                    let name = name.to_string_lossy();
                    (part.starts_with('.') || !name.starts_with('.')) && fits(&pattern, &name)
                });
                more.extend(fitting.take(MOST_NAMES + 1).map(|name| folder.join(name)));
            }
        }
        if more.is_empty() {
            found.iter_mut().for_each(|path| path.push(part));
        } else {
            found = more;
        }
        if found.len() > MOST_NAMES {
            return None;
        }
    }
    Some(found)
}

/// Writes `[…]` as `?`, which fits whatever it fits.
fn without_sets(part: &str) -> String {
    let mut out = String::new();
    let mut rest = part;
    while let Some((before, behind)) = rest.split_once('[') {
        out.push_str(before);
        // A `]` that comes first belongs to the set; without an end the bracket may be anything.
        let behind = behind.trim_start_matches(['!', '^']);
        let first = behind.chars().next().map_or(0, char::len_utf8);
        match behind[first..].split_once(']') {
            Some((_, end)) => {
                out.push('?');
                rest = end;
            }
            None => {
                out.push('*');
                rest = "";
            }
        }
    }
    out + rest
}
