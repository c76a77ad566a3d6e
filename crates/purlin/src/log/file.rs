//! The file of the log: private, and renamed when it is full. Several processes write to it at once.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file is renamed when it is this long.
const MAX_BYTES: u64 = 5 * 1024 * 1024;
/// How many files there are at most: the one that is written, and the older ones.
const MAX_FILES: usize = 5;
/// After how many lines is checked whether another process has renamed the file.
const CHECK: u32 = 32;

/// The file that lines are appended to.
pub(super) struct LogFile {
    path: PathBuf,
    max_bytes: u64,
    file: Option<File>,
    lines: u32,
    has_failed: bool,
}

impl LogFile {
    /// Opens nothing yet.
    pub(super) fn new(path: PathBuf) -> LogFile {
        LogFile { path, max_bytes: MAX_BYTES, file: None, lines: 0, has_failed: false }
    }

    /// Writes a line. A file that cannot be written is not tried again: there is nobody to tell but stderr.
    pub(super) fn write(&mut self, line: &str) {
        if self.has_failed {
            return;
        }
        if let Err(err) = self.append(line) {
            self.has_failed = true;
            // Not through the log, which this is.
            let note = format!("purlin: cannot write {}: {err}\n", self.path.display());
            io::stderr().write_all(note.as_bytes()).ok();
        }
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        self.lines += 1;
        if self.lines.is_multiple_of(CHECK) && !self.is_current() {
            self.file = None;
        }
        if self.open()?.metadata()?.len() + line.len() as u64 > self.max_bytes {
            self.rotate()?;
        }
        // One write: lines of several processes do not mix.
        self.open()?.write_all(line.as_bytes())
    }

    fn open(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            let directory = self.path.parent().unwrap_or(Path::new("."));
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true);
            let mut options = File::options();
            options.create(true).append(true);
            #[cfg(unix)]
            {
                std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            }
            builder.create(directory)?;
            self.file = Some(options.open(&self.path)?);
        }
        self.file.as_mut().ok_or_else(|| io::Error::other("no file"))
    }

    /// Tells whether our file still has its name.
    fn is_current(&self) -> bool {
        let named = std::fs::metadata(&self.path);
        let ours = self.file.as_ref().map(File::metadata);
        matches!((named, ours), (Ok(named), Some(Ok(ours))) if is_same(&named, &ours))
    }

    /// Renames the files. Another process may do the same; the one that gets the lock first does it.
    fn rotate(&mut self) -> io::Result<()> {
        let lock =
            File::options().create(true).append(true).open(self.path.with_extension("lock"))?;
        lock.lock()?;
        if self.is_current() {
            let older = |number: usize| numbered(&self.path, number);
            for number in (1..MAX_FILES - 1).rev() {
                match std::fs::rename(older(number), older(number + 1)) {
                    Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                    _ => {}
                }
            }
            std::fs::rename(&self.path, older(1))?;
        }
        self.file = None;
        Ok(())
    }
}

#[cfg(unix)]
fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    one.len() == other.len()
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    path.with_extension(format!("log.{number}"))
}

/// Returns the files that exist, the oldest first.
pub(super) fn all(path: &Path) -> Vec<PathBuf> {
    let older = (1..MAX_FILES).rev().map(|number| numbered(path, number));
    older.chain([path.to_path_buf()]).filter(|file| file.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O1
    #[test]
    fn full_files_are_renamed_and_the_oldest_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log/purlin.log");
        let mut log = LogFile { max_bytes: 100, ..LogFile::new(path.clone()) };
        // A second process writes to the same file.
        let mut other = LogFile { max_bytes: 100, ..LogFile::new(path.clone()) };
        for number in 0..200 {
            log.write(&format!("line {number:03} of one\n"));
            other.write(&format!("line {number:03} of two\n"));
        }
        assert!(!log.has_failed && !other.has_failed);
        let files = all(&path);
        assert_eq!(files.len(), MAX_FILES);
        for file in &files {
            assert!(std::fs::metadata(file).unwrap().len() <= 100 + 40);
            #[cfg(unix)]
            {
                let mode = std::os::unix::fs::PermissionsExt::mode(
                    &std::fs::metadata(file).unwrap().permissions(),
                );
                assert_eq!(mode & 0o777, 0o600);
            }
        }
        let last = std::fs::read_to_string(&path).unwrap();
        assert!(last.ends_with("line 199 of two\n") || last.contains("199"), "{last}");
    }
}
