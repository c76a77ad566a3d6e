//! Scope: which paths a session may touch. Checked before any file is read or written, by us or by the client.

use std::path::{Component, Path, PathBuf};

use engine::ports::EditorError;

/// The folders of a session.
#[derive(Debug, Clone)]
pub struct Scope {
    roots: Vec<PathBuf>,
}

impl Scope {
    /// Makes the scope of a session with these folders.
    #[must_use]
    pub fn new(roots: Vec<PathBuf>) -> Scope {
        Scope { roots }
    }

    /// Checks a path: absolute, and inside a root also after every symbolic link on the way is followed.
    ///
    /// Returns the path without `.` and `..`, links kept, which is what the client should see.
    ///
    /// # Errors
    /// [`EditorError::Outside`] for every other path.
    pub fn check(&self, path: &Path) -> Result<PathBuf, EditorError> {
        let outside = || EditorError::Outside(path.to_owned());
        if !path.is_absolute() {
            return Err(outside());
        }
        let clean = clean(path);
        let real = real(&clean).ok_or_else(outside)?;
        let is_inside = self.roots.iter().any(|root| {
            let root = clean_root(root);
            // Whole components are compared: `/repo-evil` is not inside `/repo`.
            clean.starts_with(&root) && real.starts_with(root.canonicalize().unwrap_or(root))
        });
        if is_inside { Ok(clean) } else { Err(outside()) }
    }
}

fn clean_root(root: &Path) -> PathBuf {
    clean(root)
}

/// Takes `.` and `..` out by their words alone.
fn clean(path: &Path) -> PathBuf {
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

/// Follows the links of the longest part that exists; `None` where a link leads nowhere that can be checked.
fn real(path: &Path) -> Option<PathBuf> {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(real) => return Some(missing.iter().rev().fold(real, |real, name| real.join(name))),
            // A link that points nowhere exists as a link: writing through it would create its target.
            Err(_) if existing.symlink_metadata().is_ok() => return None,
            Err(_) => {
                missing.push(existing.file_name()?.to_owned());
                existing = existing.parent()?;
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    // R: W19
    #[test]
    fn nothing_outside_the_roots_passes() {
        let top = Folder(std::env::temp_dir().join(format!("purlin-scope-{}", std::process::id())));
        let root = top.0.join("repo");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::create_dir_all(top.0.join("repo-evil")).unwrap();
        std::fs::write(top.0.join("secret"), "s").unwrap();
        symlink(&top.0, root.join("up")).unwrap();
        symlink(top.0.join("secret"), root.join("link")).unwrap();
        symlink(top.0.join("not-there"), root.join("dangling")).unwrap();
        symlink(root.join("src"), root.join("inside")).unwrap();
        symlink(root.join("loop"), root.join("loop")).unwrap();
        let scope = Scope::new(vec![root.clone()]);
        let inside =
            ["a.txt", "src/../a.txt", "./src/b", "inside/new/file.txt", ".hidden", "a b\nc"];
        for path in inside {
            assert!(scope.check(&root.join(path)).is_ok(), "{path}");
        }
        assert_eq!(scope.check(&root.join("src/../a.txt")).unwrap(), root.join("a.txt"));
        let outside = [
            "..",
            "../secret",
            "../repo-evil/x",
            "up/secret",
            "up/new",
            "link",
            "dangling",
            "loop",
            "loop/x",
            "src/../../secret",
            "/etc/passwd",
        ];
        for path in outside {
            assert_eq!(
                scope.check(&root.join(path)),
                Err(EditorError::Outside(root.join(path))),
                "{path}"
            );
        }
        assert!(scope.check(Path::new("src/main.rs")).is_err());
        assert!(scope.check(Path::new("")).is_err());
    }
}
