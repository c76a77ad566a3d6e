//! The report as one HTML page: the verdicts, the failures with their conversations, and a matrix of rows and agents.

use std::fmt::Write as _;

use super::junit::escape;
use super::{counts, sign};
use crate::catalogue::Origin;
use crate::verdict::{Outcome, RowResult, Status};

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em;color:#222;background:#fff}\
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}th,td{border-bottom:1px solid #ddd;padding:.3em .5em;text-align:left;vertical-align:top}\
td.s{white-space:nowrap}h2{margin-top:2em}.row{min-width:12em}a{color:inherit}\
.passed{color:#2e7d32}.failed{color:#b3261e;font-weight:600}.weak,.not{color:#a15c00}.na,.level{color:#777}.level{font-size:12px;overflow-wrap:anywhere}\
details{margin:.4em 0}summary{cursor:pointer}details p{margin:.4em 0;overflow-wrap:anywhere}\
pre{background:#f6f6f6;padding:.6em;overflow:auto;max-height:24em;font-size:12px}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}th,td{border-color:#333}pre{background:#222}.passed{color:#81c784}.failed{color:#ff8a80}.weak,.not{color:#ffb74d}.na,.level{color:#999}}";

/// Prints one or several outcomes as a page.
#[must_use]
pub fn html(outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>ACP conformance</title><style>{STYLE}</style></head><body>\n<h1>ACP conformance</h1>\n"
    );
    summary(&mut out, outcomes);
    for (number, outcome) in outcomes.iter().enumerate() {
        failures(&mut out, outcome, number, Origin::Protocol, "ACP v1");
        failures(&mut out, outcome, number, Origin::Documents, "other documents");
    }
    let Some(first) = outcomes.first() else { return out + "</body></html>\n" };
    let mut chapter = "";
    for result in &first.rows {
        if result.row.chapter != chapter {
            if !chapter.is_empty() {
                out += "</table></div>\n";
            }
            chapter = &result.row.chapter;
            let title = escape(chapter);
            write!(out, "<h2>{title}</h2>\n<div class=\"wide\"><table><tr><th>Row</th>").ok();
            for outcome in outcomes {
                write!(out, "<th>{}</th>", escape(short_name(outcome))).ok();
            }
            out += "</tr>\n";
        }
        let row = &result.row;
        write!(
            out,
            "<tr><td class=\"row\">{1} <span class=\"level\">{0} · {2} · {3}</span></td>",
            escape(&row.id),
            escape(&row.sentence),
            row.level.name(),
            row.origin.name()
        )
        .ok();
        for (number, outcome) in outcomes.iter().enumerate() {
            cell(&mut out, outcome.result(&row.id), number);
        }
        out += "</tr>\n";
    }
    out + "</table></div></body></html>\n"
}

fn summary(out: &mut String, outcomes: &[Outcome]) {
    out.push_str("<div class=\"wide\"><table><tr><th>Agent</th><th>Verdict</th><th>ACP v1</th><th>Other documents</th><th>Catalogue</th><th>Seconds</th></tr>\n");
    for outcome in outcomes {
        let (verdict, class) = match outcome.is_conformant() {
            true => ("conformant", "passed"),
            false => ("not conformant", "failed"),
        };
        writeln!(
            out,
            "<tr><td>{} {}</td><td class=\"{class}\">{verdict}</td><td>{}</td><td>{}</td><td>{}.{}</td><td>{:.1}</td></tr>",
            escape(&outcome.agent),
            escape(&outcome.version),
            counts(outcome, Origin::Protocol),
            counts(outcome, Origin::Documents),
            escape(&outcome.revision),
            outcome.edition,
            outcome.seconds
        )
        .ok();
    }
    out.push_str("</table></div>\n");
}

/// Prints what an agent fails of one origin. `number` is its place among the agents, which makes the links unique.
fn failures(out: &mut String, outcome: &Outcome, number: usize, origin: Origin, of: &str) {
    let of_origin = outcome.rows.iter().filter(|result| result.row.origin == origin);
    let bad: Vec<&RowResult> = of_origin.filter(|result| result.is_bad()).collect();
    if bad.is_empty() {
        return;
    }
    writeln!(out, "<h2>What {} fails of {of}</h2>", escape(short_name(outcome))).ok();
    for result in bad {
        let row = &result.row;
        let transcript = escape(&result.transcript.join("\n"));
        let transcript = match transcript.is_empty() {
            true => String::new(),
            false => format!("<pre>{transcript}</pre>"),
        };
        writeln!(
            out,
            "<details id=\"a{number}-{0}\"><summary><span class=\"{1}\">{2}</span> {3} <span class=\"level\">{0} · {4} · {5}</span></summary><p>{6}</p>{transcript}</details>",
            escape(&row.id),
            class(result),
            sign(result.status),
            escape(&row.sentence),
            row.level.name(),
            row.origin.name(),
            escape(result.reason.as_deref().unwrap_or_default()),
        )
        .ok();
    }
}

/// Returns the agent's name without the scope of its package.
fn short_name(outcome: &Outcome) -> &str {
    outcome.agent.rsplit('/').next().unwrap_or(&outcome.agent)
}

fn class(result: &RowResult) -> &'static str {
    match result.status {
        Status::Passed => "passed",
        Status::Failed if result.is_violation() => "failed",
        Status::Failed => "weak",
        Status::NotApplicable => "na",
        Status::NotTested => "not",
    }
}

fn cell(out: &mut String, result: Option<&RowResult>, number: usize) {
    let Some(result) = result else {
        out.push_str("<td></td>");
        return;
    };
    let (class, sign) = (class(result), sign(result.status));
    match result.is_bad() {
        true => {
            let id = escape(&result.row.id);
            write!(out, "<td class=\"s {class}\"><a href=\"#a{number}-{id}\">{sign}</a></td>")
        }
        false => {
            let reason = escape(result.reason.as_deref().unwrap_or_default());
            write!(out, "<td class=\"s {class}\" title=\"{reason}\">{sign}</td>")
        }
    }
    .ok();
}
