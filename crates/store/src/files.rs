//! The data directory: creates files and directories that only their owner can read.

use std::fs::OpenOptions;
use std::path::Path;

/// Checks whether a directory can be written.
#[cfg(unix)]
pub(crate) fn may_write(directory: &Path) -> std::io::Result<()> {
    use rustix::fs::{Access, access};
    Ok(access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// On this system permissions are more than a flag, so a file is created to find out.
#[cfg(not(unix))]
pub(crate) fn may_write(directory: &Path) -> std::io::Result<()> {
    let draft = directory.join(format!(".probe-{}", std::process::id()));
    create_private_file(&draft).and_then(|()| std::fs::remove_file(&draft))
}

/// Creates a directory that only its owner can read.
pub(crate) fn create_private_dir(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Creates a file that only its owner can read. An existing file stays unchanged; anything else under that name, such as a
/// pipe, which would block, is an error.
pub(crate) fn create_private_file(path: &Path) -> std::io::Result<()> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}
