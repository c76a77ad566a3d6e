//! What a command is made of, as `parse` finds it.

use super::word::Word;

/// What a command is made of, in the order in which it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    /// A program or a built-in with its arguments.
    Simple(Simple),
    /// A variable is set, for the shell or for one command.
    Set(Assignment),
    /// A file is opened.
    Redirect(Redirect),
    /// Something that is not understood, and why.
    Unclear(String),
}

/// A simple command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Simple {
    /// The program and its arguments.
    pub(crate) words: Vec<Word>,
    /// The command whose output it reads, as a pipe: its words.
    pub(crate) fed_by: Option<Vec<Word>>,
    /// Whether it is given input: by a pipe, a file or a text that follows it.
    pub(crate) is_fed: bool,
}

impl Simple {
    /// A command with these words, which is given nothing.
    pub(crate) fn new(words: Vec<Word>) -> Simple {
        Simple { words, fed_by: None, is_fed: false }
    }
}

/// A variable that is set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    /// Its name.
    pub(crate) name: String,
    /// What it is set to.
    pub(crate) value: Word,
    /// Whether it is put into the environment of one command.
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
