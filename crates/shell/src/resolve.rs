//! Where a path leads, and whether it is in a repository's `.git` or holds a home directory.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Removes `.` and `..` lexically, without looking at the disk.
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

/// Resolves the links in the longest part of a path that exists. `None` for a broken link and for a part that cannot be read.
///
/// Resolves `..` as the kernel does, after the link before it, even in the part that does not exist.
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
            // A broken link: writing through it would create its target.
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

/// Tells whether a permanent answer may cover a whole directory: not the disk, a home directory, or a directory of home directories.
/// `home` is the user's.
#[must_use]
pub fn is_narrow(directory: &Path, home: Option<&Path>) -> bool {
    let names: Vec<&OsStr> = directory
        .components()
        .filter(|component| matches!(component, Component::Normal(_)))
        .map(Component::as_os_str)
        .collect();
    let is_home = |top: &OsStr| top == "home" || top == "Users";
    let holds = |home: &Path| real(home).as_deref().unwrap_or(home).starts_with(directory);
    match names.as_slice() {
        _ if home.is_some_and(holds) => false,
        [] => false,
        [top] => !is_home(top) && !["root", "proc", "sys", "dev"].iter().any(|name| top == name),
        [top, _] => !is_home(top),
        _ => true,
    }
}

/// Tells whether a path is in a `.git`, whose files decide what git runs.
#[must_use]
pub fn is_in_git(path: &Path) -> bool {
    path.components().any(|component| component.as_os_str().eq_ignore_ascii_case(".git"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_directories_and_the_disk_are_not_narrow() {
        let home = Some(Path::new("/data/homes/me"));
        for wide in ["/", "/home", "/home/me", "/Users/me", "/root", "/proc", "/dev"] {
            assert!(!is_narrow(Path::new(wide), None), "{wide}");
        }
        for wide in ["/data", "/data/homes", "/data/homes/me"] {
            assert!(!is_narrow(Path::new(wide), home), "{wide}");
        }
        for narrow in ["/etc", "/home/me/a*", "/data/homes/me/project"] {
            assert!(is_narrow(Path::new(narrow), home), "{narrow}");
        }
    }

    #[test]
    fn git_directories_are_recognised_by_name() {
        for path in [".git", ".git/config", "/w/sub/.git/hooks/x", ".GIT/config"] {
            assert!(is_in_git(Path::new(path)), "{path}");
        }
        for path in ["git", ".gitignore", "a.git/x", ".github/x"] {
            assert!(!is_in_git(Path::new(path)), "{path}");
        }
    }
}
