//! Other names of our own files: a file with several names (hard links) must not be changed through any of them.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most directory entries that are looked at.
const MOST_ENTRIES: usize = 100_000;

/// A file, whatever its name: its device and its number there.
pub type FileId = (u64, u64);

/// Returns those of these files that have several names.
#[must_use]
pub fn ids(files: &[PathBuf]) -> Vec<FileId> {
    let with_names = |path: &PathBuf| {
        let found = path.metadata().ok().filter(|found| found.is_file() && found.nlink() > 1)?;
        Some((found.dev(), found.ino()))
    };
    files.iter().filter_map(with_names).collect()
}

/// Tells whether a path is a name of one of these files.
pub(crate) fn is_one_of(path: &Path, files: &[FileId]) -> bool {
    let is_one = |found: std::fs::Metadata| files.contains(&(found.dev(), found.ino()));
    !files.is_empty() && path.symlink_metadata().is_ok_and(is_one)
}

/// The most entries of one directory that are looked at for names of secrets.
const MOST_NAMES: usize = 10_000;

/// Tells whether a file has another name that is one of a secret, in its own directory or in one above it, up to `top`. What may be read under
/// one name would show what may not under the other.
#[must_use]
pub fn names_a_secret(path: &Path, top: &Path) -> bool {
    let Ok(found) = path.symlink_metadata() else { return false };
    if !found.is_file() || found.nlink() < 2 {
        return false;
    }
    let is_same = |entry: &std::fs::DirEntry| {
        let other = entry.metadata();
        other.is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()))
    };
    path.ancestors().skip(1).take_while(|directory| directory.starts_with(top)).any(|directory| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.take(MOST_NAMES).any(|entry| shell::is_secret(&entry.path()) && is_same(&entry))
    })
}

/// Finds the names of these files inside directories. Returns them, and whether everything was looked at.
#[must_use]
pub fn names_in(directories: &[PathBuf], files: &[FileId]) -> (Vec<PathBuf>, bool) {
    let mut names = Vec::new();
    if files.is_empty() {
        return (names, true);
    }
    let mut open: VecDeque<PathBuf> = directories.iter().cloned().collect();
    let mut left = MOST_ENTRIES;
    while let Some(directory) = open.pop_front() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            if left == 0 {
                return (names, false);
            }
            left -= 1;
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                open.push_back(entry.path());
            } else if files.contains(&(found.dev(), found.ino())) {
                names.push(entry.path());
            }
        }
    }
    (names, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T2
    #[test]
    fn another_name_of_a_secret_is_recognised() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        std::fs::create_dir_all(at("w/docs")).unwrap();
        for name in [".env", "w/.env", "w/plain"] {
            std::fs::write(at(name), name).unwrap();
        }
        for (from, to) in [
            ("w/.env", "w/AGENTS.md"),
            ("w/.env", "w/docs/deep.md"),
            ("w/plain", "w/other.md"),
            (".env", "w/outer.md"),
        ] {
            std::fs::hard_link(at(from), at(to)).unwrap();
        }
        for (name, expected) in [
            ("w/AGENTS.md", true),
            ("w/docs/deep.md", true),
            ("w/other.md", false),
            ("w/plain", false),
            ("w/docs", false),
            ("w/none", false),
            // Outside the project, nothing is looked at.
            ("w/outer.md", false),
        ] {
            assert_eq!(names_a_secret(&at(name), &at("w")), expected, "{name}");
        }
    }

    #[test]
    fn other_names_of_a_file_are_found_and_other_files_are_not() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        std::fs::create_dir_all(at("w/deep")).unwrap();
        for name in ["own", "single", "w/other"] {
            std::fs::write(at(name), "x").unwrap();
        }
        std::fs::hard_link(at("own"), at("w/deep/name")).unwrap();
        let files = ids(&[at("own"), at("single"), at("none")]);
        assert_eq!(files.len(), 1);
        assert_eq!(names_in(&[at("w")], &files), (vec![at("w/deep/name")], true));
        assert!(is_one_of(&at("w/deep/name"), &files) && !is_one_of(&at("w/other"), &files));
    }
}
