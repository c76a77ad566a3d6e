//! The scripted client: plays a transcript against an agent and tells what did not happen as written.
//!
//! `script::player` does the talking, `script::compare` and `script::names` decide what is the same,
//! `script::program` starts an agent in a fresh folder for it. For the format see `transcript`.

mod compare;
mod names;
mod player;
mod program;

use std::fmt;
use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::transcript::{Line, Transcript};

#[cfg(test)]
pub(crate) use program::TempFolder;
pub use program::{Stage, play_program};

/// What came of playing a transcript.
#[derive(Debug)]
pub struct Played {
    /// What did not happen as written, in order.
    pub failures: Vec<Failure>,
    /// Every message of the agent as it came; a line that is not JSON is a string.
    pub seen: Vec<Value>,
    /// The transcript with its `<` lines rewritten to what came. Lines that fit, and lines of used files, stay.
    pub updated: String,
    /// The code that the agent must end with; [`play_program`] has checked it, after [`play`] the caller may.
    pub exit: Option<i32>,
    /// The end of what the agent wrote to its error output, if it was started by [`play_program`].
    pub stderr: String,
}

/// One thing that did not happen as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The name of the used file that the line is from; `None` for the transcript itself.
    pub file: Option<String>,
    /// The line, counting from 1; for surplus output the last line before it.
    pub line: usize,
    /// What is wrong, in a sentence.
    pub reason: String,
    /// What the line says.
    pub expected: Option<String>,
    /// What came in its place.
    pub got: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(out, "{file}, ")?;
        }
        write!(out, "line {}: {}", self.line, self.reason)?;
        if let Some(expected) = &self.expected {
            write!(out, "\n  expected {expected}")?;
        }
        if let Some(got) = &self.got {
            write!(out, "\n  got      {got}")?;
        }
        Ok(())
    }
}

impl Failure {
    fn at(line: Option<&Line>, reason: impl Into<String>) -> Failure {
        Failure {
            file: line.and_then(|line| line.file.clone()),
            line: line.map_or(0, |line| line.number),
            reason: reason.into(),
            expected: None,
            got: None,
        }
    }
}

impl Played {
    /// Tells whether all happened as written.
    #[must_use]
    pub fn is_as_written(&self) -> bool {
        self.failures.is_empty()
    }

    /// Returns all failures as text, with what the agent wrote to its error output.
    #[must_use]
    pub fn report(&self) -> String {
        let failures: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        match self.stderr.trim_end() {
            "" => failures.join("\n"),
            stderr => format!("{}\nThe agent last said:\n{stderr}", failures.join("\n")),
        }
    }
}

/// Plays a transcript against the agent at the other end of a pair of pipes. `folder` is what it calls `/w`.
///
/// After the last line the agent's input is closed, and the agent must close its output. Files and the exit
/// code are not looked at; see [`play_program`].
pub async fn play(
    transcript: &Transcript,
    folder: &Path,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> Played {
    player::Player::new(transcript, folder, input, output).play().await
}

#[cfg(test)]
mod tests;
