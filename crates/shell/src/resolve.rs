//! Where a path leads, and what is special about a place: home folders and repositories.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Takes `.` and `..` out by their words alone.
#[must_use]
pub fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(component),
        }
    }
    out
}

/// Follows the links of the longest part of a path that exists; `None` where a link leads nowhere that can be checked,
/// and where something is in the way that cannot be looked into.
///
/// Takes `..` as the kernel does, behind the link before it, also in the part that does not exist.
#[must_use]
pub fn real(path: &Path) -> Option<PathBuf> {
    let mut missing: Vec<OsString> = Vec::new();
    let mut existing = path.to_owned();
    loop {
        match existing.canonicalize() {
            Ok(mut real) => {
                for name in missing.iter().rev() {
                    match name.to_str() {
                        Some("..") => _ = real.pop(),
                        _ => real.push(name),
                    }
                }
                return Some(real);
            }
            // A link that points nowhere exists as a link: writing through it would create its target.
            Err(_) if existing.symlink_metadata().is_ok() => return None,
            Err(_) => {
                missing.push(existing.components().next_back()?.as_os_str().to_owned());
                if !existing.pop() {
                    return None;
                }
            }
        }
    }
}

/// Tells whether a permanent answer may cover all that is in a folder: not the whole disk, a home folder or what holds one.
#[must_use]
pub fn is_narrow(folder: &Path) -> bool {
    let names: Vec<&OsStr> = folder
        .components()
        .filter(|component| matches!(component, Component::Normal(_)))
        .map(Component::as_os_str)
        .collect();
    let is_home = |top: &OsStr| top == "home" || top == "Users";
    let holds = |home: PathBuf| real(&home).unwrap_or(home).starts_with(folder);
    match names.as_slice() {
        _ if std::env::home_dir().is_some_and(holds) => false,
        [] => false,
        [top] => !is_home(top) && !["root", "proc", "sys", "dev"].iter().any(|name| top == name),
        [top, _] => !is_home(top),
        _ => true,
    }
}

/// Tells whether a path leads into the folder that git keeps a repository in, of this project or of one inside it: what
/// is there decides what git runs.
#[must_use]
pub fn is_in_git(path: &Path) -> bool {
    path.components().any(|component| component.as_os_str().eq_ignore_ascii_case(".git"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_folders_and_the_disk_are_not_narrow() {
        let home = std::env::home_dir().unwrap();
        let home = home.to_str().unwrap();
        for wide in ["/", "/home", "/home/me", "/Users/me", "/root", "/proc", "/dev", home] {
            assert!(!is_narrow(Path::new(wide)), "{wide}");
        }
        for narrow in ["/etc", "/home/me/a*"] {
            assert!(is_narrow(Path::new(narrow)), "{narrow}");
        }
    }

    #[test]
    fn repositories_are_known_by_their_folder() {
        for path in [".git", ".git/config", "/w/sub/.git/hooks/x", ".GIT/config"] {
            assert!(is_in_git(Path::new(path)), "{path}");
        }
        for path in ["git", ".gitignore", "a.git/x", ".github/x"] {
            assert!(!is_in_git(Path::new(path)), "{path}");
        }
    }
}
