//! Runs of updates: those who watch get the chunks of a message together. Parsing each of them would cost more than sending it.
//!
//! The lines of a run begin with the same bytes, which name method, session and kind. So they differ only in their content,
//! which nobody who watches needs. A trace and the log get every line.

use serde_json::Value;

use crate::record::{Direction, MessageRecord, Record};

/// The kinds that come in runs.
const KINDS: [&str; 3] = ["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"];
/// A run is passed on at the latest after this many lines.
const MAX_LINES: u64 = 1000;

/// The run that is open.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// How its lines begin; empty if the last line began none.
    prefix: Vec<u8>,
    record: Option<Box<MessageRecord>>,
}

impl Run {
    /// Takes a line that the agent sent, if it continues the run.
    pub(super) fn takes(&mut self, time: u64, line: &[u8]) -> bool {
        let is_more = !self.prefix.is_empty() && line.starts_with(&self.prefix);
        let Some(record) = self.record.as_mut().filter(|_| is_more && line.ends_with(b"}")) else {
            return false;
        };
        record.count += 1;
        record.bytes += line.len();
        record.time = time;
        true
    }

    /// Tells whether it must be passed on before it gets longer.
    pub(super) fn is_long(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.count >= MAX_LINES)
    }

    /// Notes a line that was read whole: the next lines may continue it.
    pub(super) fn begin(&mut self, line: &[u8], record: &Record) {
        self.prefix.clear();
        if let Record::Message(message) = record
            && let Some(length) = prefix_of(line, message)
        {
            self.prefix.extend_from_slice(&line[..length]);
            let mut message = message.clone();
            message.message.iter_mut().for_each(remove_content);
            (message.count, message.bytes) = (0, 0);
            self.record = Some(message);
        }
    }

    /// Returns the lines since the last time, as one record.
    pub(super) fn take(&mut self) -> Option<Record> {
        let record = self.record.as_mut().filter(|record| record.count > 0)?;
        let taken = record.clone();
        (record.count, record.bytes) = (0, 0);
        Some(Record::Message(taken))
    }
}

/// Returns how much of a line says everything about it but its content.
fn prefix_of(line: &[u8], message: &MessageRecord) -> Option<usize> {
    let is_update = message.direction == Direction::Out
        && message.method.as_deref() == Some("session/update")
        && message.id.is_none();
    let session = message.session.as_deref().filter(|_| is_update)?;
    let update = &message.message.as_ref()?["params"]["update"];
    let kind = update["sessionUpdate"].as_str().filter(|kind| KINDS.contains(kind))?;
    let end = format!("\"sessionUpdate\":\"{kind}\"");
    let at = find(line, end.as_bytes())?;
    let front = &line[..at];
    // Method and session must be known by then. What only looks like them, inside a string, has other quotes.
    find(front, b"\"method\":\"session/update\"")?;
    find(front, format!("\"sessionId\":\"{session}\"").as_bytes())?;
    Some(at + end.len())
}

fn find(line: &[u8], part: &[u8]) -> Option<usize> {
    line.windows(part.len()).position(|window| window == part)
}

fn remove_content(message: &mut Value) {
    if let Some(update) = message["params"]["update"].as_object_mut() {
        update.retain(|name, _| name == "sessionUpdate");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    fn chunk(session: &str, kind: &str, text: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"{kind}","content":{{"type":"text","text":"{text}"}}}}}}}}"#
        )
    }

    // R: O3
    #[test]
    fn chunks_of_a_message_are_one_record_and_others_end_it() {
        let mut run = Run::default();
        let first = chunk("s", "agent_message_chunk", "one");
        let record = Recorder::default().take(1, Direction::Out, first.as_bytes()).remove(0);
        assert!(!run.takes(1, first.as_bytes()));
        run.begin(first.as_bytes(), &record);
        assert_eq!(run.take(), None);
        let more = chunk("s", "agent_message_chunk", "two sk-canary-0123456789");
        assert!(run.takes(2, more.as_bytes()) && run.takes(3, more.as_bytes()));
        for other in [
            chunk("s2", "agent_message_chunk", "x"),
            chunk("s", "agent_thought_chunk", "x"),
            more.trim_end_matches('}').to_owned(),
        ] {
            assert!(!run.takes(4, other.as_bytes()), "{other}");
        }
        let Some(Record::Message(taken)) = run.take() else { panic!("no run") };
        assert_eq!((taken.count, taken.bytes, taken.time), (2, 2 * more.len(), 3));
        let content = &taken.message.as_ref().unwrap()["params"]["update"];
        assert_eq!(content, &serde_json::json!({ "sessionUpdate": "agent_message_chunk" }));
        assert_eq!(run.take(), None);
    }

    #[test]
    fn lines_whose_beginning_does_not_say_everything_begin_no_run() {
        let late = r#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{}},"sessionId":"s"}}"#;
        let call = chunk("s", "tool_call", "x");
        for line in [late, &call] {
            let record = Recorder::default().take(1, Direction::Out, line.as_bytes()).remove(0);
            let mut run = Run::default();
            run.begin(line.as_bytes(), &record);
            assert!(!run.takes(2, line.as_bytes()), "{line}");
        }
    }
}
