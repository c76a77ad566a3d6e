//! A trace for people: a line a message with times, or a sequence diagram.

use std::fmt::Write;

use crate::record::{Direction, Passed, Record};

/// How much of a text a diagram shows.
const MAX_WORDS: usize = 60;

/// Reads a trace. A line that is none, such as the half of one behind a crash, is passed over and counted.
#[must_use]
pub fn read(text: &str) -> (Vec<Record>, usize) {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let read: Vec<Option<Record>> = lines.map(|line| serde_json::from_str(line).ok()).collect();
    let bad = read.iter().filter(|record| record.is_none()).count();
    (read.into_iter().flatten().collect(), bad)
}

/// Returns a line a message: seconds since the first one, direction, what it is, how long its answer took.
#[must_use]
pub fn list(records: &[Record]) -> String {
    let start = records.first().map_or(0, time_of);
    let mut out = String::new();
    for record in records {
        let after = time_of(record).saturating_sub(start);
        let at = format!("{:>5}.{:03}", after / 1000, after % 1000);
        let line = match record {
            Record::Message(passed) => line(passed),
            Record::Dialect { dialect, why, .. } => format!("--  dialect {dialect}: {why}"),
            Record::Lost { lost, .. } => format!("--  {lost} pieces were lost here"),
        };
        // A String takes everything.
        writeln!(out, "{at}  {line}").ok();
    }
    out
}

fn time_of(record: &Record) -> u64 {
    match record {
        Record::Message(passed) => passed.time,
        Record::Dialect { time, .. } | Record::Lost { time, .. } => *time,
    }
}

fn line(passed: &Passed) -> String {
    let arrow = match passed.direction {
        Direction::In => "->",
        Direction::Out => "<-",
    };
    let mut line = format!("{arrow}  {}", gist(passed));
    if let Some(id) = &passed.id {
        write!(line, "  #{id}").ok();
    }
    if let Some(session) = &passed.session {
        write!(line, "  {}", clean(session)).ok();
    }
    if let Some(duration) = passed.duration_ms {
        write!(line, "  after {duration} ms").ok();
    }
    write!(line, "  {} B", passed.bytes).ok();
    line
}

/// What a message is about.
fn gist(passed: &Passed) -> String {
    let method = passed.method.as_deref().map_or_else(|| "a line".to_owned(), clean);
    let Some(message) = &passed.message else {
        return format!("{method} that is too long or no message");
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

/// Text of a message in one line, without what could steer a terminal or a diagram.
fn clean(text: &str) -> String {
    let plain =
        |letter: char| if letter.is_control() || "<>#;\"`".contains(letter) { ' ' } else { letter };
    let mut short: String = text.chars().take(MAX_WORDS).map(plain).collect();
    if text.chars().nth(MAX_WORDS).is_some() {
        short.push('…');
    }
    short
}

/// Returns a Mermaid sequence diagram. Updates of the same kind that follow each other are one arrow.
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
            Record::Message(passed) => {
                let is_answer =
                    passed.message.as_ref().is_some_and(|message| message.get("method").is_none());
                let line = if is_answer { "-->>" } else { "->>" };
                let (from, to) = match passed.direction {
                    Direction::In => ("client", "agent"),
                    Direction::Out => ("agent", "client"),
                };
                let took = passed.duration_ms.map(|duration| format!(" ({duration} ms)"));
                format!("{from}{line}{to}: {}{}", gist(passed), took.unwrap_or_default())
            }
            Record::Dialect { dialect, .. } => format!("Note over client,agent: dialect {dialect}"),
            Record::Lost { lost, .. } => format!("Note over client,agent: {lost} pieces lost"),
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
    fn a_list_has_a_line_a_message() {
        assert_eq!(
            list(&trace()),
            "    0.000  ->  initialize  #0  77 B
    0.000  --  dialect v1: nothing of the other dialects is in it
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
    fn a_diagram_joins_what_repeats() {
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
        fn any_text_is_read_without_harm(text in ".{0,300}") {
            let (records, _) = read(&text);
            proptest::prop_assert_eq!(list(&records).lines().count(), records.len());
            proptest::prop_assert!(mermaid(&records).starts_with("sequenceDiagram"));
        }
    }
}
