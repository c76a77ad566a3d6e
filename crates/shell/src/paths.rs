//! Which files the words of a command mean: inside the session's folders, outside, or nobody knows.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::word::{Meaning, Word};
use super::{Place, wildcard};
use crate::resolve::clean;

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

    /// The folder that it starts in.
    pub(crate) fn start(&self) -> &Path {
        self.at.cwd
    }

    /// How many folders it may be in.
    pub(crate) fn count(&self) -> usize {
        self.now.len()
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

    pub(crate) fn is_inside(&self, real: &Path) -> bool {
        // Whole components are compared: `/repo-evil` is not inside `/repo`.
        let is_below = |folder: &PathBuf| {
            (self.at.real)(folder).is_some_and(|folder| real.starts_with(folder))
        };
        self.at.roots.iter().any(is_below) && !self.at.own.iter().any(is_below)
    }

    /// Our own folders that lie below another.
    pub(crate) fn own_below(&self, folder: &Path) -> Vec<PathBuf> {
        let own = self.at.own.iter().filter_map(|own| (self.at.real)(own));
        own.filter(|own| own.starts_with(folder) && own.exists()).collect()
    }

    /// Says where links take the path that a word may be, if elsewhere than the word says.
    pub(crate) fn links(&self, word: &Word) -> Vec<String> {
        let (text, path) = match &word.means {
            Meaning::Text(text) => (text.as_str(), PathBuf::from(text)),
            Meaning::Home(rest) => match self.at.home {
                Some(home) => (word.raw.as_str(), home.join(rest.trim_start_matches('/'))),
                None => return Vec::new(),
            },
            Meaning::Names(_) | Meaning::Unknown => return Vec::new(),
        };
        // What is behind these depends on who asks.
        if path.as_os_str().is_empty() || path.starts_with("/dev") || path.starts_with("/proc") {
            return Vec::new();
        }
        let mut told = Vec::new();
        for folder in &self.now {
            let plain = (self.at.real)(folder).map(|folder| clean(&folder.join(&path)));
            match (self.at.real)(&folder.join(&path)) {
                Some(real) if Some(&real) == plain.as_ref() => {}
                Some(real) => told.push(format!("`{text}` is {}", real.display())),
                None => told.push(format!("`{text}` is a link that leads nowhere")),
            }
        }
        told
    }

    /// Follows a `cd`. Says why not where it leads out or cannot be told.
    pub(crate) fn enter(&mut self, word: &Word) -> Result<(), String> {
        let Some(text) = word.as_text().filter(|text| !text.is_empty() && *text != "-") else {
            return Err("nobody can tell which folder it enters".to_owned());
        };
        let mut more = Vec::new();
        for folder in &self.now {
            let path = folder.join(text);
            if *folder != self.at.cwd && !path.is_dir() {
                // Entered from there it fails, and the command stays where it is.
                continue;
            }
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
            if self.now.contains(&folder) {
                continue;
            }
            if self.now.len() >= MOST {
                return Err("it enters too many folders".to_owned());
            }
            self.now.push(folder);
        }
        Ok(())
    }
}

/// More names than a pattern is followed through.
const MOST_NAMES: usize = 1000;

/// Returns what the shell may make of a pattern in this folder: the names that fit, or the pattern itself where none does.
/// `None` where there are too many, or one that a program takes for an option.
fn expand(folder: &Path, names: &str) -> Option<Vec<PathBuf>> {
    let start = if names.starts_with('/') { Path::new("/") } else { folder };
    let mut found = vec![start.to_owned()];
    for (index, part) in names.split('/').enumerate().filter(|(_, part)| !part.is_empty()) {
        let mut more = Vec::new();
        if let Some(rule) = as_rule(part) {
            for folder in &found {
                let fitting = names_fitting(folder, part, &rule);
                more.extend(fitting.into_iter().take(MOST_NAMES + 1).map(|name| folder.join(name)));
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

/// The names in a folder that one part of a pattern may fit.
fn names_fitting(folder: &Path, part: &str, rule: &str) -> Vec<OsString> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    // Older shells find the folder above as well.
    let all = names.chain([OsString::from("..")]);
    // Where the language is C every byte is a character.
    let bytes = |text: &str| text.bytes().map(char::from).collect::<String>();
    all.filter(|name| {
        let name = name.to_string_lossy();
        // Hidden names are meant only by a pattern that begins with their dot.
        (part.starts_with('.') || !name.starts_with('.'))
            && (wildcard::matches(rule, &name) || wildcard::matches(&bytes(rule), &bytes(&name)))
    })
    .collect()
}

/// Writes a part of a pattern as the pattern of a rule that fits at least as much: all from the first `[` to the last `]` may
/// be anything. `None` for plain text.
pub(crate) fn as_rule(part: &str) -> Option<String> {
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

/// Takes out the `\` before signs that are quoted.
fn unescaped(part: &str) -> String {
    let mut out = String::new();
    let mut rest = part.chars();
    while let Some(character) = rest.next() {
        out.push(if character == '\\' { rest.next().unwrap_or('\\') } else { character });
    }
    out
}
