//! Why a tool cannot do what it is asked. All of it goes to the model as the call's result, so it says what to do.

use std::io;

use engine::ports::{EditorError, ToolError};
use engine::words::ToolFailure;
use rustix::io::Errno;

use crate::scope::PathError;

const MEGABYTE: u64 = 1024 * 1024;

/// Why a file cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{0} not found")]
    NotFound(String),
    #[error("{0} is a folder; use `list` to look into it")]
    Folder(String),
    #[error("{name} is {what}, not a file")]
    Special { name: String, what: &'static str },
    #[error(
        "{name} is too large ({} MB; the limit is {} MB). Read a range, or search it with `grep`",
        bytes.div_ceil(MEGABYTE),
        limit / MEGABYTE
    )]
    TooLarge { name: String, bytes: u64, limit: u64 },
    #[error(
        "{name} is a link to {target}: name that file to delete or move it, or remove the link with a command"
    )]
    Link { name: String, target: String },
    #[error("{0} is read-only")]
    ReadOnly(String),
    #[error("{0}: permission denied")]
    Denied(String),
    #[error("{0} is not where it was: a link or another file took its place; try again")]
    Moved(String),
    #[error("{0} was not read yet; read it first, so that the change fits what is there")]
    Unread(String),
    #[error("{0} has changed since it was read; read it again, then make the change anew")]
    Changed(String),
    #[error(
        "{0} was read in part only; read the rest of it before it is overwritten, or use `edit` to change a part"
    )]
    PartlyRead(String),
    #[error(
        "{0} has unsaved changes in the editor, which cannot save them for us; ask the user to save it"
    )]
    Unsaved(String),
    #[error("{name} is not text ({why}), so it is left as it is")]
    NotText { name: String, why: &'static str },
    #[error("the pattern cannot be used: {0}")]
    Pattern(String),
    #[error("{name} cannot be used: {source}")]
    Io { name: String, source: io::Error },
    #[error(transparent)]
    Editor(#[from] EditorError),
}

impl Error {
    /// Says what an error of the system means for the file.
    pub(crate) fn of(name: &str, source: io::Error) -> Error {
        let name = name.to_owned();
        if let Some(Errno::LOOP | Errno::XDEV) = Errno::from_io_error(&source) {
            return Error::Moved(name);
        }
        match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound(name),
            io::ErrorKind::PermissionDenied => Error::Denied(name),
            io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly(name),
            io::ErrorKind::IsADirectory => Error::Folder(name),
            _ => Error::Io { name, source },
        }
    }
}

impl From<Error> for ToolError {
    fn from(err: Error) -> ToolError {
        match err {
            Error::Editor(err) => ToolError::Editor(err),
            Error::NotFound(_) => ToolError::failed(ToolFailure::FileNotFound, err.to_string()),
            Error::Denied(_) => ToolError::failed(ToolFailure::FileDenied, err.to_string()),
            Error::TooLarge { .. } => ToolError::failed(ToolFailure::FileTooLarge, err.to_string()),
            other => ToolError::Model(other.to_string()),
        }
    }
}
