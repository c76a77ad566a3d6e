//! Views of a trace: one page, pictures for documents, and the formats of other tools.

mod genai;
mod html;
mod otlp;
mod perfetto;
mod svg;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::derive::Deriver;
use crate::record::{Record, SpanRecord};
use crate::row::{Item, each};

pub use html::page;
pub(crate) use otlp::resource;
pub use otlp::{OtlpSpans, otlp};
pub use perfetto::perfetto;
pub use svg::{sequence_svg, timing_svg};

/// The size of a read.
const READ: usize = 1024 * 1024;

/// Opens a trace for reading it line by line.
fn open(file: &Path) -> io::Result<impl BufRead> {
    Ok(BufReader::with_capacity(READ, File::open(file)?))
}

/// Tells whether a trace has spans; otherwise they are derived from its messages. A span's line begins with its time and id.
fn has_spans(file: &Path) -> io::Result<bool> {
    let mut input = open(file)?;
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        let head = &line[..line.len().min(48)];
        if head.windows(7).any(|part| part == b"\"span\":") {
            return Ok(true);
        }
    }
}

/// Calls `take` with every span of a trace, in the order in which they ended.
fn each_span(file: &Path, mut take: impl FnMut(SpanRecord) -> io::Result<()>) -> io::Result<usize> {
    let mut deriver = (!has_spans(file)?).then(Deriver::default);
    each(open(file)?, |item| match (item, &mut deriver) {
        (Item::Other(Record::Span(span)), _) => take(*span),
        (Item::Message(row, _), Some(deriver)) => {
            deriver.take(&row).into_iter().try_for_each(&mut take)
        }
        _ => Ok(()),
    })
}

/// Returns a text for XML and HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in XML, however they are written.
            letter if letter.is_control() && letter != '\n' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}
