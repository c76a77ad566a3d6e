//! The one reader of files that come with a project: regular files only, never a link, never more than a limit, and it cannot block.
//!
//! A clone can contain a link to `/dev/zero` (endless), to `/dev/stdin` (the client's messages) or a named pipe (a read that never
//! returns) in place of any file that is read without a question, such as `.gitignore`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use crate::beneath::{HANDLE, open_beneath};

/// Why a file was not read.
#[derive(Debug)]
pub enum NotRead {
    /// Nothing is there.
    Missing,
    /// It is a link, or reached through one.
    Link,
    /// It is a directory, a pipe, a socket or a device.
    NotRegular,
    /// It is larger than the limit.
    TooLarge(u64),
    /// The system's error.
    Io(io::Error),
}

impl fmt::Display for NotRead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRead::Missing => write!(out, "not found"),
            NotRead::Link => write!(out, "it is a symbolic link"),
            NotRead::NotRegular => write!(out, "it is not a regular file"),
            NotRead::TooLarge(most) => write!(out, "it is larger than {most} bytes"),
            NotRead::Io(err) => write!(out, "it cannot be read: {err}"),
        }
    }
}

impl From<io::Error> for NotRead {
    fn from(err: io::Error) -> NotRead {
        match err.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => NotRead::Missing,
            // `openat2` and `O_NOFOLLOW` report a link as a loop.
            Some(rustix::io::Errno::LOOP) => NotRead::Link,
            // A socket.
            Some(rustix::io::Errno::NXIO) => NotRead::NotRegular,
            _ => NotRead::Io(err),
        }
    }
}

/// Reads a file at a path relative to a directory. No link is followed below the directory.
///
/// # Errors
/// Says why it was not read.
pub fn read(directory: &Path, relative: impl AsRef<Path>, most: u64) -> Result<Vec<u8>, NotRead> {
    let flags = HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(directory, flags, Mode::empty()).map_err(io::Error::from)?;
    read_beneath(root.as_fd(), relative.as_ref(), most)
}

/// Reads a file at a path relative to an open directory. No link is followed.
///
/// # Errors
/// Says why it was not read.
pub fn read_beneath(root: BorrowedFd<'_>, relative: &Path, most: u64) -> Result<Vec<u8>, NotRead> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    regular(open_beneath(root, relative, flags, Mode::empty())?, most)
}

/// Reads a file that the user may have stored elsewhere: links are followed, and the rest is the same.
///
/// # Errors
/// Says why it was not read.
pub fn read_linked(path: &Path, most: u64) -> Result<Vec<u8>, NotRead> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    regular(open(path, flags, Mode::empty()).map_err(io::Error::from)?, most)
}

/// Reads an open file if it is a regular one.
fn regular(file: OwnedFd, most: u64) -> Result<Vec<u8>, NotRead> {
    let found = fstat(&file).map_err(io::Error::from)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(NotRead::NotRegular);
    }
    let size = u64::try_from(found.st_size).unwrap_or(0);
    if size > most {
        return Err(NotRead::TooLarge(most));
    }
    // Counted while reading: files of /proc have no size, and a file may grow.
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    File::from(file).take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(NotRead::TooLarge(most)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn why(result: Result<Vec<u8>, NotRead>) -> String {
        result.map(|bytes| format!("{} bytes", bytes.len())).unwrap_or_else(|why| why.to_string())
    }

    // R: T2
    #[test]
    fn only_small_regular_files_are_read() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path();
        let at = |name: &str| directory.join(name);
        std::fs::create_dir(at("folder")).unwrap();
        std::fs::write(at("folder/file"), "12345").unwrap();
        std::fs::File::create(at("sparse")).unwrap().set_len(3 << 30).unwrap();
        std::fs::write(at("secret"), "secret").unwrap();
        for (target, link) in [
            ("/dev/zero", "zero"),
            ("/dev/stdin", "stdin"),
            ("/proc/self/smaps", "endless"),
            ("secret", "link"),
            ("folder", "around"),
            ("nowhere", "dangling"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let link = "it is a symbolic link";
        for (path, expected) in [
            ("folder/file", "5 bytes"),
            ("zero", link),
            ("stdin", link),
            ("endless", link),
            ("link", link),
            ("dangling", link),
            ("around/file", link),
            ("pipe", "it is not a regular file"),
            ("socket", "it is not a regular file"),
            ("folder", "it is not a regular file"),
            ("sparse", "it is larger than 100 bytes"),
            ("none", "not found"),
            ("folder/file/x", "not found"),
        ] {
            assert_eq!(why(read(directory, path, 100)), expected, "{path}");
        }
        for (path, expected) in [
            ("zero", "it is not a regular file"),
            ("pipe", "it is not a regular file"),
            ("sparse", "it is larger than 100 bytes"),
            ("endless", "it is larger than 100 bytes"),
            ("link", "6 bytes"),
            ("around/file", "5 bytes"),
        ] {
            assert_eq!(why(read_linked(&at(path), 100)), expected, "{path}");
        }
    }
}
