//! Prints a trace: as a list with one line per record, or as a sequence diagram. Reads it line by line, so that its size does
//! not matter.

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};

use crate::record::{Direction, Record, SpanRecord};
use crate::row::{Item, Row, clean, each};

/// Which records are printed.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Those of this session; the beginning of its id is enough.
    pub session: Option<String>,
    /// Those with this in their method, or in the kind or name of their span.
    pub method: Option<String>,
    /// Those that failed.
    pub errors: bool,
    /// Those that took at least this long, in milliseconds.
    pub min_ms: Option<f64>,
    /// Those from this time on: milliseconds since 1970. Messages of the second before are taken, too: the call that begins a
    /// turn is on the wire before it.
    pub since: Option<f64>,
}

impl Filter {
    pub(crate) fn takes(&self, item: &Item<'_>) -> bool {
        let (session, words, is_error, took) = match item {
            Item::Message(row, _) => {
                let words = [row.method.as_deref(), row.update.as_deref()];
                (row.session.as_deref(), words, row.error.is_some(), row.duration_ms)
            }
            Item::Other(Record::Span(span)) => {
                let words = [Some(span.kind.as_str()), Some(span.name.as_str())];
                (span.session.as_deref(), words, span.error.is_some(), span.duration_ms)
            }
            Item::Other(_) => (None, [None, None], false, None),
        };
        let time = match item {
            Item::Message(row, _) => row.time + 1000.0,
            Item::Other(record) => record.time(),
        };
        let has_session = |id: &String| session.is_some_and(|session| session.starts_with(&**id));
        let has_words =
            |part: &String| words.iter().flatten().any(|words| words.contains(part.as_str()));
        self.session.as_ref().is_none_or(has_session)
            && self.method.as_ref().is_none_or(has_words)
            && self.since.is_none_or(|since| time >= since)
            && (!self.errors || is_error)
            && self.min_ms.is_none_or(|least| took.is_some_and(|took| took >= least))
    }
}

/// Prints one line per record: seconds since the first, direction, summary, and the duration of a call. Returns how many
/// lines are not part of a trace.
///
/// # Errors
/// Fails if the trace cannot be read or the list cannot be written.
pub fn list(input: impl BufRead, filter: &Filter, out: &mut impl Write) -> io::Result<usize> {
    let mut start = None;
    each(input, |item| {
        let (time, line) = match &item {
            Item::Message(row, _) => (row.time, line(row)),
            Item::Other(record) => match record {
                // A span is in the trace where it ended.
                Record::Span(span) => {
                    (span.time + span.duration_ms.unwrap_or_default(), span_line(span))
                }
                Record::Dialect { dialect, why, .. } => {
                    (record.time(), format!("--  dialect {dialect}: {why}"))
                }
                Record::Lost { lost, .. } => (record.time(), format!("--  {lost} chunks lost")),
                Record::Process { process, .. } => {
                    (record.time(), format!("--  process {}", process.pid))
                }
                Record::Message(_) => return Ok(()),
            },
        };
        let after = (time - *start.get_or_insert(time)).max(0.0);
        match filter.takes(&item) {
            true => writeln!(out, "{:>9.3}  {line}", after / 1000.0),
            false => Ok(()),
        }
    })
}

fn line(row: &Row) -> String {
    let arrow = match row.direction {
        Direction::In => "->",
        Direction::Out => "<-",
    };
    let mut line = format!("{arrow}  {}", row.summary);
    // Writing to a `String` cannot fail.
    if let Some(id) = &row.id {
        write!(line, "  #{id}").ok();
    }
    if let Some(session) = &row.session {
        write!(line, "  {}", clean(session)).ok();
    }
    if let Some(duration) = row.duration_ms {
        write!(line, "  after {duration:.0} ms").ok();
    }
    write!(line, "  {} B", row.bytes).ok();
    line
}

fn span_line(span: &SpanRecord) -> String {
    let mut line = format!("==  {} {}", clean(&span.kind), clean(&span.name));
    if let Some(session) = &span.session {
        write!(line, "  {}", clean(session)).ok();
    }
    if let Some(duration) = span.duration_ms {
        write!(line, "  took {duration:.1} ms").ok();
    }
    if let Some(first) = span.first_byte_ms {
        write!(line, "  first byte after {first:.1} ms").ok();
    }
    if span.tokens_in + span.tokens_out + span.cache_read + span.cache_write > 0 {
        let input = span.tokens_in + span.cache_read + span.cache_write;
        write!(line, "  {input} tokens in, {} out", span.tokens_out).ok();
    }
    if let Some(cost) = span.cost {
        write!(line, "  ${cost:.4}").ok();
    }
    if span.retries > 0 {
        write!(line, "  {} retries", span.retries).ok();
    }
    match (span.end.as_deref(), &span.error) {
        (_, Some(error)) => write!(line, "  failed: {}", clean(error)).ok(),
        (None | Some("completed"), None) => None,
        (Some(end), None) => write!(line, "  {}", clean(end)).ok(),
    };
    line
}

/// Prints a Mermaid sequence diagram. Consecutive updates of the same kind are one arrow.
///
/// # Errors
/// Fails if the trace cannot be read or the diagram cannot be written.
pub fn mermaid(input: impl BufRead, filter: &Filter, out: &mut impl Write) -> io::Result<usize> {
    out.write_all(b"sequenceDiagram\n    participant client\n    participant agent\n")?;
    let mut last: Option<(String, usize)> = None;
    let flush = |last: &mut Option<(String, usize)>, out: &mut dyn Write| match last.take() {
        Some((arrow, count)) if count > 1 => writeln!(out, "    {arrow} × {count}"),
        Some((arrow, _)) => writeln!(out, "    {arrow}"),
        None => Ok(()),
    };
    let bad = each(input, |item| {
        if !filter.takes(&item) {
            return Ok(());
        }
        let arrow = match &item {
            Item::Message(row, _) => {
                let line = if row.is_reply { "-->>" } else { "->>" };
                let (from, to) = match row.direction {
                    Direction::In => ("client", "agent"),
                    Direction::Out => ("agent", "client"),
                };
                let took = row.duration_ms.map(|duration| format!(" ({duration:.0} ms)"));
                format!("{from}{line}{to}: {}{}", row.summary, took.unwrap_or_default())
            }
            Item::Other(Record::Dialect { dialect, .. }) => {
                format!("Note over client,agent: dialect {}", clean(dialect))
            }
            Item::Other(Record::Lost { lost, .. }) => {
                format!("Note over client,agent: {lost} chunks lost")
            }
            Item::Other(Record::Span(span)) if is_shown(span) => {
                let took = span.duration_ms.unwrap_or_default();
                let (kind, name) = (clean(&span.kind), clean(&span.name));
                format!("Note right of agent: {kind} {name} ({took:.0} ms)")
            }
            Item::Other(_) => return Ok(()),
        };
        match &mut last {
            Some((same, count)) if *same == arrow => *count += 1,
            _ => {
                flush(&mut last, out)?;
                last = Some((arrow, 1));
            }
        }
        Ok(())
    })?;
    flush(&mut last, out)?;
    Ok(bad)
}

/// Tells whether a diagram of messages shows a span: what the wire does not show.
fn is_shown(span: &SpanRecord) -> bool {
    matches!(span.kind.as_str(), "model" | "mcp" | "command" | "compaction" | "subagent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    fn trace() -> String {
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
        let turn = SpanRecord {
            time: 1010.5,
            span: "1".to_owned(),
            kind: "model".to_owned(),
            name: "m".to_owned(),
            session: Some("s1".to_owned()),
            duration_ms: Some(1499.25),
            first_byte_ms: Some(9.0),
            tokens_in: 7,
            error: Some("HTTP 400".to_owned()),
            ..SpanRecord::default()
        };
        records.push(Record::Span(Box::new(turn)));
        let lines = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n");
        lines.collect()
    }

    fn printed(text: &str, filter: &Filter) -> String {
        let mut out = Vec::new();
        list(text.as_bytes(), filter, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn diagram(text: &str) -> String {
        let mut out = Vec::new();
        mermaid(text.as_bytes(), &Filter::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    // R: O1
    #[test]
    fn list_has_one_line_per_message() {
        assert_eq!(
            printed(&trace(), &Filter::default()),
            "    0.000  ->  initialize  #0  77 B
    0.000  --  dialect v1: no sign of another dialect
    0.002  <-  initialize answered  #0  after 2 ms  55 B
    0.010  ->  session/prompt  #1  s1  78 B
    0.020  <-  session/update agent_message_chunk  s1  120 B
    0.030  <-  session/update agent_message_chunk  s1  120 B
    1.510  <-  session/prompt failed: -32603 no [31m   #1  s1  after 1500 ms  74 B
    1.510  ==  model m  s1  took 1499.2 ms  first byte after 9.0 ms  7 tokens in, 0 out  failed: HTTP 400
"
        );
    }

    // R: O2
    #[test]
    fn list_is_filtered_by_session_method_error_and_duration() {
        let count = |filter: Filter| printed(&trace(), &filter).lines().count();
        let all = Filter::default();
        assert_eq!(count(Filter { session: Some("s".to_owned()), ..all.clone() }), 5);
        assert_eq!(count(Filter { session: Some("x".to_owned()), ..all.clone() }), 0);
        assert_eq!(count(Filter { method: Some("chunk".to_owned()), ..all.clone() }), 2);
        assert_eq!(count(Filter { errors: true, ..all.clone() }), 2);
        assert_eq!(count(Filter { min_ms: Some(100.0), ..all }), 2);
    }

    // R: O2
    #[test]
    fn diagram_merges_repeated_updates() {
        assert_eq!(
            diagram(&trace()),
            "sequenceDiagram
    participant client
    participant agent
    client->>agent: initialize
    Note over client,agent: dialect v1
    agent-->>client: initialize answered (2 ms)
    client->>agent: session/prompt
    agent->>client: session/update agent_message_chunk × 2
    agent-->>client: session/prompt failed: -32603 no [31m  (1500 ms)
    Note right of agent: model m (1499 ms)
"
        );
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_causes_no_panic(text in ".{0,300}") {
            proptest::prop_assert_eq!(printed(&text, &Filter::default()), "");
            proptest::prop_assert!(diagram(&text).starts_with("sequenceDiagram"));
        }
    }
}
