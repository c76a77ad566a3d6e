//! The script of a fake model: an answer per request, a step per line.

use serde_json::Value;

/// What is done for one request.
pub(crate) type Answer = Vec<Step>;

/// One line of a script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Answers with this status instead of 200; what follows as `body` is its body.
    Status(u16),
    /// Sends a header.
    Header(String, String),
    /// Sends this as the whole body.
    Body(String),
    /// Says a piece of text.
    Text(String),
    /// Begins an event that says a piece of text, and leaves it inside that.
    Torn(String),
    /// Says the same piece of text so many times.
    Chunks(usize, String),
    /// Thinks aloud.
    Thought(String),
    /// Ends a thought with a signature.
    Signature(String),
    /// Asks for a tool.
    Tool { name: String, input: Value },
    /// Asks for a tool with arguments that are sent as they stand.
    RawTool { name: String, arguments: String },
    /// Begins a tool call and sends only so much of its arguments.
    OpenTool { name: String, arguments: String },
    /// Counts tokens: input, output, cache read, cache write.
    Usage([u64; 4]),
    /// Says why it stops; without this line the reason is the ordinary one.
    Stop(String),
    /// Sends an error event inside the stream.
    Error { kind: String, message: String },
    /// Sends nothing for so many milliseconds.
    Wait(u64),
    /// Sends nothing ever again and keeps the connection. As a first step, not even headers are sent.
    Hang,
    /// Closes the connection here. As a first step, not even headers are sent.
    Cut,
    /// Ends the body here, as if it were whole.
    End,
    /// Sends these bytes.
    Raw(Vec<u8>),
    /// Sends one event with so many bytes of data.
    Flood(usize),
    /// Packs the body with gzip's own header, as a bomb of so many bytes.
    Bomb(usize),
    /// Sends the next steps in network writes of so many bytes.
    Slice(usize),
}

/// Reads a script. Answers are parted by lines of `---`; a last line `loop` begins again behind the last answer.
pub(crate) fn parse(text: &str) -> Result<Script, String> {
    let mut script = Script::default();
    let mut answer = Answer::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        match line {
            "" => {}
            "---" => script.answers.push(std::mem::take(&mut answer)),
            "loop" => script.is_endless = true,
            comment if comment.starts_with('#') => {}
            line => answer.push(step(line).map_err(|why| format!("line {}: {why}", index + 1))?),
        }
    }
    if !answer.is_empty() {
        script.answers.push(answer);
    }
    Ok(script)
}

/// All answers of a script.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) answers: Vec<Answer>,
    pub(crate) is_endless: bool,
}

fn step(line: &str) -> Result<Step, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let text = |rest: &str| {
        serde_json::from_str::<String>(rest).map_err(|_| format!("{rest} is no text in quotes"))
    };
    let number = |rest: &str| rest.parse::<u64>().map_err(|_| format!("{rest} is no number"));
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
            let (count, piece) = rest.split_once(' ').ok_or("chunks COUNT \"text\"")?;
            Step::Chunks(number(count)? as usize, text(piece)?)
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
        "slice" => Step::Slice(number(rest)?.max(1) as usize),
        word => return Err(format!("`{word}` is no step")),
    })
}
