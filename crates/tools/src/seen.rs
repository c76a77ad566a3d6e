//! What the model was shown of a file, by hash, so that it changes nothing that it does not know.
//!
//! Lines are known by themselves: what changes elsewhere in the file does not matter to who saw a part. `files` keeps one
//! [`Seen`] for each file.

use sha2::{Digest, Sha256};

use crate::read::MAX_LINE;
use crate::text::{body_of, count_lines};

/// What the model was shown of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The hash of all of it, where all was at hand: it was shown whole, or changed by the model.
    all: Option<([u8; 32], Extent)>,
    /// Lines that were shown since, and their hash.
    parts: Vec<(Part, [u8; 32])>,
}

/// How much of a file the model knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Part,
    Whole,
}

/// Some lines of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first of them, counting from 1.
    pub(crate) line: u32,
    /// How many there are at most.
    pub(crate) limit: u32,
}

impl Part {
    /// Cuts the lines out of a text.
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

    /// Returns the line behind the last.
    fn end(self) -> u32 {
        self.line.saturating_add(self.limit)
    }

    fn covers(self, other: Part) -> bool {
        self.line <= other.line && other.end() <= self.end()
    }
}

/// How many parts of one file are remembered.
const MAX_PARTS: usize = 64;

impl Seen {
    /// Makes what is known of a file whose bytes have this hash.
    pub(crate) fn by_hash(hash: [u8; 32], extent: Extent) -> Seen {
        Seen { all: Some((hash, extent)), parts: Vec::new() }
    }

    /// Adds lines that were shown.
    pub(crate) fn add(&mut self, part: Part, shown: &str) {
        // What is shown again is as it is now.
        self.parts.retain(|(old, _)| !part.covers(*old));
        if self.parts.len() >= MAX_PARTS {
            self.parts.remove(0);
        }
        self.parts.push((part, hash_of_part(shown)));
    }

    /// Returns how much is known of a file that holds `now`; `None` if it is not as it was shown.
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

    /// Tells whether the parts make up all of a text. Of a line that is too long to be shown, nobody saw the end.
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

/// Clients do not agree on whether a part ends with its last line's ending, nor on whether it begins with a byte order mark.
fn hash_of_part(shown: &str) -> [u8; 32] {
    let shown = shown.strip_prefix('\u{feff}').unwrap_or(shown);
    let shown = shown.strip_suffix('\n').unwrap_or(shown);
    hash(shown.strip_suffix('\r').unwrap_or(shown).as_bytes())
}

/// Returns what a text is known by.
pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
