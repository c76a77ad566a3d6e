//! The scripted client: replays a transcript against an agent and reports every difference.
//!
//! `script::player` sends and receives, `script::loose` adds what agents of unknown wording need, `script::compare` and
//! `script::names` decide whether messages are equal, and `script::program` starts an agent in a new directory. For the
//! format see `transcript`.

mod checks;
mod compare;
mod loose;
mod names;
mod player;
mod program;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::transcript::{Transcript, TranscriptLine};

pub use names::repeated;
#[cfg(test)]
pub(crate) use program::temp_dir;
pub use program::{ProgramSetup, play_program, play_program_with};

/// How patient the player is.
#[derive(Debug, Clone)]
pub struct PlayOptions {
    /// How long to wait for an expected message.
    pub wait: Duration,
    /// How long a loose transcript waits at its end for messages that must not come.
    pub linger: Duration,
    /// Values with a name; `"$NAME"` stands for them, as after a `let` line.
    pub values: Vec<(String, Value)>,
}

impl Default for PlayOptions {
    fn default() -> PlayOptions {
        let linger = Duration::from_millis(100);
        PlayOptions { wait: Duration::from_secs(20), linger, values: Vec::new() }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Since the start.
    pub at: Duration,
    /// Whether the agent sent it.
    pub from_agent: bool,
    /// The message; a line that is not JSON is a string.
    pub message: Value,
}

/// Why a loose transcript was not played to its end.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// How many lines were played.
    pub index: usize,
    /// The reason, a sentence.
    pub reason: String,
    /// Whether the rest does not apply to this agent. Otherwise it could not be tried.
    pub is_inapplicable: bool,
}

/// The result of replaying a transcript.
#[derive(Debug, Default)]
pub struct Replay {
    /// The differences, in order.
    pub failures: Vec<Failure>,
    /// Every message of the agent, unchanged; a line that is not JSON is a string.
    pub seen: Vec<Value>,
    /// The transcript with its `<` lines rewritten to what was received. Matching lines and lines of used files stay.
    pub updated: String,
    /// The exit code that the transcript expects. [`play_program`] checks it; after [`play`] the caller can.
    pub exit: Option<i32>,
    /// The last output of the agent on stderr, if it was started by [`play_program`].
    pub stderr: String,
    /// Both sides of the conversation.
    pub log: Vec<LogEntry>,
    /// Why the rest of a loose transcript was not played.
    pub stopped: Option<Stopped>,
}

/// One difference between the transcript and what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The name of the used file that the line is from; `None` for the transcript itself.
    pub file: Option<String>,
    /// The line, counting from 1; for surplus output the last line before it.
    pub line: usize,
    /// A sentence that describes the difference.
    pub reason: String,
    /// What the line expects.
    pub expected: Option<String>,
    /// What was received instead.
    pub got: Option<String>,
    /// The row of a catalogue that the line shows.
    pub row: Option<String>,
    /// How many messages of the conversation had been exchanged.
    pub log_length: usize,
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
    fn at(line: Option<&TranscriptLine>, reason: impl Into<String>) -> Failure {
        Failure {
            file: line.and_then(|line| line.file.clone()),
            line: line.map_or(0, |line| line.number),
            reason: reason.into(),
            expected: None,
            got: None,
            row: line.and_then(|line| line.row.clone()),
            log_length: 0,
        }
    }
}

impl Replay {
    /// Returns whether there were no differences.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// Returns all failures as text, with the agent's last output on stderr.
    #[must_use]
    pub fn report(&self) -> String {
        let failures: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        match self.stderr.trim_end() {
            "" => failures.join("\n"),
            stderr => format!("{}\nThe agent's last output:\n{stderr}", failures.join("\n")),
        }
    }
}

/// Replays a transcript against the agent at the other end of a pair of pipes. `directory` stands for `/w`.
///
/// After the last line the agent's input is closed, and the agent must close its output. Files and the exit code are not
/// checked; see [`play_program`].
pub async fn play(
    transcript: &Transcript,
    directory: &Path,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> Replay {
    let options = PlayOptions::default();
    player::Player::new(transcript, options, directory, input, output).play().await
}

#[cfg(test)]
mod tests;
