//! Why a tool fails. The text goes to the model as the result of the call, so it says what to do.

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
    #[error("{name} not found. Did you mean `{near}`?")]
    Missing { name: String, near: String },
    #[error("{0} is a folder; use `list`")]
    Directory(String),
    #[error("{name} is {what}, not a file")]
    Special { name: String, what: &'static str },
    #[error(
        "{name} is too large ({} MB; the limit is {} MB). Read a range, or search it with `grep`",
        bytes.div_ceil(MEGABYTE),
        limit / MEGABYTE
    )]
    TooLarge { name: String, bytes: u64, limit: u64 },
    #[error(
        "{name} is too large for a picture ({} MB; the limit is {} MB). Scale it down with a command",
        bytes.div_ceil(MEGABYTE),
        limit / MEGABYTE
    )]
    PictureTooLarge { name: String, bytes: u64, limit: u64 },
    #[error("{name} has only {lines} lines; line {line} does not exist")]
    NoSuchLine { name: String, lines: u32, line: u32 },
    #[error(
        "{name} is a link to {target}. To delete or move that file, use its path; to remove the link, run a command"
    )]
    Link { name: String, target: String },
    #[error("{0} is read-only")]
    ReadOnly(String),
    #[error("{0}: permission denied")]
    Denied(String),
    #[error("{0} was replaced by a link or another file; try again")]
    Moved(String),
    #[error("{0} has not been read; read it first")]
    Unread(String),
    #[error("{0} has changed since it was read; read it again and repeat the change")]
    Changed(String),
    #[error("only part of {0} was read; read the rest before overwriting it, or use `edit`")]
    PartlyRead(String),
    #[error("{0} has unsaved changes in the editor; ask the user to save it")]
    Unsaved(String),
    #[error("{name} is not a text file ({why}), so it was not changed")]
    NotText { name: String, why: &'static str },
    #[error("invalid pattern: {0}")]
    Pattern(String),
    #[error("the search was stopped after {} seconds; name a smaller folder", .0.as_secs())]
    TooSlow(std::time::Duration),
    #[error("{0} could not be resolved: the disk that it leads to does not answer")]
    NoAnswer(String),
    #[error("{name}: {source}")]
    Io { name: String, source: io::Error },
    #[error(transparent)]
    Editor(#[from] EditorError),
}

impl Error {
    /// Says what is wrong with a file to a user who already sees its name. The other texts advise the model.
    pub(crate) fn for_user(&self) -> String {
        match self {
            Error::NotFound(_) | Error::Missing { .. } => "not found".to_owned(),
            Error::Directory(_) => "it is a folder now".to_owned(),
            Error::Special { what, .. } => format!("it is {what} now, not a file"),
            Error::TooLarge { bytes, limit, .. } => format!(
                "it is too large ({} MB; the limit is {} MB)",
                bytes.div_ceil(MEGABYTE),
                limit / MEGABYTE
            ),
            Error::ReadOnly(_) => "it is read-only".to_owned(),
            Error::Denied(_) => "permission denied".to_owned(),
            Error::Moved(_) => "it was replaced by a link or another file".to_owned(),
            Error::Unsaved(_) => "it has unsaved changes in the editor; save it first".to_owned(),
            Error::Io { source, .. } => source.to_string(),
            Error::Path(_)
            | Error::PictureTooLarge { .. }
            | Error::NoSuchLine { .. }
            | Error::Link { .. }
            | Error::Unread(_)
            | Error::Changed(_)
            | Error::PartlyRead(_)
            | Error::NotText { .. }
            | Error::Pattern(_)
            | Error::TooSlow(_)
            | Error::NoAnswer(_)
            | Error::Editor(_) => self.to_string(),
        }
    }

    /// Converts an error of the system.
    pub(crate) fn of(name: &str, source: io::Error) -> Error {
        let name = name.to_owned();
        if let Some(Errno::LOOP | Errno::XDEV) = Errno::from_io_error(&source) {
            return Error::Moved(name);
        }
        match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound(name),
            io::ErrorKind::PermissionDenied => Error::Denied(name),
            io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly(name),
            io::ErrorKind::IsADirectory => Error::Directory(name),
            _ => Error::Io { name, source },
        }
    }
}

impl From<Error> for ToolError {
    fn from(err: Error) -> ToolError {
        match err {
            Error::Editor(err) => ToolError::Editor(err),
            Error::NotFound(_) | Error::Missing { .. } => {
                ToolError::failed(ToolFailure::FileNotFound, err.to_string())
            }
            Error::Denied(_) => ToolError::failed(ToolFailure::FileDenied, err.to_string()),
            Error::TooLarge { .. } | Error::PictureTooLarge { .. } => {
                ToolError::failed(ToolFailure::FileTooLarge, err.to_string())
            }
            other => ToolError::Model(other.to_string()),
        }
    }
}
