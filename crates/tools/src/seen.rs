//! Which parts of a file the model has read, by hash, so that it changes nothing that it has not seen.
//!
//! Ranges of lines are tracked separately: a change elsewhere in the file does not matter. `files` has one [`Seen`] for each file.

use sha2::{Digest, Sha256};

use crate::read::MAX_LINE;
use crate::text::{body_of, count_lines};

/// What the model has read of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The hash of the whole file, if the model read all of it or changed it.
    all: Option<([u8; 32], Extent)>,
    /// Ranges that were read since, with their hashes.
    parts: Vec<(Part, [u8; 32])>,
}

/// How much of a file the model knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Part,
    Whole,
}

/// A range of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first line, counting from 1.
    pub(crate) line: u32,
    /// The most lines.
    pub(crate) limit: u32,
}

impl Part {
    /// Returns these lines of a string.
    pub(crate) fn of(self, body: &str) -> &str {
        let skipped = usize::try_from(self.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let taken = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let mut ends = body.split_inclusive('\n').scan(0, |end, line| {
            *end += line.len();
            Some(*end)
        });
        let start = match skipped {
            0 => 0,
            skipped => ends.nth(skipped - 1).unwrap_or(body.len()),
        };
        let end = match taken {
            0 => start,
            taken => ends.nth(taken - 1).unwrap_or(body.len()),
        };
        &body[start..end]
    }

    /// Returns the line after the last.
    fn end(self) -> u32 {
        self.line.saturating_add(self.limit)
    }

    fn covers(self, other: Part) -> bool {
        self.line <= other.line && other.end() <= self.end()
    }
}

/// The most ranges that are remembered for a file.
const MAX_PARTS: usize = 64;

impl Seen {
    /// Records a file with this hash.
    pub(crate) fn by_hash(hash: [u8; 32], extent: Extent) -> Seen {
        Seen { all: Some((hash, extent)), parts: Vec::new() }
    }

    /// Adds lines that were read.
    pub(crate) fn add(&mut self, part: Part, shown: &str) {
        // A newer read replaces older ones of the same lines.
        self.parts.retain(|(old, _)| !part.covers(*old));
        if self.parts.len() >= MAX_PARTS {
            self.parts.remove(0);
        }
        self.parts.push((part, hash_of_part(shown)));
    }

    /// Returns how much of the content `now` the model knows; `None` if it has changed.
    pub(crate) fn extent(&self, now: &[u8], hash: impl FnOnce() -> [u8; 32]) -> Option<Extent> {
        let all = self.all.and_then(|(known, extent)| (known == hash()).then_some(extent));
        if all == Some(Extent::Whole) || self.parts.is_empty() {
            return all;
        }
        let (body, _) = body_of(now.to_vec());
        let is_as_shown = |(part, hash): &(Part, _)| hash_of_part(part.of(&body)) == *hash;
        match self.parts.iter().all(is_as_shown) {
            true if self.covers(&body) => Some(Extent::Whole),
            true => Some(Extent::Part),
            false => all,
        }
    }

    /// Tells whether the ranges cover a whole text. The end of a line that is too long was not shown.
    fn covers(&self, body: &str) -> bool {
        let mut parts: Vec<Part> = self.parts.iter().map(|(part, _)| *part).collect();
        parts.sort_by_key(|part| part.line);
        let seen = parts
            .iter()
            .fold(1, |next, part| if part.line <= next { next.max(part.end()) } else { next });
        let is_long = |line: &str| line.len() > MAX_LINE && line.chars().count() > MAX_LINE;
        usize::try_from(seen).is_ok_and(|seen| seen > count_lines(body))
            && !body.lines().any(is_long)
    }
}

/// Clients differ on whether a range ends with a line ending and begins with a byte order mark, so both are ignored.
fn hash_of_part(shown: &str) -> [u8; 32] {
    let shown = shown.strip_prefix('\u{feff}').unwrap_or(shown);
    let shown = shown.strip_suffix('\n').unwrap_or(shown);
    hash(shown.strip_suffix('\r').unwrap_or(shown).as_bytes())
}

/// Returns the hash of a string.
pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
