//! One line of a trace: a message as it passed, with what belongs to it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire::acp::dialect::Dialect;
use wire::rpc::{self, Message};

use crate::mask::mask;

/// Calls that are never answered are forgotten above this number.
const MOST_OPEN: usize = 10_000;

/// Which way a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to us.
    In,
    /// From us to the client.
    Out,
}

impl Direction {
    fn other(self) -> Direction {
        match self {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        }
    }
}

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// A message that passed.
    Message(Box<Passed>),
    /// The dialect that is spoken from here on.
    Dialect {
        /// Milliseconds since 1970.
        time: u64,
        /// Its name.
        dialect: String,
        /// Why it was chosen.
        why: String,
    },
    /// The trace could not keep up: so much passed without being written down.
    Lost {
        /// Milliseconds since 1970.
        time: u64,
        /// How many pieces, of unknown length.
        lost: u64,
    },
}

/// A message that passed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// Milliseconds since 1970.
    pub time: u64,
    /// Which way.
    pub direction: Direction,
    /// How long its line was.
    pub bytes: usize,
    /// The method; of an answer, the one that was called.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// The id of a call or an answer, as it was written.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<Value>,
    /// The session that it is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<String>,
    /// Of an answer: how many milliseconds after its call it came.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_ms: Option<u64>,
    /// The message, with secrets masked; nothing where it is too long or no JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<Value>,
}

/// Makes records of lines: knows which calls are open, to give answers their method and duration.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The dialect that is spoken whatever the client says.
    forced: Option<Dialect>,
    /// By who made the call, and its id as written.
    open: HashMap<(Direction, String), Call>,
}

#[derive(Debug)]
struct Call {
    time: u64,
    method: String,
    session: Option<String>,
}

impl Recorder {
    /// Makes a recorder that has seen nothing. `forced` is the dialect that is spoken whatever the client says.
    pub(crate) fn new(forced: Option<Dialect>) -> Recorder {
        Recorder { forced, open: HashMap::new() }
    }

    /// Makes the records of a line. The first `initialize` is followed by the dialect that it chose.
    pub(crate) fn take(&mut self, time: u64, direction: Direction, line: &[u8]) -> Vec<Record> {
        let mut message: Option<Value> = serde_json::from_slice(line).ok();
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut passed = Passed {
            time,
            direction,
            bytes: line.len(),
            method: message.as_ref().and_then(|message| text(message, "method")),
            id: message.as_ref().and_then(|message| message.get("id").cloned()),
            session: message.as_ref().and_then(session_of),
            duration_ms: None,
            message: None,
        };
        let mut dialect = None;
        match (&passed.method, &passed.id) {
            (Some(method), Some(id)) => {
                if self.open.len() < MOST_OPEN {
                    let (method, session) = (method.clone(), passed.session.clone());
                    self.open.insert((direction, id.to_string()), Call { time, method, session });
                }
                if method == "initialize" && direction == Direction::In {
                    dialect = Some(self.dialect(time, line));
                }
            }
            (None, Some(id)) => {
                let call = self.open.remove(&(direction.other(), id.to_string()));
                if let Some(call) = call {
                    passed.duration_ms = Some(time.saturating_sub(call.time));
                    passed.session = passed.session.or(call.session);
                    passed.method = Some(call.method);
                }
            }
            (_, None) => {}
        }
        message.iter_mut().for_each(mask);
        passed.message = message;
        std::iter::once(Record::Message(Box::new(passed))).chain(dialect).collect()
    }

    /// Makes the record of a line that was too long to keep.
    pub(crate) fn too_long(time: u64, direction: Direction, bytes: usize) -> Record {
        Record::Message(Box::new(Passed {
            time,
            direction,
            bytes,
            method: None,
            id: None,
            session: None,
            duration_ms: None,
            message: None,
        }))
    }

    fn dialect(&self, time: u64, line: &[u8]) -> Record {
        let params = match rpc::parse(line) {
            Ok(Message::Call { params, .. }) => params,
            _ => None,
        };
        let (dialect, why) = match self.forced {
            Some(dialect) => (dialect, "it was asked for by flag or configuration"),
            None => Dialect::recognise_with_reason(params),
        };
        Record::Dialect { time, dialect: dialect.name().to_owned(), why: why.to_owned() }
    }
}

fn session_of(message: &Value) -> Option<String> {
    let inside = ["params", "result"].iter().filter_map(|part| message.get(*part));
    let mut ids = inside.filter_map(|part| part.get("sessionId")?.as_str());
    ids.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(record: &Record) -> &Passed {
        match record {
            Record::Message(passed) => passed,
            other => panic!("{other:?}"),
        }
    }

    // R: O1
    #[test]
    fn an_answer_has_the_method_session_and_duration_of_its_call() {
        let mut recorder = Recorder::default();
        let call = br#"{"jsonrpc":"2.0","id":"a","method":"session/prompt","params":{"sessionId":"s1","prompt":[]}}"#;
        let answer = br#"{"jsonrpc":"2.0","id":"a","result":{"stopReason":"end_turn"}}"#;
        recorder.take(1000, Direction::In, call);
        // The other side's own call may have the same id.
        let theirs = br#"{"jsonrpc":"2.0","id":"a","method":"fs/read_text_file","params":{"sessionId":"s1"}}"#;
        recorder.take(1005, Direction::Out, theirs);
        let records = recorder.take(1250, Direction::Out, answer);
        let answer = passed(&records[0]);
        assert_eq!(answer.method.as_deref(), Some("session/prompt"));
        assert_eq!(answer.session.as_deref(), Some("s1"));
        assert_eq!((answer.duration_ms, answer.bytes), (Some(250), 61));
        assert_eq!(recorder.open.len(), 1);
    }

    // R: O1, D3
    #[test]
    fn the_dialect_is_named_with_the_reason() {
        let hello = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"0.3.1"}}"#;
        let records = Recorder::default().take(7, Direction::In, hello);
        let Record::Dialect { dialect, why, .. } = &records[1] else {
            panic!("{records:?}");
        };
        assert_eq!(dialect, "container");
        assert!(why.contains("protocolVersion"), "{why}");
        let mut forced = Recorder::new(Some(Dialect::V1));
        let records = forced.take(7, Direction::In, hello);
        assert!(matches!(&records[1], Record::Dialect { dialect, .. } if dialect == "v1"));
    }

    // R: O1
    #[test]
    fn what_is_no_message_is_recorded_all_the_same() {
        let records = Recorder::default().take(7, Direction::In, b"{ nonsense");
        assert_eq!((passed(&records[0]).bytes, &passed(&records[0]).message), (10, &None));
    }
}
