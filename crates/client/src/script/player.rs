//! The player: sends the messages of a transcript and waits for the expected ones.
//!
//! While everything matches it never waits longer than necessary. At the first message that does not match it reads until
//! the agent is quiet, so that the whole block can be compared and rewritten at once.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use wire::line::{Line as WireLine, LineDecoder};

use super::compare::{self, MatchResult};
use super::loose::Loose;
use super::names::Names;
use super::{Failure, LogEntry, PlayOptions, Replay};
use crate::connect::lenient_limits;
use crate::transcript::{Transcript, TranscriptLine, TranscriptStep};

/// How long to wait for a message after one was missing.
const SHORT_WAIT: Duration = Duration::from_secs(2);

/// The agent is quiet if it sends nothing for this long after a message that does not match.
const QUIET: Duration = Duration::from_millis(300);

/// How long the agent may take to close its output after its input was closed.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

pub(super) struct Player<'a, R, W> {
    pub(super) transcript: &'a Transcript,
    /// The next line.
    pub(super) index: usize,
    pub(super) names: Names,
    pub(super) reader: Reader<R>,
    /// `None` once the agent's input is closed.
    pub(super) writer: Option<W>,
    /// Messages that were received but not compared yet, with names in place of values.
    pub(super) pending: VecDeque<Value>,
    /// A chunk whose text matched a wildcard. Chunks that continue it belong to the same match.
    open_wildcard: Option<Value>,
    pub(super) wait: Duration,
    pub(super) played: Replay,
    /// What playing against an agent of unknown wording needs.
    pub(super) loose: Loose,
    start: Instant,
    /// The lines of the rewritten transcript, and where unexpected messages at the end are inserted.
    updated: Vec<String>,
    end_of_conversation: usize,
}

/// Why the player stops for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// All lines were played.
    Done,
    /// The agent is to be killed and started again.
    Kill,
    /// The agent's input was closed; it is to be started again.
    Restart,
    /// The agent is to be terminated.
    Term,
}

/// The next event.
enum Next {
    Message(Value),
    Ended,
    Timeout,
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Player<'a, R, W> {
    pub(super) fn new(
        transcript: &'a Transcript,
        options: PlayOptions,
        directory: &Path,
        input: R,
        output: W,
    ) -> Self {
        let mut names = Names::new(directory);
        options.values.into_iter().for_each(|(name, value)| names.set(&name, value));
        Player {
            transcript,
            index: 0,
            names,
            reader: Reader::new(input),
            writer: Some(output),
            pending: VecDeque::new(),
            open_wildcard: None,
            wait: options.wait,
            played: Replay { exit: transcript.exit(), ..Replay::default() },
            loose: Loose::new(transcript.has_tag("loose"), directory, options.linger),
            start: Instant::now(),
            updated: Vec::new(),
            end_of_conversation: 0,
        }
    }

    /// Continues with an agent that was started again.
    pub(super) fn attach(&mut self, input: R, output: W) {
        self.reader = Reader::new(input);
        self.writer = Some(output);
        self.pending.clear();
    }

    pub(super) async fn play(mut self) -> Replay {
        // Pipes have no process that could be killed.
        while self.run().await != Pause::Done {}
        self.finish().await
    }

    /// Plays lines until the end, or until something must be done to the agent's process.
    pub(super) async fn run(&mut self) -> Pause {
        let lines = self.transcript.lines();
        while let Some(line) = lines.get(self.index) {
            if self.loose.is_on {
                self.index += 1;
                match &line.step {
                    TranscriptStep::Kill => return Pause::Kill,
                    TranscriptStep::Restart => {
                        self.close().await;
                        return Pause::Restart;
                    }
                    TranscriptStep::Term => return Pause::Term,
                    _ => self.play_loosely(line).await,
                }
                if self.played.stopped.is_some() {
                    return Pause::Done;
                }
                continue;
            }
            match &line.step {
                TranscriptStep::Expect(_) => {
                    let block = block_at(lines, self.index);
                    self.index += block.len();
                    self.expect_block(block).await;
                    continue;
                }
                step => self.send_step(line, step).await,
            }
            self.copy_line(line);
            self.index += 1;
        }
        Pause::Done
    }

    /// Plays a line that sends something. Others need nothing done.
    pub(super) async fn send_step(&mut self, line: &TranscriptLine, step: &TranscriptStep) {
        match step {
            TranscriptStep::Send(message) => {
                self.wait_for_names(message).await;
                let message = with_version(self.names.with_values(message));
                self.record(false, message.clone());
                self.send(line, format!("{message}\n").into_bytes()).await;
            }
            TranscriptStep::SendRaw(bytes) => {
                let text = self.names.in_raw_line(bytes);
                self.record(false, String::from_utf8_lossy(&text).into());
                self.send(line, [&text, &b"\n"[..]].concat()).await;
            }
            TranscriptStep::Eof => self.close().await,
            _ => {}
        }
    }

    /// Ends the conversation and returns everything that was found.
    pub(super) async fn finish(mut self) -> Replay {
        if self.loose.is_on {
            self.end_loosely().await;
        } else {
            self.close().await;
            self.report_surplus().await;
        }
        self.played.updated = self.updated.iter().map(|line| format!("{line}\n")).collect();
        self.played
    }

    pub(super) fn record(&mut self, from_agent: bool, message: Value) {
        let at = self.start.elapsed();
        self.played.log.push(LogEntry { at, from_agent, message });
    }

    /// Waits for values that a message names but the transcript does not expect explicitly.
    async fn wait_for_names(&mut self, message: &Value) {
        while self.names.is_early(message) {
            let Ok(Some(raw)) = timeout(SHORT_WAIT, self.reader.next()).await else { return };
            self.receive(raw);
        }
    }

    /// Sends bytes and reads at the same time: an agent that waits for us to read would never read them.
    pub(super) async fn send(&mut self, line: &TranscriptLine, bytes: Vec<u8>) {
        let Some(mut writer) = self.writer.take() else { return };
        let sent = {
            let mut write = std::pin::pin!(write_all(&mut writer, &bytes));
            loop {
                tokio::select! {
                    sent = &mut write => break sent,
                    Some(message) = self.reader.next() => self.receive(message),
                }
            }
        };
        match sent {
            Ok(()) => self.writer = Some(writer),
            Err(err) => {
                let reason = format!("cannot send this line: {err}");
                self.played.failures.push(Failure::at(Some(line), reason));
            }
        }
    }

    pub(super) async fn close(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            // Fails only if the agent has already closed its side.
            writer.shutdown().await.ok();
        }
    }

    /// Waits for the messages of consecutive `<` lines.
    async fn expect_block(&mut self, block: &[TranscriptLine]) {
        for (index, line) in block.iter().enumerate() {
            let TranscriptStep::Expect(expected) = &line.step else {
                self.copy_line(line);
                continue;
            };
            let mut others = Vec::new();
            let got = loop {
                let missing = match self.next(self.wait).await {
                    Next::Message(got) => {
                        let got = self.complete_text(expected, got).await;
                        if compare::difference(expected, &got).is_none() {
                            break got;
                        }
                        others.push(got);
                        if self.transcript.has_tag("any-order") {
                            continue;
                        }
                        "nothing was received instead"
                    }
                    Next::Ended => "the output ended",
                    Next::Timeout => {
                        self.wait = SHORT_WAIT;
                        "nothing was received"
                    }
                };
                self.put_back(others);
                return self.report_block(&block[index..], missing).await;
            };
            self.put_back(others);
            if compare::is_any_text(expected) {
                self.open_wildcard = Some(got);
            }
            self.copy_line(line);
        }
    }

    /// Puts back messages that were read too early.
    fn put_back(&mut self, messages: Vec<Value>) {
        for message in messages.into_iter().rev() {
            self.pending.push_front(message);
        }
    }

    /// Merges text chunks until they match the expected text, or can no longer match it.
    async fn complete_text(&mut self, expected: &Value, mut got: Value) -> Value {
        let Some(expected) = compare::chunk_text(expected) else { return got };
        while compare::chunk_text(&got)
            .is_some_and(|text| text != expected && expected.starts_with(text))
        {
            let Next::Message(more) = self.next(self.wait).await else { break };
            if !compare::merge_chunk(&mut got, &more) {
                self.pending.push_front(more);
                break;
            }
        }
        got
    }

    /// Compares the rest of a block with everything that is received, and rewrites it.
    async fn report_block(&mut self, block: &[TranscriptLine], missing: &str) {
        let expected: Vec<&Value> = block.iter().filter_map(expectation).collect();
        let got = self.read_until_quiet(expected.len()).await;
        let aligned = compare::align(&expected, got);
        let mut slots = aligned.slots.into_iter();
        let mut last = None;
        for line in block {
            let (Some(expected), Some((surplus, result))) =
                (expectation(line), expectation(line).and_then(|_| slots.next()))
            else {
                self.copy_line(line);
                continue;
            };
            surplus.into_iter().for_each(|got| self.surplus(Some(line), &got));
            match result {
                MatchResult::Matched => self.copy_line(line),
                MatchResult::Changed(got) => self.changed(line, expected, &got),
                MatchResult::Missing => self.missing(line, expected, missing),
            }
            last = Some(line);
        }
        aligned.rest.into_iter().for_each(|got| self.surplus(last, &got));
    }

    /// Reads messages until the agent is quiet. Waits longer while fewer than expected have been received.
    async fn read_until_quiet(&mut self, expected: usize) -> Vec<Value> {
        let mut got = Vec::new();
        loop {
            let quiet = if got.len() < expected { SHORT_WAIT } else { QUIET };
            match self.next(quiet).await {
                Next::Message(message) => got.push(message),
                Next::Ended | Next::Timeout => return compare::merge_chunks(got),
            }
        }
    }

    /// Reports messages after the last line, and an output that does not end.
    async fn report_surplus(&mut self) {
        let last = self.transcript.lines().iter().rev().find(|line| is_conversation(&line.step));
        let mut surplus = Vec::new();
        let has_ended = loop {
            match self.next(CLOSE_WAIT).await {
                Next::Message(message) => surplus.push(message),
                Next::Ended => break true,
                Next::Timeout => break false,
            }
        };
        let tail = self.updated.split_off(self.end_of_conversation);
        for got in compare::merge_chunks(surplus) {
            self.surplus(last, &got);
        }
        self.updated.extend(tail);
        if !has_ended {
            let reason = "the agent did not close its output after its input was closed";
            self.played.failures.push(Failure::at(last, reason));
        }
    }

    async fn next(&mut self, wait: Duration) -> Next {
        loop {
            let message = match self.pending.pop_front() {
                Some(message) => message,
                None => match timeout(wait, self.reader.next()).await {
                    Ok(Some(raw)) => {
                        self.receive(raw);
                        continue;
                    }
                    Ok(None) => return Next::Ended,
                    Err(_) => return Next::Timeout,
                },
            };
            if self.transcript.has_tag("black-box") && describes_agent(&message) {
                continue;
            }
            if let Some(chunk) = &mut self.open_wildcard
                && compare::merge_chunk(chunk, &message)
            {
                continue;
            }
            self.open_wildcard = None;
            return Next::Message(message);
        }
    }

    pub(super) fn receive(&mut self, raw: Value) {
        self.played.seen.push(raw.clone());
        self.record(true, raw.clone());
        let named = self.names.with_names(raw.clone());
        if self.loose.is_on {
            self.loose.remember(raw, &named);
        }
        self.pending.push_back(named);
    }

    fn copy_line(&mut self, line: &TranscriptLine) {
        // Lines of used files are not part of this file.
        if line.file.is_none() {
            self.updated.push(line.text.clone());
        }
        if is_conversation(&line.step) {
            self.end_of_conversation = self.updated.len();
        }
    }

    fn changed(&mut self, line: &TranscriptLine, expected: &Value, got: &Value) {
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

    fn missing(&mut self, line: &TranscriptLine, expected: &Value, reason: &str) {
        self.played.failures.push(Failure {
            expected: Some(compare::print(expected)),
            ..Failure::at(Some(line), reason)
        });
        self.end_of_conversation = self.updated.len();
    }

    fn surplus(&mut self, line: Option<&TranscriptLine>, got: &Value) {
        self.played.failures.push(Failure {
            got: Some(compare::print(got)),
            ..Failure::at(line, "unexpected message")
        });
        if line.is_none_or(|line| line.file.is_none()) {
            self.write(got);
        }
    }

    fn write(&mut self, message: &Value) {
        self.updated.push(format!("< {}", compare::print(message)));
        self.end_of_conversation = self.updated.len();
    }
}

/// Returns whether an update describes the agent itself, which differs between agents.
fn describes_agent(message: &Value) -> bool {
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

/// Returns the `<` lines from here to the next line that sends something, with the lines between them.
fn block_at(lines: &[TranscriptLine], start: usize) -> &[TranscriptLine] {
    let lines = &lines[start..];
    let end = lines.iter().position(|line| {
        matches!(
            line.step,
            TranscriptStep::Send(_)
                | TranscriptStep::SendRaw(_)
                | TranscriptStep::Eof
                | TranscriptStep::Exit(_)
        )
    });
    let lines = &lines[..end.unwrap_or(lines.len())];
    let last = lines.iter().rposition(|line| expectation(line).is_some());
    &lines[..last.map_or(lines.len(), |last| last + 1)]
}

fn expectation(line: &TranscriptLine) -> Option<&Value> {
    match &line.step {
        TranscriptStep::Expect(expected) => Some(expected),
        _ => None,
    }
}

fn is_conversation(step: &TranscriptStep) -> bool {
    matches!(
        step,
        TranscriptStep::Send(_)
            | TranscriptStep::SendRaw(_)
            | TranscriptStep::Expect(_)
            | TranscriptStep::Eof
    )
}

fn with_version(mut message: Value) -> Value {
    if let Value::Object(members) = &mut message {
        members.entry("jsonrpc").or_insert_with(|| Value::from("2.0"));
    }
    message
}

pub(super) async fn write_all(
    writer: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Reads the agent's lines.
pub(super) struct Reader<R> {
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

    /// Returns whether the agent has closed its output and everything was read.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next line, or `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Value> {
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
                // A broken pipe is the end of the output.
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
