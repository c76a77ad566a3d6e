//! The player: sends what a transcript sends, awaits what it awaits.
//!
//! As long as all fits it never waits longer than it must. At the first message that does not fit it listens
//! until the agent is quiet, so that the whole of the block can be compared and rewritten at once.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use wire::line::{Line as WireLine, LineDecoder};

use super::compare::{self, Fate};
use super::names::Names;
use super::{Failure, Played};
use crate::connect::lenient_limits;
use crate::transcript::{Line, Step, Transcript};

/// How long a message is awaited, and how long once one did not come.
const PATIENCE: Duration = Duration::from_secs(20);
const LESS_PATIENCE: Duration = Duration::from_secs(2);

/// When nothing came for this long after a message that does not fit, no more is expected to come.
const QUIET: Duration = Duration::from_millis(300);

/// How long the agent has to close its output when its input is closed.
const CLOSING: Duration = Duration::from_secs(5);

pub(super) struct Player<'a, R, W> {
    transcript: &'a Transcript,
    names: Names,
    reader: Reader<R>,
    /// `None` once the agent's input is closed.
    writer: Option<W>,
    /// Messages that came and were not looked at yet, with their names.
    pending: VecDeque<Value>,
    /// A chunk whose text was expected to be anything: chunks that continue it belong to it.
    swallowing: Option<Value>,
    patience: Duration,
    played: Played,
    /// The lines of the rewritten transcript, and where surplus output at the end goes.
    updated: Vec<String>,
    end_of_talk: usize,
}

/// What came next.
enum Next {
    Message(Value),
    Ended,
    Silence,
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Player<'a, R, W> {
    pub(super) fn new(transcript: &'a Transcript, folder: &Path, input: R, output: W) -> Self {
        Player {
            transcript,
            names: Names::new(folder),
            reader: Reader::new(input),
            writer: Some(output),
            pending: VecDeque::new(),
            swallowing: None,
            patience: PATIENCE,
            played: Played {
                failures: Vec::new(),
                seen: Vec::new(),
                updated: String::new(),
                exit: transcript.exit(),
                stderr: String::new(),
            },
            updated: Vec::new(),
            end_of_talk: 0,
        }
    }

    pub(super) async fn play(mut self) -> Played {
        let lines = self.transcript.lines();
        let mut index = 0;
        while let Some(line) = lines.get(index) {
            match &line.step {
                Step::Expect(_) => {
                    let block = block_at(lines, index);
                    index += block.len();
                    self.expect_block(block).await;
                    continue;
                }
                Step::Send(message) => {
                    self.await_names(message).await;
                    let message = with_version(self.names.real(message));
                    self.send(line, format!("{message}\n").into_bytes()).await;
                }
                Step::SendRaw(bytes) => self.send(line, [bytes, &b"\n"[..]].concat()).await,
                Step::Eof => self.close().await,
                Step::Comment
                | Step::Tag(_)
                | Step::Use(_)
                | Step::Config(_)
                | Step::File { .. }
                | Step::Model(_)
                | Step::Exit(_) => {}
            }
            self.keep(line);
            index += 1;
        }
        self.close().await;
        self.refuse_surplus().await;
        self.played.updated = self.updated.iter().map(|line| format!("{line}\n")).collect();
        self.played
    }

    /// A message can name what nobody expected to come, so it may be on its way still.
    async fn await_names(&mut self, message: &Value) {
        while self.names.is_early(message) {
            let Ok(Some(raw)) = timeout(LESS_PATIENCE, self.reader.next()).await else { return };
            self.arrive(raw);
        }
    }

    /// Sends bytes, and reads meanwhile: an agent that waits for us to read would never read them.
    async fn send(&mut self, line: &Line, bytes: Vec<u8>) {
        let Some(mut writer) = self.writer.take() else { return };
        let sent = {
            let mut write = std::pin::pin!(write_all(&mut writer, &bytes));
            loop {
                tokio::select! {
                    sent = &mut write => break sent,
                    Some(message) = self.reader.next() => self.arrive(message),
                }
            }
        };
        match sent {
            Ok(()) => self.writer = Some(writer),
            Err(err) => {
                let reason = format!("this cannot be sent: {err}");
                self.played.failures.push(Failure::at(Some(line), reason));
            }
        }
    }

    async fn close(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            // An agent that has closed its side already is closed all the same.
            writer.shutdown().await.ok();
        }
    }

    /// Awaits the messages of neighbouring `<` lines.
    async fn expect_block(&mut self, block: &[Line]) {
        for (index, line) in block.iter().enumerate() {
            let Step::Expect(expected) = &line.step else {
                self.keep(line);
                continue;
            };
            let got = match self.next(self.patience).await {
                Next::Message(got) => got,
                Next::Ended => {
                    return self.explain_block(&block[index..], "the output ended").await;
                }
                Next::Silence => {
                    self.patience = LESS_PATIENCE;
                    return self.explain_block(&block[index..], "nothing came").await;
                }
            };
            let got = self.complete_text(expected, got).await;
            if compare::difference(expected, &got).is_some() {
                self.pending.push_front(got);
                return self.explain_block(&block[index..], "nothing came in its place").await;
            }
            if compare::is_any_text(expected) {
                self.swallowing = Some(got);
            }
            self.keep(line);
        }
    }

    /// Adds chunks of text until they are what is expected, or cannot become it.
    async fn complete_text(&mut self, expected: &Value, mut got: Value) -> Value {
        let Some(expected) = compare::chunk_text(expected) else { return got };
        while compare::chunk_text(&got)
            .is_some_and(|text| text != expected && expected.starts_with(text))
        {
            let Next::Message(more) = self.next(self.patience).await else { break };
            if !compare::merge_chunk(&mut got, &more) {
                self.pending.push_front(more);
                break;
            }
        }
        got
    }

    /// Compares the rest of a block with all that comes, and rewrites it.
    async fn explain_block(&mut self, block: &[Line], missing: &str) {
        let expected: Vec<&Value> = block.iter().filter_map(expectation).collect();
        let got = self.listen(expected.len()).await;
        let aligned = compare::align(&expected, got);
        let mut slots = aligned.slots.into_iter();
        let mut last = None;
        for line in block {
            let (Some(expected), Some((surplus, fate))) =
                (expectation(line), expectation(line).and_then(|_| slots.next()))
            else {
                self.keep(line);
                continue;
            };
            surplus.into_iter().for_each(|got| self.surplus(Some(line), &got));
            match fate {
                Fate::Fits => self.keep(line),
                Fate::Changed(got) => self.changed(line, expected, &got),
                Fate::Missing => self.missing(line, expected, missing),
            }
            last = Some(line);
        }
        aligned.rest.into_iter().for_each(|got| self.surplus(last, &got));
    }

    /// Takes all that comes until the agent is quiet; a little longer while fewer came than were expected.
    async fn listen(&mut self, expected: usize) -> Vec<Value> {
        let mut got = Vec::new();
        loop {
            let quiet = if got.len() < expected { LESS_PATIENCE } else { QUIET };
            match self.next(quiet).await {
                Next::Message(message) => got.push(message),
                Next::Ended | Next::Silence => return compare::merge_chunks(got),
            }
        }
    }

    /// After the last line nothing more may come, and the output must end.
    async fn refuse_surplus(&mut self) {
        let talk = self.transcript.lines().iter().rev().find(|line| is_talk(&line.step));
        let mut surplus = Vec::new();
        let has_ended = loop {
            match self.next(CLOSING).await {
                Next::Message(message) => surplus.push(message),
                Next::Ended => break true,
                Next::Silence => break false,
            }
        };
        let behind = self.updated.split_off(self.end_of_talk);
        for got in compare::merge_chunks(surplus) {
            self.surplus(talk, &got);
        }
        self.updated.extend(behind);
        if !has_ended {
            let reason = "the agent keeps its output open after its input is closed";
            self.played.failures.push(Failure::at(talk, reason));
        }
    }

    async fn next(&mut self, patience: Duration) -> Next {
        loop {
            let message = match self.pending.pop_front() {
                Some(message) => message,
                None => match timeout(patience, self.reader.next()).await {
                    Ok(Some(raw)) => {
                        self.arrive(raw);
                        continue;
                    }
                    Ok(None) => return Next::Ended,
                    Err(_) => return Next::Silence,
                },
            };
            if self.transcript.has_tag("black-box") && is_about_itself(&message) {
                continue;
            }
            if let Some(chunk) = &mut self.swallowing
                && compare::merge_chunk(chunk, &message)
            {
                continue;
            }
            self.swallowing = None;
            return Next::Message(message);
        }
    }

    fn arrive(&mut self, raw: Value) {
        self.played.seen.push(raw.clone());
        let named = self.names.named(raw);
        self.pending.push_back(named);
    }

    fn keep(&mut self, line: &Line) {
        // Lines of used files are in their own file.
        if line.file.is_none() {
            self.updated.push(line.text.clone());
        }
        if is_talk(&line.step) {
            self.end_of_talk = self.updated.len();
        }
    }

    fn changed(&mut self, line: &Line, expected: &Value, got: &Value) {
        let reason = compare::difference(expected, got)
            .map_or_else(String::new, |difference| difference.to_string());
        self.played.failures.push(Failure {
            expected: Some(compare::print(expected)),
            got: Some(compare::print(got)),
            ..Failure::at(Some(line), reason)
        });
        if line.file.is_none() {
            self.write(&compare::rewrite(expected, got));
        }
    }

    fn missing(&mut self, line: &Line, expected: &Value, reason: &str) {
        self.played.failures.push(Failure {
            expected: Some(compare::print(expected)),
            ..Failure::at(Some(line), reason)
        });
        self.end_of_talk = self.updated.len();
    }

    fn surplus(&mut self, line: Option<&Line>, got: &Value) {
        self.played.failures.push(Failure {
            got: Some(compare::print(got)),
            ..Failure::at(line, "this was not expected here")
        });
        if line.is_none_or(|line| line.file.is_none()) {
            self.write(got);
        }
    }

    fn write(&mut self, message: &Value) {
        self.updated.push(format!("< {}", compare::print(message)));
        self.end_of_talk = self.updated.len();
    }
}

/// Tells whether an agent says something of itself, which each does in its own way.
fn is_about_itself(message: &Value) -> bool {
    const KINDS: [&str; 5] = [
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
    ];
    let kind = message["params"]["update"]["sessionUpdate"].as_str();
    message["method"] == "session/update" && kind.is_some_and(|kind| KINDS.contains(&kind))
}

/// The `<` lines from here on that nothing is sent between, with what stands between them.
fn block_at(lines: &[Line], start: usize) -> &[Line] {
    let lines = &lines[start..];
    let end = lines.iter().position(|line| {
        matches!(line.step, Step::Send(_) | Step::SendRaw(_) | Step::Eof | Step::Exit(_))
    });
    let lines = &lines[..end.unwrap_or(lines.len())];
    let last = lines.iter().rposition(|line| expectation(line).is_some());
    &lines[..last.map_or(lines.len(), |last| last + 1)]
}

fn expectation(line: &Line) -> Option<&Value> {
    match &line.step {
        Step::Expect(expected) => Some(expected),
        _ => None,
    }
}

fn is_talk(step: &Step) -> bool {
    matches!(step, Step::Send(_) | Step::SendRaw(_) | Step::Expect(_) | Step::Eof)
}

fn with_version(mut message: Value) -> Value {
    if let Value::Object(members) = &mut message {
        members.entry("jsonrpc").or_insert_with(|| Value::from("2.0"));
    }
    message
}

async fn write_all(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Reads the agent's lines.
struct Reader<R> {
    input: R,
    lines: LineDecoder,
    buffer: Vec<u8>,
    has_ended: bool,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    fn new(input: R) -> Reader<R> {
        Reader {
            input,
            lines: LineDecoder::new(lenient_limits()),
            buffer: vec![0; 64 * 1024],
            has_ended: false,
        }
    }

    /// Returns the next line, or `None` at the end. Can be dropped and called again.
    async fn next(&mut self) -> Option<Value> {
        loop {
            match self.lines.next_line() {
                Some(WireLine::Whole(line)) => return Some(read_line(line)),
                Some(WireLine::TooLong(long)) => {
                    return Some(Value::from(format!("a line of {} bytes", long.size)));
                }
                None if self.has_ended => return None,
                None => {}
            }
            match self.input.read(&mut self.buffer).await {
                Ok(count) if count > 0 => self.lines.feed(&self.buffer[..count]),
                // A broken pipe is the end of it.
                Ok(_) | Err(_) => {
                    self.lines.finish();
                    self.has_ended = true;
                }
            }
        }
    }
}

fn read_line(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|_| String::from_utf8_lossy(line).into())
}
