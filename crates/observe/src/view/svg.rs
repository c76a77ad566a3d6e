//! Pictures for documents: the timing and the sequence of a trace as SVG. They show the beginning of a long one, and say so.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use super::{each_span, escaped, open};
use crate::record::{Direction, SpanRecord};
use crate::row::{Item, clean, each};
use crate::show::Filter;

/// At most this many rows are drawn.
const MAX_ROWS: usize = 200;
const ROW: usize = 22;
const LABEL: f64 = 260.0;
const WIDTH: f64 = 1000.0;

/// The colour of each kind of span; those of the page.
const COLOURS: [(&str, &str); 12] = [
    ("turn", "#8090a8"),
    ("model", "#7a5af0"),
    ("tool", "#0f8f8a"),
    ("run", "#35b3ad"),
    ("command", "#c77d0a"),
    ("mcp", "#2f7fd6"),
    ("permission", "#d6408a"),
    ("compaction", "#8d6e53"),
    ("subagent", "#3f9142"),
    ("sync", "#98a2b3"),
    ("client", "#1899b8"),
    ("request", "#6b7a90"),
];

/// Writes the timing of a trace. Returns how many lines are not part of it.
///
/// # Errors
/// Fails if the trace cannot be read or the picture cannot be written.
pub fn timing_svg(file: &Path, filter: &Filter, out: &mut impl Write) -> io::Result<usize> {
    let mut spans = Vec::new();
    let bad = each_span(file, |span| {
        let item = Item::Other(crate::record::Record::Span(Box::new(span)));
        if let (true, Item::Other(crate::record::Record::Span(span))) = (filter.takes(&item), item)
            && span.kind != "sync"
            && spans.len() < MAX_ROWS * 50
        {
            spans.push(*span);
        }
        Ok(())
    })?;
    spans.sort_by(|a, b| {
        let length = |span: &SpanRecord| span.duration_ms.unwrap_or_default();
        a.time.total_cmp(&b.time).then_with(|| length(b).total_cmp(&length(a)))
    });
    let left_out = spans.len().saturating_sub(MAX_ROWS);
    spans.truncate(MAX_ROWS);
    let begin = spans.first().map_or(0.0, |span| span.time);
    let end = |span: &SpanRecord| span.time + span.duration_ms.unwrap_or_default();
    let length = (spans.iter().map(end).fold(begin, f64::max) - begin).max(1.0);
    let depths = depths(&spans);
    let mut text = head(spans.len(), left_out, "Timing");
    for (index, (span, depth)) in spans.iter().zip(depths).enumerate() {
        bar(&mut text, index, span, depth, begin, length);
    }
    text.push_str("</svg>\n");
    out.write_all(text.as_bytes())?;
    Ok(bad)
}

fn depths(spans: &[SpanRecord]) -> Vec<usize> {
    let parents: HashMap<&str, &str> = spans
        .iter()
        .filter_map(|span| Some((span.span.as_str(), span.parent.as_deref()?)))
        .collect();
    let depth = |span: &SpanRecord| {
        let chain = std::iter::successors(span.parent.as_deref(), |id| parents.get(id).copied());
        chain.take(6).count()
    };
    spans.iter().map(depth).collect()
}

fn head(rows: usize, left_out: usize, title: &str) -> String {
    let height = (rows + 2) * ROW;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\" aria-label=\"{title}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    if left_out > 0 {
        let y = height - 8;
        writeln!(text, "<text x=\"8\" y=\"{y}\" fill=\"#5d6878\">{left_out} more</text>").ok();
    }
    text
}

fn bar(text: &mut String, index: usize, span: &SpanRecord, depth: usize, begin: f64, length: f64) {
    let scale = (WIDTH - LABEL - 90.0) / length;
    let took = span.duration_ms.unwrap_or_default();
    let (x, width) = (LABEL + (span.time - begin) * scale, (took * scale).max(1.5));
    let (y, middle) = (index * ROW + 6, index * ROW + 19);
    let known = COLOURS.iter().find(|(kind, _)| *kind == span.kind);
    let colour = known.map_or("#8090a8", |(_, colour)| colour);
    let failed = if span.error.is_some() { " stroke=\"#b42318\" stroke-width=\"2\"" } else { "" };
    let shown: String = format!("{} {}", span.kind, clean(&span.name)).chars().take(38).collect();
    let indent = 8 + depth * 10;
    let colour_of_text = if span.error.is_some() { "#b42318" } else { "#1b2330" };
    writeln!(
        text,
        "<text x=\"{indent}\" y=\"{middle}\" fill=\"{colour_of_text}\">{}</text>",
        escaped(&shown)
    )
    .ok();
    writeln!(text, "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"15\" rx=\"3\" fill=\"{colour}\"{failed}/>").ok();
    let after = x + width + 5.0;
    writeln!(text, "<text x=\"{after:.1}\" y=\"{middle}\" fill=\"#5d6878\">{took:.0} ms</text>")
        .ok();
}

/// Writes the sequence of a trace. Returns how many lines are not part of it.
///
/// # Errors
/// Fails if the trace cannot be read or the picture cannot be written.
pub fn sequence_svg(file: &Path, filter: &Filter, out: &mut impl Write) -> io::Result<usize> {
    let mut rows: Vec<(f64, Direction, bool, bool, String, usize)> = Vec::new();
    let mut left_out = 0;
    let bad = each(open(file)?, |item| {
        if let (true, Item::Message(row, _)) = (filter.takes(&item), &item) {
            let is_full = rows.len() == MAX_ROWS;
            match rows.last_mut() {
                Some((.., last, count)) if *last == row.summary => *count += 1,
                _ if is_full => left_out += 1,
                _ => {
                    let (direction, failed) = (row.direction, row.error.is_some());
                    rows.push((row.time, direction, row.is_reply, failed, row.summary.clone(), 1));
                }
            }
        }
        Ok(())
    })?;
    let begin = rows.first().map_or(0.0, |row| row.0);
    let (left, right) = (150.0, WIDTH - 60.0);
    let mut text = head(rows.len() + 1, left_out, "Sequence");
    text.push_str("<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"context-stroke\"/></marker></defs>\n");
    let bottom = (rows.len() + 2) * ROW;
    for (x, name) in [(left, "client"), (right, "agent")] {
        writeln!(text, "<text x=\"{x}\" y=\"15\" text-anchor=\"middle\" font-weight=\"600\" fill=\"#1b2330\">{name}</text><line x1=\"{x}\" y1=\"22\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#dfe3ea\" stroke-width=\"2\"/>").ok();
    }
    for (index, (time, direction, is_reply, failed, summary, count)) in rows.iter().enumerate() {
        let y = (index + 2) * ROW;
        let (from, to) = match direction {
            Direction::In => (left, right),
            Direction::Out => (right, left),
        };
        let dashes = if *is_reply { " stroke-dasharray=\"5 4\"" } else { "" };
        let colour = match (failed, direction) {
            (true, _) => "#b42318",
            (false, Direction::In) => "#2f5fd0",
            (false, Direction::Out) => "#7a5af0",
        };
        let times = if *count > 1 { format!(" × {count}") } else { String::new() };
        let (middle, above, after) = (left.midpoint(right), y - 4, (time - begin) / 1000.0);
        writeln!(text, "<text x=\"8\" y=\"{y}\" fill=\"#5d6878\">{after:.3}</text><line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes} marker-end=\"url(#a)\"/><text x=\"{middle}\" y=\"{above}\" text-anchor=\"middle\" fill=\"#1b2330\">{}{times}</text>", escaped(summary)).ok();
    }
    text.push_str("</svg>\n");
    out.write_all(text.as_bytes())?;
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    // R: O2
    #[test]
    fn pictures_are_bounded_and_escape_names() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("t");
        let span = |number: usize| SpanRecord {
            time: number as f64,
            span: format!("{number}"),
            kind: "tool".to_owned(),
            name: "<b>&".to_owned(),
            duration_ms: Some(1.0),
            ..SpanRecord::default()
        };
        let lines: String = (0..MAX_ROWS + 5)
            .map(|number| {
                serde_json::to_string(&Record::Span(Box::new(span(number)))).unwrap() + "\n"
            })
            .collect();
        std::fs::write(&file, lines).unwrap();
        let mut out = Vec::new();
        timing_svg(&file, &Filter::default(), &mut out).unwrap();
        let picture = String::from_utf8(out).unwrap();
        assert!(!picture.contains("<b>"), "{picture}");
        assert!(picture.contains(">5 more<"));
        assert_eq!(picture.matches("rx=\"3\"").count(), MAX_ROWS);
    }
}
