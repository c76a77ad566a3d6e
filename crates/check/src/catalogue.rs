//! The catalogue: the rows, and the cases that show them. Built into the program, one for each revision of the protocol.

mod cases;

use std::collections::BTreeSet;

use client::Transcript;
use client::transcript::TranscriptStep;
use serde::{Deserialize, Serialize};

use crate::error::Error;

const ROWS: &str = include_str!("../catalogue/v1/rows.txt");

/// The editions of the catalogue, the newest last: number, rows, fingerprint.
const EDITIONS: &str = include_str!("../catalogue/v1/editions.txt");

/// The revision of the protocol that the rows are about.
pub const REVISION: &str = "v1";

/// Returns the edition of the catalogue. Two reports of one edition are about the same rows and cases.
#[must_use]
pub fn edition() -> u32 {
    let newest = EDITIONS.lines().rfind(|line| !line.starts_with('#')).unwrap_or_default();
    newest.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// How binding a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// An agent that breaks it is not conformant.
    Must,
    /// There may be reasons to break it.
    Should,
    /// Optional.
    May,
    /// Recorded only.
    Information,
}

/// Where a row is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The protocol's text and schema. Conformance depends on these alone.
    Protocol,
    /// The documents that Purlin follows besides the protocol.
    Documents,
}

/// One row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The id, such as `wire.utf8`.
    pub id: String,
    /// The chapter.
    pub chapter: String,
    /// How binding it is.
    pub level: Level,
    /// Where it is from.
    pub origin: Origin,
    /// The dialect of the protocol: `v1`, `reference` or `container`.
    pub dialect: String,
    /// What must hold.
    pub sentence: String,
}

/// One case: a transcript with the rows that it shows.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of its file.
    pub name: &'static str,
    text: &'static str,
}

/// All rows and cases.
#[derive(Debug, Clone)]
pub struct Catalogue {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// The cases, in order.
    pub cases: Vec<Case>,
}

impl Catalogue {
    /// Reads the catalogue that is built in.
    ///
    /// # Errors
    /// Names an invalid line.
    pub fn load() -> Result<Catalogue, Error> {
        let mut rows = Vec::new();
        let mut chapter = String::new();
        for line in ROWS.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("== ") {
                name.trim_end_matches(" ==").clone_into(&mut chapter);
            } else if !line.is_empty() && !line.starts_with('#') {
                rows.push(read_row(line, &chapter)?);
            }
        }
        let starts = ["handshake", "bare", "session"];
        let cases = cases::ALL.iter().filter(|(name, _)| !starts.contains(name));
        let cases = cases.map(|(name, text)| Case { name, text }).collect();
        Ok(Catalogue { rows, cases })
    }

    /// Returns a row by its id.
    #[must_use]
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

impl Case {
    /// Reads the transcript. `authenticate` is the method of agents that must be logged in to.
    ///
    /// # Errors
    /// Names an invalid line.
    pub fn transcript(&self, authenticate: Option<&str>) -> Result<Transcript, Error> {
        let text = with_login(self.text, authenticate);
        let load = |name: &str| {
            let used = cases::ALL.iter().find(|(used, _)| *used == name);
            used.map(|(_, text)| with_login(text, authenticate))
        };
        Transcript::parse(&text, &load)
            .map_err(|err| Error::Catalogue(format!("{}: {err}", self.name)))
    }

    /// Returns the ids of the rows that it shows.
    #[must_use]
    pub fn rows(&self) -> BTreeSet<&'static str> {
        self.text.lines().filter_map(|line| line.strip_prefix("row ")).map(str::trim).collect()
    }
}

/// Returns whether a transcript needs a model.
#[must_use]
pub fn needs_model(transcript: &Transcript) -> bool {
    transcript.lines().iter().any(|line| matches!(line.step, TranscriptStep::Model(_)))
}

/// Replaces the line `authenticate` by a call, or by nothing.
fn with_login(text: &str, method: Option<&str>) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match (line.trim(), method) {
            ("authenticate", None) => {}
            ("authenticate", Some(method)) => {
                let method = serde_json::Value::from(method);
                out += &format!(
                    "> {{\"id\":\"login\",\"method\":\"authenticate\",\"params\":{{\"methodId\":{method}}}}}\n< {{\"id\":\"login\"}}\n"
                );
            }
            _ => out += &format!("{line}\n"),
        }
    }
    out
}

fn read_row(line: &str, chapter: &str) -> Result<Row, Error> {
    let bad = || Error::Catalogue(format!("`{line}`"));
    let words: Vec<&str> = line.split('|').map(str::trim).collect();
    let [id, level, origin, dialect, sentence] = words.as_slice() else { return Err(bad()) };
    Ok(Row {
        id: (*id).to_owned(),
        chapter: chapter.to_owned(),
        level: match *level {
            "must" => Level::Must,
            "should" => Level::Should,
            "may" => Level::May,
            "information" => Level::Information,
            _ => return Err(bad()),
        },
        origin: match *origin {
            "protocol" => Origin::Protocol,
            "documents" => Origin::Documents,
            _ => return Err(bad()),
        },
        dialect: (*dialect).to_owned(),
        sentence: (*sentence).to_owned(),
    })
}

impl Level {
    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Must => "must",
            Level::Should => "should",
            Level::May => "may",
            Level::Information => "information",
        }
    }
}

impl Origin {
    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Origin::Protocol => "protocol",
            Origin::Documents => "documents",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: Q1
    #[test]
    fn every_row_has_evidence_and_every_case_shows_known_rows() {
        let catalogue = Catalogue::load().unwrap();
        assert!(catalogue.rows.len() > 150);
        let mut shown: BTreeSet<&str> = BTreeSet::new();
        for case in &catalogue.cases {
            case.transcript(Some("login")).unwrap();
            assert!(!case.rows().is_empty(), "{} shows no row", case.name);
            shown.extend(case.rows());
        }
        let rules: BTreeSet<&str> = crate::rules::ids().collect();
        for id in shown.iter().chain(&rules) {
            assert!(catalogue.row(id).is_some(), "{id} is not in the catalogue");
        }
        for row in &catalogue.rows {
            let has_evidence = shown.contains(&*row.id) || rules.contains(&*row.id);
            assert!(has_evidence, "nothing shows {}", row.id);
        }
        let ids: BTreeSet<&str> = catalogue.rows.iter().map(|row| &*row.id).collect();
        assert_eq!(ids.len(), catalogue.rows.len(), "two rows have one id");
    }

    /// FNV-1a: a change of one letter changes it.
    fn fingerprint() -> String {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let texts = cases::ALL.iter().flat_map(|(name, text)| [*name, *text]);
        for byte in std::iter::once(ROWS).chain(texts).flat_map(str::bytes) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        format!("{hash:016x}")
    }

    // R: Q1
    #[test]
    fn an_edition_of_the_catalogue_is_frozen() {
        let newest = EDITIONS.lines().last().unwrap();
        let expected =
            format!("{} {} {}", edition(), Catalogue::load().unwrap().rows.len(), fingerprint());
        assert_eq!(
            newest, expected,
            "rows or cases have changed: add a line to catalogue/v1/editions.txt with the next number; \
             a line that is in no release yet may be changed instead"
        );
    }

    #[test]
    fn every_file_is_built_in() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogue/v1/cases");
        let files = std::fs::read_dir(directory).unwrap();
        let files: BTreeSet<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        let built_in: BTreeSet<String> =
            cases::ALL.iter().map(|(name, _)| format!("{name}.acp")).collect();
        assert_eq!(files, built_in);
    }
}
