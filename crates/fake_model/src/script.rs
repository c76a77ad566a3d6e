//! The script of a fake model: one answer per request, one step per line.

use serde_json::Value;

/// The steps of the answer to one request.
pub type Answer = Vec<Step>;

/// One line of a script.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Answers with this status instead of 200, and with the text of `body`.
    Status(u16),
    /// Sends a header.
    Header(String, String),
    /// Sends this as the whole body.
    Body(String),
    /// Sends a chunk of text.
    Text(String),
    /// Starts an event with a chunk of text and stops in the middle of it.
    Torn(String),
    /// Sends a chunk of text this many times; `{n}` in it becomes the number.
    Chunks(usize, String),
    /// Sends a chunk of a thought.
    Thought(String),
    /// Ends a thought with a signature.
    Signature(String),
    /// Calls a tool.
    Tool {
        /// The tool.
        name: String,
        /// Its input.
        input: Value,
    },
    /// Calls a tool with arguments that are sent as they are, valid or not.
    RawTool {
        /// The tool.
        name: String,
        /// What is sent as its input.
        arguments: String,
    },
    /// Starts a tool call, sends this part of its arguments and never ends it.
    OpenTool {
        /// The tool.
        name: String,
        /// What is sent as its input.
        arguments: String,
    },
    /// Reports tokens: input, output, cache read, cache write.
    Usage([u64; 4]),
    /// Ends the answer with this stop reason instead of the usual one.
    Stop(String),
    /// Sends an error event inside the stream.
    Error {
        /// The kind, in the format's own word.
        kind: String,
        /// The message for people.
        message: String,
    },
    /// Waits this many milliseconds.
    Wait(u64),
    /// Sends nothing more and leaves the connection open. As the first step, not even headers are sent.
    Hang,
    /// Closes the connection. As the first step, not even headers are sent.
    Cut,
    /// Ends the body without the end that the format requires.
    End,
    /// Sends these bytes.
    Raw(Vec<u8>),
    /// Sends one event with this many bytes of data.
    Flood(usize),
    /// Sends gzip data that unpacks to this many bytes.
    Bomb(usize),
    /// Sends the following steps in network writes of this many bytes.
    Slice(usize),
    /// The answer is only for a request that contains this text.
    When(String),
}

/// Reads a script, see [`crate::parse`].
pub(crate) fn parse(text: &str) -> Result<Script, String> {
    let mut script = Script::default();
    let mut answer = Answer::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        match line {
            "" => {}
            "---" => script.answers.push(std::mem::take(&mut answer)),
            "loop" => script.is_endless = true,
            line if line.starts_with("side ") => {
                let text = serde_json::from_str(line[5..].trim());
                script.side = Some(text.map_err(|err| format!("line {}: {err}", index + 1))?);
            }
            line if line.starts_with("document ") => {
                let document =
                    document(line).map_err(|why| format!("line {}: {why}", index + 1))?;
                script.documents.push(document);
            }
            comment if comment.starts_with('#') => {}
            line => answer.push(step(line).map_err(|why| format!("line {}: {why}", index + 1))?),
        }
    }
    if !answer.is_empty() {
        script.answers.push(answer);
    }
    Ok(script)
}

/// A whole script.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// One per request, in order.
    pub answers: Vec<Answer>,
    /// Whether the script restarts after its last answer.
    pub is_endless: bool,
    /// What other paths answer.
    pub documents: Vec<Document>,
    /// The text for requests without tools, such as those for a title, and for requests that no answer is for.
    pub side: Option<String>,
}

/// What a path answers that is not the model's.
#[derive(Debug, Clone)]
pub struct Document {
    /// How the path ends.
    pub path: String,
    /// The status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// Reads a line `document /PATH STATUS [NAME: VALUE] {…}`.
fn document(line: &str) -> Result<Document, String> {
    let form = "a document is `document /PATH STATUS [NAME: VALUE] {…}`";
    let mut words = line.splitn(4, ' ').skip(1);
    let (Some(path), Some(status), Some(rest)) = (words.next(), words.next(), words.next()) else {
        return Err(form.to_owned());
    };
    let at = rest.find('{').ok_or(form)?;
    let header = rest[..at].trim().split_once(':');
    let header = header.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    Ok(Document {
        path: path.to_owned(),
        status: status.parse().map_err(|_| form.to_owned())?,
        headers: header.into_iter().collect(),
        body: rest[at..].to_owned(),
    })
}

fn step(line: &str) -> Result<Step, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let text = |rest: &str| {
        serde_json::from_str::<String>(rest).map_err(|_| format!("`{rest}` is not a JSON string"))
    };
    let number = |rest: &str| rest.parse::<u64>().map_err(|_| format!("`{rest}` is not a number"));
    let named = |rest: &str| {
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, "{}"));
        (name.to_owned(), rest.trim().to_owned())
    };
    Ok(match word {
        "status" => Step::Status(number(rest)? as u16),
        "header" => {
            let (name, value) = rest.split_once(':').ok_or("a header is `name: value`")?;
            Step::Header(name.trim().to_owned(), value.trim().to_owned())
        }
        "body" => Step::Body(text(rest)?),
        "text" => Step::Text(text(rest)?),
        "torn" => Step::Torn(text(rest)?),
        "chunks" => {
            let (count, chunk) = rest.split_once(' ').ok_or("chunks COUNT \"text\"")?;
            Step::Chunks(number(count)? as usize, text(chunk)?)
        }
        "thought" => Step::Thought(text(rest)?),
        "signature" => Step::Signature(text(rest)?),
        "tool" => {
            let (name, input) = named(rest);
            let input = serde_json::from_str(&input).map_err(|err| err.to_string())?;
            Step::Tool { name, input }
        }
        "raw-tool" => {
            let (name, arguments) = named(rest);
            Step::RawTool { name, arguments: text(&arguments)? }
        }
        "open-tool" => {
            let (name, arguments) = named(rest);
            Step::OpenTool { name, arguments: text(&arguments)? }
        }
        "usage" => {
            let mut counts = [0; 4];
            for (count, word) in counts.iter_mut().zip(rest.split_whitespace()) {
                *count = number(word)?;
            }
            Step::Usage(counts)
        }
        "stop" => Step::Stop(rest.to_owned()),
        "error" => {
            let (kind, message) = rest.split_once(' ').ok_or("error KIND \"message\"")?;
            Step::Error { kind: kind.to_owned(), message: text(message)? }
        }
        "wait" => Step::Wait(number(rest)?),
        "hang" => Step::Hang,
        "cut" => Step::Cut,
        "end" => Step::End,
        "raw" => Step::Raw(text(rest)?.into_bytes()),
        "bytes" => Step::Raw(
            rest.split_whitespace()
                .map(|byte| u8::from_str_radix(byte, 16).map_err(|err| err.to_string()))
                .collect::<Result<_, _>>()?,
        ),
        "flood" => Step::Flood(number(rest)? as usize),
        "bomb" => Step::Bomb(number(rest)? as usize),
        "when" => Step::When(text(rest)?),
        "slice" => Step::Slice(number(rest)?.max(1) as usize),
        word => return Err(format!("`{word}` is not a step")),
    })
}
