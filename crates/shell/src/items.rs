//! The parts of a command, as `parse` finds them.

use super::word::Word;

/// A part of a command. They come in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    /// A program or a built-in with its arguments.
    Simple(Simple),
    /// A variable is set, for the shell or for one command.
    Set(Assignment),
    /// A file is opened.
    Redirect(Redirect),
    /// Something that cannot be analysed, and why.
    Opaque(String),
}

/// A simple command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Simple {
    /// The program and its arguments.
    pub(crate) words: Vec<Word>,
    /// The words of the command whose output is piped into it.
    pub(crate) piped_from: Option<Vec<Word>>,
    /// Whether it has input: from a pipe, a file or a here-document.
    pub(crate) has_input: bool,
}

impl Simple {
    /// Makes a command with these words and no input.
    pub(crate) fn new(words: Vec<Word>) -> Simple {
        Simple { words, piped_from: None, has_input: false }
    }
}

/// A variable that is set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    /// Its name.
    pub(crate) name: String,
    /// What it is set to.
    pub(crate) value: Word,
    /// Whether it is set in the environment of one command only.
    pub(crate) is_environment: bool,
}

/// A file that the shell opens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Redirect {
    /// Whether it is written to.
    pub(crate) writes: bool,
    /// Which file.
    pub(crate) target: Word,
}
