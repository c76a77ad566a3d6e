//! Files on the disk: read whole, replaced whole. A reader of the file sees the old text or the new, never a part.
//!
//! Blocks; `files` calls it on a thread for that. Which place is meant was decided by `scope`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Uid, XattrFlags, fchmod, fchown, fgetxattr, flistxattr, fsetxattr,
    fsync, openat, renameat, unlinkat,
};

use crate::error::Error;
use crate::scope::{Kind, Look, Target};

/// The largest file that is read or changed.
pub(crate) const MAX_BYTES: u64 = 10 * 1024 * 1024;

/// Looks whether a file is there that can be read; `None` if nothing is.
pub(crate) fn look(target: &Target) -> Result<Option<Look>, Error> {
    let name = target.name();
    let Some(look) = target.look().map_err(|err| Error::of(name, err))? else {
        return Ok(None);
    };
    match look.kind {
        Kind::Folder => Err(Error::Folder(name.to_owned())),
        Kind::Special(what) => Err(Error::Special { name: name.to_owned(), what }),
        Kind::File if look.bytes > MAX_BYTES => {
            Err(Error::TooLarge { name: name.to_owned(), bytes: look.bytes, limit: MAX_BYTES })
        }
        Kind::File => Ok(Some(look)),
    }
}

/// Reads a file; `None` if there is none.
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
    // It may have grown since somebody looked; it must not fill the memory.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Puts `new` in the place of a file that holds `old`; `None` stands for no file.
///
/// If the file holds something else by now, it is left as it is. One that is made anew is made `like` another.
pub(crate) fn replace(
    target: &Target,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
    like: Option<&Target>,
) -> Result<(), Error> {
    let name = target.name();
    let look = look(target)?;
    if look.is_some_and(|look| !look.mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH)) {
        return Err(Error::ReadOnly(name.to_owned()));
    }
    match (look, old, new) {
        (None, None, None) => Ok(()),
        (Some(_), None, _) | (None, Some(_), _) => Err(Error::Changed(name.to_owned())),
        (None, None, Some(new)) => create(target, new, like),
        (Some(look), Some(old), Some(new)) if look.has_more_names => in_place(target, old, new),
        (Some(look), Some(old), Some(new)) => swap(target, look, old, new),
        (Some(_), Some(old), None) => remove(target, old),
    }
}

fn create(target: &Target, new: &[u8], like: Option<&Target>) -> Result<(), Error> {
    let of = |err: io::Error| match err.kind() {
        io::ErrorKind::AlreadyExists => Error::Changed(target.name().to_owned()),
        _ => Error::of(target.name(), err),
    };
    let (folder, name) = target.open_parent(true).map_err(of)?;
    let like = like.and_then(|like| Some((like.look().ok()??, like)));
    let beside = Beside::write(&folder, new, like).map_err(of)?;
    beside.rename_to_new(name).map_err(of)?;
    sync(&folder);
    Ok(())
}

/// Replaces the file by rename, and takes that back if the file was not what it should have been.
fn swap(target: &Target, look: Look, old: &[u8], new: &[u8]) -> Result<(), Error> {
    let of = |err: io::Error| Error::of(target.name(), err);
    let (folder, name) = target.open_parent(false).map_err(of)?;
    let beside = Beside::write(&folder, new, Some((look, target))).map_err(of)?;
    if read(target)?.as_deref() != Some(old) {
        return Err(Error::Changed(target.name().to_owned()));
    }
    let was_expected = beside.exchange_with(name, old, new).map_err(of)?;
    sync(&folder);
    if was_expected { Ok(()) } else { Err(Error::Changed(target.name().to_owned())) }
}

/// Changes a file that has other names, too: a rename would part them.
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
    let (folder, name) = target.open_parent(false).map_err(of)?;
    unlinkat(&folder, name, AtFlags::empty()).map_err(|err| of(err.into()))?;
    sync(&folder);
    Ok(())
}

/// Makes a rename outlive the machine where that can be asked for; the file itself is safe already.
fn sync(folder: &OwnedFd) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Err(err) = openat(folder, ".", flags, Mode::empty()).and_then(fsync) {
        tracing::debug!("a folder could not be synced: {err}");
    }
}

/// How often a file is put back that somebody else goes on saving.
const PUT_BACK: usize = 100;

/// A file beside the one that is to be replaced. Goes away unless it is renamed.
struct Beside<'a> {
    folder: &'a OwnedFd,
    name: OsString,
}

impl<'a> Beside<'a> {
    /// Writes the file, with the rights, the owner and the attributes of the one that it is going to replace.
    fn write(
        folder: &'a OwnedFd,
        bytes: &[u8],
        like: Option<(Look, &Target)>,
    ) -> io::Result<Beside<'a>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".purlin-{}-{number}", std::process::id()));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Nobody else may read it before it has the rights of the old one.
        let rights = Mode::from_raw_mode(if like.is_some() { 0o600 } else { 0o666 });
        let made = openat(folder, &name, flags, rights)?;
        let beside = Beside { folder, name };
        let mut file = File::from(made);
        file.write_all(bytes)?;
        if let Some((look, like)) = like {
            copy_rights(look, &like.open_file()?, &file)?;
        }
        file.sync_data()?;
        Ok(beside)
    }

    /// Gives the file its name, unless something has that name by now.
    fn rename_to_new(self, name: &OsStr) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            let flags = RenameFlags::NOREPLACE;
            match renameat_with(self.folder, &self.name, self.folder, name, flags) {
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
                done => return self.renamed(done),
            }
        }
        rustix::fs::linkat(self.folder, &self.name, self.folder, name, AtFlags::empty())?;
        Ok(())
    }

    /// Takes the place of the file with `new`. Tells whether that file held `old`; if not, it is put back.
    fn exchange_with(self, name: &OsStr, old: &[u8], new: &[u8]) -> io::Result<bool> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            let exchange = || {
                let flags = RenameFlags::EXCHANGE;
                renameat_with(self.folder, &self.name, self.folder, name, flags)
            };
            match exchange() {
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
                Err(err) => return Err(err.into()),
                Ok(()) => {
                    if self.holds(old)? {
                        return Ok(true);
                    }
                    // Somebody saved it in between: that goes back, and whatever was saved since stays on top.
                    for _ in 0..PUT_BACK {
                        exchange()?;
                        if self.holds(new)? {
                            break;
                        }
                    }
                    return Ok(false);
                }
            }
        }
        let done = renameat(self.folder, &self.name, self.folder, name);
        self.renamed(done).map(|()| true)
    }

    fn holds(&self, bytes: &[u8]) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(self.folder, &self.name, flags, Mode::empty()).map(File::from) else {
            // A link, or gone: not the file that was there.
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

/// Gives a file that somebody else wrote the rights, the owner and the attributes of another, where both are on the disk.
pub(crate) fn make_alike(target: &Target, like: &Target) {
    let copied = (|| {
        let Some(look) = like.look()? else { return Ok(()) };
        copy_rights(look, &like.open_file()?, &target.open_file()?)
    })();
    if let Err(err) = copied {
        tracing::debug!("a file could not be made like the one it was moved from: {err}");
    }
}

fn copy_rights(look: Look, from: &File, to: &File) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(look.owner.0), Gid::from_raw(look.owner.1));
    // Only root may give a file away; then the rights below are what counts.
    if let Err(err) = fchown(to, Some(user), Some(group)) {
        tracing::debug!("a file could not be given to its owner: {err}");
    }
    copy_attributes(from, to);
    Ok(fchmod(to, look.mode)?)
}

/// Copies attributes, access lists among them, as far as this user may and this disk can.
fn copy_attributes(from: &File, to: &File) {
    let mut names = vec![0; 4096];
    let Ok(length) = flistxattr(from, &mut names) else {
        return;
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // The right to do more than the user may is lost by a change, as it is by any other.
        if name == b"security.capability" {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        let copied = fgetxattr(from, name, &mut value)
            .and_then(|length| fsetxattr(to, name, &value[..length], XattrFlags::empty()));
        if let Err(err) = copied {
            tracing::debug!("an attribute of a file could not be kept: {err}");
        }
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty()
            && let Err(err) = unlinkat(self.folder, &self.name, AtFlags::empty())
        {
            tracing::warn!("a temporary file could not be removed: {err}");
        }
    }
}
