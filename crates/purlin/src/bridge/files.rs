//! The files of a session's folders, for turns that are taken back: through the client where it offers that, so that it
//! sees the change, else on the disk. Never outside the session's folders.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::ports::{Editor, EditorError, Files};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tools::scope::Scope;

/// The files of one session.
pub(crate) struct SessionFiles {
    editor: Arc<dyn Editor>,
    scope: Scope,
}

impl SessionFiles {
    pub(crate) fn new(editor: Arc<dyn Editor>, scope: Scope) -> SessionFiles {
        SessionFiles { editor, scope }
    }
}

impl Files for SessionFiles {
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Option<Vec<u8>>, EditorError>> {
        async move {
            let path = self.scope.check(path)?;
            let mut doubtful = None;
            if self.editor.offers().read {
                match self.editor.read_text_file(path.clone(), None, None).await {
                    // It may stand for bytes that are no text; the disk has those.
                    Ok(text) if text.contains(char::REPLACEMENT_CHARACTER) => doubtful = Some(text),
                    Ok(text) => return Ok(Some(text.into_bytes())),
                    Err(EditorError::FileNotFound(_)) => return Ok(None),
                    // What is no text a client cannot read, and not every client says that a file is not there.
                    Err(EditorError::Refused(_)) => {}
                    Err(err) => return Err(err),
                }
            }
            let on_disk = on_disk(path, |path| match std::fs::read(path) {
                Ok(content) => Ok(Some(content)),
                Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
                Err(err) => Err(err),
            })
            .await?;
            let is_text = on_disk.as_ref().is_none_or(|bytes| std::str::from_utf8(bytes).is_ok());
            Ok(match doubtful {
                Some(text) if is_text => Some(text.into_bytes()),
                _ => on_disk,
            })
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        path: &'a Path,
        content: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), EditorError>> {
        async move {
            let path = self.scope.check(path)?;
            let Some(content) = content else {
                return on_disk(path, |path| match std::fs::remove_file(path) {
                    Err(err) if err.kind() != ErrorKind::NotFound => Err(err),
                    Ok(()) | Err(_) => Ok(()),
                })
                .await;
            };
            match String::from_utf8(content) {
                Ok(text) if self.editor.offers().write => {
                    self.editor.write_text_file(&path, &text).await
                }
                Ok(text) => on_disk(path, move |path| replace(path, text.as_bytes())).await,
                Err(err) => on_disk(path, move |path| replace(path, err.as_bytes())).await,
            }
        }
        .boxed()
    }
}

/// Does something with a file on a thread that may wait for the disk.
async fn on_disk<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce(&Path) -> std::io::Result<T> + Send + 'static,
) -> Result<T, EditorError> {
    let done = tokio::task::spawn_blocking(move || work(&path)).await;
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(err)) => Err(EditorError::Refused(err.to_string())),
        Err(err) => Err(EditorError::Refused(format!("the work broke: {err}"))),
    }
}

/// Makes a file hold this, whole or not at all, with the mode it had.
fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    std::fs::create_dir_all(folder)?;
    let mut draft = std::ffi::OsString::from(".");
    draft.push(name);
    draft.push(format!(".{}.tmp", std::process::id()));
    let draft = folder.join(draft);
    let written = (|| {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&draft)?;
        file.write_all(content)?;
        if let Ok(before) = std::fs::metadata(path) {
            file.set_permissions(before.permissions())?;
        }
        file.sync_all()?;
        // A link stays a link: what it points to is inside the folders, or it would not have passed.
        std::fs::rename(&draft, std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
    })();
    if written.is_err()
        && let Err(err) = std::fs::remove_file(&draft)
    {
        tracing::debug!("a draft could not be removed: {err}");
    }
    written
}
