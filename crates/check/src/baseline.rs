//! Baselines: failures that are known and accepted. An entry that does not fail any more is an error, too.

use std::collections::BTreeSet;
use std::path::Path;

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::verdict::Outcome;

/// The ids of rows that are known to fail: one per line, `#` starts a comment.
#[derive(Debug, Clone, Default)]
pub struct Baseline(BTreeSet<String>);

/// An outcome compared with a baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Rows that fail and are not in the baseline.
    pub new: Vec<String>,
    /// Rows in the baseline that do not fail.
    pub stale: Vec<String>,
}

impl Baseline {
    /// Reads a baseline.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn read(path: &Path) -> Result<Baseline, Error> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| Error::File { path: path.to_owned(), source })?;
        Ok(Baseline::parse(&text))
    }

    fn parse(text: &str) -> Baseline {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        Baseline(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Returns whether a row may fail.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.0.contains(id)
    }

    /// Compares an outcome.
    #[must_use]
    pub fn compare(&self, outcome: &Outcome, is_strict: bool) -> Comparison {
        let catalogue = Catalogue::load().ok();
        let catalogue = catalogue.as_ref();
        let bad: BTreeSet<String> = match is_strict {
            true => outcome.strict_violations().map(|result| result.row.id.clone()).collect(),
            false => outcome.violations().map(|result| result.row.id.clone()).collect(),
        };
        // Any row may be in a baseline: it is stale only if it does not fail at all.
        let failing = outcome.rows.iter().filter(|result| result.is_bad());
        let failing: BTreeSet<String> = failing.map(|result| result.row.id.clone()).collect();
        // A known row that was not checked in this run says nothing.
        let is_unchecked = |id: &&String| {
            outcome.result(id).is_none() && catalogue.is_some_and(|it| it.row(id).is_some())
        };
        let stale = self.0.difference(&failing).filter(|id| !is_unchecked(id));
        Comparison {
            new: bad.difference(&self.0).cloned().collect(),
            stale: stale.cloned().collect(),
        }
    }
}
