//! Transcripts: conversations in a text format, as they must happen. This module parses the format.
//!
//! Pure: a function of the caller resolves `use` lines. The format is described in `conformance/README.md`; `script`
//! replays transcripts. `model` lines are not parsed: they are for the scripted model of the agent under test.

mod read;

use std::path::Path;

use serde_json::Value;

use crate::error::Error;

/// How deep `use` lines may nest. Stops a file that uses itself.
const MAX_DEPTH: usize = 8;

/// A transcript, with the lines of the files that it uses included.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    lines: Vec<TranscriptLine>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptLine {
    /// The name of the used file that the line is from; `None` for the transcript itself.
    pub file: Option<String>,
    /// The number in that file, counting from 1.
    pub number: usize,
    /// The line as it is written.
    pub text: String,
    /// Its meaning.
    pub step: TranscriptStep,
    /// The row of a catalogue that the line shows: that of the last `row` line.
    pub row: Option<String>,
}

/// The meaning of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum TranscriptStep {
    /// A comment or a blank line.
    Comment,
    /// A tag.
    Tag(String),
    /// The lines of another file follow.
    Use(String),
    /// The agent's configuration.
    Config(Value),
    /// A file in the working directory and its content.
    File {
        /// Begins with `/w/`.
        path: String,
        /// Its content.
        text: String,
        /// Whether it is created before the conversation or checked after it.
        when: When,
    },
    /// A line for the scripted model, without the word `model`.
    Model(String),
    /// The client sends this message.
    Send(Value),
    /// The client sends these bytes as a line.
    SendRaw(Vec<u8>),
    /// The agent must send this message.
    Expect(Value),
    /// The client closes the agent's input.
    Eof,
    /// The agent must exit with this code; `None` for any code.
    Exit(Option<i32>),
    /// The following lines show this row of a catalogue.
    Row(String),
    /// The rest applies only to agents whose reply to a call has this value.
    Needs(ReplyValue),
    /// Names a value of a reply. `"$NAME"` stands for it in later messages.
    Let(String, ReplyValue),
    /// From here on, the agent must not send such a message.
    Never(Value),
    /// The agent must have sent such a message since the client last sent one.
    Seen(Value),
    /// The agent's text since the client last sent something must contain this.
    Says(String),
    /// The client waits this many milliseconds.
    Quiet(u64),
    /// The next expected message must be received within this many milliseconds.
    Within(u64),
    /// The client serves the call that was expected last, as it serves unexpected ones.
    Serve,
    /// How the client answers permission requests from here on.
    Policy(PermissionPolicy),
    /// The client answers the call that was expected last with an error.
    Refuse,
    /// The call with this id must be answered by now or soon (true), or must not be (false).
    Answered(Value, bool),
    /// At most this many such messages since the client last sent one.
    AtMost(usize, Value),
    /// No tool call since the client last sent something is still pending or in progress.
    Closed,
    /// A file of the working directory must come to contain this text.
    Wrote(String, String),
    /// A file of the working directory must not exist.
    Absent(String),
    /// The agent is killed and started again.
    Kill,
    /// The agent's input is closed; it is started again when it has exited.
    Restart,
    /// The agent gets SIGTERM.
    Term,
    /// The client sends a message this many times; `{n}` in it is the number.
    Flood(usize, String),
}

/// A value in the reply to a call of the client.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyValue {
    /// The id of the call.
    pub call: Value,
    /// Where the value is in the result: a JSON pointer.
    pub pointer: String,
}

/// How the client answers permission requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionPolicy {
    /// Chooses the option of this kind, such as `allow_once`; without one, an option of the same direction.
    Choose(&'static str),
    /// Answers that the turn was cancelled.
    Cancelled,
    /// Answers with an error.
    Fail,
    /// Does not answer.
    Hold,
}

/// When a file is created or checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It is created before the first message.
    Before,
    /// It must have this content after the last message.
    After,
}

impl Transcript {
    /// Reads a transcript. `load` returns the text of `conformance/NAME.acp` for a line `use NAME`.
    ///
    /// # Errors
    /// Names the invalid line and its file.
    pub fn parse(text: &str, load: &dyn Fn(&str) -> Option<String>) -> Result<Transcript, Error> {
        let mut lines = Vec::new();
        read_file(None, text, load, 0, &mut lines)?;
        set_file_times(&mut lines)?;
        check_order(&lines)?;
        set_rows(&mut lines);
        Ok(Transcript { lines })
    }

    /// Returns all lines, those of used files after their `use` line.
    #[must_use]
    pub fn lines(&self) -> &[TranscriptLine] {
        &self.lines
    }

    /// Returns whether the transcript has a tag.
    #[must_use]
    pub fn has_tag(&self, name: &str) -> bool {
        self.lines.iter().any(|line| matches!(&line.step, TranscriptStep::Tag(tag) if tag == name))
    }

    /// Returns the agent's configuration. The last one applies.
    #[must_use]
    pub fn config(&self) -> Option<&Value> {
        self.lines.iter().rev().find_map(|line| match &line.step {
            TranscriptStep::Config(config) => Some(config),
            _ => None,
        })
    }

    /// Returns the expected exit code, if the transcript has one.
    #[must_use]
    pub fn exit(&self) -> Option<i32> {
        self.lines.iter().rev().find_map(|line| match line.step {
            TranscriptStep::Exit(code) => code,
            _ => None,
        })
    }

    /// Returns whether the exit of the agent is checked. A loose transcript says so itself.
    #[must_use]
    pub fn must_exit(&self) -> bool {
        let has_exit = self.lines.iter().any(|line| matches!(line.step, TranscriptStep::Exit(_)));
        has_exit || !self.has_tag("loose")
    }

    /// Returns the paths and contents of the files of that time, with their lines.
    pub fn files(&self, then: When) -> impl Iterator<Item = (&TranscriptLine, &str, &str)> {
        self.lines.iter().filter_map(move |line| match &line.step {
            TranscriptStep::File { path, text, when } if *when == then => {
                Some((line, &**path, &**text))
            }
            _ => None,
        })
    }

    /// Returns the lines for the scripted model as they are written, without the word `model`.
    pub fn model_lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match &line.step {
            TranscriptStep::Model(text) => Some(&**text),
            _ => None,
        })
    }

    /// Returns the whole transcript for the scripted model: with used files included, and the real working directory instead
    /// of `/w` in `model` lines. The other lines stay, because they mark the end of an answer.
    #[must_use]
    pub fn script(&self, directory: &Path) -> String {
        let directory = json_text(&directory.to_string_lossy());
        let mut script = String::new();
        for line in &self.lines {
            match &line.step {
                TranscriptStep::Use(_) => continue,
                TranscriptStep::Model(_) => {
                    script.push_str(&replace_working_directory(&line.text, &directory))
                }
                _ => script.push_str(&line.text),
            }
            script.push('\n');
        }
        script
    }
}

/// Escapes a string for JSON, without the quotes.
fn json_text(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Replaces `/w` at the start of a JSON string by the real directory.
fn replace_working_directory(line: &str, directory: &str) -> String {
    line.replace("\"/w/", &format!("\"{directory}/")).replace("\"/w\"", &format!("\"{directory}\""))
}

fn read_file(
    file: Option<&str>,
    text: &str,
    load: &dyn Fn(&str) -> Option<String>,
    depth: usize,
    lines: &mut Vec<TranscriptLine>,
) -> Result<(), Error> {
    for (index, text) in text.lines().enumerate() {
        let file = file.map(str::to_owned);
        let number = index + 1;
        let bad = |reason| Error::BadTranscript { file: file.clone(), line: number, reason };
        let step = read::step(text).map_err(&bad)?;
        let used = match &step {
            TranscriptStep::Use(name) if depth == MAX_DEPTH => {
                return Err(bad(format!("'use {name}' is nested too deeply")));
            }
            TranscriptStep::Use(name) => {
                let no_file = || bad(format!("{name}.acp not found"));
                Some((name.clone(), load(name).ok_or_else(no_file)?))
            }
            _ => None,
        };
        lines.push(TranscriptLine { file, number, text: text.to_owned(), step, row: None });
        if let Some((name, text)) = used {
            read_file(Some(&name), &text, load, depth + 1, lines)?;
        }
    }
    Ok(())
}

fn is_message(step: &TranscriptStep) -> bool {
    matches!(
        step,
        TranscriptStep::Send(_)
            | TranscriptStep::SendRaw(_)
            | TranscriptStep::Flood(..)
            | TranscriptStep::Expect(_)
    )
}

/// Gives each line the row that it shows.
fn set_rows(lines: &mut [TranscriptLine]) {
    let mut row = None;
    for line in lines {
        if let TranscriptStep::Row(id) = &line.step {
            row = Some(id.clone());
        }
        line.row.clone_from(&row);
    }
}

/// Decides for each `fs` line whether it is before or after the conversation.
fn set_file_times(lines: &mut [TranscriptLine]) -> Result<(), Error> {
    let last = lines.iter().rposition(|line| is_message(&line.step));
    // A used file with the handshake may come first: the handshake does not depend on files.
    let first = lines.iter().position(|line| line.file.is_none() && is_message(&line.step));
    for (index, line) in lines.iter_mut().enumerate() {
        let TranscriptStep::File { when, .. } = &mut line.step else { continue };
        if last.is_some_and(|last| index > last) {
            *when = When::After;
        } else if first.is_some_and(|first| index > first) {
            let reason = "'fs' must be before the first message or after the last".to_owned();
            return Err(Error::BadTranscript {
                file: line.file.clone(),
                line: line.number,
                reason,
            });
        }
    }
    Ok(())
}

fn check_order(lines: &[TranscriptLine]) -> Result<(), Error> {
    let mut is_closed = false;
    for line in lines {
        match line.step {
            TranscriptStep::Eof => is_closed = true,
            TranscriptStep::Send(_) | TranscriptStep::SendRaw(_) if is_closed => {
                let reason = "nothing can be sent after 'eof'".to_owned();
                return Err(Error::BadTranscript {
                    file: line.file.clone(),
                    line: line.number,
                    reason,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
