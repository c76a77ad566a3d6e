//! Prints a trace: as a list with one line per message, or as a sequence diagram.

use std::fmt::Write;

use crate::record::{Direction, MessageRecord, Record};

/// At most this many characters of a string are shown.
const MAX_CHARS: usize = 60;

/// Reads a trace. Returns its records and the number of invalid lines, such as an incomplete line after a crash.
#[must_use]
pub fn read(text: &str) -> (Vec<Record>, usize) {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let read: Vec<Option<Record>> = lines.map(|line| serde_json::from_str(line).ok()).collect();
    let bad = read.iter().filter(|record| record.is_none()).count();
    (read.into_iter().flatten().collect(), bad)
}

/// Returns one line per message: seconds since the first, direction, summary, and the duration of a call.
#[must_use]
pub fn list(records: &[Record]) -> String {
    let start = records.first().map_or(0, time_of);
    let mut out = String::new();
    for record in records {
        let after = time_of(record).saturating_sub(start);
        let at = format!("{:>5}.{:03}", after / 1000, after % 1000);
        let line = match record {
            Record::Message(record) => line(record),
            Record::Dialect { dialect, why, .. } => format!("--  dialect {dialect}: {why}"),
            Record::Lost { lost, .. } => format!("--  {lost} chunks lost"),
        };
        // Writing to a `String` cannot fail.
        writeln!(out, "{at}  {line}").ok();
    }
    out
}

fn time_of(record: &Record) -> u64 {
    match record {
        Record::Message(record) => record.time,
        Record::Dialect { time, .. } | Record::Lost { time, .. } => *time,
    }
}

fn line(record: &MessageRecord) -> String {
    let arrow = match record.direction {
        Direction::In => "->",
        Direction::Out => "<-",
    };
    let mut line = format!("{arrow}  {}", summary(record));
    if let Some(id) = &record.id {
        write!(line, "  #{id}").ok();
    }
    if let Some(session) = &record.session {
        write!(line, "  {}", clean(session)).ok();
    }
    if let Some(duration) = record.duration_ms {
        write!(line, "  after {duration} ms").ok();
    }
    write!(line, "  {} B", record.bytes).ok();
    line
}

/// A short description of a message.
fn summary(record: &MessageRecord) -> String {
    let method = record.method.as_deref().map_or_else(|| "invalid line".to_owned(), clean);
    let Some(message) = &record.message else {
        return format!("{method} (too long or not a message)");
    };
    if let Some(error) = message.get("error") {
        let words = error["message"].as_str().unwrap_or_default();
        return format!("{method} failed: {} {}", error["code"], clean(words));
    }
    if let Some(result) = message.get("result") {
        return match result["stopReason"].as_str() {
            Some(reason) => format!("{method} answered: {}", clean(reason)),
            None => format!("{method} answered"),
        };
    }
    let params = &message["params"];
    let update = &params["update"];
    match update["sessionUpdate"].as_str().or_else(|| params["status"].as_str()) {
        Some(kind) => match update["title"].as_str().or_else(|| update["status"].as_str()) {
            Some(more) => format!("{method} {} ({})", clean(kind), clean(more)),
            None => format!("{method} {}", clean(kind)),
        },
        None => method,
    }
}

/// Returns a string in one line, without control characters and characters with a meaning in diagrams.
fn clean(text: &str) -> String {
    let plain =
        |letter: char| if letter.is_control() || "<>#;\"`".contains(letter) { ' ' } else { letter };
    let mut short: String = text.chars().take(MAX_CHARS).map(plain).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// Returns a Mermaid sequence diagram. Consecutive updates of the same kind are one arrow.
#[must_use]
pub fn mermaid(records: &[Record]) -> String {
    let mut out = "sequenceDiagram\n    participant client\n    participant agent\n".to_owned();
    let mut last: Option<(String, usize)> = None;
    let flush = |last: &mut Option<(String, usize)>, out: &mut String| {
        if let Some((arrow, count)) = last.take() {
            let times = if count > 1 { format!(" × {count}") } else { String::new() };
            writeln!(out, "    {arrow}{times}").ok();
        }
    };
    for record in records {
        let arrow = match record {
            Record::Message(record) => {
                let is_answer =
                    record.message.as_ref().is_some_and(|message| message.get("method").is_none());
                let line = if is_answer { "-->>" } else { "->>" };
                let (from, to) = match record.direction {
                    Direction::In => ("client", "agent"),
                    Direction::Out => ("agent", "client"),
                };
                let took = record.duration_ms.map(|duration| format!(" ({duration} ms)"));
                format!("{from}{line}{to}: {}{}", summary(record), took.unwrap_or_default())
            }
            Record::Dialect { dialect, .. } => format!("Note over client,agent: dialect {dialect}"),
            Record::Lost { lost, .. } => format!("Note over client,agent: {lost} chunks lost"),
        };
        match &mut last {
            Some((same, count)) if *same == arrow => *count += 1,
            _ => {
                flush(&mut last, &mut out);
                last = Some((arrow, 1));
            }
        }
    }
    flush(&mut last, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Recorder;

    fn trace() -> Vec<Record> {
        let mut recorder = Recorder::default();
        let mut records = Vec::new();
        for (time, direction, line) in [
            (
                1000,
                Direction::In,
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#,
            ),
            (1002, Direction::Out, r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}"#),
            (
                1010,
                Direction::In,
                r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s1"}}"#,
            ),
            (
                1020,
                Direction::Out,
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk"}}}"#,
            ),
            (
                1030,
                Direction::Out,
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk"}}}"#,
            ),
            (
                2510,
                Direction::Out,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no\u001b[31m;"}}"#,
            ),
        ] {
            records.extend(recorder.take(time, direction, line.as_bytes()));
        }
        records
    }

    // R: O1
    #[test]
    fn list_has_one_line_per_message() {
        assert_eq!(
            list(&trace()),
            "    0.000  ->  initialize  #0  77 B
    0.000  --  dialect v1: no sign of another dialect
    0.002  <-  initialize answered  #0  after 2 ms  55 B
    0.010  ->  session/prompt  #1  s1  78 B
    0.020  <-  session/update agent_message_chunk  s1  120 B
    0.030  <-  session/update agent_message_chunk  s1  120 B
    1.510  <-  session/prompt failed: -32603 no [31m   #1  s1  after 1500 ms  74 B
"
        );
    }

    // R: O2
    #[test]
    fn diagram_merges_repeated_updates() {
        assert_eq!(
            mermaid(&trace()),
            "sequenceDiagram
    participant client
    participant agent
    client->>agent: initialize
    Note over client,agent: dialect v1
    agent-->>client: initialize answered (2 ms)
    client->>agent: session/prompt
    agent->>client: session/update agent_message_chunk × 2
    agent-->>client: session/prompt failed: -32603 no [31m  (1500 ms)
"
        );
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_causes_no_panic(text in ".{0,300}") {
            let (records, _) = read(&text);
            proptest::prop_assert_eq!(list(&records).lines().count(), records.len());
            proptest::prop_assert!(mermaid(&records).starts_with("sequenceDiagram"));
        }
    }
}
