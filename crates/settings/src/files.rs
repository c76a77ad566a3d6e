//! Our own files and those of projects: bounded reads, and writes that replace a file as a whole.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use tree::NotRead;

/// Reads configuration files. A trait so that a test can count the reads.
pub trait ReadText: Send + Sync {
    /// Reads a file as text; `None` if it is not a regular file.
    ///
    /// # Errors
    /// Says why the file cannot be read.
    fn read_text(&self, path: &Path, most: u64) -> Result<Option<String>, String>;
}

/// Reads from the disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskReader;

impl ReadText for DiskReader {
    fn read_text(&self, path: &Path, most: u64) -> Result<Option<String>, String> {
        let bytes = match tree::read_linked(path, most) {
            Ok(bytes) => bytes,
            Err(NotRead::Missing | NotRead::Link | NotRead::NotRegular) => return Ok(None),
            Err(NotRead::TooLarge(most)) => return Err(format!("is larger than {most} bytes")),
            Err(NotRead::Io(err)) => return Err(format!("cannot be read: {err}")),
        };
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|err| format!("cannot be read: {}", err.utf8_error()))
    }
}

/// Who may read a file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The user alone.
    Private,
    /// Everyone that the umask of the process allows.
    Shared,
}

/// Writes one of our own files as a whole.
///
/// # Errors
/// Says what cannot be written.
pub fn write_whole(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replace(file, bytes, Access::Shared)
}

/// Writes a file beside the old one and renames it: the file is complete at any time.
pub(crate) fn replace(file: &Path, bytes: &[u8], access: Access) -> anyhow::Result<()> {
    let directory =
        file.parent().with_context(|| format!("{} has no parent directory", file.display()))?;
    make_directory(directory, access).with_context(|| directory.display().to_string())?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let draft = directory.join(name);
    let written = write_new(&draft, bytes, access).and_then(|()| std::fs::rename(&draft, file));
    if written.is_err() {
        // What was written of it may hold keys.
        drop(std::fs::remove_file(&draft));
    }
    written.with_context(|| file.display().to_string())
}

fn write_new(path: &Path, bytes: &[u8], access: Access) -> std::io::Result<()> {
    // A file of that name was left by a process that died; another process has another name.
    drop(std::fs::remove_file(path));
    let mut file = options(access).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Opens a file to lock it, and creates it if it is missing.
pub(crate) fn open_lock(path: &Path) -> std::io::Result<File> {
    options(Access::Private).create(true).open(path)
}

fn options(access: Access) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    if access == Access::Private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    options
}

/// Creates a directory and those above it.
pub(crate) fn make_directory(directory: &Path, access: Access) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    if access == Access::Private {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    }
    builder.create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such a file says that it is empty, and has no end.
    #[cfg(target_os = "linux")]
    #[test]
    fn reading_an_endless_file_fails() {
        let endless = Path::new("/proc/self/pagemap");
        assert_eq!(std::fs::metadata(endless).unwrap().len(), 0);
        assert!(DiskReader.read_text(endless, 1024 * 1024).is_err());
        assert_eq!(DiskReader.read_text(Path::new("/dev/zero"), 1024), Ok(None));
    }
}
