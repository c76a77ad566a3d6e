//! The directory for temporary files.

use std::path::PathBuf;

/// Returns the directory for temporary files.
#[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
pub(crate) fn directory() -> PathBuf {
    std::env::temp_dir()
}
