//! Opens exactly the file that was decided on.
//!
//! No link on the way is followed (`tree::beneath`). A link that is put there between the decision and the use leads to an error,
//! never to another file.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat};
use tree::beneath::{HANDLE, make_directories, open_beneath};

use super::Target;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// A pipe, a socket or a device: opening it could block or have an effect.
    Special(&'static str),
}

/// The metadata of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    /// Whether the file has several hard links.
    pub(crate) has_hard_links: bool,
    pub(crate) mode: Mode,
    pub(crate) owner: (u32, u32),
}

impl Look {
    fn of(stat: &Stat) -> Look {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Fifo => Kind::Special("a pipe"),
            FileType::Socket => Kind::Special("a socket"),
            FileType::Symlink => Kind::Special("a link"),
            _ => Kind::Special("a device"),
        };
        Look {
            kind,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            has_hard_links: stat.st_nlink > 1,
            mode: Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o7777),
            owner: (stat.st_uid, stat.st_gid),
        }
    }
}

impl Target {
    /// Reads the metadata without opening the file; `None` if nothing is there.
    pub(crate) fn look(&self) -> io::Result<Option<Look>> {
        let root = match self.root.handle() {
            Err(err) if is_missing(&err) => return Ok(None),
            handle => handle?,
        };
        match open_beneath(root.as_fd(), &self.relative, HANDLE, Mode::empty()) {
            Ok(found) => Ok(Some(Look::of(&fstat(&found)?))),
            Err(err) if is_missing(&err) => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Opens the file for reading. Fails if it is not a regular file.
    pub(crate) fn open_file(&self) -> io::Result<File> {
        self.open_with(OFlags::RDONLY)
    }

    /// Opens the file to change it in place.
    pub(crate) fn open_in_place(&self) -> io::Result<File> {
        self.open_with(OFlags::RDWR)
    }

    fn open_with(&self, access: OFlags) -> io::Result<File> {
        open_regular(self.root.handle()?.as_fd(), &self.relative, access)
    }

    /// Opens the directory, to open many files in it.
    pub(crate) fn open_as_directory(&self) -> io::Result<Directory> {
        let root = self.root.handle()?;
        let flags = HANDLE | OFlags::DIRECTORY;
        Ok(Directory(open_beneath(root.as_fd(), &self.relative, flags, Mode::empty())?))
    }

    /// Opens the parent directory, and returns the name in it. Creates missing directories if asked to.
    pub(crate) fn open_parent(&self, make: bool) -> io::Result<(OwnedFd, &OsStr)> {
        let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "this is a folder");
        let name = self.relative.file_name().ok_or_else(no_name)?;
        let parent = self.relative.parent().unwrap_or(Path::new(""));
        let root = self.root.handle()?;
        let flags = HANDLE | OFlags::DIRECTORY;
        match open_beneath(root.as_fd(), parent, flags, Mode::empty()) {
            Err(err) if make && is_missing(&err) => {
                Ok((make_directories(root.as_fd(), parent)?, name))
            }
            directory => Ok((directory?, name)),
        }
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

impl Directory {
    /// Opens a file below it for reading. No link is followed.
    pub(crate) fn open_file(&self, below: &Path) -> io::Result<File> {
        open_regular(self.0.as_fd(), below, OFlags::RDONLY)
    }
}

fn open_regular(root: BorrowedFd<'_>, relative: &Path, access: OFlags) -> io::Result<File> {
    // Non-blocking, in case the file was replaced by a pipe.
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open_beneath(root, relative, flags, Mode::empty())?;
    if Look::of(&fstat(&file)?).kind != Kind::File {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    Ok(File::from(file))
}

fn is_missing(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::NotFound)
}
