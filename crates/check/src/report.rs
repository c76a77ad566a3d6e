//! Reports: terminal, JSON, JUnit, HTML and a badge.

mod html;
mod junit;
mod matrix;
mod terminal;

use std::fmt::Write as _;

pub use html::html;
pub use junit::junit;
pub use matrix::markdown;
pub use terminal::{list, terminal};

use crate::catalogue::{Level, Origin};
use crate::verdict::{Outcome, Status};

/// Prints one or several outcomes as JSON.
#[must_use]
pub fn json(outcomes: &[Outcome]) -> String {
    let text = match outcomes {
        [one] => serde_json::to_string_pretty(one),
        several => serde_json::to_string_pretty(several),
    };
    text.unwrap_or_default() + "\n"
}

/// Reads a report that [`json`] printed: one outcome or a list.
///
/// # Errors
/// Says what is wrong with the text.
pub fn read(text: &str) -> Result<Vec<Outcome>, String> {
    let is_list = text.trim_start().starts_with('[');
    let read = match is_list {
        true => serde_json::from_str(text),
        false => serde_json::from_str(text).map(|outcome| vec![outcome]),
    };
    read.map_err(|err| format!("not a JSON report of `purlin check`: {err}"))
}

/// Returns a badge as SVG.
#[must_use]
pub fn badge(outcome: &Outcome) -> String {
    let (text, colour) = match outcome.is_conformant() {
        true => ("conformant".to_owned(), "#2e7d32"),
        false => (format!("{} violations", outcome.violations().count()), "#b3261e"),
    };
    let (left, right) = (52, 20 + 6 * text.len());
    let width = left + right;
    let mut svg = String::new();
    // Writing to a string cannot fail.
    write!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="ACP v1: {text}">
<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11"><text x="6" y="14">ACP v1</text><text x="{}" y="14">{text}</text></g>
</svg>
"##,
        left + 8
    )
    .ok();
    svg
}

/// A sign for a status.
fn sign(status: Status) -> &'static str {
    match status {
        Status::Passed => "ok",
        Status::Failed => "FAILED",
        Status::NotApplicable => "n/a",
        Status::NotTested => "not tested",
    }
}

/// Counts as a sentence: how many rows of an origin passed, failed, …
fn counts(outcome: &Outcome, origin: Origin) -> String {
    let count = |status| outcome.count(origin, status);
    let mut text = format!("{} passed, {} failed", count(Status::Passed), count(Status::Failed));
    for (status, name) in
        [(Status::NotTested, "not tested"), (Status::NotApplicable, "not applicable")]
    {
        if count(status) > 0 {
            text += &format!(", {} {name}", count(status));
        }
    }
    text
}

/// Returns whether a result matters more than information.
fn matters(level: Level) -> bool {
    matches!(level, Level::Must | Level::Should)
}
