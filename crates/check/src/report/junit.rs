//! The report for CI systems: JUnit XML, as the schema of Jenkins has it.

use std::fmt::Write as _;

use crate::verdict::{Outcome, RowResult, Status};

/// Prints outcomes as JUnit XML: a suite for each agent and chapter, a test for each row.
///
/// A test fails if `is_failure` says so, which is what the exit code depends on. Other rows that do not hold are skipped
/// tests with their reason: a CI system would report them as failures of the build.
#[must_use]
pub fn junit(outcomes: &[Outcome], is_failure: &dyn Fn(&RowResult) -> bool) -> String {
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let all = || outcomes.iter().flat_map(|outcome| &outcome.rows);
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let (tests, failures) = (all().count(), all().filter(|result| is_failure(result)).count());
    writeln!(
        out,
        "<testsuites name=\"ACP conformance\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" time=\"{seconds:.3}\">"
    )
    .ok();
    for outcome in outcomes {
        let agent = format!("{} {}", outcome.agent, outcome.version);
        let mut chapters: Vec<&str> = Vec::new();
        for result in &outcome.rows {
            if !chapters.contains(&&*result.row.chapter) {
                chapters.push(&result.row.chapter);
            }
        }
        for chapter in chapters {
            let rows: Vec<&RowResult> =
                outcome.rows.iter().filter(|result| result.row.chapter == chapter).collect();
            suite(&mut out, agent.trim(), chapter, &rows, is_failure);
        }
    }
    out + "</testsuites>\n"
}

fn suite(
    out: &mut String,
    agent: &str,
    chapter: &str,
    rows: &[&RowResult],
    is_failure: &dyn Fn(&RowResult) -> bool,
) {
    let failed = rows.iter().filter(|result| is_failure(result)).count();
    let passed = rows.iter().filter(|result| result.status == Status::Passed).count();
    writeln!(
        out,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{}\">",
        escape(&format!("{agent}: {chapter}")),
        rows.len(),
        rows.len() - passed - failed
    )
    .ok();
    for result in rows {
        let row = &result.row;
        let class = format!("{}.{}", row.origin.name(), row.level.name());
        write!(out, "    <testcase name=\"{}\" classname=\"{class}\"", escape(&row.id)).ok();
        let kind = super::sign(result.status);
        let reason = escape(result.reason.as_deref().unwrap_or_default());
        if is_failure(result) {
            let transcript = escape(&result.transcript.join("\n"));
            let sentence = escape(&row.sentence);
            writeln!(out, "><failure type=\"{kind}\" message=\"{sentence} {reason}\">{transcript}</failure></testcase>").ok();
        } else if result.status == Status::Passed {
            out.push_str("/>\n");
        } else {
            writeln!(out, "><skipped message=\"{kind}: {reason}\"/></testcase>").ok();
        }
    }
    out.push_str("  </testsuite>\n");
}

/// Escapes a text for XML and HTML. Characters that XML does not allow become a replacement.
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
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}
