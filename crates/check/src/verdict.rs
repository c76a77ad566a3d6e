//! Verdicts: what the cases and rules say about each row, put together.

use client::transcript::TranscriptStep;
use client::{LogEntry, Replay, Transcript};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::{Catalogue, Level, Origin, Row};
use crate::record::Record;
use crate::rules::{self, Finding};

/// What is known about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It holds.
    Passed,
    /// The agent does not announce what it is about.
    NotApplicable,
    /// It could not be tried.
    NotTested,
    /// It does not hold.
    Failed,
}

/// A row with its verdict.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowResult {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// What is known.
    pub status: Status,
    /// Why it is not passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The case that decided it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// The shortest conversation that shows a failure: lines with `>` and `<`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transcript: Vec<String>,
}

/// The result of checking one agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The agent's own name, or its command.
    pub agent: String,
    /// The agent's version.
    pub version: String,
    /// The command.
    pub command: Vec<String>,
    /// The profile.
    pub profile: Option<String>,
    /// The revision of the protocol.
    pub revision: String,
    /// The edition of the catalogue of that revision.
    pub edition: u32,
    /// How long it took.
    pub seconds: f64,
    /// All rows.
    pub rows: Vec<RowResult>,
    /// Faults of the suite itself. They are not the agent's.
    pub suite_faults: Vec<String>,
}

impl Outcome {
    /// Returns the rows that make an agent not conformant with ACP: rows of the protocol that are a must and fail or were
    /// not tested.
    pub fn violations(&self) -> impl Iterator<Item = &RowResult> {
        self.rows.iter().filter(|result| result.is_violation())
    }

    /// Returns the rows that fail in strict mode: everything but optional rows and information.
    pub fn strict_violations(&self) -> impl Iterator<Item = &RowResult> {
        self.rows.iter().filter(|result| result.is_strict_violation())
    }

    /// Returns whether the agent is conformant.
    #[must_use]
    pub fn is_conformant(&self) -> bool {
        self.violations().next().is_none()
    }

    /// Returns the result of a row. Reports of other editions may not have it.
    #[must_use]
    pub fn result(&self, id: &str) -> Option<&RowResult> {
        self.rows.iter().find(|result| result.row.id == id)
    }

    /// Counts the rows of an origin with a status.
    #[must_use]
    pub fn count(&self, origin: Origin, status: Status) -> usize {
        let rows = self.rows.iter().filter(|result| result.row.origin == origin);
        rows.filter(|result| result.status == status).count()
    }
}

impl RowResult {
    /// Returns whether the row makes an agent not conformant.
    #[must_use]
    pub fn is_violation(&self) -> bool {
        self.row.origin == Origin::Protocol && self.row.level == Level::Must && self.is_bad()
    }

    /// Returns whether the row fails in strict mode.
    #[must_use]
    pub fn is_strict_violation(&self) -> bool {
        match self.row.level {
            Level::Must => self.is_bad(),
            Level::Should => self.status == Status::Failed,
            Level::May | Level::Information => false,
        }
    }

    /// Returns whether the row fails or was not tested.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        matches!(self.status, Status::Failed | Status::NotTested)
    }
}

/// What one case says.
#[derive(Debug)]
pub(crate) struct CaseResult {
    pub(crate) name: String,
    pub(crate) transcript: Transcript,
    pub(crate) played: Played,
}

/// How a case went.
#[derive(Debug)]
pub(crate) enum Played {
    /// It was played.
    Replay(Box<Replay>),
    /// It could not be played, for this reason.
    Skipped(String),
}

/// One case's evidence about one row.
struct Evidence {
    status: Status,
    reason: Option<String>,
    case: String,
    transcript: Vec<String>,
}

/// Puts together what all cases say.
pub(crate) fn judge(catalogue: &Catalogue, cases: &[CaseResult]) -> Vec<RowResult> {
    let mut evidence: Vec<(String, Evidence)> = Vec::new();
    for case in cases {
        evidence.extend(of_lines(case));
        evidence.extend(of_rules(case));
    }
    let rows = catalogue.rows.iter();
    rows.map(|row| {
        let about = evidence.iter().filter(|(id, _)| *id == row.id).map(|(_, found)| found);
        decide(row, about)
    })
    .collect()
}

/// A failure decides, the one with the shortest conversation. Otherwise one case that passes is enough.
fn decide<'a>(row: &Row, about: impl Iterator<Item = &'a Evidence>) -> RowResult {
    let mut best: Option<&Evidence> = None;
    for found in about {
        let rank = |evidence: &Evidence| match evidence.status {
            Status::Failed => 0,
            Status::Passed => 1,
            Status::NotTested => 2,
            Status::NotApplicable => 3,
        };
        let key = |evidence: &Evidence| (rank(evidence), evidence.transcript.len());
        if best.is_none_or(|best| key(found) < key(best)) {
            best = Some(found);
        }
    }
    let nothing = "no case had such a message";
    match best {
        Some(found) => RowResult {
            row: row.clone(),
            status: found.status,
            reason: found.reason.clone(),
            case: Some(found.case.clone()),
            transcript: found.transcript.clone(),
        },
        None => RowResult {
            row: row.clone(),
            status: Status::NotApplicable,
            reason: Some(nothing.to_owned()),
            case: None,
            transcript: Vec::new(),
        },
    }
}

/// What the `row` lines of a case show.
fn of_lines(case: &CaseResult) -> Vec<(String, Evidence)> {
    let lines = case.transcript.lines();
    let mut ids: Vec<&str> = Vec::new();
    for line in lines {
        if let TranscriptStep::Row(id) = &line.step
            && !ids.contains(&id.as_str())
        {
            ids.push(id);
        }
    }
    let evidence = |id: &str| match &case.played {
        Played::Skipped(reason) => Evidence {
            status: Status::NotTested,
            reason: Some(reason.clone()),
            case: case.name.clone(),
            transcript: Vec::new(),
        },
        Played::Replay(replay) => of_row(case, replay, id),
    };
    ids.into_iter().map(|id| (id.to_owned(), evidence(id))).collect()
}

fn of_row(case: &CaseResult, replay: &Replay, id: &str) -> Evidence {
    let found = |status, reason: Option<String>, transcript| Evidence {
        status,
        reason,
        case: case.name.clone(),
        transcript,
    };
    let mut failures = replay.failures.iter();
    if let Some(failure) = failures.find(|failure| failure.row.as_deref() == Some(id)) {
        let mut reason = failure.reason.clone();
        if let Some(expected) = &failure.expected {
            reason += &format!("; expected {}", short(expected));
        }
        if let Some(got) = &failure.got {
            reason += &format!("; got {}", short(got));
        }
        let length = if failure.log_length == 0 { replay.log.len() } else { failure.log_length };
        return found(Status::Failed, Some(reason), conversation(&replay.log[..length]));
    }
    let last = case.transcript.lines().iter().rposition(|line| line.row.as_deref() == Some(id));
    match &replay.stopped {
        Some(stopped) if last.is_some_and(|last| last >= stopped.index) => {
            let status = match stopped.is_inapplicable {
                true => Status::NotApplicable,
                false => Status::NotTested,
            };
            found(status, Some(stopped.reason.clone()), Vec::new())
        }
        _ => found(Status::Passed, None, Vec::new()),
    }
}

/// What the rules say about a case. They are about v1 alone.
fn of_rules(case: &CaseResult) -> Vec<(String, Evidence)> {
    let is_dialect = ["dialect-message-reference", "dialect-container"]
        .iter()
        .any(|tag| case.transcript.has_tag(tag));
    let Played::Replay(replay) = &case.played else { return Vec::new() };
    if is_dialect {
        return Vec::new();
    }
    let record = Record::new(&replay.log);
    let found = rules::apply(&record).into_iter().filter_map(|(id, finding)| {
        let (status, reason, transcript) = match finding {
            Finding::Nothing => return None,
            Finding::Holds => (Status::Passed, None, Vec::new()),
            Finding::Broken { at, reason } => {
                (Status::Failed, Some(reason), conversation(&replay.log[..=at]))
            }
        };
        Some((id.to_owned(), Evidence { status, reason, case: case.name.clone(), transcript }))
    });
    found.collect()
}

/// Prints a conversation, with long messages shortened.
fn conversation(log: &[LogEntry]) -> Vec<String> {
    const MOST: usize = 60;
    let print = |entry: &LogEntry| {
        let arrow = if entry.from_agent { '<' } else { '>' };
        let text = match &entry.message {
            Value::String(raw) => raw.clone(),
            message => message.to_string(),
        };
        format!("{arrow} {}", short(&text))
    };
    let left_out = log.len().saturating_sub(MOST);
    let mut lines: Vec<String> = Vec::new();
    if left_out > 0 {
        lines.extend(log.iter().take(10).map(print));
        lines.push(format!("… {left_out} messages"));
        lines.extend(log.iter().skip(10 + left_out).map(print));
    } else {
        lines.extend(log.iter().map(print));
    }
    lines
}

/// Shortens a text for a report.
pub(crate) fn short(text: &str) -> String {
    const MOST: usize = 400;
    let short: String = text.chars().take(MOST).collect();
    match short.len() < text.len() {
        true => format!("{short}… ({} bytes)", text.len()),
        false => short,
    }
}
