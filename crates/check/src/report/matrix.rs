//! Several agents side by side as a Markdown table, for documentation.

use std::fmt::Write as _;

use crate::catalogue::{Level, Origin};
use crate::verdict::{Outcome, Status};

/// Prints a summary, and every row of the protocol that some agent fails.
#[must_use]
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut out = "| agent | version | ACP v1 | musts failed | shoulds failed | not tested | documents passed | seconds |\n|---|---|---|--:|--:|--:|--:|--:|\n".to_owned();
    for outcome in outcomes {
        let failed = |level| {
            let rows = outcome.rows.iter().filter(|result| {
                result.row.origin == Origin::Protocol && result.row.level == level
            });
            rows.filter(|result| result.status == Status::Failed).count()
        };
        let documents: usize = [Status::Passed, Status::Failed, Status::NotTested]
            .iter()
            .map(|status| outcome.count(Origin::Documents, *status))
            .sum();
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} of {documents} | {:.0} |",
            outcome.agent,
            outcome.version,
            if outcome.is_conformant() { "conformant" } else { "not conformant" },
            failed(Level::Must),
            failed(Level::Should),
            outcome.count(Origin::Protocol, Status::NotTested),
            outcome.count(Origin::Documents, Status::Passed),
            outcome.seconds
        )
        .ok();
    }
    let Some(first) = outcomes.first() else { return out };
    writeln!(out, "\nCatalogue {}, edition {}.", first.revision, first.edition).ok();
    out += "\nRows of the protocol that an agent fails (**✗** a must, ✗ a should) or that could not be tested (?):\n\n| row |";
    outcomes.iter().for_each(|outcome| out += &format!(" {} |", outcome.agent));
    out += "\n|---|";
    outcomes.iter().for_each(|_| out.push_str(":-:|"));
    out.push('\n');
    for result in &first.rows {
        let row = &result.row;
        let of = |outcome: &Outcome| outcome.result(&row.id).map(|result| result.status);
        let is_bad = outcomes.iter().any(|outcome| of(outcome) == Some(Status::Failed));
        let matters = matches!(row.level, Level::Must | Level::Should);
        if row.origin != Origin::Protocol || !is_bad || !matters {
            continue;
        }
        write!(out, "| `{}`: {} |", row.id, row.sentence).ok();
        for outcome in outcomes {
            let cell = match (of(outcome), row.level) {
                (Some(Status::Failed), Level::Must) => "**✗**",
                (Some(Status::Failed), _) => "✗",
                (Some(Status::NotTested), _) => "?",
                (Some(Status::NotApplicable) | None, _) => "–",
                (Some(Status::Passed), _) => "✓",
            };
            write!(out, " {cell} |").ok();
        }
        out.push('\n');
    }
    out
}
