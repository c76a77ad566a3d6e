//! Programs that read directories recursively: which files with secrets they would read, and which links lead out.
//!
//! Checks names only and reads no file. Files that a program certainly skips are skipped here, too.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ignore::Walk as Entries;
use ignore::overrides::OverrideBuilder;
use ignore::types::TypesBuilder;
use tree::{Skipped, WalkOptions};

use super::options::Sorted;
use super::paths::as_wildcard;
use super::wildcard;
use super::word::Word;
use crate::secret::is_secret;

/// How a program walks a directory.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Where it begins; empty for the working directory.
    pub(crate) tops: Vec<Word>,
    /// Whether it skips hidden files.
    skips_hidden: bool,
    /// Whether it skips what git ignores.
    skips_ignored: bool,
    /// Whether it follows links.
    follows: bool,
    /// Whether it gets each file by name, so that it enters no directory through a link.
    is_named: bool,
    /// Patterns of the files that it reads, if not all.
    only: Vec<String>,
    /// Patterns of the files and of the directories that it skips.
    not: Vec<String>,
    not_directories: Vec<String>,
    /// Globs of `rg`, as in `.gitignore`; one with `!` excludes.
    globs: Vec<String>,
    /// Whether the names it gets are split at blanks and quotes, so that one may become several.
    splits: bool,
    /// Whether its files were read by the program that lists them, and only their names matter.
    is_checked: bool,
    /// File types that `rg` reads, and those that it skips.
    types: (Vec<String>, Vec<String>),
}

/// What was found below a directory.
#[derive(Debug, Default)]
pub(crate) struct Below {
    /// Files that usually hold secrets.
    pub(crate) secrets: Vec<PathBuf>,
    /// The targets of links that are followed.
    pub(crate) links: Vec<PathBuf>,
    /// Whether not everything was checked: there are too many files, or an ignore file is not read.
    pub(crate) is_cut: bool,
    /// A name that would be split into several.
    pub(crate) split: Option<PathBuf>,
}

/// The most files that are checked.
const MOST: usize = 50_000;

impl Walk {
    /// `grep -r`, and `diff -r`.
    pub(crate) fn of_grep(name: &str, sorted: &Sorted<'_>, tops: &[&Word]) -> Option<Walk> {
        const RECURSIVE: [&str; 4] = ["r", "R", "recursive", "dereference-recursive"];
        let by_value = sorted.values_of(&["d", "directories"]).any(|value| value == "recurse");
        if !sorted.has(&RECURSIVE) && !by_value {
            return None;
        }
        let texts = |name: &str| sorted.values_of(&[name]).map(str::to_owned).collect::<Vec<_>>();
        let mut only: Vec<String> =
            texts("include").iter().flat_map(|glob| choices(glob)).collect();
        let mut not = texts("exclude");
        if !only.is_empty() && !not.is_empty() {
            // Which of them applies depends on their order.
            only.clear();
            not.clear();
        }
        let not_directories = texts("exclude-dir");
        let follows = sorted.has(&["R", "dereference-recursive"]) || name == "diff";
        Some(Walk { tops: cloned(tops), follows, only, not, not_directories, ..Walk::default() })
    }

    /// `rg`, which skips less with each `-u`.
    pub(crate) fn of_ripgrep(sorted: &Sorted<'_>, tops: &[&Word]) -> Walk {
        let is_free = |name: &&String| matches!(name.as_str(), "u" | "unrestricted");
        let mut free = sorted.given.iter().filter(is_free).count();
        if sorted.has(&["ignore-file", "no-require-git"]) {
            // Other files say what is ignored, and which hidden files are not.
            free = 2;
        }
        let texts = |names: &[&str]| sorted.values_of(names).map(str::to_owned).collect::<Vec<_>>();
        let mut walk = Walk {
            tops: cloned(tops),
            skips_hidden: free < 2 && !sorted.has(&[".", "hidden"]),
            skips_ignored: free < 1
                && !sorted.given.iter().any(|name| name.starts_with("no-ignore")),
            globs: texts(&["g", "glob"]),
            types: (texts(&["t", "type"]), texts(&["T", "type-not"])),
            ..Walk::default()
        };
        if sorted.has(&["iglob", "glob-case-insensitive"]) {
            walk.globs.clear();
        }
        if !walk.types.0.is_empty() && !walk.types.1.is_empty() {
            walk.types = (Vec::new(), Vec::new());
        }
        walk
    }

    /// Returns what a program reads that gets its files from a command that lists them. `None` if that command has read them
    /// itself.
    pub(crate) fn of_names(piped_from: &[Word], goes_on: bool) -> Option<Walk> {
        let texts: Vec<&str> = piped_from.iter().filter_map(Word::as_text).collect();
        let has = |options: &[&str]| texts.iter().any(|text| options.contains(text));
        let is_top = |word: &&Word| {
            word.as_text().is_none_or(|text| !text.starts_with('-') && !"()!,".contains(text))
        };
        let mut walk = Walk { follows: true, is_named: !goes_on, ..Walk::default() };
        match texts.first() {
            Some(&"grep") if !goes_on => return None,
            Some(&"rg") if !goes_on && !has(&["--files"]) => return None,
            Some(&"find") => {
                let words = piped_from[1..].iter();
                let words = words.skip_while(|word| matches!(word.as_text(), Some("-H" | "-P")));
                walk.tops = words.take_while(is_top).cloned().collect();
                walk.only = found_names(&texts).filter(|_| !goes_on).unwrap_or_default();
            }
            // Without these options it lists tracked files.
            Some(&"git") => {
                let is_other = |text: &&str| !text.starts_with("--") && text.contains('o');
                walk.skips_ignored = !has(&["--others"]) && !texts.iter().skip(2).any(is_other);
            }
            // What other programs skip is unknown.
            _ => {}
        }
        Some(walk)
    }

    /// Returns what matters of files that a program has read and whose names it prints.
    pub(crate) fn of_printed(tops: Vec<Word>) -> Walk {
        Walk { tops, is_checked: true, is_named: true, ..Walk::default() }
    }

    /// Returns the walk for names that are, or are not, split.
    pub(crate) fn splitting(self, splits: bool) -> Walk {
        Walk { splits, ..self }
    }

    /// Everything below these places and the directory it is in.
    pub(crate) fn of_all(tops: &[&Word]) -> Walk {
        let mut tops = cloned(tops);
        tops.push(Word::text("."));
        Walk { tops, ..Walk::default() }
    }

    /// Checks what is in a directory.
    pub(crate) fn look(&self, top: &Path) -> Below {
        let mut below = Below::default();
        let (entries, skipped) = self.entries(top);
        for (index, entry) in entries.flatten().enumerate() {
            if index >= MOST {
                below.is_cut = true;
                break;
            }
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            let name = entry.path().strip_prefix(top).unwrap_or(entry.path()).to_string_lossy();
            if self.splits
                && name.contains(|character: char| {
                    character.is_whitespace() || "'\"\\".contains(character)
                })
                && self.reads(entry.file_name())
            {
                below.split.get_or_insert_with(|| entry.path().to_owned());
            }
            if self.is_checked {
                continue;
            }
            if is_secret(entry.path()) && !is_directory && self.reads(entry.file_name()) {
                below.secrets.push(entry.path().to_owned());
            }
            let is_followed = self.follows && entry.path_is_symlink();
            let real = is_followed.then(|| entry.path().canonicalize().ok()).flatten();
            let is_read =
                |real: &PathBuf| self.reads(entry.file_name()) || (real.is_dir() && !self.is_named);
            below.links.extend(real.filter(is_read));
        }
        // The program may read an ignore file that we do not, and it may include hidden files.
        below.is_cut |= !skipped.is_empty();
        below
    }

    /// Tells whether a file of this name may be read.
    fn reads(&self, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        // A pattern that cannot be analysed matches everything.
        let is_meant = |glob: &String| {
            glob.contains(['{', '\\', '/'])
                || wildcard::matches(&as_wildcard(glob).unwrap_or(glob.clone()), &name)
        };
        (self.only.is_empty() || self.only.iter().any(is_meant))
            && !self.not.iter().any(|glob| is_surely(glob, &name))
    }

    fn entries(&self, top: &Path) -> (Entries, Skipped) {
        let mut options = WalkOptions {
            skips_ignored: self.skips_ignored,
            skips_hidden: self.skips_hidden,
            ..WalkOptions::default()
        };
        let not_directories = self.not_directories.clone();
        let keeps = move |entry: &ignore::DirEntry| {
            let name = entry.file_name().to_string_lossy();
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            let is_left_out =
                is_directory && not_directories.iter().any(|glob| is_surely(glob, &name));
            name != ".git" && !is_left_out
        };
        let mut only = OverrideBuilder::new(top);
        // A pattern that cannot be parsed does not narrow the walk.
        if self.globs.iter().all(|glob| only.add(glob).is_ok())
            && let Ok(only) = only.build()
        {
            options.overrides = only;
        }
        let mut types = TypesBuilder::new();
        types.add_defaults();
        for name in &self.types.0 {
            types.select(name);
        }
        for name in &self.types.1 {
            types.negate(name);
        }
        if let Ok(types) = types.build() {
            options.types = types;
        }
        let (walk, skipped) = tree::walk(top, options, keeps);
        (walk.build(), skipped)
    }
}

/// Expands `*.{a,b}`; returns any other glob as it is.
fn choices(glob: &str) -> Vec<String> {
    let parts = glob.split_once('{').and_then(|(front, rest)| Some((front, rest.split_once('}')?)));
    match parts {
        Some((front, (list, back)))
            if list.contains(',') && !format!("{list}{back}").contains(['{', '}']) =>
        {
            list.split(',').map(|one| format!("{front}{one}{back}")).collect()
        }
        _ => vec![glob.to_owned()],
    }
}

/// Tells whether a name certainly matches a glob, in every dialect of globs.
fn is_surely(glob: &str, name: &str) -> bool {
    !glob.contains(['[', '\\', '/', ' ']) && wildcard::matches(glob, name)
}

fn cloned(words: &[&Word]) -> Vec<Word> {
    words.iter().map(|word| (*word).clone()).collect()
}

/// Returns the name patterns of `find`, if it finds nothing else: every alternative has one, and none is negated.
fn found_names(texts: &[&str]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for choice in texts.split(|text| matches!(*text, "-o" | "-or")) {
        let at = choice.iter().position(|text| *text == "-name")?;
        if choice.iter().any(|text| matches!(*text, "!" | "-not" | ",")) {
            return None;
        }
        names.push((*choice.get(at + 1)?).to_owned());
    }
    Some(names)
}
