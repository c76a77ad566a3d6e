//! The report for CI systems: JUnit XML.

use std::fmt::Write as _;

use crate::verdict::{Outcome, Status};

/// Prints an outcome as JUnit XML: a suite for each chapter, a test for each row.
#[must_use]
pub fn junit(outcome: &Outcome) -> String {
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let failed = outcome.rows.iter().filter(|result| result.status == Status::Failed).count();
    writeln!(
        out,
        "<testsuites name=\"{}\" tests=\"{}\" failures=\"{failed}\" time=\"{:.3}\">",
        escape(&format!("{} {}", outcome.agent, outcome.version)),
        outcome.rows.len(),
        outcome.seconds
    )
    .ok();
    let mut chapters: Vec<&str> = Vec::new();
    for result in &outcome.rows {
        if !chapters.contains(&&*result.row.chapter) {
            chapters.push(&result.row.chapter);
        }
    }
    for chapter in chapters {
        let rows: Vec<_> =
            outcome.rows.iter().filter(|result| result.row.chapter == chapter).collect();
        let count = |status| rows.iter().filter(|result| result.status == status).count();
        let (failed, skipped) =
            (count(Status::Failed), count(Status::NotApplicable) + count(Status::NotTested));
        writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failed}\" skipped=\"{skipped}\">",
            escape(chapter),
            rows.len()
        )
        .ok();
        for result in rows {
            let row = &result.row;
            let class = format!("{}.{}", row.origin.name(), row.level.name());
            write!(out, "    <testcase name=\"{}\" classname=\"{class}\"", escape(&row.id)).ok();
            let reason = escape(result.reason.as_deref().unwrap_or_default());
            match result.status {
                Status::Passed => out.push_str("/>\n"),
                Status::Failed => {
                    let transcript = escape(&result.transcript.join("\n"));
                    let sentence = escape(&row.sentence);
                    writeln!(out, "><failure message=\"{sentence} {reason}\">{transcript}</failure></testcase>").ok();
                }
                Status::NotApplicable | Status::NotTested => {
                    let kind = super::sign(result.status);
                    writeln!(out, "><skipped message=\"{kind}: {reason}\"/></testcase>").ok();
                }
            }
        }
        out.push_str("  </testsuite>\n");
    }
    out + "</testsuites>\n"
}

/// Escapes a text for XML and HTML. Control characters, which XML does not allow, become a replacement.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}
