//! The scope: which paths a session may touch. The one place that decides it, for our own disk access and for what
//! the client is asked to read and write.
//!
//! A path is resolved once, to a [`Target`]: every link on the way is followed, then the place is compared with the
//! session's folders, name by name. Whoever uses the target opens that place and no other: links that turn up on the way
//! after the decision are refused by the kernel (see `place`).

mod place;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use engine::ports::EditorError;

use shell::{clean, is_secret, real};

pub(crate) use place::{Kind, Look};

/// The folders of a session.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The working folder first.
    roots: Arc<[Arc<Root>]>,
    /// All of the disk, for places outside that the user agreed to.
    disk: Arc<Root>,
    /// What no tool may touch, whoever agrees: our own configuration, keys and rules, and what the kernel shows of us.
    own: Arc<[PathBuf]>,
    /// Where people keep secrets, which commands do not see: read only after a question, whatever the files are called.
    hidden: Hidden,
    /// What commands of the session said at length: read without a question, and changed by no tool.
    outputs: Option<PathBuf>,
}

/// A folder under which places are opened.
#[derive(Debug)]
struct Root {
    /// As the client spells it, without `.` and `..`.
    given: PathBuf,
    /// Where that is, links followed.
    real: PathBuf,
    /// The open folder. Opened anew when another folder stands in its place.
    handle: Mutex<Option<Arc<OwnedFd>>>,
}

/// Why a path names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is not written as a path; the text says how to write it.
    #[error("{0}")]
    Spelling(&'static str),
    /// It is a link whose end does not exist, or that leads back to itself.
    #[error("{} is a link that leads nowhere", .0.display())]
    Nowhere(PathBuf),
    /// It belongs to the program itself.
    #[error("{} is Purlin's own, with its settings, sessions or keys: no tool may touch it", .0.display())]
    Own(PathBuf),
}

/// Places that are looked up when a path is first asked for: they are many, and not every session asks.
type Hidden = Arc<LazyLock<Vec<PathBuf>, Box<dyn FnOnce() -> Vec<PathBuf> + Send + Sync>>>;

fn nothing() -> Hidden {
    Arc::new(LazyLock::new(Box::new(Vec::new)))
}

/// A place on the disk: what a path means, decided once.
#[derive(Debug, Clone)]
pub struct Target {
    root: Arc<Root>,
    /// Below the root; no links, no `.`, no `..`.
    relative: PathBuf,
    /// As the client knows it: its own spelling of the folder, links below it followed.
    path: PathBuf,
    is_inside: bool,
    is_output: bool,
    /// What lies below it, perhaps, and is not part of it.
    own: Arc<[PathBuf]>,
    hidden: Hidden,
    /// For people and rules: below the working folder without it, elsewhere in full.
    name: String,
}

impl Scope {
    /// Makes the scope of a session with these folders, the working folder first.
    #[must_use]
    pub fn new(roots: Vec<PathBuf>) -> Scope {
        let roots = roots.iter().map(|root| Arc::new(Root::new(root))).collect();
        let disk = Arc::new(Root::new(Path::new("/")));
        Scope { roots, disk, own: Arc::new([process()]), hidden: nothing(), outputs: None }
    }

    /// Lets tools read what commands said at length, which is kept in this folder.
    #[must_use]
    pub fn with_outputs(self, folder: Option<PathBuf>) -> Scope {
        Scope { outputs: folder.and_then(|folder| real(&clean(&folder))), ..self }
    }

    /// Keeps tools away from our own folders, also where they lie inside the session's.
    #[must_use]
    pub fn without(self, own: &[PathBuf]) -> Scope {
        let own = own.iter().map(|path| real(&clean(path)).unwrap_or_else(|| clean(path)));
        Scope { own: self.own.iter().cloned().chain(own).collect(), ..self }
    }

    /// Names the places that are read only after a question. One that a folder of the session lies in is none.
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

    /// Finds the place that a path means. A relative path counts from the working folder.
    ///
    /// # Errors
    /// Says what is wrong with the path.
    pub fn locate(&self, spelling: &str) -> Result<Target, PathError> {
        if spelling == "~" || spelling.starts_with("~/") {
            return Err(PathError::Spelling("`~` means nothing here: write the path in full"));
        }
        if spelling.contains("://") {
            return Err(PathError::Spelling("this is an address: write a path"));
        }
        if spelling.is_empty() {
            return Err(PathError::Spelling("the path is empty"));
        }
        let Some(cwd) = self.roots.first() else {
            return Err(PathError::Spelling("the session has no folder"));
        };
        self.place(&cwd.given.join(spelling))
    }

    /// Tells whether a path names a link, rather than a file below one.
    pub(crate) fn is_link(&self, spelling: &str) -> bool {
        let path = self.roots.first().map(|cwd| clean(&cwd.given.join(spelling)));
        path.and_then(|path| path.symlink_metadata().ok()).is_some_and(|data| data.is_symlink())
    }

    /// Checks a path that the client is about to be asked for: absolute, and inside a root also after every link on
    /// the way is followed. Returns it as the client should see it.
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

    /// Reads the first bytes of a file that is inside a root also after every link on the way is followed, and tells
    /// how large it is. `None` for everything else: nothing there, outside, no plain file.
    #[must_use]
    pub fn read_start(&self, path: &Path, most: usize) -> Option<(Vec<u8>, u64)> {
        let target = self.place(path).ok().filter(|target| target.is_inside)?;
        let look = target.look().ok()??;
        let file = target.open_file().ok()?;
        let mut bytes = Vec::new();
        file.take(most as u64).read_to_end(&mut bytes).ok()?;
        Some((bytes, look.bytes))
    }

    pub(crate) fn place(&self, path: &Path) -> Result<Target, PathError> {
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(PathError::Spelling("a path cannot hold a NUL character"));
        }
        let clean = clean(path);
        let real = real(&clean).ok_or(PathError::Nowhere(clean))?;
        if self.own.iter().any(|own| real.starts_with(own)) || is_thread(&real) {
            return Err(PathError::Own(real));
        }
        // Whole names are compared: `/repo-evil` is not inside `/repo`. The innermost folder counts.
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
        Ok(Target {
            root: Arc::clone(root),
            relative,
            path,
            is_inside: inside.is_some(),
            is_output,
            own: Arc::clone(&self.own),
            hidden: Arc::clone(&self.hidden),
            name,
        })
    }
}

impl Target {
    /// Returns the path as the client knows it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether the place is inside the session's folders.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// Tells whether a command of the session said it.
    pub(crate) fn is_output(&self) -> bool {
        self.is_output
    }

    /// Tells whether what is there usually is secret, by its name or by where it is.
    pub(crate) fn is_secret(&self) -> bool {
        let real = self.real();
        is_secret(&self.path) || self.hidden.iter().any(|hidden| real.starts_with(hidden))
    }

    /// Returns the path for people and rules: below the working folder without it, elsewhere in full.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns where the place really is.
    pub(crate) fn real(&self) -> PathBuf {
        join(&self.root.real, &self.relative)
    }

    /// Returns what lies below this place and no tool may touch, as paths from here.
    pub(crate) fn own_below(&self) -> Vec<PathBuf> {
        self.below_here(&self.own)
    }

    /// Returns the places below this one where secrets are, as paths from here.
    pub(crate) fn hidden_below(&self) -> Vec<PathBuf> {
        self.below_here(&self.hidden)
    }

    fn below_here(&self, places: &[PathBuf]) -> Vec<PathBuf> {
        let here = self.real();
        let below = |place: &PathBuf| Some(place.strip_prefix(&here).ok()?.to_owned());
        places.iter().filter_map(below).collect()
    }

    /// Returns the place below this one that a walk found.
    pub(crate) fn below(&self, relative: &Path) -> Target {
        Target {
            root: Arc::clone(&self.root),
            relative: join(&self.relative, relative),
            path: join(&self.path, relative),
            is_inside: self.is_inside,
            is_output: self.is_output,
            own: Arc::clone(&self.own),
            hidden: Arc::clone(&self.hidden),
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

    /// Returns the open folder.
    fn handle(&self) -> io::Result<Arc<OwnedFd>> {
        let mut kept = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*kept
            && place::is_still_at(handle, &self.real)
        {
            return Ok(Arc::clone(handle));
        }
        let handle = Arc::new(place::open_folder(&self.real)?);
        *kept = Some(Arc::clone(&handle));
        Ok(handle)
    }
}

/// Where the kernel shows this process: its environment, with the keys in it, its memory, its open files.
fn process() -> PathBuf {
    PathBuf::from(format!("/proc/{}", std::process::id()))
}

/// Tells whether a path leads to a thread of this process, which the kernel shows as if it were a process.
fn is_thread(real: &Path) -> bool {
    let Ok(below) = real.strip_prefix("/proc") else { return false };
    let number = below.components().next().map(|first| first.as_os_str().to_owned());
    let is_number = |name: &OsString| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    number.filter(is_number).is_some_and(|number| process().join("task").join(number).exists())
}

/// Joins without the slash that an empty path would leave behind.
fn join(folder: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { folder.to_owned() } else { folder.join(relative) }
}

/// Does what [`real`] does, for many paths in few folders, most of which are not there: each folder is followed once.
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
    fn many_paths_lead_where_each_of_them_leads() {
        use std::os::unix::fs::symlink;
        let top = std::env::temp_dir().join(format!("purlin-scope-{}", std::process::id()));
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
        std::fs::remove_dir_all(&top).unwrap();
    }
}
