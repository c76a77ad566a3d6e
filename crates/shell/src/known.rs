//! What a command reads, if it only reads.

use super::recursive_reads::Walk;
use super::word::Word;

/// What a command reads that only reads.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The files that its arguments name.
    pub(crate) reads: Vec<Word>,
    /// The directories that it reads recursively.
    pub(crate) walks: Vec<Walk>,
}

impl Known {
    /// Makes a command that reads these files.
    pub(crate) fn reading(reads: impl IntoIterator<Item = Word>) -> Known {
        Known { reads: reads.into_iter().collect(), walks: Vec::new() }
    }
}
