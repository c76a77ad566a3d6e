//! Where a command would run.

use std::path::{Path, PathBuf};

/// Where a command would run.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The directory it starts in.
    pub cwd: &'a Path,
    /// The directories of the session.
    pub roots: &'a [PathBuf],
    /// Our own configuration and data. They belong to no session, even inside its directories.
    pub own: &'a [PathBuf],
    /// The user's home directory.
    pub home: Option<&'a Path>,
    /// Whether it runs in the sandbox. Without one every command needs permission.
    pub is_sandboxed: bool,
    /// The directories outside, with links resolved, that the sandbox lets it write to.
    pub writable: &'a [PathBuf],
    /// Resolves the links of a path, even if its last part does not exist yet; `None` if it cannot be resolved.
    pub real: &'a dyn Fn(&Path) -> Option<PathBuf>,
    /// Tells whether a character is invisible or misleading, so that the text may not be what it looks like.
    pub is_deceptive: fn(char) -> bool,
}
