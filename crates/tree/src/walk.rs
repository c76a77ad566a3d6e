//! Walks a directory as `rg` does, but reads ignore files with the bounded reader.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::overrides::Override;
use ignore::types::Types;
use ignore::{DirEntry, Match, WalkBuilder};

use crate::read::NotRead;
use crate::rules::Rules;

/// What a walk leaves out.
#[derive(Debug)]
pub struct WalkOptions {
    /// Leaves out what ignore files name.
    pub skips_ignored: bool,
    /// `.gitignore` applies only inside a repository.
    pub needs_git: bool,
    /// Leaves out names that begin with a dot, unless something includes them.
    pub skips_hidden: bool,
    /// Globs that decide before everything else.
    pub overrides: Override,
    /// File types to include or leave out.
    pub types: Types,
}

impl Default for WalkOptions {
    fn default() -> WalkOptions {
        WalkOptions {
            skips_ignored: true,
            needs_git: true,
            skips_hidden: true,
            overrides: Override::empty(),
            types: Types::empty(),
        }
    }
}

/// The ignore files that were not used, with the reason. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Skipped(Arc<Mutex<Vec<(PathBuf, String)>>>);

/// The most ignore files that are reported.
const MOST_REPORTED: usize = 20;

impl Skipped {
    pub(crate) fn add(&self, path: &Path, why: &NotRead) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MOST_REPORTED && !list.iter().any(|(known, _)| known == path) {
            list.push((path.to_owned(), why.to_string()));
        }
    }

    /// Tells whether all ignore files were used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the files and the reasons so far.
    #[must_use]
    pub fn list(&self) -> Vec<(PathBuf, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Makes a walk of a directory without links being followed. `keeps` is asked for each entry below the top. The list of ignore files that
/// were not used is complete when the walk is.
pub fn walk(
    top: &Path,
    options: WalkOptions,
    keeps: impl Fn(&DirEntry) -> bool + Send + Sync + 'static,
) -> (WalkBuilder, Skipped) {
    let skipped = Skipped::default();
    let rules = options.skips_ignored.then(|| Rules::new(top, options.needs_git, skipped.clone()));
    let filter = Filter { rules, options };
    let mut walk = WalkBuilder::new(top);
    walk.standard_filters(false).follow_links(false);
    walk.filter_entry(move |entry| entry.depth() == 0 || (keeps(entry) && !filter.skips(entry)));
    (walk, skipped)
}

struct Filter {
    rules: Option<Rules>,
    options: WalkOptions,
}

impl fmt::Debug for Filter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Filter").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Filter {
    /// Decides like the crate `ignore`: globs of the caller, then ignore files, then types, then hidden names.
    fn skips(&self, entry: &DirEntry) -> bool {
        let path = entry.path();
        let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
        match self.options.overrides.matched(path, is_directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => {}
        }
        let mut is_included = false;
        match self.rules.as_ref().map_or(Match::None, |rules| rules.matched(path, is_directory)) {
            Match::Ignore(()) => return true,
            Match::Whitelist(()) => is_included = true,
            Match::None => {}
        }
        match self.options.types.matched(path, is_directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => is_included = true,
            Match::None => {}
        }
        let is_hidden = || entry.file_name().as_encoded_bytes().starts_with(b".");
        !is_included && self.options.skips_hidden && is_hidden()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    use ignore::overrides::OverrideBuilder;
    use proptest::prelude::*;

    use super::*;

    /// Lists the entries of a walk, relative to its top.
    fn names(walk: &WalkBuilder, top: &Path) -> BTreeSet<String> {
        let entries = walk.build().map(|entry| entry.unwrap().into_path());
        entries.map(|path| path.strip_prefix(top).unwrap().display().to_string()).collect()
    }

    /// Ignore patterns, files and directories in a few names, so that they meet.
    fn patterns() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec![
            "a",
            "b",
            ".h",
            "*.x",
            "a*",
            "/a",
            "b/",
            "a/b",
            "**/c",
            "!a",
            "!.h",
            "!b/",
            "c/**",
            "#a",
            "\\!a",
            "a\\ ",
            "[ab]",
            "[",
            "{a,b}",
            "!*",
            "*",
            "/*",
            "!/c",
            "\u{feff}a",
            "a\r",
            "",
        ]);
        prop::collection::vec(name, 0..4).prop_map(|lines| lines.join("\n"))
    }

    fn places() -> impl Strategy<Value = Vec<(String, String)>> {
        let directory = prop::sample::select(vec!["", "a/", "a/b/", "c/", ".h/", "../", "b/c/"]);
        let file = prop::sample::select(vec![
            ".gitignore",
            ".ignore",
            ".rgignore",
            ".git/info/exclude",
            ".git/x",
            ".jj/x",
            "a.x",
            "b",
            ".h",
            "c",
        ]);
        let place = (directory, file).prop_map(|(directory, file)| format!("{directory}{file}"));
        prop::collection::vec((place, patterns()), 0..14)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// The crate `ignore` reads the files itself, and must come to the same result.
        // R: T2
        #[test]
        fn walk_finds_what_the_crate_ignore_finds(
            places in places(),
            flags in (any::<bool>(), any::<bool>(), any::<bool>()),
            globs in prop::collection::vec(prop::sample::select(vec!["*.x", "!b", "a/**", ".h"]), 0..2),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let top = directory.path().canonicalize().unwrap().join("top/work");
            std::fs::create_dir_all(&top).unwrap();
            for (path, text) in &places {
                let path = top.join(path);
                // A file may have the name of a directory; then it is left out.
                if std::fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.is_dir() {
                    std::fs::write(path, text).ok();
                }
            }
            let (skips_hidden, needs_git, skips_ignored) = flags;
            let mut overrides = OverrideBuilder::new(&top);
            for glob in globs {
                overrides.add(glob).unwrap();
            }
            let overrides = overrides.build().unwrap();
            let mut theirs = WalkBuilder::new(&top);
            theirs.standard_filters(skips_ignored).hidden(skips_hidden).require_git(needs_git);
            theirs.overrides(overrides.clone());
            if skips_ignored {
                theirs.add_custom_ignore_filename(".rgignore");
            }
            let options = WalkOptions { skips_ignored, needs_git, skips_hidden, overrides, ..WalkOptions::default() };
            let (ours, skipped) = walk(&top, options, |_| true);
            prop_assert_eq!(names(&ours, &top), names(&theirs, &top));
            prop_assert!(skipped.is_empty(), "{:?}", skipped.list());
        }
    }

    // R: T2
    #[test]
    fn hostile_ignore_files_are_reported_and_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        for name in [".gitignore", ".ignore", ".rgignore", ".git/info/exclude", ".git"] {
            for (index, make) in hostile().into_iter().enumerate() {
                let work = top.join(format!("{}-{index}", name.replace('/', "-")));
                let path = work.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(work.join("kept"), "").unwrap();
                make(&path);
                let (walk, skipped) = walk(&work, WalkOptions::default(), |_| true);
                assert!(names(&walk, &work).contains("kept"), "{name}");
                // A `.git` that is no file and no directory is nothing that git uses.
                assert!(
                    skipped.list().iter().any(|(skipped, _)| *skipped == path),
                    "{name} {index}"
                );
            }
        }
    }

    /// Makes links to devices and to a file, a pipe, and a sparse file of 3 GB.
    fn hostile() -> [fn(&Path); 5] {
        [
            |path| symlink("/dev/zero", path).unwrap(),
            |path| symlink("/dev/stdin", path).unwrap(),
            |path| symlink("kept", path).unwrap(),
            |path| {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
            },
            |path| std::fs::File::create(path).unwrap().set_len(3 << 30).unwrap(),
        ]
    }
}
