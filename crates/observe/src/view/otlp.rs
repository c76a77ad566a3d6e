//! Spans for OpenTelemetry: OTLP as JSON, ready to be posted to a collector's `/v1/traces`.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::{each_span, genai};
use crate::record::SpanRecord;

/// How many spans one request has.
const BATCH: usize = 500;
/// How many spans may wait for their root. If there are more, they are sent without it.
const MAX_WAITING: usize = 100_000;

/// Makes requests from spans. A span comes after its children, so the trace of each is known only when its root was seen.
#[derive(Debug, Default)]
pub struct OtlpSpans {
    /// Spans that wait, by their parent.
    waiting: HashMap<String, Vec<SpanRecord>>,
    waiting_count: usize,
    ready: Vec<Value>,
}

impl OtlpSpans {
    /// Takes a span that has ended.
    pub fn take(&mut self, span: SpanRecord) {
        if let Some(parent) = &span.parent {
            self.waiting.entry(parent.clone()).or_default().push(span);
            self.waiting_count += 1;
            if self.waiting_count > MAX_WAITING {
                self.give_up();
            }
            return;
        }
        let trace = trace_of(&span);
        let mut open = vec![span];
        while let Some(span) = open.pop() {
            let children = self.waiting.remove(&span.span).unwrap_or_default();
            self.waiting_count -= children.len();
            open.extend(children);
            self.ready.push(span_out(&span, &trace));
        }
    }

    /// Makes the spans ready whose root never ended.
    pub fn give_up(&mut self) {
        for span in std::mem::take(&mut self.waiting).into_values().flatten() {
            self.ready.push(span_out(&span, &trace_of(&span)));
        }
        self.waiting_count = 0;
    }

    /// Returns a request with spans that are ready, and their number.
    pub fn request(&mut self, version: &str) -> Option<(Value, usize)> {
        if self.ready.is_empty() {
            return None;
        }
        let count = self.ready.len().min(BATCH);
        let spans: Vec<Value> = self.ready.drain(..count).collect();
        let scope = json!({ "name": "purlin", "version": version });
        let spans = json!({ "resourceSpans": [{ "resource": resource(version), "scopeSpans": [{ "scope": scope, "spans": spans }] }] });
        Some((spans, count))
    }
}

/// Calls `send` with one request after the other, until the trace has no more spans. Returns how many spans there were.
///
/// # Errors
/// Fails if the trace cannot be read or `send` fails.
pub fn otlp(
    file: &Path,
    version: &str,
    mut send: impl FnMut(Value) -> io::Result<()>,
) -> io::Result<usize> {
    let (mut spans, mut count) = (OtlpSpans::default(), 0);
    each_span(file, |span| {
        spans.take(span);
        while spans.ready.len() >= BATCH
            && let Some((request, sent)) = spans.request(version)
        {
            count += sent;
            send(request)?;
        }
        Ok(())
    })?;
    spans.give_up();
    while let Some((request, sent)) = spans.request(version) {
        count += sent;
        send(request)?;
    }
    Ok(count)
}

/// Describes who sends.
pub(crate) fn resource(version: &str) -> Value {
    json!({ "attributes": [attribute("service.name", &json!("purlin")), attribute("service.version", &json!(version))] })
}

/// Returns the id of the trace: the client's own, or one made from the root's.
fn trace_of(root: &SpanRecord) -> String {
    let given = root.traceparent.as_deref().and_then(|context| context.split('-').nth(1));
    given.map_or_else(|| format!("{:0>32}", id(&root.span)), str::to_owned)
}

/// Returns an id of 16 hexadecimal digits.
fn id(span: &str) -> String {
    format!("{span:0>16}")
}

fn attribute(name: &str, value: &Value) -> Value {
    let value = match value {
        Value::String(text) => json!({ "stringValue": text }),
        Value::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
        // OTLP writes 64-bit integers as strings.
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::Array(items) => {
            let items: Vec<Value> =
                items.iter().map(|item| attribute("", item)["value"].clone()).collect();
            json!({ "arrayValue": { "values": items } })
        }
        other => json!({ "stringValue": other.to_string() }),
    };
    json!({ "key": name, "value": value })
}

fn span_out(span: &SpanRecord, trace: &str) -> Value {
    let operation = genai::OPERATIONS.iter().find(|(kind, _)| *kind == span.kind).map(|row| row.1);
    let mut attributes = vec![attribute(genai::KIND, &json!(span.kind))];
    let mut add = |name: &str, value: Value| {
        if !value.is_null() && value != 0 {
            attributes.push(attribute(name, &value));
        }
    };
    add(genai::OPERATION, json!(operation));
    add(genai::CONVERSATION, json!(span.session));
    add(genai::CALL, json!(span.call));
    add(genai::MODEL, json!(span.model));
    let provider = span.model.as_deref().and_then(|model| model.split_once('/'));
    add(genai::PROVIDER, json!(provider.map(|(provider, _)| provider)));
    add(genai::INPUT_TOKENS, json!(span.tokens_in + span.cache_read + span.cache_write));
    add(genai::OUTPUT_TOKENS, json!(span.tokens_out));
    add(genai::CACHE_READ, json!(span.cache_read));
    add(genai::CACHE_WRITE, json!(span.cache_write));
    add(genai::FIRST, json!(span.first_byte_ms.map(|first| first / 1000.0)));
    add(genai::COST, json!(span.cost));
    add(genai::RETRIES, json!(span.retries));
    add(genai::REQUEST, json!(span.request.as_ref().map(Value::to_string)));
    match span.kind.as_str() {
        "tool" | "run" | "mcp" => add(genai::TOOL, json!(span.name)),
        "turn" => add(genai::AGENT, json!("purlin")),
        "subagent" => add(genai::AGENT, json!(span.name)),
        _ => {}
    }
    add(genai::FINISH, json!(span.stop.as_ref().map(|stop| [stop])));
    add(genai::ERROR, json!(span.error.as_ref().and(span.end.as_ref())));
    // A span of its own kind is named after its operation and what it is about.
    let name = operation.map_or_else(
        || format!("{} {}", span.kind, span.name),
        |operation| format!("{operation} {}", span.name),
    );
    // Calls to others are clients; 3 is their number, 1 is that of anything inside.
    let kind = if matches!(span.kind.as_str(), "model" | "mcp") { 3 } else { 1 };
    // Times have microseconds; more digits than that are not exact.
    let nanos = |ms: f64| format!("{:.0}000", ms * 1e3);
    let remote = span.traceparent.as_deref().and_then(|context| context.split('-').nth(2));
    json!({
        "traceId": trace,
        "spanId": id(&span.span),
        "parentSpanId": span.parent.as_deref().map(id).or_else(|| remote.map(str::to_owned)).unwrap_or_default(),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.time),
        "endTimeUnixNano": nanos(span.time + span.duration_ms.unwrap_or_default()),
        "attributes": attributes,
        "status": match &span.error {
            Some(error) => json!({ "code": 2, "message": error }),
            None => json!({}),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    // R: O2
    #[test]
    fn spans_of_a_turn_share_the_trace_of_the_client() {
        let turn = SpanRecord {
            span: "0a".to_owned(),
            kind: "turn".to_owned(),
            name: "turn".to_owned(),
            duration_ms: Some(5.0),
            time: 1_700_000_000_000.5,
            traceparent: Some("00-0123456789abcdef0123456789abcdef-00f067aa0ba902b7-01".to_owned()),
            ..SpanRecord::default()
        };
        let model = SpanRecord {
            span: "0b".to_owned(),
            parent: Some("0a".to_owned()),
            kind: "model".to_owned(),
            name: "openai/gpt".to_owned(),
            model: Some("openai/gpt".to_owned()),
            tokens_in: 7,
            error: Some("HTTP 400".to_owned()),
            end: Some("failed".to_owned()),
            ..turn.clone()
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("t");
        let lines = [model, turn]
            .map(|span| serde_json::to_string(&Record::Span(Box::new(span))).unwrap() + "\n");
        std::fs::write(&file, lines.concat()).unwrap();
        let mut sent = Vec::new();
        let count = otlp(&file, "1", |request| {
            sent.push(request);
            Ok(())
        });
        assert_eq!(count.unwrap(), 2);
        let spans = &sent[0]["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(spans[0]["parentSpanId"], "00f067aa0ba902b7");
        assert_eq!(spans[0]["startTimeUnixNano"], "1700000000000500000");
        assert_eq!(spans[0]["name"], "invoke_agent turn");
        for span in spans.as_array().unwrap() {
            assert_eq!(span["traceId"], "0123456789abcdef0123456789abcdef");
        }
        assert_eq!(spans[1]["parentSpanId"], "000000000000000a");
        assert_eq!(spans[1]["status"], json!({ "code": 2, "message": "HTTP 400" }));
        let has = |name: &str, value: Value| {
            let attributes = spans[1]["attributes"].as_array().unwrap();
            attributes.iter().any(|one| one["key"] == name && one["value"] == value)
        };
        assert!(has("gen_ai.usage.input_tokens", json!({ "intValue": "7" })));
        assert!(has("gen_ai.provider.name", json!({ "stringValue": "openai" })));
    }
}
