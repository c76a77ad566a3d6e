//! The page: one file with everything in it, which needs no network. Its data are blocks of JSON arrays, written while the
//! trace is read, so that the size of the trace does not matter here; the page draws only what is visible.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::{escaped, has_spans, open};
use crate::derive::Deriver;
use crate::record::{Direction, Record, SpanRecord};
use crate::row::{Item, Row, each};
use crate::show::Filter;

const TEMPLATE: &str = include_str!("../pages/trace.html");
const STYLES: [&str; 2] = [include_str!("../pages/base.css"), include_str!("../pages/trace.css")];
const SCRIPTS: [&str; 7] = [
    include_str!("../pages/core.js"),
    include_str!("../pages/trace.js"),
    include_str!("../pages/sequence.js"),
    include_str!("../pages/timing.js"),
    include_str!("../pages/errors.js"),
    include_str!("../pages/profile.js"),
    include_str!("../pages/main.js"),
];
/// A block of data is at most about this long: a browser parses it at once.
const BLOCK: usize = 512 * 1024;
/// Of a longer message the page has only the beginning.
const MAX_BODY: usize = 64 * 1024;
/// The same in a trace that is larger than [`LARGE`]: the page must stay usable.
const MAX_BODY_OF_LARGE: usize = 160;
const LARGE: u64 = 24 * 1024 * 1024;

/// Writes the page of a trace, without the messages before a call of the client if its id is given. Returns how many lines are
/// not part of a trace.
///
/// # Errors
/// Fails if the trace cannot be read or the page cannot be written.
pub fn page(
    file: &Path,
    filter: &Filter,
    call: Option<&str>,
    out: &mut impl Write,
) -> io::Result<usize> {
    let derived = !has_spans(file)?;
    let max_body = match std::fs::metadata(file)?.len() > LARGE {
        true => MAX_BODY_OF_LARGE,
        false => MAX_BODY,
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let random = || std::hash::RandomState::new().build_hasher().finish();
    let nonce = format!("{:016x}{:016x}", random(), random());
    let (head, rest) = TEMPLATE.split_once("{{data}}").unwrap_or((TEMPLATE, ""));
    let head = head
        .replace("{{nonce}}", &nonce)
        .replace("{{title}}", &format!("{} – Purlin trace", escaped(&name)))
        .replace("{{css}}", &STYLES.concat());
    out.write_all(head.as_bytes())?;
    let mut data = Data {
        out,
        max_body,
        start: None,
        sessions: Vec::new(),
        block: 0,
        cut: 0,
        text: Vec::new(),
    };
    let mut deriver = derived.then(Deriver::default);
    let mut has_begun = call.is_none();
    let bad = each(open(file)?, |item| {
        if !filter.takes(&item) {
            return Ok(());
        }
        match item {
            Item::Message(row, body) => {
                let is_call = row.direction == Direction::In && !row.is_reply;
                has_begun = has_begun || (is_call && row.id.as_deref() == call);
                if !has_begun {
                    return Ok(());
                }
                data.message(&row, body)?;
                let spans = deriver.as_mut().map(|deriver| deriver.take(&row));
                spans.unwrap_or_default().iter().try_for_each(|span| data.span(span))
            }
            Item::Other(Record::Span(span)) => data.span(&span),
            Item::Other(Record::Dialect { time, dialect, why }) => {
                data.note(time as f64, &format!("dialect {dialect}: {why}"))
            }
            Item::Other(Record::Lost { time, lost }) => {
                data.note(time as f64, &format!("{lost} chunks lost"))
            }
            Item::Other(Record::Process { .. } | Record::Message(_)) => Ok(()),
        }
    })?;
    data.end_block()?;
    let about = json!({
        "file": name, "start": data.start.unwrap_or_default(), "sessions": data.sessions,
        "derived": derived, "bad": bad, "cut": data.cut,
    });
    out.write_all(b"<script type=\"application/json\" id=\"about\">")?;
    write_inert(out, about.to_string().as_bytes())?;
    out.write_all(b"</script>")?;
    let rest = rest.replace("{{nonce}}", &nonce).replace("{{js}}", &SCRIPTS.concat());
    out.write_all(rest.as_bytes())?;
    Ok(bad)
}

/// Writes JSON so that no text in it can end the element it stands in.
fn write_inert(out: &mut impl Write, json: &[u8]) -> io::Result<()> {
    let mut parts = json.split(|byte| *byte == b'<');
    out.write_all(parts.next().unwrap_or_default())?;
    parts.try_for_each(|part| {
        out.write_all(b"\\u003c")?;
        out.write_all(part)
    })
}

/// The data of the page, while they are written.
struct Data<'a, W> {
    out: &'a mut W,
    max_body: usize,
    /// The time of the first record; the page's times are since then.
    start: Option<f64>,
    sessions: Vec<String>,
    /// The length of the open block; 0 if none is open.
    block: usize,
    /// How many messages were cut.
    cut: u64,
    /// The buffer of a line.
    text: Vec<u8>,
}

impl<W: Write> Data<'_, W> {
    fn message(&mut self, row: &Row, body: Option<&str>) -> io::Result<()> {
        let time = self.since_start(row.time);
        let session = self.session(row.session.as_deref());
        let max_body = if row.error.is_some() { MAX_BODY } else { self.max_body };
        let body = body.map(|body| match body.len() > max_body {
            true => {
                self.cut += 1;
                let shown = &body[..body.floor_char_boundary(max_body)];
                Cow::Owned(format!("{shown}… ({} bytes)", body.len()))
            }
            false => Cow::Borrowed(body),
        });
        // A tuple: a value of JSON would copy every text.
        let line = (
            "m",
            time,
            u8::from(row.direction == Direction::Out),
            row.bytes,
            &row.method,
            &row.id,
            session,
            row.duration_ms,
            u8::from(row.is_reply),
            &row.summary,
            &row.error,
            &row.update,
            &row.call,
            body,
        );
        self.write(&line)
    }

    fn span(&mut self, span: &SpanRecord) -> io::Result<()> {
        let Some(duration) = span.duration_ms else { return Ok(()) };
        let time = self.since_start(span.time);
        let session = self.session(span.session.as_deref());
        let mut facts = serde_json::Map::new();
        let mut fact = |name: &str, value: Value| {
            if !value.is_null() && value != 0 {
                facts.insert(name.to_owned(), value);
            }
        };
        fact("end", json!(span.end));
        fact("error", json!(span.error));
        fact("request", json!(span.request.as_ref().map(Value::to_string)));
        fact("traceparent", json!(span.traceparent));
        fact("cwd", json!(span.cwd));
        fact("mode", json!(span.mode));
        fact("stop", json!(span.stop));
        fact("call", json!(span.call));
        fact("model", json!(span.model));
        fact("first", json!(span.first_byte_ms));
        fact("in", json!(span.tokens_in));
        fact("out", json!(span.tokens_out));
        fact("read", json!(span.cache_read));
        fact("write", json!(span.cache_write));
        fact("cost", json!(span.cost));
        fact("window", json!(span.window));
        fact("retries", json!(span.retries));
        let (id, parent, kind, name) = (&span.span, &span.parent, &span.kind, &span.name);
        self.write(&json!(["s", time, duration, id, parent, kind, name, session, facts]))
    }

    fn note(&mut self, time: f64, text: &str) -> io::Result<()> {
        let time = self.since_start(time);
        self.write(&json!(["n", time, text]))
    }

    fn since_start(&mut self, time: f64) -> f64 {
        // A span is written when it ends, so it may have begun before the first record.
        ((time - *self.start.get_or_insert(time)) * 1000.0).round() / 1000.0
    }

    fn session(&mut self, session: Option<&str>) -> i64 {
        let Some(session) = session else { return -1 };
        let known = self.sessions.iter().position(|known| known == session);
        let index = known.unwrap_or_else(|| {
            self.sessions.push(session.to_owned());
            self.sessions.len() - 1
        });
        i64::try_from(index).unwrap_or(-1)
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        serde_json::to_writer(&mut text, line)?;
        let before: &[u8] = match self.block {
            0 => b"<script type=\"application/json\" class=\"rows\">[",
            _ => b",\n",
        };
        self.out.write_all(before)?;
        write_inert(self.out, &text)?;
        self.block += text.len();
        self.text = text;
        if self.block > BLOCK {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.block > 0 {
            self.out.write_all(b"]</script>\n")?;
        }
        self.block = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    // R: O2
    #[test]
    fn page_has_no_network_access_and_text_cannot_become_markup() {
        let evil = "</script><img src=x onerror=alert(1)>";
        let call = json!({ "jsonrpc": "2.0", "id": evil, "method": "session/prompt",
            "params": { "sessionId": evil, "update": { "sessionUpdate": evil, "title": evil } } });
        let mut text = String::new();
        for record in Recorder::default().take(5, Direction::In, call.to_string().as_bytes()) {
            text += &(serde_json::to_string(&record).unwrap() + "\n");
        }
        let span = SpanRecord {
            name: evil.to_owned(),
            duration_ms: Some(1.0),
            kind: "tool".to_owned(),
            ..SpanRecord::default()
        };
        text += &(serde_json::to_string(&Record::Span(Box::new(span))).unwrap() + "\n{\"half");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("<b>.jsonl");
        std::fs::write(&file, text).unwrap();
        let mut out = Vec::new();
        let bad = page(&file, &Filter::default(), None, &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert_eq!(bad, 1);
        assert!(!page.contains("<img") && !page.contains("<b>.jsonl"), "markup got through");
        assert!(page.contains("\\u003c/script>\\u003cimg"), "the text is missing");
        assert!(!page.contains("{{"), "a placeholder is left");
        assert!(
            !page.contains("http://") && !page.contains("https://"),
            "the page names an address"
        );
        assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
    }
}
