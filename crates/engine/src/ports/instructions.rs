//! What the user and the project want the model to know. Files are found and read outside.

use std::path::PathBuf;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde::{Deserialize, Serialize};

/// How many bytes of one instruction file the model gets.
pub const MAX_INSTRUCTION_FILE: usize = 32 * 1024;

/// Finds the instructions of the user and the project.
pub trait InstructionSource: Send + Sync {
    /// Finds what applies from the beginning. Asked when a session first needs it, and after a compaction.
    fn find(&self) -> BoxFuture<'_, Instructions>;

    /// Returns the instruction files of the directories that these paths are in, below those of [`InstructionSource::find`],
    /// the outermost first.
    fn find_for<'a>(&'a self, paths: &'a [PathBuf]) -> BoxFuture<'a, Vec<InstructionFile>>;
}

/// No instructions. For sessions without files.
#[derive(Debug, Default)]
pub struct NoInstructions;

impl InstructionSource for NoInstructions {
    fn find(&self) -> BoxFuture<'_, Instructions> {
        future::ready(Instructions::default()).boxed()
    }

    fn find_for<'a>(&'a self, _: &'a [PathBuf]) -> BoxFuture<'a, Vec<InstructionFile>> {
        future::ready(Vec::new()).boxed()
    }
}

/// What applies from the beginning of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// The git branch of the working directory.
    pub branch: Option<String>,
    /// Operating system and processor.
    pub platform: String,
    /// The files and directories in the working directory, directories with `/` at the end.
    pub names: Vec<String>,
    /// Instruction files, the most general first.
    pub files: Vec<InstructionFile>,
    /// The skills that can be loaded.
    pub skills: Vec<Skill>,
}

/// An instruction file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionFile {
    /// Where it was found.
    pub origin: String,
    /// Its text, as far as it was read.
    pub text: String,
    /// The size of the file, in bytes.
    pub size: u64,
}

/// A skill that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Where it was found.
    pub origin: String,
    /// Its size, in bytes.
    pub size: u64,
}
