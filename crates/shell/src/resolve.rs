//! Where a path leads, and what is special about a place: home folders and repositories.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use engine::permission::pattern::literal;

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

/// Returns the pattern that an answer for good to a read of this folder is kept as; `None` where it would be everything
/// that a person has.
#[must_use]
pub fn folder_rule(folder: &Path) -> Option<String> {
    let names: Vec<&OsStr> = folder
        .components()
        .filter(|component| matches!(component, Component::Normal(_)))
        .map(Component::as_os_str)
        .collect();
    let is_home = |top: &OsStr| top == "home" || top == "Users";
    let holds = |home: PathBuf| real(&home).unwrap_or(home).starts_with(folder);
    match names.as_slice() {
        _ if std::env::home_dir().is_some_and(holds) => None,
        [] => None,
        [top] if is_home(top) || ["root", "proc", "sys", "dev"].iter().any(|name| top == name) => {
            None
        }
        [top, _] if is_home(top) => None,
        _ => Some(format!("{}/*", literal(&folder.to_string_lossy()))),
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
    fn an_answer_for_good_is_never_for_all_of_a_home_or_of_the_disk() {
        let rule = |folder: &str| folder_rule(Path::new(folder));
        let home = std::env::home_dir().unwrap();
        let home = home.to_str().unwrap();
        for wide in ["/", "/home", "/home/me", "/Users/me", "/root", "/proc", "/dev", home] {
            assert_eq!(rule(wide), None, "{wide}");
        }
        assert_eq!(rule("/etc").as_deref(), Some("/etc/*"));
        assert_eq!(rule("/home/me/a*").as_deref(), Some("/home/me/a\\*/*"));
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
