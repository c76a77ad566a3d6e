//! Spans for Perfetto and `chrome://tracing`: the JSON trace format. Spans that overlap without being nested get tracks of
//! their own, since a track can only show a stack.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::each_span;
use crate::record::SpanRecord;

/// Writes the trace. Returns how many lines are not part of it.
///
/// # Errors
/// Fails if the trace cannot be read or the file cannot be written.
pub fn perfetto(file: &Path, out: &mut impl Write) -> io::Result<usize> {
    let mut spans = Vec::new();
    let bad = each_span(file, |span| {
        spans.push(span);
        Ok(())
    })?;
    // Those that begin first come first, and of those the longest: a parent before its children.
    spans.sort_by(|a, b| a.time.total_cmp(&b.time).then_with(|| length(b).total_cmp(&length(a))));
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let mut processes: Vec<String> = Vec::new();
    let mut tracks: HashMap<usize, Vec<Vec<f64>>> = HashMap::new();
    let mut is_first = true;
    for span in &spans {
        let session = span.session.clone().unwrap_or_else(|| "agent".to_owned());
        let process = processes.iter().position(|known| *known == session);
        let process = process.unwrap_or_else(|| {
            processes.push(session);
            processes.len() - 1
        });
        let track = place(tracks.entry(process).or_default(), span);
        write_event(out, &mut is_first, &event(span, process + 1, track + 1))?;
    }
    for (index, session) in processes.iter().enumerate() {
        let name = json!({ "ph": "M", "name": "process_name", "pid": index + 1, "args": { "name": format!("session {session}") } });
        write_event(out, &mut is_first, &name)?;
    }
    out.write_all(b"]}\n")?;
    Ok(bad)
}

fn length(span: &SpanRecord) -> f64 {
    span.duration_ms.unwrap_or_default()
}

/// Finds a track where the span is inside all that are open, or after them. A track is the stack of the ends of its spans.
fn place(tracks: &mut Vec<Vec<f64>>, span: &SpanRecord) -> usize {
    let end = span.time + length(span);
    for (index, track) in tracks.iter_mut().enumerate() {
        track.retain(|open| *open > span.time);
        if track.last().is_none_or(|open| end <= *open) {
            track.push(end);
            return index;
        }
    }
    tracks.push(vec![end]);
    tracks.len() - 1
}

fn event(span: &SpanRecord, process: usize, track: usize) -> Value {
    let mut arguments = serde_json::to_value(span).unwrap_or_default();
    if let Value::Object(members) = &mut arguments {
        members
            .retain(|name, _| !matches!(name.as_str(), "time" | "duration_ms" | "name" | "kind"));
    }
    json!({
        "ph": "X", "cat": span.kind, "name": format!("{} {}", span.kind, span.name),
        "ts": span.time * 1000.0, "dur": length(span) * 1000.0, "pid": process, "tid": track, "args": arguments,
    })
}

fn write_event(out: &mut impl Write, is_first: &mut bool, event: &Value) -> io::Result<()> {
    let comma = if std::mem::take(is_first) { "\n" } else { ",\n" };
    write!(out, "{comma}{event}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O2
    #[test]
    fn overlapping_spans_get_tracks_of_their_own() {
        let mut tracks = Vec::new();
        let mut put = |time: f64, length: f64| {
            let span = SpanRecord { time, duration_ms: Some(length), ..SpanRecord::default() };
            place(&mut tracks, &span)
        };
        assert_eq!(put(0.0, 100.0), 0);
        assert_eq!(put(10.0, 20.0), 0);
        // Overlaps the second without being inside.
        assert_eq!(put(20.0, 30.0), 1);
        assert_eq!(put(60.0, 10.0), 0);
    }
}
