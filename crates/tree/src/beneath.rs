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
/// followed. Modes of directories that forbid it are changed meanwhile. Returns the new path, relative as well.
///
/// # Errors
/// Fails if it is missing, or reached through a link.
pub fn set_aside(root: BorrowedFd<'_>, relative: &Path) -> io::Result<std::path::PathBuf> {
    match try_set_aside(root, relative) {
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {}
        done => return done,
    }
    let opened = open_up(root, relative.parent().unwrap_or(Path::new("")));
    let done = try_set_aside(root, relative);
    for (directory, mode) in opened.into_iter().rev() {
        change_mode(directory.as_fd(), mode).ok();
    }
    done
}

/// Tells whether something of this name was set aside in a directory.
#[must_use]
pub fn is_set_aside(directory: BorrowedFd<'_>, name: &Path) -> bool {
    name.file_name().is_some_and(|name| exists(directory, Path::new(&aside_name(name, 1))))
}

/// Tells whether a directory has something of this name.
#[must_use]
pub fn exists(directory: BorrowedFd<'_>, name: &Path) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn try_set_aside(root: BorrowedFd<'_>, relative: &Path) -> io::Result<std::path::PathBuf> {
    let (directory, name) = open_parent(root, relative)?;
    for number in 1..MOST_ASIDE {
        let to = aside_name(name, number);
        match rename_new(directory.as_fd(), name, &to) {
            Err(rustix::io::Errno::EXIST) => {}
            done => return Ok(done.map(|()| relative.with_file_name(to))?),
        }
    }
    Err(io::Error::other("too many files were set aside here"))
}

/// How many names are tried for what is set aside. After the first ones they are random, so a command cannot have taken all of them.
const MOST_ASIDE: u32 = 200;
const MOST_NUMBERED: u32 = 100;
/// How many bytes of a name remain in that of what is set aside: with the ending it must not become too long.
const MOST_NAME: usize = 200;

fn aside_name(name: &OsStr, number: u32) -> std::ffi::OsString {
    use std::hash::{BuildHasher, RandomState};
    use std::os::unix::ffi::OsStrExt;
    let bytes = name.as_bytes();
    let mut to = OsStr::from_bytes(&bytes[..bytes.len().min(MOST_NAME)]).to_owned();
    to.push(match number {
        1 => ".set-aside".to_owned(),
        2..=MOST_NUMBERED => format!(".set-aside-{number}"),
        _ => format!(".set-aside-{:016x}", RandomState::new().hash_one(number)),
    });
    to
}

/// Renames in a directory, but replaces nothing.
fn rename_new(directory: BorrowedFd<'_>, name: &OsStr, to: &OsStr) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(directory, name, directory, to, RenameFlags::NOREPLACE) {
            // Some file systems lack it.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            done => return done,
        }
    }
    if statat(directory, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(rustix::io::Errno::EXIST);
    }
    rustix::fs::renameat(directory, name, directory, to)
}

/// Gives the owner all access to a directory beneath another, if that is us. Returns whether it had to be changed.
///
/// # Errors
/// Fails if it is missing or reached through a link, and if its mode cannot be changed.
pub fn make_accessible(root: BorrowedFd<'_>, relative: &Path) -> io::Result<bool> {
    if relative.as_os_str().is_empty() {
        return Ok(open_one(root)?.is_some());
    }
    let directory = open_beneath(root, relative, HANDLE | OFlags::DIRECTORY, Mode::empty())?;
    Ok(open_one(directory.as_fd())?.is_some())
}

/// Gives the owner all access to a directory and to those on the way to another beneath it. Returns those that had to be changed, with their
/// modes. Stops at the first that cannot be.
fn open_up(root: BorrowedFd<'_>, relative: &Path) -> Vec<(OwnedFd, Mode)> {
    let step = HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut changed = Vec::new();
    let Ok(mut directory) = root.try_clone_to_owned() else { return changed };
    let mut components = relative.components();
    loop {
        match open_one(directory.as_fd()) {
            Ok(Some(mode)) => changed.extend(directory.try_clone().map(|same| (same, mode))),
            Ok(None) => {}
            Err(_) => return changed,
        }
        let Some(Component::Normal(name)) = components.next() else { return changed };
        let Ok(next) = openat(&directory, name, step, Mode::empty()) else { return changed };
        directory = next;
    }
}

/// Gives the owner all access to an open directory. Returns its mode, if that had to be changed.
fn open_one(directory: BorrowedFd<'_>) -> io::Result<Option<Mode>> {
    let found = fstat(directory)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours || mode.contains(Mode::RWXU) {
        return Ok(None);
    }
    change_mode(directory, mode | Mode::RWXU)?;
    Ok(Some(mode))
}

/// Changes the mode of what a handle names, which `fchmod` cannot.
fn change_mode(handle: BorrowedFd<'_>, mode: Mode) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    #[cfg(target_os = "linux")]
    return Ok(rustix::fs::chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), mode)?);
    #[cfg(not(target_os = "linux"))]
    return Ok(rustix::fs::fchmod(handle, mode)?);
}

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

    /// Becomes an ordinary user, on this thread, if the tests run as root: no mode stops root.
    fn become_ordinary(directory: &Path) {
        if rustix::process::geteuid().is_root() {
            let (user, group) =
                (rustix::process::Uid::from_raw(65534), rustix::process::Gid::from_raw(65534));
            for at in [directory.parent().unwrap(), directory] {
                rustix::fs::chown(at, Some(user), Some(group)).unwrap();
            }
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
    }

    // R: T7
    #[test]
    fn nothing_that_a_command_prepares_keeps_a_file_from_being_set_aside() {
        use std::os::unix::fs::PermissionsExt;
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("root");
        std::fs::create_dir(&root).unwrap();
        become_ordinary(&root);
        let handle = open_directory(&root.canonicalize().unwrap()).unwrap();
        let long = format!("{}.code-workspace", "x".repeat(240));
        for name in ["taken", &long] {
            std::fs::write(root.join(name), "").unwrap();
            for number in 1..=MOST_NUMBERED {
                std::fs::write(root.join(aside_name(name.as_ref(), number)), "").unwrap();
            }
            let aside = set_aside(handle.as_fd(), Path::new(name)).unwrap();
            assert!(!root.join(name).exists() && root.join(aside).exists(), "{name}");
        }
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for bits in [0o000, 0o111, 0o311, 0o444, 0o500, 0o555] {
            let path = format!("a{bits:o}/b/.git");
            std::fs::create_dir_all(root.join(&path)).unwrap();
            std::fs::write(root.join(&path).join("config"), "").unwrap();
            let around = [
                Path::new(""),
                Path::new(&path).parent().unwrap().parent().unwrap(),
                Path::new(&path),
            ];
            for directory in around.iter().rev() {
                mode(&root.join(directory), bits);
            }
            let aside = set_aside(handle.as_fd(), &Path::new(&path).join("config")).unwrap();
            for directory in around {
                let found = root.join(directory);
                assert_eq!(
                    found.symlink_metadata().unwrap().permissions().mode() & 0o777,
                    bits,
                    "{path}"
                );
                mode(&found, 0o700);
            }
            assert!(root.join(aside).exists() && !root.join(&path).join("config").exists());
            mode(&root.join(&path), bits);
            assert!(make_accessible(handle.as_fd(), Path::new(&path)).unwrap());
            assert!(list(handle.as_fd(), Path::new(&path)).is_ok());
            assert!(!make_accessible(handle.as_fd(), Path::new(&path)).unwrap());
        }
    }
}
