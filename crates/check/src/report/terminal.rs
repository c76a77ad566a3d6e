//! The report for people: failures with the shortest conversation that shows them, then the numbers.

use std::fmt::Write as _;

use super::{counts, matters, sign};
use crate::catalogue::{Catalogue, Origin, REVISION, edition};
use crate::verdict::{Outcome, RowResult, Status};

/// Prints an outcome.
#[must_use]
pub fn terminal(outcome: &Outcome, is_strict: bool) -> String {
    let mut out = String::new();
    let bad = |result: &&RowResult| result.is_bad() && matters(result.row.level);
    for origin in [Origin::Protocol, Origin::Documents] {
        let rows = outcome.rows.iter().filter(|result| result.row.origin == origin).filter(bad);
        for result in rows {
            failure(&mut out, result);
        }
    }
    for fault in &outcome.suite_faults {
        writeln!(out, "fault of the suite: {fault}").ok();
    }
    let name = format!("{} {}", outcome.agent, outcome.version);
    let count = outcome.violations().count();
    let verdict = match (outcome.suite_faults.is_empty(), count) {
        (false, _) => "not decided, because the suite itself failed".to_owned(),
        (true, 0) => "conformant with ACP v1".to_owned(),
        (true, count) => format!("not conformant with ACP v1 ({count} of its musts)"),
    };
    writeln!(out, "{}: {verdict}", name.trim()).ok();
    writeln!(out, "  ACP v1:    {}", counts(outcome, Origin::Protocol)).ok();
    writeln!(out, "  documents: {}", counts(outcome, Origin::Documents)).ok();
    if is_strict {
        writeln!(out, "  strict:    {} rows fail", outcome.strict_violations().count()).ok();
    }
    if outcome.profile.is_none() {
        writeln!(out, "  No profile: rows that need a model were not tested. See --profile.").ok();
    }
    let (revision, edition) = (&outcome.revision, outcome.edition);
    writeln!(out, "  {:.1} s, catalogue {revision} edition {edition}", outcome.seconds).ok();
    out
}

fn failure(out: &mut String, result: &RowResult) {
    let row = &result.row;
    let level = row.level.name();
    writeln!(out, "{} {} ({level}, {})", sign(result.status), row.id, row.origin.name()).ok();
    writeln!(out, "    {}", row.sentence).ok();
    if let Some(reason) = &result.reason {
        writeln!(out, "    {reason}").ok();
    }
    if result.status == Status::Failed {
        for line in &result.transcript {
            writeln!(out, "      {line}").ok();
        }
    }
    out.push('\n');
}

/// Prints the catalogue.
#[must_use]
pub fn list(catalogue: &Catalogue) -> String {
    let mut out = format!(
        "Catalogue {REVISION}, edition {}: {} rows, {} cases\n",
        edition(),
        catalogue.rows.len(),
        catalogue.cases.len()
    );
    let mut chapter = "";
    for row in &catalogue.rows {
        if row.chapter != chapter {
            chapter = &row.chapter;
            writeln!(out, "\n{chapter}").ok();
        }
        let dialect = if row.dialect == "v1" { "" } else { &row.dialect };
        let (level, origin) = (row.level.name(), row.origin.name());
        writeln!(
            out,
            "  {:<34} {level:<11} {origin:<9} {}{}{dialect}",
            row.id,
            row.sentence,
            if dialect.is_empty() { "" } else { " Dialect: " }
        )
        .ok();
    }
    out
}
