//! Spans from messages alone, for the trace of an agent that gives none: a turn is a prompt and its reply, a tool call lasts
//! from its announcement to its end, and every other call until its reply.

use std::collections::HashMap;

use crate::record::{Direction, SpanRecord};
use crate::row::Row;

/// At most this many things are open at once; more are not turned into spans.
const MAX_OPEN: usize = 10_000;

/// Makes spans from messages.
#[derive(Debug, Default)]
pub(crate) struct Deriver {
    next: u64,
    /// Open turns and calls, by direction and id.
    calls: HashMap<(Direction, String), SpanRecord>,
    /// Open tool calls, by session and id.
    tools: HashMap<(String, String), SpanRecord>,
    /// The open turn of each session.
    turns: HashMap<String, Turn>,
    /// The spans that the last message began, if they are wanted.
    begun: Option<Vec<SpanRecord>>,
}

#[derive(Debug)]
struct Turn {
    span: String,
    began: f64,
    first_byte_ms: Option<f64>,
}

impl Deriver {
    /// Makes one that also reports spans when they begin.
    pub(crate) fn live() -> Deriver {
        Deriver { begun: Some(Vec::new()), ..Deriver::default() }
    }

    /// Takes the spans that the last message began.
    pub(crate) fn take_begun(&mut self) -> Vec<SpanRecord> {
        self.begun.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes the next message. Returns the spans that ended with it.
    pub(crate) fn take(&mut self, row: &Row) -> Vec<SpanRecord> {
        let mut ended = Vec::new();
        match (&row.id, row.is_reply) {
            (Some(id), true) => ended.extend(self.reply(row, id)),
            (Some(id), false) if self.calls.len() < MAX_OPEN => self.call(row, id),
            _ => {}
        }
        if row.direction == Direction::Out {
            ended.extend(self.update(row));
        }
        ended
    }

    fn call(&mut self, row: &Row, id: &str) {
        let method = row.method.clone().unwrap_or_default();
        let kind = match (method.as_str(), row.direction) {
            ("session/prompt", _) => "turn",
            ("session/request_permission", _) => "permission",
            (_, Direction::In) => "request",
            (_, Direction::Out) => "client",
        };
        let mut span = self.begin(row, kind, &method);
        span.request = serde_json::from_str(id).ok();
        span.call = row.call.clone();
        if let (Some(session), true) = (&row.session, kind == "turn") {
            let turn = Turn { span: span.span.clone(), began: row.time, first_byte_ms: None };
            self.turns.insert(session.clone(), turn);
            span.parent = None;
        }
        self.begun.iter_mut().for_each(|begun| begun.push(span.clone()));
        self.calls.insert((row.direction, id.to_owned()), span);
    }

    fn reply(&mut self, row: &Row, id: &str) -> Option<SpanRecord> {
        let mut span = self.calls.remove(&(row.direction.other(), id.to_owned()))?;
        if span.kind == "turn" {
            let session = span.session.clone().unwrap_or_default();
            span.first_byte_ms = self.turns.remove(&session).and_then(|turn| turn.first_byte_ms);
            span.stop = row.stop.clone();
        }
        let end = match (&row.error, row.stop.as_deref()) {
            (Some(_), _) => "failed",
            (None, Some("cancelled")) => "cancelled",
            (None, _) => "completed",
        };
        Some(finish(span, row.time, end, row.error.clone()))
    }

    /// Takes an update: it may be the first of its turn, or begin or end a tool call.
    fn update(&mut self, row: &Row) -> Option<SpanRecord> {
        let session = row.session.clone()?;
        let kind = row.update.as_deref()?;
        if let Some(turn) = self.turns.get_mut(&session)
            && turn.first_byte_ms.is_none()
            && kind != "available_commands_update"
        {
            turn.first_byte_ms = Some(row.time - turn.began);
        }
        let call = row.call.clone()?;
        let key = (session, call);
        if kind == "tool_call" && self.tools.len() < MAX_OPEN {
            let name = row.title.clone().unwrap_or_else(|| "tool".to_owned());
            let mut span = self.begin(row, "tool", &name);
            span.call = row.call.clone();
            self.begun.iter_mut().for_each(|begun| begun.push(span.clone()));
            self.tools.insert(key.clone(), span);
        }
        let (end, error) = match row.status.as_deref()? {
            "completed" => ("completed", None),
            "failed" => ("failed", Some("the tool call failed".to_owned())),
            _ => return None,
        };
        Some(finish(self.tools.remove(&key)?, row.time, end, error))
    }

    fn begin(&mut self, row: &Row, kind: &str, name: &str) -> SpanRecord {
        self.next += 1;
        let turn = row.session.as_ref().and_then(|session| self.turns.get(session));
        let tool = row.session.clone().zip(row.call.clone());
        let tool = tool.and_then(|key| self.tools.get(&key)).map(|tool| tool.span.clone());
        SpanRecord {
            time: row.time,
            span: format!("{:016x}", self.next),
            parent: tool.or_else(|| Some(turn?.span.clone())),
            kind: kind.to_owned(),
            name: name.to_owned(),
            session: row.session.clone(),
            ..SpanRecord::default()
        }
    }
}

fn finish(span: SpanRecord, time: f64, end: &str, error: Option<String>) -> SpanRecord {
    let duration_ms = Some(time - span.time);
    SpanRecord { duration_ms, end: Some(end.to_owned()), error, ..span }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;
    use crate::row::{Item, each};

    // R: O2
    #[test]
    fn turns_tools_and_waits_are_derived_from_messages() {
        let mut recorder = Recorder::default();
        let mut text = String::new();
        for (time, direction, line) in [
            (0, Direction::In, r#"{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#),
            (
                5,
                Direction::Out,
                r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"Edit","status":"pending"}}}"#,
            ),
            (
                6,
                Direction::Out,
                r#"{"id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"}}}"#,
            ),
            (36, Direction::In, r#"{"id":1,"result":{}}"#),
            (
                40,
                Direction::Out,
                r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"failed"}}}"#,
            ),
            (50, Direction::Out, r#"{"id":1,"result":{"stopReason":"end_turn"}}"#),
        ] {
            for record in recorder.take(time, direction, line.as_bytes()) {
                text += &(serde_json::to_string(&record).unwrap() + "\n");
            }
        }
        let (mut deriver, mut spans) = (Deriver::default(), Vec::new());
        each(text.as_bytes(), |item| {
            if let Item::Message(row, _) = item {
                spans.extend(deriver.take(&row));
            }
            Ok(())
        })
        .unwrap();
        let short = |span: &SpanRecord| {
            (span.kind.clone(), span.time, span.duration_ms.unwrap(), span.end.clone().unwrap())
        };
        let expected = [
            ("permission", 6.0, 30.0, "completed"),
            ("tool", 5.0, 35.0, "failed"),
            ("turn", 0.0, 50.0, "completed"),
        ];
        let expected =
            expected.map(|(kind, time, took, end)| (kind.into(), time, took, end.into()));
        assert_eq!(spans.iter().map(short).collect::<Vec<_>>(), expected);
        let [permission, tool, turn] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(permission.parent.as_ref(), Some(&tool.span));
        assert_eq!((tool.parent.as_ref(), turn.first_byte_ms), (Some(&turn.span), Some(5.0)));
    }
}
