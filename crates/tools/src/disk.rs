//! Files on the disk, read and replaced as a whole: another process sees the old content or the new, never a part.
//!
//! Blocks, so `files` calls it on a blocking thread. `scope` has decided which file is meant.

mod stale;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    Access, AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags, accessat, fchmod, fchown,
    fgetxattr, flistxattr, fsetxattr, fsync, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::error::Error;
use crate::scope::{Kind, Look, Target};

/// The largest file that is read or changed.
pub(crate) const MAX_BYTES: u64 = 10 * 1024 * 1024;

/// Checks that a path is a file that can be read as a whole; `None` if nothing is there.
pub(crate) fn look(target: &Target) -> Result<Option<Look>, Error> {
    match look_any_size(target)? {
        Some(look) if look.bytes > MAX_BYTES => {
            let name = target.name().to_owned();
            Err(Error::TooLarge { name, bytes: look.bytes, limit: MAX_BYTES })
        }
        look => Ok(look),
    }
}

/// Checks that a path is a file of any size; `None` if nothing is there.
pub(crate) fn look_any_size(target: &Target) -> Result<Option<Look>, Error> {
    let name = target.name();
    let Some(look) = target.look().map_err(|err| Error::of(name, err))? else {
        return Ok(None);
    };
    match look.kind {
        Kind::Directory => Err(Error::Directory(name.to_owned())),
        Kind::Special(what) => Err(Error::Special { name: name.to_owned(), what }),
        Kind::File => Ok(Some(look)),
    }
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read(target: &Target) -> Result<Option<Vec<u8>>, Error> {
    let Some(look) = look(target)? else {
        return Ok(None);
    };
    let file = target.open_file().map_err(|err| Error::of(target.name(), err))?;
    let bytes = read_all(file, look.bytes).map_err(|err| Error::of(target.name(), err))?;
    if bytes.len() as u64 > MAX_BYTES {
        let (name, bytes) = (target.name().to_owned(), bytes.len() as u64);
        return Err(Error::TooLarge { name, bytes, limit: MAX_BYTES });
    }
    Ok(Some(bytes))
}

fn read_all(file: File, expected: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0) + 1);
    // It may have grown since it was checked, and must not fill the memory.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces `old`, the content of a file, by `new`; `None` stands for no file.
///
/// If the file has other content by now, it is not touched. A new file gets mode, owner and attributes of `like`.
pub(crate) fn replace(
    target: &Target,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
    like: Option<&Target>,
) -> Result<(), Error> {
    let name = target.name();
    let look = look_to_write(target)?;
    match (look, old, new) {
        (None, None, None) => Ok(()),
        (Some(_), None, _) | (None, Some(_), _) => Err(Error::Changed(name.to_owned())),
        (None, None, Some(new)) => create(target, new, like),
        (Some(look), Some(old), Some(new)) if look.has_hard_links => in_place(target, old, new),
        (Some(look), Some(old), Some(new)) => swap(target, look, old, new),
        (Some(_), Some(old), None) => remove(target, old),
    }
}

/// Checks that a file is not read-only; `None` if nothing is there.
fn look_to_write(target: &Target) -> Result<Option<Look>, Error> {
    let look = look(target)?;
    if look.is_some_and(|look| !look.mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH)) {
        return Err(Error::ReadOnly(target.name().to_owned()));
    }
    Ok(look)
}

/// Checks what [`replace`] needs: a file that is not read-only, in a directory that we can write to.
pub(crate) fn check_writable(target: &Target, is_removal: bool) -> Result<(), Error> {
    let of = |err: io::Error| Error::of(target.name(), err);
    if look_to_write(target)?.is_some_and(|look| look.has_hard_links && !is_removal) {
        return target.open_in_place().map(drop).map_err(of);
    }
    match target.open_parent(false) {
        // It is created with the file.
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(err) => Err(of(err)),
        Ok((directory, _)) => accessat(&directory, ".", Access::WRITE_OK, AtFlags::empty())
            .map_err(|err| of(err.into())),
    }
}

fn create(target: &Target, new: &[u8], like: Option<&Target>) -> Result<(), Error> {
    let of = |err: io::Error| match err.kind() {
        io::ErrorKind::AlreadyExists => Error::Changed(target.name().to_owned()),
        _ => Error::of(target.name(), err),
    };
    let (directory, name) = target.open_parent(true).map_err(of)?;
    let like = like.and_then(|like| Some((like.look().ok()??, like)));
    let beside = Beside::write(&directory, new, like).map_err(of)?;
    beside.rename_to_new(name).map_err(of)?;
    sync(&directory);
    Ok(())
}

/// Replaces the file by an exchange, and reverts that if the file did not have the expected content.
fn swap(target: &Target, look: Look, old: &[u8], new: &[u8]) -> Result<(), Error> {
    let of = |err: io::Error| Error::of(target.name(), err);
    let (directory, name) = target.open_parent(false).map_err(of)?;
    let beside = Beside::write(&directory, new, Some((look, target))).map_err(of)?;
    if read(target)?.as_deref() != Some(old) {
        return Err(Error::Changed(target.name().to_owned()));
    }
    let was_expected = beside.exchange_with(name, old, new).map_err(of)?;
    sync(&directory);
    if was_expected { Ok(()) } else { Err(Error::Changed(target.name().to_owned())) }
}

/// Changes a file with several hard links in place: a rename would separate them.
fn in_place(target: &Target, old: &[u8], new: &[u8]) -> Result<(), Error> {
    let of = |err: io::Error| Error::of(target.name(), err);
    let mut file = target.open_in_place().map_err(of)?;
    let mut now = Vec::new();
    (&file).take(MAX_BYTES + 1).read_to_end(&mut now).map_err(of)?;
    if now != old {
        return Err(Error::Changed(target.name().to_owned()));
    }
    file.seek(SeekFrom::Start(0)).map_err(of)?;
    file.write_all(new).map_err(of)?;
    file.set_len(new.len() as u64).map_err(of)?;
    file.sync_data().map_err(of)
}

fn remove(target: &Target, old: &[u8]) -> Result<(), Error> {
    let of = |err: io::Error| Error::of(target.name(), err);
    if read(target)?.as_deref() != Some(old) {
        return Err(Error::Changed(target.name().to_owned()));
    }
    let (directory, name) = target.open_parent(false).map_err(of)?;
    unlinkat(&directory, name, AtFlags::empty()).map_err(|err| of(err.into()))?;
    sync(&directory);
    Ok(())
}

/// Makes a rename durable, where the system supports that; the file itself is already synced.
fn sync(directory: &OwnedFd) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Err(err) = openat(directory, ".", flags, Mode::empty()).and_then(fsync) {
        tracing::debug!("a directory could not be synced: {err}");
    }
}

/// How often an exchange is reverted while another process keeps saving the file.
const PUT_BACK: usize = 100;

/// A temporary file next to the one to replace. Removed on drop unless it was renamed.
struct Beside<'a> {
    directory: &'a OwnedFd,
    name: OsString,
}

impl<'a> Beside<'a> {
    /// Writes the file with the mode, owner and attributes of the one that it replaces.
    fn write(
        directory: &'a OwnedFd,
        bytes: &[u8],
        like: Option<(Look, &Target)>,
    ) -> io::Result<Beside<'a>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(stale::name(number));
        stale::remove(directory);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Private until it has the mode of the old file.
        let rights = Mode::from_raw_mode(if like.is_some() { 0o600 } else { 0o666 });
        let made = openat(directory, &name, flags, rights)?;
        let beside = Beside { directory, name };
        let mut file = File::from(made);
        file.write_all(bytes)?;
        if let Some((look, like)) = like {
            copy_metadata(look, &like.open_file()?, &file)?;
        }
        file.sync_data()?;
        Ok(beside)
    }

    /// Renames the file, unless something has that name by now.
    fn rename_to_new(self, name: &OsStr) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(self.directory, &self.name, self.directory, name, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            done => return self.renamed(done),
        }
        rustix::fs::linkat(self.directory, &self.name, self.directory, name, AtFlags::empty())?;
        Ok(())
    }

    /// Exchanges the file with the one of this name. Returns whether that had the content `old`; if not, the exchange is reverted.
    fn exchange_with(self, name: &OsStr, old: &[u8], new: &[u8]) -> io::Result<bool> {
        let exchange = || {
            let flags = RenameFlags::EXCHANGE;
            renameat_with(self.directory, &self.name, self.directory, name, flags)
        };
        match exchange() {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            Err(err) => return Err(err.into()),
            Ok(()) => {
                if self.holds(old)? {
                    return Ok(true);
                }
                // The file was saved meanwhile: restore that version. If the next exchange removes something other than
                // `new`, the file was saved once more, so exchange again.
                for _ in 0..PUT_BACK {
                    exchange()?;
                    if self.holds(new)? {
                        break;
                    }
                }
                return Ok(false);
            }
        }
        let done = renameat(self.directory, &self.name, self.directory, name);
        self.renamed(done).map(|()| true)
    }

    fn holds(&self, bytes: &[u8]) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(self.directory, &self.name, flags, Mode::empty()).map(File::from)
        else {
            // A link, or removed: not the file that was there.
            return Ok(false);
        };
        Ok(file.metadata()?.is_file() && read_all(file, bytes.len() as u64)? == bytes)
    }

    fn renamed(mut self, done: rustix::io::Result<()>) -> io::Result<()> {
        if done.is_ok() {
            self.name.clear();
        }
        Ok(done?)
    }
}

/// Gives a file that the editor wrote the mode, owner and attributes of another, if both are on the disk.
pub(crate) fn copy_metadata_from(target: &Target, like: &Target) {
    let copied = (|| {
        let Some(look) = like.look()? else { return Ok(()) };
        copy_metadata(look, &like.open_file()?, &target.open_file()?)
    })();
    if let Err(err) = copied {
        tracing::debug!("mode and owner of a moved file could not be copied: {err}");
    }
}

fn copy_metadata(look: Look, from: &File, to: &File) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(look.owner.0), Gid::from_raw(look.owner.1));
    // Only root may change the owner; otherwise only the mode is copied.
    if let Err(err) = fchown(to, Some(user), Some(group)) {
        tracing::debug!("the owner of a file could not be restored: {err}");
    }
    copy_attributes(from, to);
    Ok(fchmod(to, look.mode)?)
}

/// Copies extended attributes, including access control lists, as far as permitted and supported.
fn copy_attributes(from: &File, to: &File) {
    let mut names = vec![0; 4096];
    let Ok(length) = flistxattr(from, &mut names) else {
        return;
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // File capabilities are lost when a file changes, as with any other program.
        if name == b"security.capability" {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        let copied = fgetxattr(from, name, &mut value)
            .and_then(|length| fsetxattr(to, name, &value[..length], XattrFlags::empty()));
        if let Err(err) = copied {
            tracing::debug!("an attribute of a file could not be copied: {err}");
        }
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty()
            && let Err(err) = unlinkat(self.directory, &self.name, AtFlags::empty())
        {
            tracing::warn!("a temporary file could not be removed: {err}");
        }
    }
}
