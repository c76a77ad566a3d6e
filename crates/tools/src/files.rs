//! The files of a session, through the client if it offers that, else on the disk; and what the model has read of them.
//!
//! Inside the session's directories a client that offers file access is used, because it has unsaved changes. Files outside are accessed
//! on the disk only.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::permission::{Access, PermissionKey};
use engine::ports::{Content, Editor, EditorError, FileError};
use engine::words::pattern::literal;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use shell::is_in_git;
use tokio::time::timeout;

use crate::bash::directory_rule;
use crate::change::Change;
use crate::disk;
use crate::error::Error;
use crate::scope::{PathError, Scope, Target};
use crate::seen::{Extent, Part, Seen, hash};
use crate::text::is_same_text;

/// How long resolving a path may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The files of one session.
#[derive(Debug)]
pub struct Files {
    scope: Scope,
    /// What the model has read of each file. Never locked across an await.
    seen: Mutex<HashMap<PathBuf, Seen>>,
    /// The client announced the method but does not support it.
    has_no_reads: AtomicBool,
    has_no_writes: AtomicBool,
}

/// What the model wants to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Change a part of it.
    Edit,
    /// Replace all of it.
    Overwrite,
}

impl Files {
    /// Makes the files of a session with these directories.
    #[must_use]
    pub fn new(scope: Scope) -> Files {
        Files {
            scope,
            seen: Mutex::default(),
            has_no_reads: AtomicBool::new(false),
            has_no_writes: AtomicBool::new(false),
        }
    }

    /// Resolves the path of a file to remove. A link is refused: its target would be removed, and the link would stay.
    pub(crate) async fn locate_itself(&self, spelling: &str) -> Result<Target, Error> {
        let target = self.locate(spelling).await?;
        let (scope, path) = (self.scope.clone(), spelling.to_owned());
        if on_a_thread(move || Ok(scope.is_link(&path))).await? {
            return Err(Error::Link {
                name: spelling.to_owned(),
                target: target.name().to_owned(),
            });
        }
        Ok(target)
    }

    /// Resolves a path, on another thread: a link in a clone can lead to a disk that hangs.
    pub(crate) async fn locate(&self, spelling: &str) -> Result<Target, Error> {
        let (scope, path) = (self.scope.clone(), spelling.to_owned());
        let resolve = on_a_thread(move || {
            let target = scope.locate(&path)?;
            // Resolves the hidden places, which stay resolved.
            target.is_secret();
            Ok(target)
        });
        let resolved = timeout(PATIENCE, resolve).await;
        resolved.unwrap_or_else(|_| Err(Error::NoAnswer(spelling.to_owned())))
    }

    /// Reads and writes the disk only, for a directory that the client does not have.
    #[must_use]
    pub fn without_editor(self) -> Files {
        self.has_no_reads.store(true, Ordering::Relaxed);
        self.has_no_writes.store(true, Ordering::Relaxed);
        self
    }

    fn reads_through(&self, editor: &dyn Editor, target: &Target) -> bool {
        editor.offers().read && target.is_inside() && !self.has_no_reads.load(Ordering::Relaxed)
    }

    fn writes_through(&self, editor: &dyn Editor, target: &Target) -> bool {
        editor.offers().write && target.is_inside() && !self.has_no_writes.load(Ordering::Relaxed)
    }

    /// Reads a whole file, including unsaved changes; `None` if it does not exist.
    pub(crate) async fn read_whole(
        &self,
        editor: &dyn Editor,
        target: &Target,
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.reads_through(editor, target)
            && let Some(text) = self.ask_client(editor, target, None).await?
        {
            return Ok(text.map(String::into_bytes));
        }
        let target = target.clone();
        on_a_thread(move || disk::read(&target)).await
    }

    /// Reads a file before a change; `None` if it does not exist, whatever error the client has for that.
    pub(crate) async fn read_for_change(
        &self,
        editor: &dyn Editor,
        target: &Target,
    ) -> Result<Option<Vec<u8>>, Error> {
        if target.is_output() {
            return Err(PathError::Own(target.path().to_owned()).into());
        }
        match self.read_whole(editor, target).await {
            // Not every client has an error code for a missing file.
            Err(Error::Editor(EditorError::Refused(why))) => {
                let place = target.clone();
                match on_a_thread(move || disk::look(&place)).await? {
                    None => Ok(None),
                    Some(_) => Err(EditorError::Refused(why).into()),
                }
            }
            read => read,
        }
    }

    /// Reads some lines through the client; `None` if it does not offer that.
    pub(crate) async fn read_part(
        &self,
        editor: &dyn Editor,
        target: &Target,
        part: Part,
    ) -> Result<Option<Option<String>>, Error> {
        if !self.reads_through(editor, target) {
            return Ok(None);
        }
        self.ask_client(editor, target, Some(part)).await
    }

    /// Asks the client for a file. The outer `None` means that the client does not support it, the inner one that the file does not
    /// exist.
    async fn ask_client(
        &self,
        editor: &dyn Editor,
        target: &Target,
        part: Option<Part>,
    ) -> Result<Option<Option<String>>, Error> {
        // A client may block on a pipe, so only regular files are requested.
        let place = target.clone();
        let is_on_disk = on_a_thread(move || disk::look(&place)).await?.is_some();
        let (line, limit) = (part.map(|part| part.line), part.map(|part| part.limit));
        match editor.read_text_file(target.path().to_owned(), line, limit).await {
            Ok(text) if text.contains(char::REPLACEMENT_CHARACTER) => {
                // If the file on the disk is not text, the client has lost bytes, and a write through it would lose them, too.
                let place = target.clone();
                let on_disk = on_a_thread(move || disk::read(&place)).await?;
                let is_text = on_disk.is_none_or(|bytes| std::str::from_utf8(&bytes).is_ok());
                Ok(is_text.then_some(Some(text)))
            }
            // Several clients answer with an empty text for a file that does not exist.
            Ok(text) if text.is_empty() && !is_on_disk => Ok(Some(None)),
            Ok(text) => Ok(Some(Some(text))),
            Err(EditorError::FileNotFound(_)) => Ok(Some(None)),
            Err(EditorError::NotOffered(_)) => {
                self.has_no_reads.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Checks that a file still has the content that a change expects.
    pub(crate) async fn compare(&self, editor: &dyn Editor, change: &Change) -> Result<(), Error> {
        let Change { target, old, new, .. } = change;
        let old = old.as_ref().map(Content::bytes);
        if self.read_for_change(editor, target).await?.as_deref() != old {
            return Err(Error::Changed(target.name().to_owned()));
        }
        // A removal is made on the disk, which may lack unsaved changes of the client.
        if new.is_none() && self.reads_through(editor, target) {
            let place = target.clone();
            if on_a_thread(move || disk::read(&place)).await?.as_deref() != old {
                return Err(Error::Unsaved(target.name().to_owned()));
            }
        }
        Ok(())
    }

    /// Makes a change whose file was compared. Called by `change` and `restore` only.
    pub(crate) async fn write(&self, editor: &dyn Editor, change: &Change) -> Result<(), Error> {
        let Change { target, new, like, .. } = change;
        if let Some(content) = new
            && self.writes_through(editor, target)
            && let Ok(text) = std::str::from_utf8(content.bytes())
        {
            match editor.write_text_file(target.path(), text).await {
                Err(EditorError::NotOffered(_)) => {
                    self.has_no_writes.store(true, Ordering::Relaxed);
                }
                Err(err) => return Err(err.into()),
                Ok(()) => {
                    if let Some(like) = like.clone() {
                        let place = target.clone();
                        let alike = move || {
                            disk::copy_metadata_from(&place, &like);
                            Ok(())
                        };
                        on_a_thread(alike).await?;
                    }
                    return Ok(());
                }
            }
        }
        let is_buffer = self.reads_through(editor, target);
        let change = change.clone();
        let replace = move || {
            let (old, new) = (change.old.as_ref(), change.new.as_ref());
            let (old, new) = (old.map(Content::bytes), new.map(Content::bytes));
            disk::replace(&change.target, old, new, change.like.as_ref())
        };
        on_a_thread(replace).await.map_err(|err| match err {
            // The client's text was compared, and the disk has another.
            Error::Changed(name) if is_buffer => Error::Unsaved(name),
            err => err,
        })
    }

    /// Records that the model has read some lines of a file.
    pub(crate) fn note_part(&self, target: &Target, part: Part, shown: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(target.real()).or_default().add(part, shown);
    }

    /// Records that the model has read a whole file, by its hash.
    pub(crate) fn note_whole(&self, target: &Target, hash: [u8; 32]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(target.real(), Seen::by_hash(hash, Extent::Whole));
    }

    /// Records a change by the model. It knows as much of the new content as it knew of the old content of `from`.
    pub(crate) fn note_change(&self, change: &Change, from: &Change) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(new) = &change.new else {
            seen.remove(&change.target.real());
            return;
        };
        let known =
            |old: &Content| seen.get(&from.target.real())?.extent(old.bytes(), || old.hash());
        let extent = match &from.old {
            None => Extent::Whole,
            Some(old) => known(old).unwrap_or(Extent::Part),
        };
        seen.insert(change.target.real(), Seen::by_hash(new.hash(), extent));
    }

    /// Checks that the model has read the current content of a file. An empty file is new: there is nothing to lose.
    pub(crate) async fn check_seen(
        &self,
        target: &Target,
        now: &[u8],
        purpose: Use,
    ) -> Result<(), Error> {
        // A client may answer with an empty text for a file that it cannot read, so the disk decides.
        if now.is_empty() && is_empty_on_disk(target).await? {
            return Ok(());
        }
        let name = || target.name().to_owned();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.get(&target.real()).ok_or_else(|| Error::Unread(name()))?;
        match seen.extent(now, || hash(now)) {
            None => Err(Error::Changed(name())),
            Some(Extent::Part) if purpose == Use::Overwrite => Err(Error::PartlyRead(name())),
            Some(Extent::Part | Extent::Whole) => Ok(()),
        }
    }
}

impl engine::ports::Files for Files {
    fn read<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, FileError>> {
        async move { Ok(self.read_to_restore(editor, &self.recorded(path)?).await?) }.boxed()
    }

    fn check<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
        new: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<(), FileError>> {
        async move {
            let (target, is_removal) = (self.recorded(path)?, new.is_none());
            if self.is_saved_by_editor(editor, &target, new) {
                return Ok(());
            }
            Ok(on_a_thread(move || disk::check_writable(&target, is_removal)).await?)
        }
        .boxed()
    }

    fn replace<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
        expected: Option<[u8; 32]>,
        new: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), FileError>> {
        async move {
            let target = self.recorded(path)?;
            Ok(self.restore(editor, target, expected, new).await?)
        }
        .boxed()
    }
}

/// Restores whole files for undo, redo and rewind, inside the session's directories only.
impl Files {
    /// Finds the file that a change was recorded for. Recorded paths contain no links: one that has appeared since then leads
    /// to another file, which nobody agreed to change.
    fn recorded(&self, path: &Path) -> Result<Target, FileError> {
        let target = self.scope.place(path).map_err(|_| FileError::Outside(path.to_owned()))?;
        if self.scope.is_direct(path, &target) {
            Ok(target)
        } else if self.scope.contains(path) {
            Err(FileError::Redirected(target.real()))
        } else {
            Err(FileError::Outside(path.to_owned()))
        }
    }

    /// Reads a file. If the editor refuses, reads the disk: an editor cannot show binary files, and not every editor reports a missing
    /// file as such.
    async fn read_to_restore(
        &self,
        editor: &dyn Editor,
        target: &Target,
    ) -> Result<Option<Vec<u8>>, Error> {
        match self.read_whole(editor, target).await {
            Err(Error::Editor(EditorError::Refused(_))) => read_disk(target).await,
            read => read,
        }
    }

    /// Tells whether the editor will write the new content, rather than we.
    fn is_saved_by_editor(&self, editor: &dyn Editor, target: &Target, new: Option<&[u8]>) -> bool {
        let is_text = new.is_some_and(|new| std::str::from_utf8(new).is_ok());
        is_text && self.writes_through(editor, target)
    }

    async fn restore(
        &self,
        editor: &dyn Editor,
        target: Target,
        expected: Option<[u8; 32]>,
        new: Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let now = self.read_to_restore(editor, &target).await?;
        if now.as_deref().map(hash) != expected {
            return Err(Error::Changed(target.name().to_owned()));
        }
        let mut change = Change::new(target, now, new);
        let new = change.new.as_ref().map(Content::bytes);
        let is_saved_by_editor = self.is_saved_by_editor(editor, &change.target, new);
        if !is_saved_by_editor && self.reads_through(editor, &change.target) {
            // The editor's text was compared; the file that is replaced may have other line endings.
            let on_disk = read_disk(&change.target).await?;
            let is_saved = match (&on_disk, &change.old) {
                (Some(disk), Some(old)) => is_same_text(disk, old.bytes()),
                (None, None) => true,
                (None, Some(_)) if change.new.is_none() => return Ok(()),
                (None, Some(_)) | (Some(_), None) => false,
            };
            if !is_saved {
                return Err(Error::Unsaved(change.target.name().to_owned()));
            }
            change.old = on_disk.map(Content::new);
        }
        self.write(editor, &change).await
    }
}

async fn is_empty_on_disk(target: &Target) -> Result<bool, Error> {
    let target = target.clone();
    let look = on_a_thread(move || disk::look(&target)).await?;
    Ok(look.is_none_or(|look| look.bytes == 0))
}

async fn read_disk(target: &Target) -> Result<Option<Vec<u8>>, Error> {
    let target = target.clone();
    on_a_thread(move || disk::read(&target)).await
}

impl From<Error> for FileError {
    fn from(err: Error) -> FileError {
        match err {
            Error::Changed(_) => FileError::Changed,
            Error::Editor(EditorError::Gone) => FileError::Gone,
            other => FileError::Failed(other.for_user()),
        }
    }
}

/// Runs blocking work on another thread.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(err) => Err(Error::Io { name: "the disk".to_owned(), source: err.into() }),
    }
}

/// Returns what reading a file needs permission for: secrets, and the directory of a file outside.
pub(crate) fn read_access(target: &Target) -> Vec<Access> {
    if target.is_output() {
        return vec![Access::allow(PermissionKey::Read, target.name())];
    }
    let mut access = Vec::new();
    if !target.is_inside() {
        let ask = Access::ask(PermissionKey::ExternalDirectory, target.path().to_string_lossy());
        let directory = target.path().parent().unwrap_or(target.path());
        access.push(Access {
            always: directory_rule(directory, target.home()).or(ask.always),
            ..ask
        });
    }
    access.push(if target.is_secret() {
        Access::ask(PermissionKey::Read, target.name())
    } else {
        Access::allow(PermissionKey::Read, target.name())
    });
    access
}

/// Returns what changing a file needs permission for: the file, and its exact path if it is outside.
pub(crate) fn edit_access(target: &Target) -> Vec<Access> {
    let mut access = Vec::new();
    if !target.is_inside() {
        let place = target.path().to_string_lossy();
        access.push(Access::ask(PermissionKey::WriteOutside, place.clone()));
        // Permission to read there does not allow writing, but a rule that forbids applies to both.
        access.push(Access::allow(PermissionKey::ExternalDirectory, place));
    }
    access.push(Access {
        always: Some(edit_rule(target)),
        ..Access::ask(PermissionKey::Edit, target.name())
    });
    if target.is_inside() && shell::is_auto_run(target.relative()) {
        // Allowing edits does not include what other programs run.
        access.push(Access::ask(PermissionKey::AutoRun, target.name()));
    }
    if is_in_git(&target.real()) {
        // A separate permission: allowing edits does not include what git runs.
        access.push(Access::ask(PermissionKey::Git, target.name()));
    }
    access
}

/// Returns the pattern for "always": the top-level directory of the file, or the file itself.
fn edit_rule(target: &Target) -> String {
    match target.name().split_once('/') {
        Some((first, _)) if target.is_inside() && !first.is_empty() && first != ".git" => {
            format!("{}/**", literal(first))
        }
        _ => literal(target.name()),
    }
}
