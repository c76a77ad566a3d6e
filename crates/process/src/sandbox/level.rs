//! The levels of the sandbox.

use std::fmt;
use std::path::PathBuf;

/// How much a command is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not at all.
    None,
    /// Resources are limited, and privileges cannot be gained.
    Limits,
    /// Also, the kernel restricts files and system calls (Landlock and seccomp; Seatbelt on macOS).
    Kernel,
    /// Also, it has its own mount, PID and network namespaces.
    Full,
}

impl Level {
    /// Every level, the strongest first.
    pub const ALL: [Level; 4] = [Level::Full, Level::Kernel, Level::Limits, Level::None];

    /// Tells whether a command at this level is confined to its workspace, so that read-only commands need no permission.
    #[must_use]
    pub fn confines(self) -> bool {
        self >= Level::Kernel
    }
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Level::None => "L0",
            Level::Limits => "L1",
            Level::Kernel => "L2",
            Level::Full => "L3",
        })
    }
}

/// The strongest level that works here, and why no stronger one does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The level.
    pub level: Level,
    /// For each stronger level, why it does not work.
    pub missing: Vec<(Level, String)>,
    /// The bubblewrap that the level needs here, if any.
    pub bubblewrap: Option<PathBuf>,
}
