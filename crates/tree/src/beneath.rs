//! Opens files beneath an open directory, without following any link.
//!
//! The kernel refuses every link on the way (`openat2` with `RESOLVE_BENEATH`, `NO_SYMLINKS`, `NO_MAGICLINKS`); where it cannot, the
//! path is opened component by component.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdirat, open, openat, statat, unlinkat,
};

/// Flags for a handle that only names a place.
#[cfg(target_os = "linux")]
pub const HANDLE: OFlags = OFlags::PATH;
/// Flags for a handle that only names a place.
#[cfg(not(target_os = "linux"))]
pub const HANDLE: OFlags = OFlags::RDONLY;

/// Opens a path beneath a directory. A link anywhere in it is an error.
///
/// # Errors
/// Fails as `openat` does, and for links and for paths that lead out of the directory.
pub fn open_beneath(
    root: BorrowedFd<'_>,
    relative: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{ResolveFlags, openat2};
        use rustix::io::Errno;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(root, relative, flags, mode, resolve) {
            // Old kernels lack it, and some sandboxes forbid it.
            Err(Errno::NOSYS | Errno::PERM) => {}
            done => return Ok(done?),
        }
    }
    step_by_step(root, relative, flags, mode)
}

/// Opens a path component by component, without following links.
fn step_by_step(
    root: BorrowedFd<'_>,
    relative: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !relative.components().all(is_plain) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path leads out of its folder",
        ));
    }
    let step = HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (parent, name) = (relative.parent(), relative.file_name());
    let Some(name) = name else {
        return Ok(openat(root, ".", flags, mode)?);
    };
    let mut directory = openat(root, ".", step, Mode::empty())?;
    for component in parent.unwrap_or(Path::new("")).components() {
        directory = openat(&directory, component.as_os_str(), step, Mode::empty())?;
    }
    Ok(openat(&directory, name, flags, mode)?)
}

/// Opens a directory by its resolved path: a link in it is an error.
///
/// # Errors
/// Fails if it is not a directory, or if the path contains a link.
pub fn open_directory(real: &Path) -> io::Result<OwnedFd> {
    let top = open("/", HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let below = real.strip_prefix("/").unwrap_or(real);
    open_beneath(top.as_fd(), below, HANDLE | OFlags::DIRECTORY, Mode::empty())
}

/// Opens the parent of a path beneath a directory, and returns the name in it.
///
/// # Errors
/// Fails if the parent is missing or reached through a link, and for a path without a name.
pub fn open_parent<'a>(
    root: BorrowedFd<'_>,
    relative: &'a Path,
) -> io::Result<(OwnedFd, &'a OsStr)> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "this is a folder");
    let name = relative.file_name().ok_or_else(no_name)?;
    let parent = relative.parent().unwrap_or(Path::new(""));
    Ok((open_beneath(root, parent, HANDLE | OFlags::DIRECTORY, Mode::empty())?, name))
}

/// Creates missing directories beneath a directory, component by component, and opens the last.
///
/// # Errors
/// Fails if a component is a link or a file.
pub fn make_directories(root: BorrowedFd<'_>, relative: &Path) -> io::Result<OwnedFd> {
    let step = HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = openat(root, ".", step, Mode::empty())?;
    for component in relative.components() {
        let name = component.as_os_str();
        match mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(err) => return Err(err.into()),
        }
        directory = openat(&directory, name, step, Mode::empty())?;
    }
    Ok(directory)
}

/// Returns what is beneath a directory at a path, without following links; `None` if nothing is there.
///
/// # Errors
/// Fails if the path contains a link before its last component.
pub fn kind_of(root: BorrowedFd<'_>, relative: &Path) -> io::Result<Option<FileType>> {
    let found = open_parent(root, relative)
        .and_then(|(directory, name)| Ok(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?));
    match found {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// Lists a directory beneath another. A missing directory is empty.
///
/// # Errors
/// Fails if it cannot be read, is no directory, or is reached through a link.
pub fn list(
    root: BorrowedFd<'_>,
    relative: &Path,
) -> io::Result<Vec<(std::ffi::OsString, FileType)>> {
    use std::os::unix::ffi::OsStrExt;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let directory = match open_beneath(root, relative, flags, Mode::empty()) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        directory => directory?,
    };
    let mut found = Vec::new();
    let mut entries = Dir::read_from(&directory)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say it here.
            FileType::Unknown => statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode)),
            kind => kind,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

/// Removes what is beneath a directory at a path, with all that is in it. Links are removed, not followed.
///
/// # Errors
/// Fails if something cannot be removed.
pub fn remove(root: BorrowedFd<'_>, relative: &Path) -> io::Result<()> {
    let (directory, name) = open_parent(root, relative)?;
    remove_in(directory.as_fd(), name, DEEPEST)
}

/// How many directories inside each other are removed.
const DEEPEST: usize = 100;

fn remove_in(directory: BorrowedFd<'_>, name: &OsStr, depth: usize) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        done => return Ok(done?),
    }
    if depth == 0 {
        return Err(io::Error::other("too many folders inside each other"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let inner = open_beneath(directory, Path::new(name), flags, Mode::empty())?;
    for (name, _) in list(inner.as_fd(), Path::new(""))? {
        remove_in(inner.as_fd(), &name, depth - 1)?;
    }
    Ok(unlinkat(directory, name, AtFlags::REMOVEDIR)?)
}

/// Writes a new file beneath a directory.
///
/// # Errors
/// Fails if something is there already, or the path contains a link.
pub fn write_new(root: BorrowedFd<'_>, relative: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = open_beneath(root, relative, flags, Mode::from_raw_mode(0o666))?;
    io::Write::write_all(&mut std::fs::File::from(file), bytes)
}

/// Renames what is beneath a directory to `NAME.set-aside` in the same directory, or with a number if that exists. A link is renamed, not
/// followed. Returns the new path, relative as well.
///
/// # Errors
/// Fails if it is missing, or reached through a link.
pub fn set_aside(root: BorrowedFd<'_>, relative: &Path) -> io::Result<std::path::PathBuf> {
    let (directory, name) = open_parent(root, relative)?;
    for number in 1..MOST_ASIDE {
        let mut to = name.to_owned();
        to.push(if number == 1 { ".set-aside".to_owned() } else { format!(".set-aside-{number}") });
        if statat(&directory, &to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            continue;
        }
        rustix::fs::renameat(&directory, name, &directory, &to)?;
        return Ok(relative.with_file_name(to));
    }
    Err(io::Error::other("too many files were set aside here"))
}

/// How many files of the same name are set aside.
const MOST_ASIDE: usize = 1000;

/// Tells whether the path still names the open directory.
#[must_use]
pub fn is_still_at(handle: &OwnedFd, real: &Path) -> bool {
    let now = statat(rustix::fs::CWD, real, AtFlags::SYMLINK_NOFOLLOW);
    matches!((fstat(handle), now), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    // R: T2
    #[test]
    fn no_operation_follows_a_link() {
        let top = tempfile::tempdir().unwrap();
        let (root, outside) = (top.path().join("root"), top.path().join("outside"));
        std::fs::create_dir_all(root.join("dir/sub")).unwrap();
        std::fs::create_dir_all(outside.join("sub")).unwrap();
        std::fs::write(outside.join("file"), "outside").unwrap();
        std::fs::write(root.join("dir/sub/file"), "inside").unwrap();
        symlink(&outside, root.join("link")).unwrap();
        symlink(&outside, root.join("dir/sub/link")).unwrap();
        let handle = open_directory(&root.canonicalize().unwrap()).unwrap();
        let at = |path: &'static str| Path::new(path);
        for path in ["link", "link/file", "../outside/file", "/etc/passwd", "dir/../link/file"] {
            let opened = open_beneath(handle.as_fd(), at(path), OFlags::RDONLY, Mode::empty());
            assert!(opened.is_err(), "{path}");
            let read = step_by_step(
                handle.as_fd(),
                at(path),
                OFlags::RDONLY | OFlags::NOFOLLOW,
                Mode::empty(),
            );
            assert!(read.is_err(), "{path}");
        }
        assert!(kind_of(handle.as_fd(), at("link/file")).is_err());
        assert_eq!(kind_of(handle.as_fd(), at("link")).unwrap(), Some(FileType::Symlink));
        assert!(list(handle.as_fd(), at("link")).is_err());
        assert!(make_directories(handle.as_fd(), at("link/new")).is_err());
        assert!(set_aside(handle.as_fd(), at("link/file")).is_err());
        assert!(write_new(handle.as_fd(), at("link/new"), b"x").is_err());
        assert!(write_new(handle.as_fd(), at("dir/sub/file"), b"x").is_err());
        let aside = |path| set_aside(handle.as_fd(), at(path)).unwrap();
        assert_eq!(aside("dir/sub/link"), at("dir/sub/link.set-aside"));
        write_new(handle.as_fd(), at("dir/sub/link"), b"x").unwrap();
        assert_eq!(aside("dir/sub/link"), at("dir/sub/link.set-aside-2"));
        remove(handle.as_fd(), at("dir")).unwrap();
        assert!(remove(handle.as_fd(), at("link/file")).is_err());
        remove(handle.as_fd(), at("link")).unwrap();
        assert!(!root.join("dir").exists() && !root.join("link").is_symlink());
        assert!(outside.join("file").exists() && outside.join("sub").exists());
    }
}
