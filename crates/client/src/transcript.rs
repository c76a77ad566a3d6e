//! Transcripts: conversations written down as they must happen. This is the reader of the format.
//!
//! Pure: `use` lines are resolved by a function of the caller. The format is described in
//! `conformance/README.md`; `script` plays what is read here. `model` lines are kept as they are, for the
//! scripted model of the agent under test.

use std::path::Path;

use serde_json::Value;

use crate::error::Error;

/// How deep `use` lines may nest; a file that uses itself ends here.
const MAX_DEPTH: usize = 8;

/// A transcript, with the lines of the files that it uses in their places.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    lines: Vec<Line>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The name of the used file that the line is from; `None` for the transcript itself.
    pub file: Option<String>,
    /// The number in that file, counting from 1.
    pub number: usize,
    /// The line as it is written.
    pub text: String,
    /// What it means.
    pub step: Step,
}

/// What a line means.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A comment or a blank line.
    Comment,
    /// A tag.
    Tag(String),
    /// The lines of another file follow.
    Use(String),
    /// The agent's configuration.
    Config(Value),
    /// A file of the working folder and its text.
    File {
        /// Begins with `/w/`.
        path: String,
        /// What is or must be in it.
        text: String,
        /// Whether it is put there before, or looked at afterwards.
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
    /// The agent must end with this code.
    Exit(i32),
}

/// When a file counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It exists before the first message.
    Before,
    /// It has this text after the last message.
    After,
}

impl Transcript {
    /// Reads a transcript. `load` returns the text of `conformance/NAME.acp` for a line `use NAME`.
    ///
    /// # Errors
    /// Names the line that cannot be read, and the used file it is in.
    pub fn parse(text: &str, load: &dyn Fn(&str) -> Option<String>) -> Result<Transcript, Error> {
        let mut lines = Vec::new();
        read_file(None, text, load, 0, &mut lines)?;
        place_files(&mut lines)?;
        check_order(&lines)?;
        Ok(Transcript { lines })
    }

    /// Returns all lines, those of used files after their `use` line.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Tells whether the transcript has a tag.
    #[must_use]
    pub fn has_tag(&self, name: &str) -> bool {
        self.lines.iter().any(|line| matches!(&line.step, Step::Tag(tag) if tag == name))
    }

    /// Returns the agent's configuration; the last one counts.
    #[must_use]
    pub fn config(&self) -> Option<&Value> {
        self.lines.iter().rev().find_map(|line| match &line.step {
            Step::Config(config) => Some(config),
            _ => None,
        })
    }

    /// Returns the code that the agent must end with, where the transcript says so.
    #[must_use]
    pub fn exit(&self) -> Option<i32> {
        self.lines.iter().rev().find_map(|line| match line.step {
            Step::Exit(code) => Some(code),
            _ => None,
        })
    }

    /// Returns the paths and texts of the files that count then, with the line that says so.
    pub fn files(&self, then: When) -> impl Iterator<Item = (&Line, &str, &str)> {
        self.lines.iter().filter_map(move |line| match &line.step {
            Step::File { path, text, when } if *when == then => Some((line, &**path, &**text)),
            _ => None,
        })
    }

    /// Returns the lines for the scripted model as they are written, without the word `model`.
    pub fn model_lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match &line.step {
            Step::Model(text) => Some(&**text),
            _ => None,
        })
    }

    /// Returns the whole transcript for the scripted model: used files in their places, and in `model` lines
    /// the real working folder instead of `/w`. The other lines stay, since they end an answer.
    #[must_use]
    pub fn script(&self, folder: &Path) -> String {
        let folder = json_text(&folder.to_string_lossy());
        let mut script = String::new();
        for line in &self.lines {
            match &line.step {
                Step::Use(_) => continue,
                Step::Model(_) => script.push_str(&place_in_strings(&line.text, &folder)),
                _ => script.push_str(&line.text),
            }
            script.push('\n');
        }
        script
    }
}

/// The inside of a JSON string.
fn json_text(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Puts the folder where a string starts with `/w`.
fn place_in_strings(line: &str, folder: &str) -> String {
    line.replace("\"/w/", &format!("\"{folder}/")).replace("\"/w\"", &format!("\"{folder}\""))
}

fn read_file(
    file: Option<&str>,
    text: &str,
    load: &dyn Fn(&str) -> Option<String>,
    depth: usize,
    lines: &mut Vec<Line>,
) -> Result<(), Error> {
    for (index, text) in text.lines().enumerate() {
        let file = file.map(str::to_owned);
        let number = index + 1;
        let bad = |reason| Error::BadTranscript { file: file.clone(), line: number, reason };
        let step = read_step(text).map_err(&bad)?;
        let used = match &step {
            Step::Use(name) if depth == MAX_DEPTH => {
                return Err(bad(format!("'use {name}' nests too deep")));
            }
            Step::Use(name) => {
                let no_file = || bad(format!("there is no file {name}.acp to use"));
                Some((name.clone(), load(name).ok_or_else(no_file)?))
            }
            _ => None,
        };
        lines.push(Line { file, number, text: text.to_owned(), step });
        if let Some((name, text)) = used {
            read_file(Some(&name), &text, load, depth + 1, lines)?;
        }
    }
    Ok(())
}

fn read_step(text: &str) -> Result<Step, String> {
    if let Some(raw) = text.strip_prefix(">!") {
        let raw = raw.strip_prefix(' ').unwrap_or(raw);
        return unescape(raw).map(Step::SendRaw);
    }
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(Step::Comment);
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim_start();
    match word {
        ">" => read_object(rest).map(Step::Send),
        "<" => read_object(rest).map(Step::Expect),
        "tag" => read_word(rest).map(Step::Tag),
        "use" => read_word(rest).map(Step::Use),
        "config" => read_object(rest).map(Step::Config),
        "fs" => read_fs(rest),
        "model" if rest.is_empty() => Err("'model' needs something to say".to_owned()),
        "model" => Ok(Step::Model(rest.to_owned())),
        "eof" if rest.is_empty() => Ok(Step::Eof),
        "exit" => {
            let code = rest.parse().map_err(|_| "'exit' needs a number".to_owned())?;
            Ok(Step::Exit(code))
        }
        _ => Err(format!("'{word}' starts no line of a transcript")),
    }
}

fn read_object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("an object is needed here".to_owned()),
        Err(err) => Err(format!("this is not JSON: {err}")),
    }
}

fn read_word(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err("one word is needed here".to_owned());
    }
    Ok(text.to_owned())
}

fn read_fs(rest: &str) -> Result<Step, String> {
    let (path, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if !path.starts_with("/w/") || path.split('/').any(|part| part == "..") {
        return Err("the path of a file starts with /w/".to_owned());
    }
    let text = serde_json::from_str(text.trim())
        .map_err(|_| "the text of a file is a JSON string".to_owned())?;
    // When it counts is known when all lines are.
    Ok(Step::File { path: path.to_owned(), text, when: When::Before })
}

/// Reads the escapes of a `>!` line.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let Some((escape, tail)) = rest.split_first() else {
            return Err("a lone backslash; write \\\\".to_owned());
        };
        rest = tail;
        bytes.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            b'\\' => b'\\',
            b'x' => {
                let digits = rest.get(..2).and_then(|digits| str::from_utf8(digits).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                rest = rest.get(2..).unwrap_or_default();
                byte.ok_or("'\\x' needs two hexadecimal digits")?
            }
            other => return Err(format!("'\\{}' is no escape", char::from(*other))),
        });
    }
    Ok(bytes)
}

fn is_message(step: &Step) -> bool {
    matches!(step, Step::Send(_) | Step::SendRaw(_) | Step::Expect(_))
}

/// Decides for each `fs` line whether it stands before or after the conversation.
fn place_files(lines: &mut [Line]) -> Result<(), Error> {
    let last = lines.iter().rposition(|line| is_message(&line.step));
    // A used handshake may come first: it does not look at files.
    let first = lines.iter().position(|line| line.file.is_none() && is_message(&line.step));
    for (index, line) in lines.iter_mut().enumerate() {
        let Step::File { when, .. } = &mut line.step else { continue };
        if last.is_some_and(|last| index > last) {
            *when = When::After;
        } else if first.is_some_and(|first| index > first) {
            let reason = "'fs' stands before the first message or after the last".to_owned();
            return Err(Error::BadTranscript {
                file: line.file.clone(),
                line: line.number,
                reason,
            });
        }
    }
    Ok(())
}

fn check_order(lines: &[Line]) -> Result<(), Error> {
    let mut is_closed = false;
    for line in lines {
        match line.step {
            Step::Eof => is_closed = true,
            Step::Send(_) | Step::SendRaw(_) if is_closed => {
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
