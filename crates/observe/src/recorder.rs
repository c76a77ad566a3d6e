//! Turns the lines of a connection into records.

use std::collections::HashMap;

use serde_json::Value;
use wire::acp::dialect::Dialect;
use wire::rpc::{self, Message};

use crate::mask::{mask, mask_text};
use crate::record::{Direction, MessageRecord, Record};

/// At most this many open calls are tracked.
const MAX_OPEN_CALLS: usize = 10_000;
/// How many bytes of a line that is not JSON are recorded.
const MAX_INVALID: usize = 200;

/// Turns lines into records. Tracks open calls, to give replies their method and duration.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The dialect that the configuration demands, whatever the client sends.
    forced: Option<Dialect>,
    /// Keyed by the direction of the call and its id.
    open: HashMap<(Direction, String), Call>,
}

#[derive(Debug)]
struct Call {
    time: u64,
    method: String,
    session: Option<String>,
}

impl Recorder {
    /// Creates a recorder. `forced` is the dialect that the configuration demands, whatever the client sends.
    pub(crate) fn new(forced: Option<Dialect>) -> Recorder {
        Recorder { forced, open: HashMap::new() }
    }

    /// Returns the records for a line. `initialize` is followed by a record with the dialect.
    pub(crate) fn take(&mut self, time: u64, direction: Direction, line: &[u8]) -> Vec<Record> {
        let mut message: Option<Value> = serde_json::from_slice(line).ok();
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut record = MessageRecord {
            time,
            direction,
            bytes: line.len(),
            count: 1,
            method: message.as_ref().and_then(|message| text(message, "method")),
            id: message.as_ref().and_then(|message| message.get("id").cloned()),
            session: message.as_ref().and_then(session_of),
            duration_ms: None,
            message: None,
            invalid: message.is_none().then(|| first_bytes(line)),
        };
        let mut dialect = None;
        match (&record.method, &record.id) {
            (Some(method), Some(id)) => {
                if self.open.len() < MAX_OPEN_CALLS {
                    let (method, session) = (method.clone(), record.session.clone());
                    self.open.insert((direction, id.to_string()), Call { time, method, session });
                }
                if method == "initialize" && direction == Direction::In {
                    dialect = Some(self.dialect(time, line));
                }
            }
            (None, Some(id)) => {
                let call = self.open.remove(&(direction.other(), id.to_string()));
                if let Some(call) = call {
                    record.duration_ms = Some(time.saturating_sub(call.time));
                    record.session = record.session.or(call.session);
                    record.method = Some(call.method);
                }
            }
            (_, None) => {}
        }
        message.iter_mut().for_each(mask);
        record.message = message;
        std::iter::once(Record::Message(Box::new(record))).chain(dialect).collect()
    }

    /// Returns the record for a line that is too long.
    pub(crate) fn too_long(time: u64, direction: Direction, bytes: usize) -> Record {
        Record::Message(Box::new(MessageRecord {
            time,
            direction,
            bytes,
            count: 1,
            method: None,
            id: None,
            session: None,
            duration_ms: None,
            message: None,
            invalid: None,
        }))
    }

    fn dialect(&self, time: u64, line: &[u8]) -> Record {
        let params = match rpc::parse(line) {
            Ok(Message::Call { params, .. }) => params,
            _ => None,
        };
        let (dialect, why) = match self.forced {
            Some(dialect) => (dialect, "set by a flag or the configuration"),
            None => Dialect::recognise_with_reason(params),
        };
        Record::Dialect { time, dialect: dialect.name().to_owned(), why: why.to_owned() }
    }
}

/// Returns the first bytes of a line that is not JSON, in ASCII, without what looks like a key.
fn first_bytes(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(MAX_INVALID)]);
    mask_text(&text).escape_default().to_string()
}

fn session_of(message: &Value) -> Option<String> {
    let inside = ["params", "result"].iter().filter_map(|part| message.get(*part));
    let mut ids = inside.filter_map(|part| part.get("sessionId")?.as_str());
    ids.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(record: &Record) -> &MessageRecord {
        match record {
            Record::Message(record) => record,
            other => panic!("{other:?}"),
        }
    }

    // R: O1
    #[test]
    fn reply_has_the_method_session_and_duration_of_its_call() {
        let mut recorder = Recorder::default();
        let call = br#"{"jsonrpc":"2.0","id":"a","method":"session/prompt","params":{"sessionId":"s1","prompt":[]}}"#;
        let answer = br#"{"jsonrpc":"2.0","id":"a","result":{"stopReason":"end_turn"}}"#;
        recorder.take(1000, Direction::In, call);
        // A call in the other direction may have the same id.
        let theirs = br#"{"jsonrpc":"2.0","id":"a","method":"fs/read_text_file","params":{"sessionId":"s1"}}"#;
        recorder.take(1005, Direction::Out, theirs);
        let records = recorder.take(1250, Direction::Out, answer);
        let answer = record(&records[0]);
        assert_eq!(answer.method.as_deref(), Some("session/prompt"));
        assert_eq!(answer.session.as_deref(), Some("s1"));
        assert_eq!((answer.duration_ms, answer.bytes), (Some(250), 61));
        assert_eq!(recorder.open.len(), 1);
    }

    // R: O1, D3
    #[test]
    fn dialect_is_recorded_with_the_reason() {
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

    // R: O1, O4
    #[test]
    fn invalid_message_is_recorded_with_its_first_bytes() {
        let line = b"{ nonsense \x1b[2J\xff sk-canary-1-and-more";
        let records = Recorder::default().take(7, Direction::In, line);
        let invalid = record(&records[0]);
        assert_eq!((invalid.bytes, &invalid.message), (line.len(), &None));
        assert_eq!(invalid.invalid.as_deref(), Some("{ nonsense \\u{1b}[2J\\u{fffd} ****"));
        let long = Recorder::default().take(7, Direction::In, &[b'x'; 5000]);
        assert_eq!(record(&long[0]).invalid.as_ref().unwrap().len(), MAX_INVALID);
    }
}
