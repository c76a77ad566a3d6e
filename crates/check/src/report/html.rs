//! The report as one HTML page: a matrix of rows and agents, with the reasons of failures.

use std::fmt::Write as _;

use super::junit::escape;
use super::{counts, sign};
use crate::catalogue::Origin;
use crate::verdict::{Outcome, Status};

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em;color:#222}\
table{border-collapse:collapse;width:100%}th,td{border-bottom:1px solid #ddd;padding:.3em .5em;text-align:left;vertical-align:top}\
th{position:sticky;top:0;background:#fff}td.s{white-space:nowrap}h2{margin-top:2em}\
.passed{color:#2e7d32}.failed{color:#b3261e;font-weight:600}.na{color:#777}.not{color:#a15c00}\
.level{color:#777;font-size:12px}pre{background:#f6f6f6;padding:.6em;overflow:auto;max-height:24em;font-size:12px}summary{cursor:pointer}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}th{background:#161616}th,td{border-color:#333}pre{background:#222}.passed{color:#81c784}.failed{color:#ff8a80}}";

/// Prints one or several outcomes as a page.
#[must_use]
pub fn html(outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>ACP conformance</title><style>{STYLE}</style>\n<h1>ACP conformance</h1>\n"
    );
    out += "<table><tr><th>Agent</th><th>Verdict</th><th>ACP v1</th><th>Other documents</th><th>Seconds</th></tr>\n";
    for outcome in outcomes {
        let (verdict, class) = match outcome.is_conformant() {
            true => ("conformant", "passed"),
            false => ("not conformant", "failed"),
        };
        writeln!(
            out,
            "<tr><td>{} {}</td><td class=\"{class}\">{verdict}</td><td>{}</td><td>{}</td><td>{:.1}</td></tr>",
            escape(&outcome.agent),
            escape(&outcome.version),
            counts(outcome, Origin::Protocol),
            counts(outcome, Origin::Documents),
            outcome.seconds
        )
        .ok();
    }
    out += "</table>\n";
    let Some(first) = outcomes.first() else { return out };
    let mut chapter = "";
    for (index, result) in first.rows.iter().enumerate() {
        if result.row.chapter != chapter {
            if !chapter.is_empty() {
                out += "</table>\n";
            }
            chapter = &result.row.chapter;
            write!(out, "<h2>{}</h2>\n<table><tr><th>Row</th>", escape(chapter)).ok();
            for outcome in outcomes {
                write!(out, "<th>{}</th>", escape(&outcome.agent)).ok();
            }
            out += "</tr>\n";
        }
        let row = &result.row;
        write!(
            out,
            "<tr id=\"{0}\"><td>{1} <span class=\"level\">{0} · {2} · {3}</span></td>",
            escape(&row.id),
            escape(&row.sentence),
            row.level.name(),
            row.origin.name()
        )
        .ok();
        for outcome in outcomes {
            cell(&mut out, outcome, index);
        }
        out += "</tr>\n";
    }
    out + "</table></html>\n"
}

fn cell(out: &mut String, outcome: &Outcome, index: usize) {
    let Some(result) = outcome.rows.get(index) else {
        out.push_str("<td></td>");
        return;
    };
    let class = match result.status {
        Status::Passed => "passed",
        Status::Failed => "failed",
        Status::NotApplicable => "na",
        Status::NotTested => "not",
    };
    let reason = escape(result.reason.as_deref().unwrap_or_default());
    let sign = sign(result.status);
    match result.status {
        Status::Failed => write!(
            out,
            "<td class=\"s\"><details><summary class=\"{class}\">{sign}</summary>{reason}<pre>{}</pre></details></td>",
            escape(&result.transcript.join("\n"))
        ),
        _ => write!(out, "<td class=\"s {class}\" title=\"{reason}\">{sign}</td>"),
    }
    .ok();
}
