//! The scope: which paths a session may access. The only place that decides this, for our own disk access and for what the client
//! is asked to read and write.
//!
//! A path is resolved once, to a [`Target`]: every link is followed, then the result is compared with the session's directories,
//! component by component. A target opens exactly that file: the kernel refuses links that appear after the decision (see `place`).

pub mod hard_links;
mod place;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use engine::ports::EditorError;

use shell::{clean, is_secret, real};

use hard_links::FileId;
pub(crate) use place::{Kind, Look};

/// The directories of a session.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The working directory first.
    roots: Arc<[Arc<Root>]>,
    /// The whole disk, for paths outside that the user allowed.
    disk: Arc<Root>,
    /// What no tool may access, even with permission: our own configuration, keys and rules, and `/proc` of this process.
    own: Arc<[PathBuf]>,
    /// The same files by device and number, as far as they have several names.
    own_files: Arc<[FileId]>,
    /// Paths with secrets, which commands do not see. Reading a file there needs permission, whatever its name.
    hidden: Hidden,
    /// Long command outputs of the session: readable without permission, writable by no tool.
    outputs: Option<PathBuf>,
    /// The user's home directory, which no permanent answer may cover as a whole.
    home: Option<Arc<Path>>,
    /// Names that directories have in the session's container, with the directories.
    aliases: Arc<[(PathBuf, PathBuf)]>,
}

/// A directory beneath which files are opened.
#[derive(Debug)]
struct Root {
    /// As the client spells it, without `.` and `..`.
    given: PathBuf,
    /// The resolved path.
    real: PathBuf,
    /// The open directory. Reopened if another directory has taken its place.
    handle: Mutex<Option<Arc<OwnedFd>>>,
}

/// Why a path is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is not a path; the text says what to write instead.
    #[error("{0}")]
    Spelling(&'static str),
    /// It is a broken link, or a link to itself.
    #[error("{} is a broken link", .0.display())]
    Nowhere(PathBuf),
    /// It belongs to Purlin itself.
    #[error("{} holds Purlin's own settings, sessions or keys, which no tool may access", .0.display())]
    Own(PathBuf),
}

/// Paths that are resolved when the first one is checked: there are many, and not every session needs them.
type Hidden = Arc<LazyLock<Vec<PathBuf>, Box<dyn FnOnce() -> Vec<PathBuf> + Send + Sync>>>;

fn nothing() -> Hidden {
    Arc::new(LazyLock::new(Box::new(Vec::new)))
}

/// A resolved path, decided once.
#[derive(Debug, Clone)]
pub struct Target {
    root: Arc<Root>,
    /// Relative to the root, without links, `.` and `..`.
    relative: PathBuf,
    /// As the client knows it: with its own spelling of the root, and links below it resolved.
    path: PathBuf,
    is_inside: bool,
    is_output: bool,
    /// Whether a secret is another name of the same file.
    is_named_secret: bool,
    /// Our own paths, which may be inside it and are excluded.
    own: Arc<[PathBuf]>,
    hidden: Hidden,
    home: Option<Arc<Path>>,
    /// For people and rules: relative to the working directory if inside it, else absolute.
    name: String,
}

impl Scope {
    /// Makes the scope of a session with these directories, the working directory first.
    #[must_use]
    pub fn new(roots: Vec<PathBuf>) -> Scope {
        let roots = roots.iter().map(|root| Arc::new(Root::new(root))).collect();
        let disk = Arc::new(Root::new(Path::new("/")));
        Scope {
            roots,
            disk,
            own: Arc::new([process()]),
            own_files: Arc::new([]),
            hidden: nothing(),
            outputs: None,
            home: None,
            aliases: Arc::new([]),
        }
    }

    /// Lets tools read long command outputs, which are stored in this directory.
    #[must_use]
    pub fn with_outputs(self, directory: Option<PathBuf>) -> Scope {
        Scope { outputs: directory.and_then(|directory| real(&clean(&directory))), ..self }
    }

    /// Sets other names of directories, which commands in a container may print.
    #[must_use]
    pub fn with_aliases(self, aliases: impl IntoIterator<Item = (PathBuf, PathBuf)>) -> Scope {
        Scope { aliases: aliases.into_iter().collect(), ..self }
    }

    /// Translates a path of the container, unless the same path exists here.
    fn translate(&self, path: PathBuf) -> PathBuf {
        let find = |(inside, directory): &(PathBuf, PathBuf)| {
            let rest = path.strip_prefix(inside).ok()?;
            (!inside.exists()).then(|| directory.join(rest))
        };
        self.aliases.iter().find_map(find).unwrap_or(path)
    }

    /// Sets the user's home directory.
    #[must_use]
    pub fn with_home(self, home: Option<&Path>) -> Scope {
        Scope { home: home.map(Arc::from), ..self }
    }

    /// Excludes our own directories, even inside the session's.
    #[must_use]
    pub fn without(self, own: &[PathBuf]) -> Scope {
        let own_files = hard_links::ids(own).into();
        let own = own.iter().map(|path| real(&clean(path)).unwrap_or_else(|| clean(path)));
        Scope { own: self.own.iter().cloned().chain(own).collect(), own_files, ..self }
    }

    /// Sets the paths that need permission to read. One that contains a directory of the session is ignored.
    #[must_use]
    pub fn with_hidden(self, hidden: Arc<[PathBuf]>) -> Scope {
        let roots = self.roots.clone();
        let find = move || {
            let mut known = HashMap::new();
            let hidden = hidden.iter().filter_map(|path| real_of_many(&clean(path), &mut known));
            let is_opened = |path: &PathBuf| roots.iter().any(|root| root.real.starts_with(path));
            hidden.filter(|path| !is_opened(path)).collect()
        };
        Scope { hidden: Arc::new(LazyLock::new(Box::new(find))), ..self }
    }

    /// Resolves a path. A relative one is relative to the working directory.
    ///
    /// # Errors
    /// Fails if the path is not valid.
    pub fn locate(&self, spelling: &str) -> Result<Target, PathError> {
        if spelling == "~" || spelling.starts_with("~/") {
            return Err(PathError::Spelling("`~` is not expanded; write the absolute path"));
        }
        if spelling.contains("://") {
            return Err(PathError::Spelling("this is a URL; write a path"));
        }
        if spelling.is_empty() {
            return Err(PathError::Spelling("the path is empty"));
        }
        let Some(cwd) = self.roots.first() else {
            return Err(PathError::Spelling("the session has no folder"));
        };
        self.place(&self.translate(cwd.given.join(spelling)))
    }

    /// Tells whether a path itself is a link.
    pub(crate) fn is_link(&self, spelling: &str) -> bool {
        let path = self.roots.first().map(|cwd| clean(&cwd.given.join(spelling)));
        path.and_then(|path| path.symlink_metadata().ok()).is_some_and(|data| data.is_symlink())
    }

    /// Checks a path before the client is asked for it: it must be absolute, and inside a root after all links are resolved. Returns it
    /// as the client knows it.
    ///
    /// # Errors
    /// [`EditorError::Outside`] for every other path.
    pub fn check(&self, path: &Path) -> Result<PathBuf, EditorError> {
        let outside = || EditorError::Outside(path.to_owned());
        if !path.is_absolute() {
            return Err(outside());
        }
        let target = self.place(path).map_err(|_| outside())?;
        if target.is_inside { Ok(target.path) } else { Err(outside()) }
    }

    /// Reads the first bytes of a file that is inside a root after all links are resolved; returns them and its size. `None` if it does
    /// not exist, is outside, is not a regular file, or is another name of a secret.
    #[must_use]
    pub fn read_start(&self, path: &Path, most: usize) -> Option<(Vec<u8>, u64)> {
        let target = self.place(path).ok().filter(|target| target.is_inside)?;
        if target.is_named_secret {
            return None;
        }
        let look = target.look().ok()??;
        let file = target.open_file().ok()?;
        let mut bytes = Vec::new();
        file.take(most as u64).read_to_end(&mut bytes).ok()?;
        Some((bytes, look.bytes))
    }

    pub(crate) fn place(&self, path: &Path) -> Result<Target, PathError> {
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(PathError::Spelling("a path cannot contain a NUL character"));
        }
        let clean = clean(path);
        let real = real(&clean).ok_or(PathError::Nowhere(clean))?;
        let is_own = self.own.iter().any(|own| real.starts_with(own))
            || hard_links::is_one_of(&real, &self.own_files);
        if is_own || is_thread(&real) {
            return Err(PathError::Own(real));
        }
        // Whole components are compared: `/repo-evil` is not inside `/repo`. The innermost root is used.
        let inside = self.roots.iter().filter(|root| real.starts_with(&root.real));
        let inside = inside.max_by_key(|root| root.real.components().count());
        let root = inside.unwrap_or(&self.disk);
        let relative = real.strip_prefix(&root.real).unwrap_or(&real).to_owned();
        let path = join(&root.given, &relative);
        let name = match self.roots.first().map(|cwd| real.strip_prefix(&cwd.real)) {
            Some(Ok(below)) if below.as_os_str().is_empty() => ".".to_owned(),
            Some(Ok(below)) => below.to_string_lossy().into_owned(),
            _ => path.to_string_lossy().into_owned(),
        };
        let is_output = self.outputs.as_ref().is_some_and(|outputs| real.starts_with(outputs));
        let is_named_secret = inside.is_some() && hard_links::names_a_secret(&real, &root.real);
        Ok(Target {
            root: Arc::clone(root),
            relative,
            path,
            is_inside: inside.is_some(),
            is_output,
            is_named_secret,
            own: Arc::clone(&self.own),
            hidden: Arc::clone(&self.hidden),
            home: self.home.clone(),
            name,
        })
    }

    /// Tells whether a path is written as one inside the session's directories, wherever links lead.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        let path = clean(path);
        self.roots.iter().any(|root| path.starts_with(&root.given) || path.starts_with(&root.real))
    }

    /// Tells whether `target` is reached from `path` without a link below the session's directories.
    pub(crate) fn is_direct(&self, path: &Path, target: &Target) -> bool {
        let (path, real) = (clean(path), target.real());
        self.roots.iter().any(|root| {
            let below = path.strip_prefix(&root.given).or_else(|_| path.strip_prefix(&root.real));
            below.is_ok_and(|below| join(&root.real, below) == real)
        })
    }
}

impl Target {
    /// Returns the path as the client knows it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the user's home directory.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Tells whether it is inside the session's directories.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// Tells whether it is the output of a command of the session.
    pub(crate) fn is_output(&self) -> bool {
        self.is_output
    }

    /// Tells by its name and directory whether it usually holds secrets. A file with several names may have another that says so.
    pub(crate) fn is_secret(&self) -> bool {
        let real = self.real();
        is_secret(&self.path)
            || self.hidden.iter().any(|hidden| real.starts_with(hidden))
            || self.is_named_secret
    }

    /// Returns the path for people and rules: relative to the working directory if inside it, else absolute.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path relative to the directory of the session that it is in, without links.
    pub(crate) fn relative(&self) -> &Path {
        &self.relative
    }

    /// Returns the resolved path.
    pub(crate) fn real(&self) -> PathBuf {
        join(&self.root.real, &self.relative)
    }

    /// Returns our own paths inside this one, relative to it.
    pub(crate) fn own_below(&self) -> Vec<PathBuf> {
        self.below_here(&self.own)
    }

    /// Returns the paths with secrets inside this one, relative to it.
    pub(crate) fn hidden_below(&self) -> Vec<PathBuf> {
        self.below_here(&self.hidden)
    }

    fn below_here(&self, places: &[PathBuf]) -> Vec<PathBuf> {
        let here = self.real();
        let below = |place: &PathBuf| Some(place.strip_prefix(&here).ok()?.to_owned());
        places.iter().filter_map(below).collect()
    }

    /// Returns the target for a path inside this one.
    pub(crate) fn below(&self, relative: &Path) -> Target {
        Target {
            root: Arc::clone(&self.root),
            relative: join(&self.relative, relative),
            path: join(&self.path, relative),
            is_inside: self.is_inside,
            is_output: self.is_output,
            is_named_secret: false,
            own: Arc::clone(&self.own),
            hidden: Arc::clone(&self.hidden),
            home: self.home.clone(),
            name: if self.name == "." {
                relative.to_string_lossy().into_owned()
            } else {
                join(Path::new(&self.name), relative).to_string_lossy().into_owned()
            },
        }
    }
}

impl Root {
    fn new(path: &Path) -> Root {
        let given = clean(path);
        let real = real(&given).unwrap_or_else(|| given.clone());
        Root { given, real, handle: Mutex::new(None) }
    }

    /// Returns the open directory.
    fn handle(&self) -> io::Result<Arc<OwnedFd>> {
        let mut known = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*known
            && tree::beneath::is_still_at(handle, &self.real)
        {
            return Ok(Arc::clone(handle));
        }
        let handle = Arc::new(tree::beneath::open_directory(&self.real)?);
        *known = Some(Arc::clone(&handle));
        Ok(handle)
    }
}

/// `/proc` of this process: its environment, with keys in it, its memory, its open files.
fn process() -> PathBuf {
    PathBuf::from(format!("/proc/{}", std::process::id()))
}

/// Tells whether a path leads to `/proc` of a thread of this process.
fn is_thread(real: &Path) -> bool {
    let Ok(below) = real.strip_prefix("/proc") else { return false };
    let number = below.components().next().map(|first| first.as_os_str().to_owned());
    let is_number = |name: &OsString| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    number.filter(is_number).is_some_and(|number| process().join("task").join(number).exists())
}

/// Joins paths; an empty one adds no slash.
fn join(directory: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { directory.to_owned() } else { directory.join(relative) }
}

/// Like [`real`], for many paths in few directories, most of which do not exist: each directory is resolved once.
fn real_of_many(path: &Path, known: &mut HashMap<PathBuf, Option<PathBuf>>) -> Option<PathBuf> {
    if let Some(known) = known.get(path) {
        return known.clone();
    }
    let found = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real_of_many(parent, known).and_then(|parent| {
            let place = parent.join(name);
            let is_link = place.symlink_metadata().is_ok_and(|data| data.is_symlink());
            if is_link { real(path) } else { Some(place) }
        }),
        _ => real(path),
    };
    known.insert(path.to_owned(), found.clone());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_paths_resolve_like_single_ones() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        std::fs::create_dir_all(top.join("real/sub")).unwrap();
        std::fs::write(top.join("file"), "").unwrap();
        symlink("real", top.join("link")).unwrap();
        symlink("none", top.join("nowhere")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        let below = [
            "",
            "file",
            "file/x",
            "real",
            "real/sub",
            "real/none",
            "link",
            "link/sub",
            "link/none/x",
            "none",
            "none/x",
            "nowhere",
            "nowhere/x",
            "loop/x",
        ];
        let mut known = HashMap::new();
        for path in below.iter().map(|path| top.join(path)).chain(["/".into(), "/none/x".into()]) {
            let path = clean(&path);
            assert_eq!(real_of_many(&path, &mut known), real(&path), "{}", path.display());
        }
    }
}
